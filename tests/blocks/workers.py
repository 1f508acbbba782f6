"""What worker processes of these tests do. One that is started afresh imports this module, and no test."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from forerun.blocks.reader.clients import Client

#: file, first byte, and the SHA-256 of the bytes that are there, whose number is the last entry
Wanted = tuple[str, int, str, int]


def plain(sample: Any) -> Any:
    """A sample as bytes."""
    return {part: bytes(view) for part, view in sample.items()} if isinstance(sample, dict) else bytes(sample)


def taken(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Keys and bytes."""
    return [(key, plain(sample)) for key, sample in pairs]


def read_share(reader: Iterable[tuple[str, Any]], results: Any) -> None:
    """The digest of every sample of a reader's share, or what went wrong."""
    try:
        results.put(
            [(key, hashlib.sha256(repr(sample).encode()).hexdigest()) for key, sample in taken(reader)]
        )
    except BaseException as error:
        results.put(f"{type(error).__name__}: {error}")


def read_all(
    number: int, client: Client, wanted: list[Wanted], passes: int, together: Any, results: Any
) -> None:
    """Everything that is wanted, in an order of its own; what was wrong is sent."""
    wrong: list[str] = []
    try:
        together.wait(120)
        for at in np.random.default_rng(number).permutation(passes * len(wanted)).tolist():
            name, first, digest, length = wanted[at % len(wanted)]
            data = client.read(name, first, length, "x")
            if len(data) != length or hashlib.sha256(data).hexdigest() != digest:
                wrong.append(f"{name} from {first}: {len(data)} bytes for {length}")
    except BaseException as error:
        wrong.append(f"{type(error).__name__}: {error}")
    results.put(wrong)
