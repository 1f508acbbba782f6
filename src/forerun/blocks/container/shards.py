"""Files of many samples each, recognised so that they are not packed or measured as if each were a sample.

Tar by its suffix; formats of other libraries by the names that these give, Parquet and TFRecord also by what a file begins
with, since both are often stored without a suffix. Sources: litdata 0.2, mosaicml-streaming 0.13, the Parquet format, the
TFRecord page of tensorflow.org.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from forerun.core.errors import DataError
from forerun.core.regular import open_regular

#: what lies beside samples and is none
_BESIDE: Final = re.compile(r"(^|/)[._][^/]*$|\.(json|jsonl|txt|md|csv|crc|ya?ml|idx|index)$", re.IGNORECASE)
_TAR: Final = re.compile(r"\.(tar|tgz|tbz2|txz|tar\.(gz|bz2|xz|zst|zstd))$", re.IGNORECASE)
_NAMES: Final = {
    "MDS": re.compile(r"\.mds(\.\w+)?$"),
    "LitData": re.compile(r"(^|/)chunk-\d+-\d+(\.\w+)?\.bin$"),
    "TFRecord": re.compile(r"\.(tfrecords?|tfrec)(\.\w+)?$", re.IGNORECASE),
    "Parquet": re.compile(r"\.(parquet|pq)$", re.IGNORECASE),
    "Arrow": re.compile(r"\.arrow$", re.IGNORECASE),
    "LMDB": re.compile(r"(^|/)(data|lock)\.mdb$"),
    "tar": _TAR,
}


def payload_of(sizes: Sequence[tuple[str, int]]) -> list[str]:
    """The names of the files that do not lie beside samples, as JSON, text and hidden files do.

    Parameters
    ----------
    sizes : name and bytes of each file.
    """
    return [key for key, _ in sizes if not _BESIDE.search(key)]


def refuse_shards(
    folder: Path | None, sizes: Sequence[tuple[str, int]], where: object, *, alone: bool = False
) -> None:
    """Raise DataError, naming the format and how to get at its samples, if the files are shards of many samples.

    They are if all of them are, those aside that lie beside samples.

    Parameters
    ----------
    folder : where the files lie, to look into a few of them (None: they are judged by names alone).
    sizes : name and bytes of each file.
    where : what messages call the source.
    alone : a single file was named, which is read if it is a tar (default: no).
    """
    payload = payload_of(sizes)
    seen = {payload[at] for at in (0, len(payload) // 2, len(payload) - 1)} if payload else ()
    formats = {_by_name(key) or ("" if folder is None else _by_head(folder / key)) for key in seen}
    kind = formats.pop() if len(formats) == 1 else ""
    if not kind or (kind == "tar" and (alone or not all(map(_TAR.search, payload)))):
        return
    at = f"{where}/{payload[0]}"
    if kind == "tar" and not at.lower().endswith(".tar"):
        raise DataError.at(at, f"is a compressed tar; decompress it with {unpacking(at)}")
    if kind == "tar":
        raise DataError.at(
            at, f"is of tar shards in a folder below; name that folder, {at.rpartition('/')[0]}"
        )
    raise DataError.at(
        at,
        f"is of the format {kind}, whose files hold many samples each: measure it through its own library, "
        "forerun measure loading --dataset MODULE:FUNCTION; to pack it, write its samples as files",
    )


def unpacking(name: str, tool: str = "") -> str:
    """The command that decompresses a tar.

    Parameters
    ----------
    name : of the tar.
    tool : the compressor, if the name does not say it (default: by the suffix).
    """
    suffix = name.lower().rpartition(".")[2]
    known = {"gz": "gzip", "tgz": "gzip", "bz2": "bzip2", "tbz2": "bzip2", "xz": "xz", "txz": "xz"}
    tool = tool or known.get(suffix, "zstd")
    stem = re.sub(r"(\.tar)?\.[^.]+$", "", name.rpartition("/")[2])
    return f"{tool} -dc < {name.rpartition('/')[2]} > {stem}.plain.tar, and name that file"


def _by_name(key: str) -> str:
    """The format that a file's name says, an empty text if it says none."""
    return next((kind for kind, pattern in _NAMES.items() if pattern.search(key)), "")


def _by_head(path: Path) -> str:
    """The format that a file's first bytes say, an empty text if they say none."""
    try:
        with open_regular(path) as file:
            head = file.read(12)
    except OSError:
        return ""
    if head.startswith(b"PAR1"):
        return "Parquet"
    return "TFRecord" if len(head) == 12 and head[8:] == _masked_crc32c(head[:8]) else ""


def _masked_crc32c(data: bytes) -> bytes:
    """The checksum that TFRecord stores of a length: CRC-32 with Castagnoli's polynomial, rotated, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")
