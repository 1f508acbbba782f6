"""Every malformed input is read, and the list of outcomes is compared with what forerun answers."""

from __future__ import annotations

from pathlib import Path

from .examples import MALFORMED_INPUTS, rows, table

PAGE = Path(__file__).with_name("outcomes.md")


def test_the_list_has_the_outcome_of_every_input() -> None:
    """To renew it: python -m tests.core.malformed.examples, and put the table into outcomes.md."""
    expected = table()
    page = PAGE.read_text()
    for line in expected.splitlines():
        assert line in page, line
    assert page.count("\n| ") + page.count("\n|---") == len(expected.splitlines())


def test_no_input_is_omitted() -> None:
    """At least 25 defects, each with its own file; all are refused, or repaired and counted."""
    assert len(MALFORMED_INPUTS) >= 25 and len({malformed.defect for malformed in MALFORMED_INPUTS}) == len(
        MALFORMED_INPUTS
    )
    for defect, known_from, verdict, said in rows():
        assert verdict in ("refused", "repaired") and said and known_from, defect


def test_what_is_said_names_the_file() -> None:
    for malformed in MALFORMED_INPUTS:
        assert malformed.file in malformed.outcome()[1], malformed.defect


def test_strict_refuses_what_is_otherwise_repaired() -> None:
    from forerun.core.errors import TraceError
    from forerun.core.trace.reader import read_trace

    refused = 0
    for malformed in MALFORMED_INPUTS:
        if isinstance(malformed.read, str) and malformed.outcome()[0] == "repaired":
            refused += _strict(malformed, read_trace, TraceError)
    assert refused >= 15


def _strict(malformed, read_trace, error) -> bool:  # type: ignore[no-untyped-def]
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / malformed.file
        path.write_bytes(malformed.data)
        try:
            read_trace(path, malformed.read, options=malformed.options, strict=True)
        except error as refusal:
            assert "refused by strict" in str(refusal)
            return True
    return False
