"""NumPy files from elsewhere, read without trusting them: arrays of numbers, and object arrays of small records.

An object array contains a pickled list. It is never given to an unpickler: a small machine interprets the opcodes of
plain data and knows four names, each standing for an inert mark; nothing that the file names is ever called. What
comes out must be a list of {text: whole number}. Everything else is refused, with the position. The reader makes such a
file, the polled memory of the loading notebook, a table that needs no unpickling ever again.
"""

from __future__ import annotations

import ast
import hashlib
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.registry import member_name
from forerun.core.regular import read_regular, unreadable
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field
from forerun.core.trace.table import Provenance, Trace, schema_of

MAX_BYTES: Final = 64 * 1024**2
MAX_HEADER_BYTES: Final = 64 * 1024
MAX_OPCODES: Final = 2_000_000
MAGIC: Final = b"\x93NUMPY"

_MARK: Final = object()
_RECONSTRUCT: Final = "reconstruct"
_NDARRAY: Final = "ndarray"
_DTYPE: Final = "dtype"
_NAMES: Final = {
    "numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _DTYPE,
}


COLUMNS = (
    Field(name="poll", kind="int", minimum=0, meaning="number of the poll, from 0"),
    Field(name="name", kind="text", meaning="what was polled, for instance a container"),
    Field(name="bytes", kind="int", unit="bytes", meaning="bytes used then"),
)


class NpyRecords(TraceReader, frozen=True, kw_only=True, tag="npy_records"):
    """An .npy file of {name: bytes} a poll, read by a small machine that calls nothing the file names."""

    about = "object array of {name: whole number} rows (.npy; polled memory of the loading notebook)"
    makes = "polls"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Whatever begins as NumPy's files do: no other format is binary, and the reader says what it takes."""
        return head.numpy

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """A row for each name of each poll, in the file's order."""
        polls = read_records(path)
        rows = [(at, name, used) for at, poll in enumerate(polls) for name, used in poll.items()]
        if not rows:
            raise TraceError.at(path, "contains no polls")
        at, names, used = zip(*rows, strict=True)
        if max(map(abs, used)) > 2**53:
            raise TraceError.at(path, "contains a number beyond 2^53")
        columns = {
            "poll": np.array(at, np.int64),
            "name": np.array(names, np.str_),
            "bytes": np.array(used, np.int64),
        }
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        made = Provenance(format=member_name(type(self)), source=path.name, sha256=digest)
        return Trace("polls", schema_of(COLUMNS), columns, time="poll", provenance=made)


@dataclass(frozen=True, slots=True)
class _Name:
    """What a known name stands for: a word, not the thing."""

    word: str


@dataclass(slots=True)
class _Made:
    """What a known name was called with; `state` is filled in by BUILD."""

    word: str
    state: tuple[Any, ...] | None = None


class _Refused(Exception):
    """What cannot be accepted, in words."""


def read_numbers(path: Path) -> NDArray[np.float64]:
    """The one-dimensional array of finite numbers in an .npy file, float64[values].

    path: a file of at most 64 MiB. Raises TraceError if it contains anything else: texts, objects, complex numbers, several
    axes, a value that is not finite, or fewer bytes than its header says.
    """
    content = _content(path)
    dtype, shape, body = _header(path, content)
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise TraceError.at(path, f"contains values of the unknown type {dtype!r}") from error
    if kind.kind not in "fiu" or kind.itemsize > 8:
        raise TraceError.at(path, f"contains values of type {dtype!r}; an array of numbers is expected")
    if len(shape) != 1 or len(body) != shape[0] * kind.itemsize:
        raise TraceError.at(path, f"its header says shape {shape}, its body has {len(body)} bytes")
    values = np.frombuffer(body, kind).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise TraceError.at(path, f"value {bad[0]} is {values[bad[0]]}; finite numbers are expected")
    return values


def read_records(path: Path) -> list[dict[str, int]]:
    """The rows of an object array of {text: whole number, or its digits}, in the file's order.

    path: a file of at most 64 MiB and two million opcodes. Nothing in it is called or imported. Raises TraceError for
    everything else; the message names the opcode or the name, and the byte.
    """
    content = _content(path)
    dtype, shape, body = _header(path, content)
    if dtype != "|O" or len(shape) != 1:
        raise TraceError.at(
            path, f"contains {dtype!r} of shape {shape}; an object array of one axis is expected"
        )
    try:
        rows = _rows(_interpret(body))
    except _Refused as refused:
        raise TraceError.at(path, f"{refused}; it is not read") from None
    if len(rows) != shape[0]:
        raise TraceError.at(path, f"its header says {shape[0]} rows, its body has {len(rows)}")
    return rows


def _content(path: Path) -> bytes:
    try:
        content = read_regular(path, most_bytes=MAX_BYTES)
    except OSError as error:
        raise TraceError.at(path, unreadable(error)) from error
    if not content:
        raise TraceError.at(path, "is empty")
    if content.startswith(b"version https://git-lfs"):
        raise TraceError.at(path, "is a Git LFS pointer, not the data: run `git lfs pull`")
    if not content.startswith(MAGIC):
        raise TraceError.at(path, "is not an .npy file: it does not begin with the magic text")
    return content


def _header(path: Path, content: bytes) -> tuple[str, tuple[int, ...], bytes]:
    """Type, shape and body; the header must be a literal of the three known keys."""
    wide = len(content) > 6 and content[6] >= 2
    start = 12 if wide else 10
    if len(content) < start:
        raise TraceError.at(path, "ends within its header")
    length = int.from_bytes(content[8:start], "little")
    if length > MAX_HEADER_BYTES or start + length > len(content):
        raise TraceError.at(path, f"its header claims {length} bytes")
    try:
        header = ast.literal_eval(content[start : start + length].decode("latin-1").strip())
        dtype, shape = header["descr"], header["shape"]
        order = header["fortran_order"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise TraceError.at(path, "its header is not a literal of descr, fortran_order and shape") from None
    good = isinstance(dtype, str) and isinstance(shape, tuple) and order is False
    if not good or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise TraceError.at(path, f"its header says type {dtype!r}, shape {shape!r}")
    return dtype, shape, content[start + length :]


def _interpret(body: bytes) -> Any:
    """Run the opcodes of plain data; what STOP finds on the stack."""
    machine = _Machine()
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(body)):
            if count >= MAX_OPCODES:
                raise _Refused(f"has more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return machine.finish()
            machine.step(opcode.name, argument, position or 0)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise _Refused(f"its object data are damaged ({type(error).__name__})") from None
    raise _Refused("its object data end without STOP")


class _Machine:
    """A stack, marks and a memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def finish(self) -> Any:
        if len(self.stack) != 1:
            raise _Refused(f"leaves {len(self.stack)} objects")
        return self.stack[0]

    def step(self, name: str, argument: Any, position: int) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]() if argument is None else argument)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self.stack.append(self.named(name, argument, position))
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise _Refused(f"uses the opcode {name} at byte {position}, which plain data do not need")

    def named(self, opcode: str, argument: Any, position: int) -> _Name:
        if opcode == "STACK_GLOBAL":
            attribute, module = self.stack.pop(), self.stack.pop()
            argument = f"{module} {attribute}"
        if argument not in _NAMES:
            raise _Refused(f"names {argument!r} at byte {position}")
        return _Name(_NAMES[argument])

    def above_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def reduce(self, _argument: Any) -> None:
        arguments, callee = self.stack.pop(), self.stack.pop()
        if not isinstance(callee, _Name) or not isinstance(arguments, tuple):
            raise _Refused("calls something that is not a known name")
        if callee.word == _RECONSTRUCT:
            kind, shape, code = arguments
            if not (
                isinstance(kind, _Name) and kind.word == _NDARRAY and shape == (0,) and code in ("b", b"b")
            ):
                raise _Refused(f"asks for an array of shape {shape!r}")
        elif callee.word != _DTYPE or arguments[0] not in ("O8", "O4", b"O8", b"O4"):
            raise _Refused(f"calls {callee.word} with {arguments!r:.60}")
        self.stack.append(_Made(callee.word))

    def build(self, _argument: Any) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if not isinstance(made, _Made) or not isinstance(state, tuple):
            raise _Refused("sets the state of an object through something that is not a tuple")
        made.state = state

    def put(self, key: Any) -> None:
        self.memo[int(key)] = self.stack[-1]

    def memoize(self, _argument: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def get(self, key: Any) -> None:
        self.stack.append(self.memo[int(key)])

    def mark(self, _argument: Any) -> None:
        self.stack.append(_MARK)

    def tuple_of(self, count: int) -> None:
        items = self.stack[len(self.stack) - count :]
        if len(items) != count or _MARK in items:
            raise IndexError("tuple")
        del self.stack[len(self.stack) - count :]
        self.stack.append(tuple(items))

    def append(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _Refused("appends to something that is not a list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        keys = items[::2]
        if not isinstance(target, dict) or not all(isinstance(key, str) for key in keys):
            raise _Refused("sets items of something that is not a record with text keys")
        target.update(zip(keys, items[1::2], strict=True))

    def new_dict(self, _argument: Any) -> None:
        items = self.above_mark()
        self.stack.append({})
        self.set_items(items)

    def pair(self) -> list[Any]:
        value = self.stack.pop()
        return [self.stack.pop(), value]


_CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"), int),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"), str),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"), str),
}
_ACTIONS: Final[dict[str, Callable[[_Machine, Any], None]]] = {
    "MARK": _Machine.mark,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "TUPLE": lambda m, _: m.stack.append(tuple(m.above_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "LIST": lambda m, _: m.stack.append(m.above_mark()),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.above_mark()),
    "DICT": _Machine.new_dict,
    "SETITEM": lambda m, _: m.set_items(m.pair()),
    "SETITEMS": lambda m, _: m.set_items(m.above_mark()),
}


def _rows(value: Any) -> list[dict[str, int]]:
    """The list inside the array's state, each row checked."""
    if not isinstance(value, _Made) or value.word != _RECONSTRUCT or value.state is None:
        raise _Refused("contains something that is not an array")
    rows = value.state[-1] if len(value.state) == 5 else None
    if not isinstance(rows, list):
        raise _Refused("the array contains no list of rows")
    return [_row(number, row) for number, row in enumerate(rows)]


def _row(number: int, row: Any) -> dict[str, int]:
    if not isinstance(row, dict):
        raise _Refused(f"row {number} is not a record")
    counts = {}
    for key, value in row.items():
        digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20
        if not digits and (not isinstance(value, int) or isinstance(value, bool)):
            raise _Refused(f"row {number} is {value!r:.40}, a whole number is expected")
        counts[key] = int(value)
    return counts
