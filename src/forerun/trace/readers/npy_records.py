"""Polled memory of containers, as the loading notebook keeps it: an object array in NumPy's format.

A one-way street: what such a file holds becomes a table that needs no unpickling ever again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from forerun.errors import TraceError
from forerun.registry import member_name
from forerun.trace.reader import Head, TraceReader
from forerun.trace.readers.loading_npy import read_records
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Field
from forerun.trace.table import Provenance, Trace, schema_of

COLUMNS = (
    Field(name="poll", kind="int", minimum=0, meaning="number of the poll, from 0"),
    Field(name="name", kind="text", meaning="what was polled, for instance a container"),
    Field(name="bytes", kind="int", unit="bytes", meaning="what it held then"),
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
        rows = [(at, name, held) for at, poll in enumerate(polls) for name, held in poll.items()]
        if not rows:
            raise TraceError.at(path, "holds no polls")
        at, names, held = zip(*rows, strict=True)
        if max(map(abs, held)) > 2**53:
            raise TraceError.at(path, "holds a number beyond 2^53")
        columns = {
            "poll": np.array(at, np.int64),
            "name": np.array(names, np.str_),
            "bytes": np.array(held, np.int64),
        }
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        made = Provenance(format=member_name(type(self)), source=path.name, sha256=digest)
        return Trace("polls", schema_of(COLUMNS), columns, time="poll", provenance=made)
