"""The museum's page says what forerun says: every exhibit is read, and the table in the document is compared."""

from __future__ import annotations

from ..conftest import ROOT
from .exhibits import EXHIBITS, rows, table

PAGE = ROOT / "docs" / "development" / "malformed-inputs.md"


def test_the_page_tells_what_is_said_to_every_exhibit() -> None:
    """To renew it: python -m tests.museum.exhibits, and put the table into docs/development/malformed-inputs.md."""
    told = table()
    page = PAGE.read_text()
    for line in told.splitlines():
        assert line in page, line
    assert page.count("\n| ") + page.count("\n|---") == len(told.splitlines())


def test_no_exhibit_is_passed_over() -> None:
    """At least 25 defects, each with its own file; all are refused, or repaired and counted."""
    assert len(EXHIBITS) >= 25 and len({exhibit.defect for exhibit in EXHIBITS}) == len(EXHIBITS)
    for defect, known_from, verdict, said in rows():
        assert verdict in ("refused", "repaired") and said and known_from, defect


def test_what_is_said_names_the_file() -> None:
    for exhibit in EXHIBITS:
        assert exhibit.file in exhibit.told()[1], exhibit.defect


def test_strict_refuses_what_is_otherwise_repaired() -> None:
    from forerun.errors import TraceError
    from forerun.trace.reader import read_trace

    refused = 0
    for exhibit in EXHIBITS:
        if isinstance(exhibit.read, str) and exhibit.told()[0] == "repaired":
            refused += _strict(exhibit, read_trace, TraceError)
    assert refused >= 15


def _strict(exhibit, read_trace, error) -> bool:  # type: ignore[no-untyped-def]
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / exhibit.file
        path.write_bytes(exhibit.data)
        try:
            read_trace(path, exhibit.read, options=exhibit.options, strict=True)
        except error as refusal:
            assert "refused by strict" in str(refusal)
            return True
    return False
