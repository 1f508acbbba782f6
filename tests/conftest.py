"""Shared by all tests: where reference outputs lie, and the hypothesis profile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]

# Compiling a kernel within an example would trip a deadline. Examples are derived from the test, not from chance:
# the same tree gives the same verdict.
settings.register_profile(
    "forerun",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("forerun")

# A shell has what it starts in the background ignore interrupts, and processes hand that on: not to tests of Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def shared_path(*parts: str) -> Path:
    """A path among the shared reference outputs and data; the test is skipped where they are absent."""
    base = Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared"))
    path = base.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"shared reference outputs are absent here (no {'/'.join(parts)}; set FORERUN_SHARED)")
    return path


@pytest.fixture
def shared() -> object:
    """The function `shared_path`, for tests that prefer a fixture."""
    return shared_path
