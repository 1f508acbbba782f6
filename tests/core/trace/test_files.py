"""forerun's own trace files give back what was saved, whatever it was; writing is whole or not at all."""

from __future__ import annotations

import json
import math

import numpy as np
import polars
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trace_samples import CSV_SAMPLES

from forerun.core.errors import TraceError, UsageError
from forerun.core.trace.convert import check_trace, import_trace
from forerun.core.trace.files import SUM, load_trace, save_trace
from forerun.core.trace.generate import generate
from forerun.core.trace.processes.poisson import Poisson
from forerun.core.trace.reader import read_trace, sniff
from forerun.core.trace.table import Column, Provenance, Trace

from ...conftest import cases

SCHEMA = (
    Column("arrival_s", "s", "instant of arrival"),
    Column("tokens", "tokens", "how many"),
    Column("failed", "", "no answer"),
    Column("who", "", "client"),
    Column("elapsed_s", "s", "time taken"),
)
MADE = Provenance(
    format="burstgpt",
    source="a.csv",
    sha256="ab" * 32,
    options={"failed": "keep", "list": [1, 2]},
    repairs=({"rule": "blank line dropped", "count": 1, "first": ["a.csv:3"]},),
)


def trace_of(rows):
    columns = list(zip(*sorted(rows, key=lambda row: row[0]), strict=True))
    columns[0] = np.array(columns[0])
    columns[4] = np.array(columns[4], dtype=float)
    named = {column.name: values for column, values in zip(SCHEMA, columns, strict=True)}
    return Trace("requests", SCHEMA, named, time="arrival_s", provenance=MADE)


ROWS = [(0.1, 7, True, "a", 0.3), (1 / 3, 2**53, False, None, math.nan), (1e-300, 0, False, "=1+1", 1e300)]


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_saved_trace_comes_back(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    trace = trace_of(ROWS)
    save_trace(trace, path)
    back = load_trace(path)
    assert back == trace
    assert back.schema == trace.schema
    assert back.provenance.data() == trace.provenance.data()
    assert sniff(path) == ("forerun",)
    assert read_trace(path) == trace


texts = st.none() | st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
rows = st.lists(
    st.tuples(
        st.floats(0, 1e300),
        st.integers(-(2**53), 2**53),
        st.booleans(),
        texts,
        st.floats(allow_infinity=False),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=cases(12, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
@example([(0.0, 0, False, None, -math.nan)])
def test_any_trace_comes_back_from_either_kind(tmp_path, rows):
    trace = trace_of(rows)
    for ending in (".parquet", ".csv"):
        save_trace(trace, tmp_path / f"t{ending}")
        assert load_trace(tmp_path / f"t{ending}") == trace


def test_a_spreadsheet_runs_nothing(tmp_path):
    path = tmp_path / "t.csv"
    save_trace(trace_of([(1.0, 1, False, text, 1.0) for text in ("=1+1", "+a", "-a", "@a", "'x")]), path)
    cells = [line.split(",")[3] for line in path.read_text().splitlines()[2:]]
    assert cells == ["'=1+1", "'+a", "'-a", "'@a", "''x"]


def test_units_are_in_the_file(tmp_path):
    path = tmp_path / "t.parquet"
    save_trace(trace_of(ROWS), path)
    described = json.loads(polars.read_parquet_metadata(path)["forerun"])
    assert described["columns"][0] == ["arrival_s", "s", "instant of arrival", "float"]
    assert polars.read_parquet(path).columns == [column.name for column in SCHEMA]


@pytest.mark.parametrize(
    ("frame", "metadata", "what"),
    [
        ({"arrival_s": [1.0]}, None, "Parquet, but not a trace file of forerun"),
        ({"x": [1.0]}, "good", "column arrival_s is missing"),
        ({"arrival_s": ["a"]}, "good", "contains String, described as float"),
        ({"arrival_s": [1.0, None]}, "good", "has holes"),
        ({"arrival_s": [2.0, 1.0]}, "good", "before the previous row"),
        ({"arrival_s": [math.nan]}, "good", "not finite"),
        ({"arrival_s": [1.0]}, "{", "description of the trace is damaged"),
        ({"arrival_s": [1.0]}, '{"trace": "x"}', r"is damaged: at \$\.trace: expected int, got str"),
    ],
)
def test_parquet_that_is_no_trace_is_refused(tmp_path, frame, metadata, what):
    path = tmp_path / "t.parquet"
    good = {
        "trace": 1,
        "kind": "requests",
        "time": "arrival_s",
        "columns": [["arrival_s", "s", "", "float"]],
        "provenance": MADE.data(),
    }
    text = json.dumps(good) if metadata == "good" else metadata
    polars.DataFrame(frame).write_parquet(path, metadata={"forerun": text} if text else None)
    with pytest.raises(TraceError, match=what):
        load_trace(path)


def test_damaged_parquet_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    save_trace(trace_of(ROWS), path)
    whole = path.read_bytes()
    for cut in range(0, len(whole) - 1, max(1, len(whole) // 40)):
        path.write_bytes(whole[:cut])
        with pytest.raises(TraceError) as raised:
            read_trace(path, "forerun")
        assert "\n" not in str(raised.value)


def test_a_damaged_byte_of_parquet_is_refused_before_it_is_decoded(tmp_path):
    """The decoder of polars may end the process, or print a page of its own, for what it cannot decode."""
    path = tmp_path / "t.parquet"
    trace = trace_of(ROWS)
    save_trace(trace, path)
    assert polars.read_parquet(path).height == polars.scan_parquet(path).collect().height == len(ROWS)
    whole = path.read_bytes()
    mark = whole.index(SUM)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        if mark <= at < mark + len(SUM):  # the trace is whole
            assert load_trace(path) == trace
        else:
            with pytest.raises(
                TraceError, match="is damaged: it is not the file that was saved" if at > 3 else None
            ):
                load_trace(path)


def test_nothing_half_written_is_left(tmp_path):
    with pytest.raises(UsageError, match=r"a trace file ends in .parquet or .csv, not '.txt'"):
        save_trace(trace_of(ROWS), tmp_path / "t.txt")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TraceError, match=r"cannot be written: (File exists|Not a directory)"):
        save_trace(trace_of(ROWS), tmp_path / "file" / "t.csv")
    with pytest.raises(TraceError, match="does not fit a line of CSV; write Parquet instead"):
        save_trace(trace_of([(1.0, 1, False, "two\nlines", 1.0)]), tmp_path / "t.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        save_trace(trace_of(ROWS), tmp_path / "d.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "file"]


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_only_a_trace_of_ours_is_replaced(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    for content in (b"id,cost\n1,2\n", b"PAR1", b"PAR1 and no more"):
        path.write_bytes(content)
        with pytest.raises(TraceError, match="not a trace that forerun wrote"):
            save_trace(trace_of(ROWS), path)
        assert path.read_bytes() == content
    polars.DataFrame({"x": [1]}).write_parquet(path)
    with pytest.raises(TraceError, match="not a trace that forerun wrote"):
        save_trace(trace_of(ROWS), path)
    path.write_bytes(b"")
    for trace in (trace_of(ROWS), trace_of(ROWS[:1])):
        save_trace(trace, path)
        assert load_trace(path) == trace


def test_import_saves_trace_and_log(tmp_path):
    source = tmp_path / "in.csv"
    source.write_bytes(b"\xef\xbb\xbfarrival_s,note\n3,x\n1,y\n")
    made = import_trace(source, tmp_path / "out.parquet")
    assert made.guessed
    assert made.trace["arrival_s"].tolist() == [1, 3]
    assert load_trace(tmp_path / "out.parquet") == made.trace
    log = json.loads((tmp_path / "out.parquet.repairs.json").read_text())
    assert [row["rule"] for row in log["repairs"]] == [
        "byte-order mark dropped",
        "column not used: 'note'",
        "row out of order, sorted",
    ]
    assert made.data()["provenance"]["repairs"] == log["repairs"]


def test_a_strict_import_writes_nothing(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("arrival_s\n3\n1\n")
    with pytest.raises(TraceError, match="refused by strict"):
        import_trace(source, tmp_path / "out.parquet", strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("sample", CSV_SAMPLES, ids=lambda sample: sample.format)
def test_every_format_survives_the_import(sample, tmp_path):
    source = tmp_path / sample.name
    source.write_bytes(sample.data())
    for ending in (".csv", ".parquet"):
        made = import_trace(source, tmp_path / f"out{ending}", sample.format, options=sample.options)
        assert not made.guessed
        assert read_trace(tmp_path / f"out{ending}") == made.trace


def test_a_check_says_what_is_wrong_instead_of_raising(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s\n1\nx\n-1\n")
    found = check_trace(path)
    assert (found.format, found.guessed, found.ok, found.rows) == ("csv", True, False, 0)
    assert [str(problem) for problem in found.problems] == [
        f"{path}:3:arrival_s: 'x' is not a number",
        f"{path}:4:arrival_s: -1 is negative",
    ]
    path.write_text("arrival_s\n2\n1\n")
    assert check_trace(path).ok
    assert not check_trace(path, strict=True).ok
    assert json.dumps(check_trace(path).data())


def test_generated_traces_are_the_same_file_each_time(tmp_path):
    for name in ("a.parquet", "b.parquet", "a.csv", "b.csv"):
        save_trace(generate(Poisson(rate_rps=5), seed=1, n=100), tmp_path / name)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
