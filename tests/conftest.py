"""Shared by all tests: where reference outputs lie, and the hypothesis profile."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from forerun.core.cli import _show

ROOT = Path(__file__).parents[1]


def cases(usual: int, most: int = 1_000_000) -> int:
    """How many cases a law draws: `usual`, or as many as FORERUN_CASES asks for, at most `most`.

    With `usual`, each law still names the faults that `benchmarks/mutants.toml` lists for it.
    """
    return max(usual, min(int(os.environ.get("FORERUN_CASES", "0")), most))


# Compiling a kernel within an example would trip a deadline. Examples are derived from the test, not from chance:
# the same tree gives the same verdict.
settings.register_profile(
    "forerun",
    max_examples=cases(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("forerun")

# Parallel test processes get the width of the terminal in this variable, which commands then fold their output to.
os.environ.pop("COLUMNS", None)

# A shell has what it starts in the background ignore interrupts, and processes hand that on: not to tests of Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: Reference outputs (`golden/`) and public traces (`data/`), which are no part of the project.
SHARED = Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared"))
#: Every skip for want of them says this, so that the end of a run can count them.
ABSENT = "shared reference outputs or public traces are absent"


@pytest.fixture(autouse=True)
def _kernels_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in tests do not say that they compile: whether they do depends on the tests before."""
    monkeypatch.setattr(_show, "say_compiling", lambda: None)


def shared_path(*parts: str) -> Path:
    """A path among the shared reference outputs and data; the test is skipped where they are absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{ABSENT} (no {'/'.join(parts)}; set FORERUN_SHARED)")
    return path


def pytest_collection(session: pytest.Session) -> None:
    """Of several processes, each first imports its share of the test files.

    A test file's first import rewrites its assertions and keeps the result beside it, which takes longer than all the rest
    of collecting. All processes would do so for every file, at the same time.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    asked = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    files = [path for path in sorted(ROOT.glob("tests/**/test_*.py")) if {path, *path.parents} & set(asked)]
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting says what is wrong with it
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line that says what a run without the shared files did not check."""
    skipped = [
        report for report in terminalreporter.stats.get("skipped", []) if ABSENT in str(report.longrepr)
    ]
    if skipped:
        folders = sorted({report.nodeid.split("/")[1] for report in skipped})
        terminalreporter.write_line(
            f"{len(skipped)} tests that compare with published systems' outputs and public traces did not run"
            f" ({', '.join(folders)}): {SHARED} holds none"
        )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the machine has one, for what is written and removed many times.

    What is written there need not survive the machine, and a disk that others use would make these tests slow.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="forerun-test-") as made:
        yield Path(made)


@pytest.fixture
def shared() -> object:
    """The function `shared_path`, for tests that prefer a fixture."""
    return shared_path
