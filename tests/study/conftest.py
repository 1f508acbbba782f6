"""The toy room, made known to this process and (through sys.path) to the processes of a pool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forerun import domains

TOY = Path(__file__).parent / "toy"


@pytest.fixture(autouse=True)
def toy_room() -> Iterator[None]:
    """Put the toy room's distribution on the path."""
    sys.path.insert(0, str(TOY))
    domains.rooms.cache_clear()
    domains._announced.cache_clear()
    yield
    sys.path.remove(str(TOY))
    domains.rooms.cache_clear()
    domains._announced.cache_clear()
