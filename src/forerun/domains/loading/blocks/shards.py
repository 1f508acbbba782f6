"""Formats of many samples a file, recognised so that their files are not taken for samples.

By what files begin with, or by their index: LitData (index.json with `chunks`), MDS (index.json with `shards`),
Parquet (first bytes PAR1), TFRecord (length and its masked CRC-32C), Arrow and LMDB by their names, tar by its suffix.
Sources: litdata 0.2, mosaicml-streaming 0.13, the Parquet format, the TFRecord page of tensorflow.org.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from forerun.errors import DataError
from forerun.regular import open_regular, read_regular

#: what lies beside samples and is none
_BESIDE: Final = re.compile(r"(^|/)[._][^/]*$|\.(json|jsonl|txt|md|csv|crc|ya?ml|idx|index)$", re.IGNORECASE)
_TAR: Final = re.compile(r"\.(tar|tgz|tbz2|txz|tar\.(gz|bz2|xz|zst|zstd))$", re.IGNORECASE)
_SUFFIXES: Final = {
    ".tfrecord": "TFRecord",
    ".tfrecords": "TFRecord",
    ".tfrec": "TFRecord",
    ".arrow": "Arrow",
}
_MAX_INDEX_BYTES: Final = 64 * 1024**2

#: what reads each format
_READERS: Final = {
    "LitData": "forerun.loading.BlockDataset",
    "Parquet": "forerun.loading.BlockDataset",
    "Arrow": "datasets.load_from_disk",
    "TFRecord": "forerun.loading.BlockDataset",
    "LMDB": "the package lmdb",
}


def shards_in(folder: Path | None, sizes: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """The format and a file of it, if the files (keys and bytes) are shards of many samples; else two empty texts.

    A folder is one of shards if all its files are, those aside that lie beside samples (JSON, text, hidden files).

    Parameters
    ----------
    folder : where the files lie, to look into a few of them; None judges by names alone.
    """
    if folder is not None:
        for key, size in sizes:
            if key.rpartition("/")[2] == "index.json" and size <= _MAX_INDEX_BYTES:
                index = _json(folder / key)
                if isinstance(index.get("chunks"), list) and "config" in index:
                    return "LitData", key
                if isinstance(index.get("shards"), list) and "version" in index:
                    return "MDS", key
    payload = payload_of(sizes)
    if not payload:
        return "", ""
    seen = {payload[at] for at in (0, len(payload) // 2, len(payload) - 1)}
    formats = {_by_name(key) or ("" if folder is None else _by_head(folder / key)) for key in seen}
    kind = formats.pop() if len(formats) == 1 else ""
    if kind == "tar" and not all(_TAR.search(key) for key in payload):
        kind = ""
    return (kind, payload[0]) if kind else ("", "")


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

    Parameters
    ----------
    folder : where the files lie, to look into a few of them (None: they are judged by names alone).
    sizes : name and bytes of each file.
    where : what messages call the source.
    alone : a single file was named, which is read if it is a tar (default: no).
    """
    kind, key = shards_in(folder, sizes)
    if not kind or (alone and kind == "tar"):
        return
    at = f"{where}/{key}"
    if kind in ("tar", "MDS") or (kind == "LitData" and "/" in key):
        parent = f"{where}/{key}".rpartition("/")[0]
        if kind == "tar" and not key.lower().endswith(".tar"):
            raise DataError.at(at, f"is a compressed tar; decompress it with {unpacking(key)}")
        raise DataError.at(at, f"is of {kind} shards in a folder below; name that folder, {parent}")
    article = "an" if kind == "Arrow" else "a"
    raise DataError.at(
        at,
        f"is of {article} {kind} data set, whose files hold many samples each; {_READERS[kind]} reads it, "
        "write its samples as files",
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


def _json(path: Path) -> dict[str, Any]:
    """A small JSON object; an empty one for what is none."""
    try:
        index = json.loads(read_regular(path, most_bytes=_MAX_INDEX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return index if isinstance(index, dict) else {}


def _by_name(key: str) -> str:
    """The format that a file's name says, an empty text if it says none."""
    name = key.rpartition("/")[2].lower()
    if name in ("data.mdb", "lock.mdb"):
        return "LMDB"
    if name.endswith((".parquet", ".pq")):
        return "Parquet"
    return "tar" if _TAR.search(name) else _SUFFIXES.get("." + name.rpartition(".")[2], "")


def _by_head(path: Path) -> str:
    """The format that a file's first bytes say, an empty text if they say none."""
    try:
        with open_regular(path) as file:
            head = file.read(12)
    except OSError:
        return ""
    return kind_by_head(head)


def kind_by_head(head: bytes) -> str:
    """The format that a file's first twelve bytes say: Parquet or TFRecord; an empty text if they say none.

    Parameters
    ----------
    head : those bytes.
    """
    if head.startswith(b"PAR1"):
        return "Parquet"
    if len(head) == 12 and _masked(_crc32c(head[:8])) == int.from_bytes(head[8:], "little"):
        return "TFRecord"
    return ""


def _crc32c(data: bytes) -> int:
    """CRC-32 with Castagnoli's polynomial, of a few bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    """As TFRecord stores a checksum: rotated by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
