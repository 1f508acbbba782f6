"""Opening a file that somebody else made: bytes in, decoded lines out, in bounded memory.

A plain, gzip or xz text file is read block by block. What is not text (a directory, a device, a pointer file
left by Git LFS, a spreadsheet, UTF-16, NUL bytes, a hole in a sparse file) or not whole (a gzip cut short) is
refused by name; a byte-order mark and CRLF line ends are repaired and counted.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import io
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

from forerun.core.errors import TraceError
from forerun.core.regular import open_regular, unreadable
from forerun.core.trace.repair import Complaints, RepairLog, shown

T = TypeVar("T")

BLOCK_BYTES = 1 << 18
XZ_MEMORY_BYTES = 128 << 20
#: decompressed size of one file, and its longest line
MOST_TEXT_BYTES = 16 << 30
MOST_LINE_BYTES = 4 << 20
#: decompressed over compressed size beyond which a file is a decompression bomb, looked at after 16 MiB of text
MOST_EXPANSION = 400
#: records in memory
MOST_ROWS = 200_000_000

PARQUET = b"PAR1"
NUMPY = b"\x93NUMPY"

_POINTERS = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the data: run `git lfs pull`"),
    (b"/annex/objects/", "a git-annex pointer, not the data: run `git annex get`"),
)
_NOT_TEXT = (
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; decompress it first (zstd -d)"),
    (b"BZh", "bzip2-compressed; decompress it first (bunzip2)"),
    (b"PK\x03\x04", "a zip archive or spreadsheet, not a text file; extract or export it first"),
    (PARQUET, "a Parquet file, not a text file"),
    (NUMPY, "a NumPy array file, not a text file"),
    (b"\x89HDF", "an HDF5 file, not a text file"),
    (b"%PDF", "a PDF, not a text file"),
    (b"\x7fELF", "a program, not a text file"),
)


#: what documents of ours begin with
_OURS: Final = re.compile(r'\{\s*"(?:format|schema)"\s*:\s*"(forerun[^"]*)"')


def document_of(lines: Sequence[str]) -> str:
    """What a file that begins with these lines is, in words, if it is a document and no table; else empty."""
    text = "\n".join(lines).lstrip("\ufeff \t\r\n")
    ours = _OURS.match(text)
    if ours is not None:
        return f"a document of forerun, {ours[1]}"
    return "JSON" if text.startswith(("{", "[")) else ""


class Source:
    """A text file being read once, forwards.

    `blocks()` yields (number of the first line, list of lines) and counts lines from 1; lines come without
    their ends. After the last block `sha256` is the digest of the file as it lies on disk.

    Parameters
    ----------
    path : the file, plain or compressed with gzip or xz; its content says which.
    repairs : where a byte-order mark and CRLF line ends are counted.
    crlf_usual : the format itself ends its lines with CRLF, which is then no repair (default: it does not).
    name : what messages call the file (default: its path).

    Raises `TraceError` naming file and line for everything that is not readable text.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        repairs: RepairLog,
        crlf_usual: bool = False,
        name: str = "",
    ) -> None:
        self.path = Path(path)
        self.name = name or str(path)
        self.repairs = repairs
        self.crlf_usual = crlf_usual
        self._digest: str | None = None

    @property
    def sha256(self) -> str:
        """Digest of the file's bytes on disk; known once the file has been read to its end."""
        if self._digest is None:
            raise ValueError(f"{self.name} has not been read to its end")
        return self._digest

    def at(self, line: int, field: str = "") -> str:
        """`file:line` or `file:line:field`, as messages write it."""
        return f"{self.name}:{line}:{field}" if field else f"{self.name}:{line}"

    def lines(self) -> Iterator[tuple[int, str]]:
        """Each line with its number, from 1."""
        for first, lines in self.blocks():
            yield from enumerate(lines, first)

    def parsed(self, parse: Callable[[str], T | None]) -> Iterator[tuple[int, T]]:
        """What `parse` makes of each line that is not blank, with its number; None is passed over.

        Its ValueError is a complaint about the line; they are raised together as TraceError after the last line.
        """
        complaints = Complaints()
        for number, line in self.lines():
            try:
                value = parse(line) if line.strip() else None
            except ValueError as error:
                complaints.add(self.at(number), str(error))
                continue
            if value is not None:
                yield number, value
        complaints.finish()

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Lines in groups, as they arrive from disk: (number of the first, the lines)."""
        number, carry = 1, b""
        for block in self._text_blocks():
            data = carry + block
            cut = data.rfind(b"\n") + 1
            carry = data[cut:]
            if cut:
                lines = self._decoded(data[: cut - 1], number)
                yield number, lines
                number += len(lines)
            if len(carry) > MOST_LINE_BYTES:
                self._refuse(number, f"the line is longer than {MOST_LINE_BYTES} bytes")
        if carry:
            yield number, self._decoded(carry, number)
        elif number == 1:
            raise TraceError.at(self.name, "the file is empty")

    def head(self, count: int) -> tuple[str, ...]:
        """The first few lines, from the first block alone; a longer line is cut, bad bytes are replaced."""
        with closing(self._text_blocks()) as blocks:
            first = next(blocks, None)
        if first is None:
            raise TraceError.at(self.name, "the file is empty")
        lines = first.decode("utf-8", "replace").split("\n", count)[:count]
        return tuple(line.removesuffix("\r") for line in lines)

    def read(self, limit_bytes: int) -> str:
        """The whole text, for formats that are one document; rejected beyond `limit_bytes`."""
        pieces, size = [], 0
        for block in self._text_blocks():
            size += len(block)
            if size > limit_bytes:
                raise TraceError.at(self.name, f"the text is larger than {limit_bytes} bytes, the limit here")
            pieces.append(block)
        if not size:
            raise TraceError.at(self.name, "the file is empty")
        return "\n".join(self._decoded(b"".join(pieces), 1))

    def _refuse(self, line: int, what: str) -> None:
        raise TraceError.at(self.at(line), what)

    def _decoded(self, data: bytes, first: int) -> list[str]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = first + data.count(b"\n", 0, error.start)
            self._refuse(line, f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8")
            raise
        lines = text.split("\n")
        if "\r" in text:
            lines = self._without_carriage_returns(lines, first)
        if len(data) > MOST_LINE_BYTES:
            longest = max(range(len(lines)), key=lambda i: len(lines[i]))
            if len(lines[longest].encode()) > MOST_LINE_BYTES:
                self._refuse(first + longest, f"the line is longer than {MOST_LINE_BYTES} bytes")
        return lines

    def _without_carriage_returns(self, lines: list[str], first: int) -> list[str]:
        ended = [i for i, line in enumerate(lines) if line.endswith("\r")]
        lines = [line[:-1] if line.endswith("\r") else line for line in lines]
        for i, line in enumerate(lines):
            if "\r" in line:
                self._refuse(first + i, "a carriage return inside the line; line ends must be LF or CRLF")
        if not self.crlf_usual:
            wheres = [self.at(first + i) for i in ended[:3]]
            self.repairs.note_many("CRLF line ends read as LF", wheres, len(ended))
        return lines

    def _text_blocks(self) -> Generator[bytes, None, None]:
        """Decompressed blocks without byte-order mark, checked to be text."""
        with _opened(self.path, self.name) as raw:
            counted = _Counted(raw, self.name)
            on_disk = io.BufferedReader(counted, BLOCK_BYTES)
            stream = _decompressed(on_disk, self.name)
            size, line, first = 0, 1, True
            while block := self._next(stream):
                size += len(block)
                self._check_size(size, counted.count)
                if first:
                    block, first = self._checked_start(block), False
                if (nul := block.find(b"\0")) >= 0:
                    at = line + block.count(b"\n", 0, nul)
                    self._refuse(at, "a NUL byte: the file is not text, or has a hole in it")
                line += block.count(b"\n")
                yield block
            while on_disk.read(BLOCK_BYTES):
                pass
            self._digest = counted.hexdigest()

    def _next(self, stream: IO[bytes]) -> bytes:
        try:
            return stream.read(BLOCK_BYTES)
        except EOFError:
            raise TraceError.at(self.name, "the compressed file is cut short: its end is missing") from None
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise TraceError.at(self.name, f"the compressed file is damaged: {error}") from None
        except OSError as error:
            raise TraceError.at(self.name, f"cannot be read: {error.strerror or error}") from None

    def _check_size(self, size: int, compressed: int) -> None:
        if size > MOST_TEXT_BYTES:
            raise TraceError.at(self.name, f"the text is larger than {MOST_TEXT_BYTES} bytes, the limit here")
        if size > 16 << 20 and size > MOST_EXPANSION * compressed:
            ratio = size // max(1, compressed)
            raise TraceError.at(
                self.name,
                f"the compressed file expands {ratio} times; beyond {MOST_EXPANSION} it is refused",
            )

    def _checked_start(self, block: bytes) -> bytes:
        refuse_pointer(block, self.name)
        if block.startswith((b"\xff\xfe", b"\xfe\xff")) or _looks_like_utf16(block):
            raise TraceError.at(self.name, "the file is UTF-16; save it as UTF-8")
        for magic, what in _NOT_TEXT:
            if block.startswith(magic):
                raise TraceError.at(self.name, what)
        if block.startswith(b"\xef\xbb\xbf"):
            self.repairs.note("byte-order mark dropped", self.at(1))
            return block[3:]
        return block


class _Counted(io.RawIOBase):
    """The bytes of a file as they pass: how many, and their digest."""

    def __init__(self, raw: IO[bytes], name: str) -> None:
        self._raw, self._name = raw, name
        self._hash = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._raw.read(len(buffer))
        except OSError as error:
            raise TraceError.at(self._name, f"cannot be read: {error.strerror or error}") from None
        self._hash.update(data)
        self.count += len(data)
        buffer[: len(data)] = data
        return len(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class _Xz:
    """An xz stream, or several in a row, decompressed in bounded memory."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)

    def read(self, size: int = -1) -> bytes:
        while True:
            if self._decoder.eof:
                rest = self._decoder.unused_data.lstrip(b"\0") or self._raw.read(BLOCK_BYTES).lstrip(b"\0")
                if not rest:
                    return b""
                self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)
            else:
                rest = self._raw.read(BLOCK_BYTES) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not rest:
                    raise EOFError
            if data := self._decoder.decompress(rest, size):
                return data


def _decompressed(raw: io.BufferedReader[_Counted], name: str) -> IO[bytes]:
    start = raw.peek(BLOCK_BYTES)
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    if start.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", _Xz(raw))
    if name.endswith((".gz", ".xz")) and start and not start.startswith(tuple(m for m, _ in _POINTERS)):
        kind = name[-2:]
        raise TraceError.at(name, f"is named .{kind} but does not start as {kind} does: {shown(start[:16])}")
    return raw


def refuse_pointer(start: bytes, name: str) -> None:
    """Raise TraceError if a file that starts like this is a pointer left by Git LFS or git-annex."""
    for magic, what in _POINTERS:
        if start.startswith(magic):
            size = re.search(rb"\nsize (\d+)", start[:400])
            tail = f" (the file has {size.group(1).decode()} bytes)" if size else ""
            raise TraceError.at(name, what + tail)


def _looks_like_utf16(block: bytes) -> bool:
    """Whether every second byte is mostly NUL and the others are mostly not, as in UTF-16 without a mark."""
    head = block[:512]
    pairs = len(head) // 2
    few, many = sorted((head[0::2].count(0), head[1::2].count(0)))
    return pairs >= 4 and many > 0.6 * pairs and few < 0.2 * pairs


def _opened(path: Path, name: str) -> IO[bytes]:
    """Open a regular file for reading; pipes and devices are rejected, since reading them may block."""
    try:
        return open_regular(path, buffering=0)
    except FileNotFoundError:
        raise TraceError.at(name, f"no such file{_nearby(path)}") from None
    except OSError as error:
        raise TraceError.at(shown(name) if "\0" in name else name, unreadable(error)) from None


def _nearby(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())[:1000]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""
