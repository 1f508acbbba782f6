"""Typed columns: what counts as a number, and messages that name file, line and field."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.errors import TraceError
from forerun.core.trace import rows as rows_module
from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.objects import json_field, json_number, parse_json, read_objects
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import Field, gathered, parse_column, parse_instant, read_rows
from forerun.core.trace.source import Source

FIELDS = (
    Field(name="arrival_s", minimum=0),
    Field(name="tokens", kind="int", minimum=0),
    Field(name="kind", kind="text", choices=("a", "b")),
)


def rows_of(tmp_path, text, fields=FIELDS, **options):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8", newline="")
    repairs = RepairLog()
    source = Source(path, repairs=repairs)
    return gathered(read_rows(source, fields, **options)), repairs


def test_columns_are_found_by_name_in_any_order(tmp_path):
    rows, repairs = rows_of(tmp_path, ' kind ,tokens,"arrival_s"\na,1,0.5\nb, 2 ,"1.5"\n')
    assert rows.columns["arrival_s"].tolist() == [0.5, 1.5]
    assert rows.columns["tokens"].tolist() == [1, 2]
    assert rows.columns["kind"].tolist() == ["a", "b"]
    assert rows.lines.tolist() == [2, 3]
    assert not len(repairs)


def test_unused_columns_and_blank_lines_are_noted(tmp_path):
    rows, repairs = rows_of(tmp_path, "arrival_s,tokens,kind,extra\n0,1,a,x\n\n1,2,b,y\n")
    assert len(rows) == 2
    assert {repair.rule for repair in repairs.repairs} == {"column not used: 'extra'", "blank line dropped"}


def test_comments_other_delimiters_and_no_header(tmp_path):
    rows, _ = rows_of(tmp_path, "; note\n0|1|a\n1|2|b\n", delimiter="|", header=False, comment=";")
    assert rows.columns["tokens"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("arrival,tokens,kind\n", r"t.csv:1: the header lacks 'arrival_s'; did you mean 'arrival'\?"),
        ("arrival_s,tokens\n", "t.csv:1: the header lacks 'kind'; it has 'arrival_s', 'tokens'"),
        ("arrival_s;tokens;kind\n", "t.csv:1: the header is separated by ';'; ',' is expected"),
        ("arrival_s,arrival_s,tokens,kind\n", "t.csv:1:arrival_s: the header names this column twice"),
        ("arrival_s,tokens,kind\n", "t.csv: contains no rows of data"),
        ("arrival_s,tokens,kind\n0,1\n", r"t.csv:2: has 2 cells, 3 are expected \(is the file cut short\?\)"),
        ("arrival_s,tokens,kind\n0,1,a,b\n", "t.csv:2: has 4 cells, 3 are expected"),
        ("arrival_s,tokens,kind\nnan,1,a\n", "t.csv:2:arrival_s: 'nan' is not a finite number"),
        ("arrival_s,tokens,kind\n-inf,1,a\n", "t.csv:2:arrival_s: '-inf' is not a finite number"),
        ("arrival_s,tokens,kind\n-1.5,1,a\n", "t.csv:2:arrival_s: -1.5 is negative"),
        ("arrival_s,tokens,kind\n1e999,1,a\n", "t.csv:2:arrival_s: '1e999' is too large a number"),
        ('arrival_s,tokens,kind\n"1,5",1,a\n', "t.csv:2:arrival_s: '1,5' is written with a decimal comma"),
        ("arrival_s,tokens,kind\nsoon,1,a\n", "t.csv:2:arrival_s: 'soon' is not a number"),
        ("arrival_s,tokens,kind\n,1,a\n", "t.csv:2:arrival_s: is empty; a number is needed"),
        ("arrival_s,tokens,kind\n1_000,1,a\n", "t.csv:2:arrival_s: '1_000' is not a number"),
        ("arrival_s,tokens,kind\n0x10,1,a\n", "t.csv:2:arrival_s: '0x10' is not a number"),
        ("arrival_s,tokens,kind\n１,1,a\n", "t.csv:2:arrival_s: '１' is not a number"),
        ("arrival_s,tokens,kind\n0,1.5,a\n", "t.csv:2:tokens: '1.5' is not a whole number"),
        (
            "arrival_s,tokens,kind\n0,9007199254740993,a\n",
            r"t.csv:2:tokens: 9007199254740993 is beyond 2\^53",
        ),
        (
            f"arrival_s,tokens,kind\n0,{'9' * 5000},a\n",
            r"t.csv:2:tokens: '9+'... \(5000 characters\) is beyond 2\^53",
        ),
        ("arrival_s,tokens,kind\n0,-1,a\n", "t.csv:2:tokens: -1 is negative"),
        ("arrival_s,tokens,kind\n0,1,c\n", "t.csv:2:kind: 'c' is not one of a, b"),
        ("arrival_s,tokens,kind\n0,1,\n", "t.csv:2:kind: is empty"),
        ('arrival_s,tokens,kind\n0,1,"a\n', "t.csv:2: the quoting is not closed"),
    ],
)
def test_messages_name_file_line_and_field(tmp_path, text, what):
    with pytest.raises(TraceError, match=what):
        rows_of(tmp_path, text)


def test_one_reading_names_many_problems_in_order(tmp_path):
    with pytest.raises(TraceError) as raised:
        rows_of(tmp_path, "arrival_s,tokens,kind\n0,x,q\n1,2,a\n-1,2,a\n")
    wheres = [problem.where.split("t.csv")[1] for problem in raised.value.problems]
    assert wheres == [":2:tokens", ":2:kind", ":4:arrival_s"]


def test_a_million_bad_rows_are_not_a_million_problems(tmp_path):
    with pytest.raises(TraceError) as raised:
        rows_of(tmp_path, "arrival_s,tokens,kind\n" + "x,1,a\n" * 50_000)
    assert len(raised.value.problems) == 21
    assert "stopped reading after 20 problems" in str(raised.value)


def test_rows_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_ROWS", 3)
    with pytest.raises(TraceError, match="more than 3 rows"):
        rows_of(tmp_path, "arrival_s,tokens,kind\n" + "1,1,a\n" * 4)


def test_missing_values_only_where_the_format_has_them():
    values, faults = parse_column(Field(name="x", missing=("nan", "")), ["1", "nan", ""])
    assert values[0] == 1 and math.isnan(values[1]) and math.isnan(values[2]) and not faults
    texts, faults = parse_column(Field(name="x", kind="text", missing=("",)), ["a", ""])
    assert texts.tolist() == ["a", ""] and not faults
    with pytest.raises(AssertionError):
        Field(name="x", kind="int", missing=("",))


def test_whole_numbers_may_be_written_as_decimals_where_the_format_does():
    field = Field(name="n", kind="int", whole_decimals=True)
    values, faults = parse_column(field, ["18.0", "3", "2.5", "1e30"])
    assert values[:2].tolist() == [18, 3]
    assert [index for index, _ in faults] == [2, 3]


@given(st.lists(st.floats(0, allow_infinity=False), min_size=1))
def test_numbers_are_read_to_the_nearest_double(numbers):
    values, faults = parse_column(FIELDS[0], [repr(x) for x in numbers])
    assert values.tolist() == numbers and not faults


@given(
    st.lists(st.text(max_size=12), min_size=1, max_size=5),
    st.sampled_from(["float", "int", "text", "datetime"]),
)
def test_any_text_gives_a_value_or_a_fault(texts, kind):
    values, faults = parse_column(Field(name="x", kind=kind), texts)
    assert len(values) == len(texts)
    bad = {index for index, _ in faults}
    if kind == "float":
        for i, text in enumerate(texts):
            assert i in bad or (values[i] == float(text) and "_" not in text)


def test_a_hostile_number_is_refused_in_linear_time():
    for text in ("1" * 1_000_000 + "x", "." * 1_000_000, "1e" + "1" * 1_000_000 + "x", "1." * 500_000):
        assert parse_column(FIELDS[0], [text])[1]
        assert parse_column(FIELDS[1], [text])[1]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01 00:00:00", 0),
        ("2023-11-16 18:17:03.9799600", 1700158623_979960000),
        ("2024-05-10T00:00:00.5Z", 1715299200_500000000),
        ("2024-05-10 02:00:00+02:00", 1715299200_000000000),
        ("2024-05-09 19:00:00-0500", 1715299200_000000000),
    ],
)
def test_instants_are_exact_nanoseconds(text, ns):
    assert parse_instant(text) == ns
    values, faults = parse_column(Field(name="t", kind="datetime"), [text, text])
    assert values.tolist() == [ns, ns] and not faults


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2023-11-16",
        "2023-02-30 00:00:00",
        "2023-11-16 24:00:01",
        "23-11-16 00:00:00",
        "0001-01-01 00:00:00",
        "2023-11-16 18:17:03,97",
        "9999-12-31 00:00:00",
    ],
)
def test_what_is_no_instant_is_a_fault(text):
    _, faults = parse_column(Field(name="t", kind="datetime"), ["2023-11-16 18:17:03", text])
    assert [index for index, _ in faults] == [1]


def test_a_file_with_and_without_zones_is_refused():
    _, faults = parse_column(
        Field(name="t", kind="datetime"), ["2023-11-16 18:17:03", "2023-11-16 18:17:03Z"]
    )
    assert "some rows have a time zone" in faults[0][1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "Infinity is not a JSON number"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[" * 1_000_000, "nested more than 64 deep"),
        ('{"a":' * 1_000_000, "nested more than 64 deep"),
        ('{"a": [1, 2}', "is not JSON"),
        ("", "is not JSON"),
        ("9" * 10_000, "not usable JSON"),
        ('{"a": 1}}', "is not JSON"),
    ],
)
def test_json_is_strict(text, what):
    with pytest.raises(ValueError, match=what):
        parse_json(text)


def test_brackets_inside_texts_are_not_nesting():
    assert parse_json('{"a": "' + "[" * 1000 + r"\"" + '"}') == {"a": "[" * 1000 + '"'}


def test_a_json_document_names_the_line_of_its_fault(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{\n"a": 1,\n"b": oops\n}')
    with pytest.raises(TraceError, match=r"t.json:3: is not JSON: Expecting value at column 6"):
        JsonDocument.read(Source(path, repairs=RepairLog()))


@pytest.mark.parametrize(
    ("place", "where"),
    [
        (("a", 1), "2:a[1]"),
        (("b", "c{", "d"), "3:b.c{.d"),
        (("b", "e", 2), "5:b.e[2]"),
        (("b", "e", 7), "4:b.e[7]"),  # absent: the line of what is around it
        (("x", "y"), "1:x.y"),
        (("a", 0, "z"), "1:a[0].z"),
        ((), "1"),
    ],
)
def test_a_value_in_a_json_document_has_a_line(tmp_path, place, where):
    path = tmp_path / "t.json"
    path.write_text('{"a": ["[,}",\n"a\\"", 2], "b":\n{"c{": {"d": null},\n"e": [[], {},\n-1.5e3]}}')
    assert JsonDocument.read(Source(path, repairs=RepairLog())).at(*place) == f"{path}:{where}"


def test_json_lines_hold_objects(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n\n[1]\n{"a"\n')
    with pytest.raises(TraceError) as raised:
        list(read_objects(Source(path, repairs=RepairLog())))
    assert [problem.where for problem in raised.value.problems] == [f"{path}:3", f"{path}:4"]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("1", "is a text"),
        (True, "true or false"),
        (None, "null"),
        (1.5, "whole"),
        (2**60, "beyond"),
        (-1, "negative"),
    ],
)
def test_json_values_are_not_coerced(value, what):
    with pytest.raises(ValueError, match=what):
        json_number(FIELDS[1], value)


def test_json_values_are_complaints_with_their_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("{}")
    source, complaints = Source(path, repairs=RepairLog()), Complaints()
    assert json_field(source, 4, {"tokens": 3}, FIELDS[1], complaints) == 3
    assert json_field(source, 4, {"tokens": "3"}, FIELDS[1], complaints) is None
    assert [str(problem) for problem in complaints.problems] == [
        f"{path}:4:tokens: '3' is a text; a number is needed"
    ]


def test_text_arrays_hold_strings():
    values, _ = parse_column(Field(name="x", kind="text"), ["ab", "é"])
    assert values.dtype == np.dtypes.StringDType(coerce=False)
