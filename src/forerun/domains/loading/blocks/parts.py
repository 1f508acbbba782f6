"""Typed samples as files: what a column of another library's data set is called, and its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from forerun.domains.loading.blocks.samples import unsafe
from forerun.errors import DataError

#: what pictures begin with, and their suffix: libraries choose a decoder by it
_HEADS: Final = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"fLaC", "flac"))
#: what no part is called
_UNUSUAL: Final = re.compile(r"[^\w.-]")


def parts_of(key: str, sample: Any, where: str) -> Iterator[tuple[str, bytes]]:
    """Keys and bytes of the parts of a sample.

    Bytes are as they are; numbers and text are text, lists and arrays JSON; a dictionary is a part for each of its values,
    and what is None is left out.

    Parameters
    ----------
    key : of the sample.
    sample : its value, or a dictionary of values by their names.
    where : what messages call the data set.

    Raises DataError for a sample without values, values of other types, and keys that are no file names.
    """
    parts = list(_values("", sample))
    if not parts:
        raise DataError.at(where, f"sample {key[:80]!r} has no value")
    for name, value in parts:
        try:
            suffix, content = _content(value)
        except (TypeError, ValueError) as error:
            what = type(value).__name__
            raise DataError.at(
                where, f"{name[:40]!r} of sample {key[:80]!r} is a {what}, which no file holds"
            ) from error
        part = _UNUSUAL.sub("_", name)
        whole = key if not part else f"{key}.{part}"
        if part and suffix and part.rpartition(".")[2] != suffix:
            whole += f".{suffix}"
        if why := unsafe(whole):
            raise DataError.at(where, f"key {whole[:80]!r} {why}")
        yield whole, content


def _values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values of a sample by name; those of a dictionary within have a name of two words."""
    if isinstance(value, dict):
        for each, inner in value.items():
            yield from _values(f"{name}.{each}" if name else str(each), inner)
    elif value is not None:
        yield name, value


def _content(value: Any) -> tuple[str, bytes]:
    """Suffix and bytes of a value. Raises TypeError for one that JSON does not know."""
    if isinstance(value, bytes | memoryview):
        head = bytes(value[:8])
        return next((suffix for magic, suffix in _HEADS if head.startswith(magic)), ""), bytes(value)
    if isinstance(value, str):
        return "txt", value.encode("utf-8")
    if isinstance(value, np.ndarray):
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, list):
        return "json", json.dumps(value, allow_nan=False).encode()
    return "txt", str(value).encode()
