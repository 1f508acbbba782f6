"""LitData folders, as `litdata.optimize` writes them: chunks of items whose values have plain encodings.

index.json names the chunks, the encoding of each value (`data_format`) and the tree in which values stand (`data_spec`). A
chunk is: uint32 number of items, uint32 offsets (one more than items, absolute), then each item: uint32 sizes of its values,
and the values. Numbers are little-endian. Found out from what litdata 0.2.76 writes; a test has it write some where it is
installed. Values whose encoding is a pickle, or belongs to another library, are refused by name.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.domains.loading.blocks.samples import unsafe
from forerun.errors import DataError

#: what is made of a value's bytes, by the name of its encoding
_VALUES: Final[Mapping[str, Callable[[memoryview], Any]]] = {
    "bytes": lambda data: data,
    "jpeg": lambda data: data,
    "str": lambda data: bytes(data).decode("utf-8"),
    "int": lambda data: struct.unpack("<q", data)[0],
    "float": lambda data: struct.unpack("<d", data)[0],
    "bool": lambda data: struct.unpack("<?", data)[0],
}


@dataclass(frozen=True)
class Items:
    """How the bytes of chunks become samples.

    Parameters
    ----------
    names : of the values; empty if a sample is a single one.
    encodings : of the values.
    """

    names: tuple[str, ...]
    encodings: tuple[str, ...]

    def samples(
        self, block: int, count: int, data: memoryview, *, verify: bool, where: str
    ) -> Iterator[tuple[str | None, Any]]:
        """Samples without keys: a dictionary of the values, or the only one. The format has no checksums.

        Parameters
        ----------
        block : not needed here.
        count : samples that the bytes must contain.
        data : the samples' bytes.
        verify : not possible here.
        where : what messages call the chunk.

        Raises DataError for bytes that are no such samples.
        """
        at, values = 0, len(self.encodings)
        for number in range(count):
            if len(data) - at < 4 * values:
                raise DataError.at(where, f"item {number} of {count} ends within its sizes")
            sizes = struct.unpack_from(f"<{values}I", data, at)
            at += 4 * values
            sample = []
            for encoding, size in zip(self.encodings, sizes):
                content = data[at : at + size]
                at += size
                try:
                    if len(content) != size:
                        raise ValueError(f"{len(content)} bytes of {size}")
                    sample.append(_VALUES[encoding](content))
                except (ValueError, struct.error) as error:
                    raise DataError.at(
                        where, f"item {number} of {count} has no {encoding}: {error}"
                    ) from error
            yield None, dict(zip(self.names, sample)) if self.names else sample[0]
        if at != len(data):
            raise DataError.at(where, f"{count} items have {at} bytes, not {len(data)}")


def listed_chunks(data: bytes, where: object) -> tuple[list[str], Items] | None:
    """The files of the chunks that an index names, and how their items are read; None for JSON that is no such index.

    Parameters
    ----------
    data : of index.json.
    where : what messages call it.

    Raises DataError for a data set that is compressed, encrypted, or has values that are not read.
    """
    try:
        index = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(index, dict) or not isinstance(index.get("chunks"), list) or "config" not in index:
        return None
    config = index["config"]
    names: list[Any] = [
        chunk.get("filename") if isinstance(chunk, dict) else None for chunk in index["chunks"]
    ]
    encodings = config.get("data_format") if isinstance(config, dict) else None
    if not names or not isinstance(encodings, list) or not encodings:
        raise DataError.at(where, "is an index of LitData that names no chunks, or no data_format")
    for name in names:
        if not isinstance(name, str) or unsafe(name):
            raise DataError.at(where, f"is an index of LitData that names the chunk {name!r:.60}")
    for key in ("compression", "encryption"):
        if config.get(key):
            raise DataError.at(
                where, f"is of LitData with {key} {config[key]!r:.40}, which is not read in parts"
            )
    if config.get("item_loader", "PyTreeLoader") != "PyTreeLoader":
        raise DataError.at(
            where, f"is of LitData for {config['item_loader']!r:.40}; litdata.StreamingDataset reads it"
        )
    values = _names(config.get("data_spec"), len(encodings), where)
    for place, encoding in enumerate(encodings):
        if encoding not in _VALUES:
            what = values[place] if values else "the value"
            pickled = "; pickles are not read, they can run code" if encoding == "pickle" else ""
            raise DataError.at(
                where,
                f"is of LitData, where {what[:40]!r} has the encoding {encoding!r:.40}; read are "
                f"{', '.join(_VALUES)}{pickled}",
            )
    return names, Items(values, tuple(encodings))


def _names(spec: Any, count: int, where: object) -> tuple[str, ...]:
    """The names of a sample's values: keys of a dictionary, numbers of a list; empty for a single value."""
    try:
        tree = json.loads(spec)[1]
        children = tree["children_spec"]
        if not children and count == 1:
            return ()
        assert len(children) == count and not any(child["children_spec"] for child in children)
        names = json.loads(tree["context"]) if str(tree["type"]).endswith("dict") else range(count)
        named = tuple(map(str, names))
        assert len(set(named)) == count
    except (ValueError, KeyError, TypeError, IndexError, AssertionError, RecursionError) as error:
        raise DataError.at(
            where, "is of LitData whose samples are no dictionary or list of values"
        ) from error
    return named


def chunk_edges(head: bytes, size_bytes: int, where: object) -> Sequence[int]:
    """Where the items of a chunk begin, and the end of the last.

    Parameters
    ----------
    head : the chunk's first bytes, all offsets at least.
    size_bytes : of the chunk.
    where : what messages call it.

    Raises DataError for offsets that do not ascend from their own end to the end of the file.
    """
    count = int.from_bytes(head[:4], "little")
    table = 4 + 4 * (count + 1)
    if len(head) < table:
        raise DataError.at(
            where, f"claims {count} items and ends within their offsets: no chunk of LitData, or cut short"
        )
    edges = struct.unpack_from(f"<{count + 1}I", head, 4)
    if edges[0] != table or edges[-1] != size_bytes or any(b < a for a, b in itertools.pairwise(edges)):
        raise DataError.at(
            where, "has offsets that do not ascend to its end: no chunk of LitData, or cut short"
        )
    return edges
