"""Opening files: what is read, repaired and refused, in bounded time and memory."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tracemalloc
from pathlib import Path

import pytest

from forerun.core.errors import TraceError
from forerun.core.scenario.spec import file_digest
from forerun.core.trace import source as source_module
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import BLOCK_BYTES, Source

TEXT = b"one\ntwo\nthree\n"


def read(path, **options):
    repairs = RepairLog()
    source = Source(path, repairs=repairs, **options)
    return list(source.lines()), source, repairs


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, lzma.compress, lambda b: gzip.compress(b[:4]) + gzip.compress(b[4:])]
)
def test_plain_gzip_and_xz_read_alike(tmp_path, pack):
    path = tmp_path / "data"
    path.write_bytes(pack(TEXT))
    lines, source, repairs = read(path)
    assert lines == [(1, "one"), (2, "two"), (3, "three")]
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not len(repairs)


def test_a_last_line_without_end_counts(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"one\ntwo")
    lines, _, _ = read(path)
    assert lines == [(1, "one"), (2, "two")]


def test_lines_do_not_depend_on_block_borders(tmp_path):
    path = tmp_path / "data"
    expected = [f"line {i} {'é' * (i % 97)}" for i in range(20_000)]
    path.write_text("\n".join(expected), encoding="utf-8")
    assert path.stat().st_size > 3 * BLOCK_BYTES
    lines, _, _ = read(path)
    assert [text for _, text in lines] == expected
    assert [number for number, _ in lines] == list(range(1, 20_001))


def test_bom_and_crlf_are_repaired_and_counted(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    lines, _, repairs = read(path)
    assert lines == [(1, "one"), (2, "two")]
    assert repairs.lines() == [
        f"byte-order mark dropped: 1 ({path}:1)",
        f"CRLF line ends read as LF: 2 ({path}:1, {path}:2)",
    ]
    assert read(path, crlf_usual=True)[2].lines() == [f"byte-order mark dropped: 1 ({path}:1)"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4242\n",
            r"Git LFS pointer.*4242 bytes",
        ),
        (b"/annex/objects/SHA256E-s1--0\n", "git-annex pointer"),
        (gzip.compress(TEXT, mtime=0)[:-5], "cut short"),
        (gzip.compress(TEXT, mtime=0)[:12], "cut short"),
        (lzma.compress(TEXT)[:-5], "cut short"),
        (gzip.compress(TEXT, mtime=0)[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(TEXT, mtime=0) + b"tail", "damaged"),
        (bz2.compress(TEXT), "bzip2-compressed"),
        (b"\x28\xb5\x2f\xfd123", "zstd-compressed"),
        (b"PK\x03\x04rest", "zip archive or spreadsheet"),
        (b"PAR1rest", "Parquet"),
        (TEXT.decode().encode("utf-16"), "UTF-16"),
        (TEXT.decode().encode("utf-16-le"), "UTF-16"),
        (TEXT.decode().encode("utf-16-be"), "UTF-16"),
        (b"one\ntwo \xff\n", ":2: byte 0xff is not UTF-8"),
        ("one\nzwölf\n".encode("latin-1"), ":2: byte 0xf6 is not UTF-8"),
        (b"one\ntwo\nthr\0ee\n", ":3: a NUL byte"),
        (b"one\rtwo\rthree", ":1: a carriage return inside the line"),
        (b"one\n" + b"x" * 5_000_000, ":2: the line is longer than 4194304 bytes"),
        (b"one\n" + b"x" * 5_000_000 + b"\n", ":2: the line is longer than 4194304 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_readable_text_is_refused_by_name(tmp_path, content, what):
    path = tmp_path / "data"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=what) as raised:
        read(path)
    assert str(path) in str(raised.value)


def test_a_name_that_promises_gzip_must_keep_it(tmp_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(TEXT)
    with pytest.raises(TraceError, match=r"is named \.gz but does not start as gz does"):
        read(path)


def test_what_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "trace.csv").write_bytes(TEXT)
    for path, what in [
        (tmp_path, "is a directory"),
        (tmp_path / "pipe", "is a pipe or device"),
        (tmp_path / "trace.cvs", "no such file; did you mean 'trace.csv'"),
        (tmp_path / "none" / "at all", "no such file"),
        (tmp_path / "trace.csv" / "below", "cannot be read: Not a directory"),
        (tmp_path / ("n" * 300), "cannot be read: File name too long"),
        ("a\0b", "is not a path"),
        ("/dev/zero", "is a pipe or device"),
        *([("/proc/self/mem", "mem: cannot be read: ")] if Path("/proc/self/mem").exists() else []),
    ]:
        with pytest.raises(TraceError, match=what):
            read(path)


def test_a_file_too_large_for_any_trace_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "memory"
    try:
        with path.open("wb") as file:
            file.truncate(2**40 + 1)
    except OSError as error:
        pytest.skip(f"this file system has no such files: {error}")
    with pytest.raises(TraceError, match=r"has 1099511627777 bytes; at most 1099511627776 are read"):
        read(path)
    with pytest.raises(OSError, match="at most 1099511627776"):
        file_digest(path)


@pytest.mark.parametrize("start", [b"", b"a,b\n1,2\n"])
def test_a_sparse_two_gigabyte_file_is_refused_at_its_hole(tmp_path, start):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(2 << 30)
    tracemalloc.start()
    with pytest.raises(TraceError, match="NUL byte: the file is not text, or has a hole in it"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_decompression_bomb_is_refused_in_bounded_memory(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\n" * (40 << 20)))
    blocks = 0
    with pytest.raises(TraceError, match=r"expands .* times; beyond 400 it is refused"):
        for _ in Source(path, repairs=RepairLog()).blocks():
            blocks += 1
    assert blocks * BLOCK_BYTES <= 20 << 20


def test_texts_and_lines_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "data"
    path.write_bytes(TEXT * 100)
    monkeypatch.setattr(source_module, "MOST_TEXT_BYTES", 1000)
    with pytest.raises(TraceError, match="text is larger than 1000 bytes"):
        read(path)
    monkeypatch.undo()
    monkeypatch.setattr(source_module, "MOST_LINE_BYTES", 4)
    with pytest.raises(TraceError, match=":3: the line is longer than 4 bytes"):
        read(path)
    with pytest.raises(TraceError, match="text is larger than 100 bytes"):
        Source(path, repairs=RepairLog()).read(100)


def test_the_head_of_a_file_needs_only_its_beginning(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n" + b"x" * 20_000_000)
    head = Source(path, repairs=RepairLog()).head(3)
    assert head[:2] == ("one", "two")
    assert len(head[2]) < BLOCK_BYTES
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="the file is empty"):
        Source(path, repairs=RepairLog()).head(3)


def test_the_digest_is_not_known_before_the_end(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(TEXT)
    with pytest.raises(ValueError, match="has not been read to its end"):
        _ = Source(path, repairs=RepairLog()).sha256


def test_lines_are_parsed_one_by_one_and_all_faults_raised_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"1\n\n# note\n2\nx\n3\ny\n")
    parsed = Source(path, repairs=RepairLog()).parsed(lambda line: None if line[0] == "#" else int(line))
    seen = []
    with pytest.raises(TraceError) as caught:
        seen.extend(parsed)
    assert seen == [(1, 1), (4, 2), (6, 3)]
    assert [problem.where for problem in caught.value.problems] == [f"{path}:5", f"{path}:7"]
