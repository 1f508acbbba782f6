"""Malformed traces: every reader with every malformed input, and random mutations.

A broken file gives `TraceError`: one line a problem that names the file and, where there is one, the line
and the field, in bounded time. It never gives a traceback, a hang, or a trace that silently differs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_samples import CSV_SAMPLES, MOONCAKE, Sample

from forerun.core.errors import InputError, TraceError
from forerun.core.testing import damaged
from forerun.core.trace.files import MARK, save_trace
from forerun.core.trace.generate import generate
from forerun.core.trace.processes.poisson import Poisson
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import RepairLog

from ...conftest import cases

HTML = b"<!DOCTYPE html><html><body>Not found</body></html>\n"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456\n"


@dataclass(frozen=True)
class BadFile:
    """A malformed file, and what its message must name: after the file's name, and the fault."""

    label: str
    data: bytes
    where: str
    what: str
    strict: bool = False


def any_text_file(good: bytes) -> Iterator[BadFile]:
    """What can be wrong with any text file."""
    yield BadFile("empty", b"", "", "the file is empty")
    yield BadFile("blank lines", b"\n\n \n", "", "contains no rows of data")
    yield BadFile("LFS pointer", LFS, "", "Git LFS pointer")
    yield BadFile("gzip cut short", gzip.compress(good)[:-9], "", "cut short")
    yield BadFile("gzip damaged", gzip.compress(good)[:-6] + b"\1\2\3\4\5\6", "", "damaged")
    yield BadFile("UTF-16", good.decode().encode("utf-16"), "", "UTF-16")
    yield BadFile("UTF-16 without mark", good.decode().encode("utf-16-le"), "", "UTF-16")
    yield BadFile("NUL byte", good + b"\0\n", f":{good.count(10) + 1}", "NUL byte")
    yield BadFile("not UTF-8", good + b"\xff\n", f":{good.count(10) + 1}", "not UTF-8")
    yield BadFile("carriage returns only", good.replace(b"\n", b"\r"), ":1", "carriage return")
    yield BadFile("very long line", good + b"9" * 5_000_000, f":{good.count(10) + 1}", "longer than")
    yield BadFile("byte-order mark, strict", b"\xef\xbb\xbf" + good, ":1", "byte-order mark", strict=True)
    yield BadFile("blank line, strict", good + b"\n", f":{good.count(10) + 1}", "blank line", strict=True)
    yield BadFile("zip", b"PK\x03\x04" + good, "", "zip archive")


def any_table(sample: Sample) -> Iterator[BadFile]:
    """What can be wrong with any delimited table."""
    first, width = sample.first_line, len(sample.rows[0])
    position, name = sample.number
    if not sample.usual_crlf:
        yield BadFile("CRLF, strict", sample.data().replace(b"\n", b"\r\n"), ":1", "CRLF", strict=True)
    for text, what in [
        ("NaN", "not a finite number"),
        ("inf", "not a finite number"),
        ("-1", "is negative"),
        ("1e999", "a"),  # too large for a double; for a whole number not even one
        ("abc", "is not a number"),
        ('"1,5"', "decimal comma"),
        ("", "is empty"),
        ("1_000", "is not a number"),
        ("0x1F", "is not a number"),
        ("12 34", "is not a number"),
        ("−5", "is not a number"),
    ]:
        if sample.header or text:
            label = f"{text or 'empty'} in {name}"
            yield BadFile(label, sample.with_cell(1, position, text), f":{first + 1}:{name}", what)
    yield BadFile(
        "extra cell", sample.data() + b"1" + b",1" * width + b"\n", f":{first + len(sample.rows)}", "cells"
    )
    yield BadFile("open quote", sample.data() + b'"1\n', f":{first + len(sample.rows)}", "quoting")
    if width > 1:
        cut = sample.data()[: -len(sample.rows[-1][-1]) - 2]
        yield BadFile("last row cut short", cut, f":{first + len(sample.rows) - 1}", "cut short")
        yield BadFile("semicolons", sample.data().replace(b",", b";"), ":1", "")
    if sample.header:
        header = [cell for cell in sample.header if cell != name]
        yield BadFile("HTML", HTML, ":1", "the header")
        yield BadFile("header lacks a column", sample.data(header=header), ":1", "")
        yield BadFile("header twice", sample.data(header=[*sample.header[:-1], name]), ":1", "")
        yield BadFile("header only", sample.data(rows=[]), "", "contains no rows of data")
        yield BadFile("no header", sample.data(header=sample.rows[0]), ":1", "")
    if sample.whole:
        column, whole = sample.whole
        beyond = sample.with_cell(1, column, "9007199254740993")
        yield BadFile("beyond 2^53", beyond, f":{first + 1}:{whole}", "")
        yield BadFile(
            "not whole", sample.with_cell(1, column, "1.5"), f":{first + 1}:{whole}", "not a whole number"
        )
        yield BadFile(
            "5000 digits", sample.with_cell(1, column, "9" * 5000), f":{first + 1}:{whole}", "5000 characters"
        )
    if sample.text:
        column, text_name = sample.text
        yield BadFile("empty text", sample.with_cell(1, column, ""), f":{first + 1}:{text_name}", "is empty")
        long = sample.with_cell(1, column, "x" * 100_000)
        yield BadFile("endless text", long, f":{first + 1}:{text_name}", "longer than")
    if sample.unique:
        column, unique = sample.unique
        rows = [*sample.rows, sample.rows[0]]
        yield BadFile(
            "duplicate", sample.data(rows=rows), f":{first + len(sample.rows)}:{unique}", f"line {first}"
        )
    if sample.sorted_by is not None:
        yield BadFile(
            "unsorted, strict",
            sample.data(rows=sample.rows[::-1]),
            f":{first + 1}",
            "out of order",
            strict=True,
        )


CASES = [
    pytest.param(sample, malformed, id=f"{sample.format}-{malformed.label}")
    for sample in CSV_SAMPLES
    for malformed in [*any_text_file(sample.data()), *any_table(sample)]
]


def refused(path, format, malformed, options):
    """The error that reading gives, after checking what every error must have."""
    path.write_bytes(malformed.data)
    with pytest.raises(TraceError) as raised:
        read_trace(path, format, options=options, strict=malformed.strict)
    lines = str(raised.value).splitlines()
    assert len(lines) == len(raised.value.problems)
    assert all(len(line) < 1000 for line in lines)
    assert lines[0].startswith(f"{path}{malformed.where}: "), lines[0]
    assert malformed.what in lines[0]
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(("sample", "malformed"), CASES)
def test_a_malformed_table_is_refused(sample, malformed, tmp_path):
    refused(tmp_path / sample.name, sample.format, malformed, sample.options)


@pytest.mark.parametrize(
    ("stamp", "what"),
    [
        ("", "is empty"),
        ("2023-11-16", "is not a time like"),
        ("2023-02-30 00:00:00", "is no instant of the calendar"),
        ("2023-11-16 25:00:00", "is no instant of the calendar"),
        ("16/11/2023 18:17", "is not a time like"),
        ("2023-11-16 18:17:04,03", "cells"),
        ("1700158624", "is not a time like"),
        ("1023-11-16 18:17:04", "outside the years"),
        ("2023-11-16 18:17:04Z", "some rows have a time zone"),
        ("2023-11-16 18:17:04.12345678901", "is not a time like"),
    ],
)
def test_a_malformed_stamp_is_refused(tmp_path, stamp, what):
    sample = next(sample for sample in CSV_SAMPLES if sample.format == "azure_llm")
    where = ":3" if what == "cells" else ":3:TIMESTAMP"
    malformed = BadFile(stamp, sample.with_cell(1, 0, stamp), where, what)
    refused(tmp_path / sample.name, sample.format, malformed, sample.options)


def test_every_table_reader_meets_at_least_twenty_malformed_inputs():
    for sample in CSV_SAMPLES:
        assert len([*any_text_file(sample.data()), *any_table(sample)]) >= 20, sample.format


def mooncake(line: int, text: str) -> bytes:
    """The valid file with one line replaced."""
    lines = MOONCAKE.decode().splitlines()
    lines[line - 1] = text
    return ("\n".join(lines) + "\n").encode()


def record(**changes) -> str:
    good = {"timestamp": 27, "input_length": 7, "output_length": 4, "hash_ids": [0]}
    return json.dumps({key: value for key, value in (good | changes).items() if value != "absent"})


MOONCAKE_MALFORMED = [
    *any_text_file(MOONCAKE),
    BadFile("HTML", HTML, ":1", "is not JSON"),
    BadFile("CRLF, strict", MOONCAKE.replace(b"\n", b"\r\n"), ":1", "CRLF", strict=True),
    BadFile("a list", mooncake(2, "[1, 2]"), ":2", "an object {...} is expected"),
    BadFile("a number", mooncake(2, "7"), ":2", "not a number"),
    BadFile("null", mooncake(2, "null"), ":2", "not null"),
    BadFile("line cut short", MOONCAKE[:-20], ":3", "is not JSON"),
    BadFile("two objects", mooncake(2, record() + record()), ":2", "is not JSON"),
    BadFile("single quotes", mooncake(2, record().replace('"', "'")), ":2", "is not JSON"),
    BadFile("NaN", mooncake(2, record().replace("27", "NaN")), ":2", "NaN is not a JSON number"),
    BadFile("infinite", mooncake(2, record().replace("27", "1e999")), ":2:timestamp", "too large a number"),
    BadFile("negative", mooncake(2, record(timestamp=-1)), ":2:timestamp", "-1 is negative"),
    BadFile("a text", mooncake(2, record(timestamp="27")), ":2:timestamp", "is a text; a number is needed"),
    BadFile(
        "true", mooncake(2, record(input_length=True)), ":2:input_length", "true or false; a number is needed"
    ),
    BadFile("fraction", mooncake(2, record(output_length=1.5)), ":2:output_length", "is not a whole number"),
    BadFile("beyond 2^53", mooncake(2, record(input_length=2**60)), ":2:input_length", "beyond 2^53"),
    BadFile(
        "10,000 digits",
        mooncake(2, record(input_length=0).replace("0", "9" * 10_000, 1)),
        ":2",
        "not usable JSON",
    ),
    BadFile("absent", mooncake(2, record(input_length="absent")), ":2:input_length", "is missing"),
    BadFile(
        "misspelt",
        mooncake(2, record().replace("input_length", "input_lenght")),
        ":2:input_length",
        "did you mean",
    ),
    BadFile(
        "blocks no list", mooncake(2, record(hash_ids="0 1")), ":2:hash_ids", "not a list of block numbers"
    ),
    BadFile("blocks no numbers", mooncake(2, record(hash_ids=[0, "a"])), ":2:hash_ids", "not a block number"),
    BadFile("blocks negative", mooncake(2, record(hash_ids=[-3])), ":2:hash_ids", "-3 is not a block number"),
    BadFile("key twice", mooncake(2, record()[:-1] + ', "timestamp": 3}'), ":2", "stands twice"),
    BadFile("million brackets", mooncake(2, "[" * 1_000_000), ":2", "nested more than 64 deep"),
    BadFile(
        "deep object", mooncake(2, '{"a":' * 100_000 + "1" + "}" * 100_000), ":2", "nested more than 64 deep"
    ),
    BadFile(
        "unsorted, strict",
        b"".join(MOONCAKE.splitlines(keepends=True)[::-1]),
        ":2",
        "out of order",
        strict=True,
    ),
]


@pytest.mark.parametrize("malformed", MOONCAKE_MALFORMED, ids=lambda malformed: malformed.label)
def test_malformed_json_lines_are_refused(malformed, tmp_path):
    refused(tmp_path / "trace.jsonl", "mooncake", malformed, {})


def own_csv(tmp_path) -> bytes:
    path = tmp_path / "own.csv"
    save_trace(generate(Poisson(rate_rps=5), seed=1, n=4), path)
    return path.read_bytes()


OWN_DAMAGE = [
    ("description cut", lambda data: data.replace(b'"repairs"', b'"rep', 1), ":1", "damaged"),
    ("description no object", lambda data: MARK.encode() + b"7\n" + data.split(b"\n", 1)[1], ":1", "damaged"),
    ("unknown key", lambda data: data.replace(b'"trace": 1', b'"trace": 1, "x": 2'), ":1", "damaged"),
    ("next version", lambda data: data.replace(b'"trace": 1', b'"trace": 2'), ":1", "version 2"),
    ("unknown kind", lambda data: data.replace(b'"float"]', b'"complex"]'), ":1", "'complex'"),
    ("provenance unknown", lambda data: data.replace(b'"sha256"', b'"sha"'), "", "provenance"),
    (
        "other time",
        lambda data: data.replace(b'"time": "arrival_ms"', b'"time": "x"'),
        "",
        "which is no column",
    ),
    ("unsorted", lambda data: data + b"0.5\n", "", "before the previous row"),
    ("NaN", lambda data: data + b"nan\n", ":7:arrival_ms", "not a finite number"),
    ("hole", lambda data: data + b'""\n', "", "is not finite"),
    ("text", lambda data: data + b"soon\n", ":7:arrival_ms", "not a number"),
    ("extra cell", lambda data: data + b"9999,1\n", ":7", "2 cells"),
    (
        "other header",
        lambda data: data.replace(b"\narrival_ms\n", b"\narrival\n"),
        ":2",
        "lacks 'arrival_ms'",
    ),
    ("no rows", lambda data: b"\n".join(data.split(b"\n")[:2]) + b"\n", "", "no rows"),
    ("no mark", lambda data: data.split(b"\n", 1)[1], ":1", "begins with"),
    ("empty", lambda data: b"", "", "empty"),
    ("NUL", lambda data: data + b"\0", ":7", "NUL"),
    ("UTF-16", lambda data: data.decode().encode("utf-16"), "", "UTF-16"),
    ("LFS pointer", lambda data: LFS, "", "LFS"),
    ("gzip cut short", lambda data: gzip.compress(data)[:-4], "", "cut short"),
    ("Parquet cut short", lambda data: b"PAR1" + data, "", "not readable Parquet"),
]


@pytest.mark.parametrize(
    ("damage", "where", "what"), [row[1:] for row in OWN_DAMAGE], ids=[row[0] for row in OWN_DAMAGE]
)
def test_a_damaged_trace_file_is_refused(damage, where, what, tmp_path):
    data = damage(own_csv(tmp_path))
    refused(tmp_path / "damaged.csv", "forerun", BadFile("", data, where, what), {})


@pytest.mark.parametrize("sample", CSV_SAMPLES, ids=lambda sample: sample.format)
def test_places_that_are_no_files_are_refused(sample, tmp_path):
    (tmp_path / sample.name).write_bytes(sample.data())
    sparse = tmp_path / "sparse.csv"
    with sparse.open("wb") as file:
        file.write(sample.data())
        file.truncate(2 << 30)
    for path, what in [
        (tmp_path, "is a directory"),
        (tmp_path / (sample.name + "x"), "no such file; did you mean"),
        (sparse, "NUL byte: the file is not text, or has a hole in it"),
        ("/dev/zero", "pipe or device"),
    ]:
        with pytest.raises(TraceError, match=what):
            read_trace(path, sample.format, options=sample.options)


def test_repairs_of_text_keep_the_content(tmp_path):
    """A byte-order mark, CRLF and blank lines change nothing but the log."""
    for sample in CSV_SAMPLES:
        path = tmp_path / sample.name
        path.write_bytes(sample.data())
        clean = read_trace(path, sample.format, options=sample.options)
        path.write_bytes(b"\xef\xbb\xbf" + sample.data().replace(b"\n", b"\r\n") + b"\r\n")
        log = RepairLog()
        assert read_trace(path, sample.format, options=sample.options, repairs=log).digest == clean.digest
        assert len(log) >= 2


@pytest.mark.parametrize(
    "sample", [*CSV_SAMPLES, "mooncake", "forerun"], ids=lambda s: getattr(s, "format", s)
)
@settings(
    max_examples=cases(10, 40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(number=st.integers(0, 2**20))
def test_mutations_give_a_trace_or_a_named_problem(sample, number, tmp_path):
    if isinstance(sample, Sample):
        data, format, options = sample.data(), sample.format, sample.options
    elif sample == "mooncake":
        data, format, options = MOONCAKE, "mooncake", {}
    else:
        data, format, options = own_csv(tmp_path), "forerun", {}
    path = tmp_path / "mutant"
    path.write_bytes(damaged(data, number))
    try:
        trace = read_trace(path, format, options=options)
    except InputError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(trace.instants).all()
        assert (np.diff(trace.instants) >= 0).all()
        assert trace.instants[0] >= 0 or format == "forerun"
