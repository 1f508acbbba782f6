"""The toy domain, made known to this process and (through sys.path) to the processes of a pool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forerun.core import domain

TOY = Path(__file__).parent / "toy"


def _forget() -> None:
    for known in (domain.domain_names, domain._announced):
        known.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def toy_domain() -> Iterator[None]:
    """Put the toy domain's distribution on the path."""
    sys.path.insert(0, str(TOY))
    _forget()
    yield
    sys.path.remove(str(TOY))
    _forget()
