"""docs/benchmarks.md and docs/coverage.md say what the records in benchmarks/results say."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from .claims import ROOT

# benchmarks is a folder of scripts, not a package: this loads the file however pytest was started.
_spec = importlib.util.spec_from_file_location("benchmarks_page", ROOT / "benchmarks" / "page.py")
assert _spec and _spec.loader
benchmarks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(benchmarks)


def test_the_pages_are_made_from_the_records() -> None:
    """To renew it: python -m benchmarks.page."""
    assert benchmarks.PAGE.read_text(encoding="utf-8") == benchmarks.page()
    assert benchmarks.COVERAGE_PAGE.read_text(encoding="utf-8") == benchmarks.coverage_page()


SCRIPTS = sorted(path for part in ("benchmarks", "validation") for path in (ROOT / part).rglob("*.py"))


def test_every_script_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run only now and then; the examples run whole in other tests."""
    assert len(SCRIPTS) > 30
    monkeypatch.syspath_prepend(str(ROOT))
    failed = {}
    for number, path in enumerate(SCRIPTS):
        spec = importlib.util.spec_from_file_location(f"script_{number}", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        with monkeypatch.context() as beside:
            beside.syspath_prepend(str(path.parent))
            try:
                spec.loader.exec_module(module)
            except ModuleNotFoundError as error:  # a library that only a benchmark needs
                assert error.name and error.name.partition(".")[0] not in {
                    "forerun",
                    "benchmarks",
                    "validation",
                }, path
            except Exception as error:
                failed[path.name] = repr(error)
    assert failed == {}


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (4794.7, 2, "4,800"),
        (0.00403, 2, "0.0040"),
        (11.44, 3, "11.4"),
        (0, 2, "0"),
        (99.9, 2, "100"),
        (-3.36, 2, "-3.4"),
    ],
)
def test_rounded_keeps_significant_digits(value: float, digits: int, text: str) -> None:
    assert benchmarks.rounded(value, digits) == text
