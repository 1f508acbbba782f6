"""Traces: sorted, immutable, with a digest of their content."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forerun.core.errors import TraceError
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.requests import arrivals_ms
from forerun.core.trace.table import Column, Provenance, Trace, sort_rows

SCHEMA = (Column("arrival_s", "s", "instant of arrival"), Column("who", "", "client"))
MADE = Provenance(format="test")


def trace(times=(0.0, 1.0, 1.0, 4.0), who=("a", "b", "c", None), **changes):
    arguments = {"kind": "requests", "schema": SCHEMA, "time": "arrival_s", "provenance": MADE} | changes
    return Trace(columns={"arrival_s": times, "who": list(who)}, **arguments)


def test_columns_are_read_only_copies():
    times = np.array([0.0, 1.0, 2.0, 3.0])
    made = trace(times)
    times[0] = 99
    assert made["arrival_s"][0] == 0
    with pytest.raises(ValueError, match="read-only"):
        made["arrival_s"][0] = 1
    with pytest.raises(TypeError):
        made.columns["x"] = times


def test_missing_texts_are_empty():
    assert trace()["who"].tolist() == ["a", "b", "c", ""]


@pytest.mark.parametrize(
    ("times", "who", "what"),
    [
        ((0.0, 2.0, 1.0), "abc", r"arrival_s of row 2 is 1.0, before the previous row's 2.0"),
        ((0.0, math.nan, 1.0), "abc", "arrival_s of row 1 is not finite"),
        ((0.0, 1.0), "abc", "columns differ in length"),
        ((0.0, 1.0), (1, "b"), "mixes texts with other values"),
        (((0.0, 1.0), (1.0, 2.0)), "ab", "not one-dimensional"),
        ((1j, 2j), "ab", "contains values of kind 'c'"),
    ],
)
def test_a_table_that_is_no_trace_is_refused(times, who, what):
    with pytest.raises(TraceError, match=what):
        trace(times, who)


def test_columns_and_schema_must_agree():
    with pytest.raises(TraceError, match="column who is missing"):
        Trace("requests", SCHEMA, {"arrival_s": [0.0]}, time="arrival_s", provenance=MADE)
    with pytest.raises(TraceError, match="columns without a schema: extra"):
        Trace("r", SCHEMA[:1], {"arrival_s": [0.0], "extra": [1]}, time="arrival_s", provenance=MADE)
    with pytest.raises(TraceError, match="which is no column"):
        trace(time="when")


def test_sorting_keeps_the_order_of_ties():
    columns = {"arrival_s": np.array([2.0, 1.0, 2.0, 1.0]), "who": np.array(list("abcd"))}
    assert sort_rows(columns, "arrival_s", None, RepairLog())["who"].tolist() == ["b", "d", "a", "c"]


def test_rows_out_of_order_are_counted_where_they_stand():
    repairs = RepairLog()
    columns = {"t_s": np.array([1.0, 5.0, 2.0, 3.0, 5.0, 4.0, 4.5])}
    assert sort_rows(columns, "t_s", lambda i: f"f:{i}", repairs)["t_s"].tolist() == [1, 2, 3, 4, 4.5, 5, 5]
    (repair,) = repairs.repairs
    assert (repair.count, repair.first) == (4, ("f:2", "f:3", "f:5"))


def test_the_digest_is_of_kind_schema_and_values_only():
    same = trace(provenance=Provenance(format="elsewhere", source="x.csv"))
    assert same == trace()
    assert hash(same) == hash(trace())
    others = [
        trace(times=(0.0, 1.0, 1.0, 5.0)),
        trace(who=("a", "b", "c", "d")),
        trace(kind="jobs"),
        trace(schema=(Column("arrival_s", "min"), SCHEMA[1])),
    ]
    assert len({made.digest for made in [*others, trace()]}) == 5


def test_parts_of_a_trace():
    made = trace()
    assert made.where(made["arrival_s"] > 0.5)["who"].tolist() == ["b", "c", ""]
    assert "Trace of 4 requests" in repr(made)
    assert made.to_polars()["who"].to_list() == ["a", "b", "c", ""]


@pytest.mark.parametrize(("name", "scale"), [("arrival_s", 1000.0), ("arrival_ms", 1.0), ("t_h", 3.6e6)])
def test_arrivals_are_converted_to_milliseconds_once(name, scale):
    made = Trace("requests", [Column(name)], {name: [0.0, 1.5]}, time=name, provenance=MADE)
    assert arrivals_ms(made).tolist() == [0.0, 1.5 * scale]


def test_arrivals_without_a_unit_are_refused():
    made = Trace("requests", [Column("tick")], {"tick": [0]}, time="tick", provenance=MADE)
    with pytest.raises(TraceError, match="the unit of tick is not known"):
        arrivals_ms(made)


def test_a_repair_log_keeps_rule_count_and_first_three():
    log = RepairLog()
    for line in range(1, 6):
        log.note("blank line dropped", f"f.csv:{line}")
    log.note("byte-order mark dropped", "f.csv:1")
    log.note_many("nothing", [], 0)
    assert log.lines() == [
        "blank line dropped: 5 (f.csv:1, f.csv:2, f.csv:3 and 2 more)",
        "byte-order mark dropped: 1 (f.csv:1)",
    ]
    assert len(log) == 6
    assert log.rows()[0] == {
        "rule": "blank line dropped",
        "count": 5,
        "first": ["f.csv:1", "f.csv:2", "f.csv:3"],
    }
    log.finish()


def test_strict_turns_repairs_into_errors():
    log = RepairLog(strict=True)
    log.finish()
    log.note("blank line dropped", "f.csv:7")
    with pytest.raises(
        TraceError, match=r"f.csv:7: needs a repair, refused by strict: blank line dropped: 1"
    ):
        log.finish()


def test_complaints_stop_after_enough():
    complaints = Complaints(limit=3)
    complaints.add("f:1", "one")
    complaints.add("f:2", "two")
    with pytest.raises(TraceError) as raised:
        complaints.add("f:3", "three")
    assert str(raised.value).splitlines() == [
        "f:1: one",
        "f:2: two",
        "f:3: three",
        "f:3: stopped reading after 3 problems",
    ]


def test_values_are_shown_quoted_and_short():
    assert shown("a\nb") == r"'a\nb'"
    assert shown("x" * 100) == f"{'x' * 60!r}... (100 characters)"
