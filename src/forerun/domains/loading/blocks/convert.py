"""From one way of keeping samples to another: files, blocks, WebDataset tar, MDS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from forerun.domains.loading.blocks.container import MANIFEST, Blocks
from forerun.domains.loading.blocks.mds import INDEX as MDS_INDEX
from forerun.domains.loading.blocks.mds import read_mds, write_mds
from forerun.domains.loading.blocks.pack import PackSpec, pack, unpack
from forerun.domains.loading.blocks.samples import check_keys, list_files, write_file
from forerun.domains.loading.blocks.tar import read_tar, write_tar
from forerun.errors import UsageError, known_names

Kind = Literal["files", "blocks", "tar", "mds"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def kind_of(path: Path) -> Kind:
    """What a path holds. A folder with a manifest is blocks, with index.json and shards MDS, else files."""
    if path.is_file() or (path.is_dir() and any(path.glob("*.tar"))):
        return "tar"
    if (path / MANIFEST).exists():
        return "blocks"
    if (path / MDS_INDEX).exists() and any(path.glob("*.mds")):
        return "mds"
    return "files"


def samples_of(path: Path, kind: Kind | None = None) -> Iterator[tuple[str, bytes]]:
    """Keys and bytes of what a path holds, in its order."""
    match kind or kind_of(path):
        case "tar":
            shards = [path] if path.is_file() else sorted(path.glob("*.tar"))
            for shard in shards:
                yield from read_tar(shard)
        case "mds":
            yield from read_mds(path)
        case "blocks":
            yield from Blocks.open(path)
        case "files":
            for entry in list_files(path):
                yield entry.key, entry.path.read_bytes()


def convert(source: Path, target: Path, to: Kind, *, spec: PackSpec | None = None) -> int:
    """Write what `source` holds as `to`; returns how many samples.

    Blocks are packed from files; from tar or MDS they go by way of `unpack`ed files that the caller keeps.
    Raises UsageError for a conversion that is none, DataError for bad samples.
    """
    kind = kind_of(source)
    if to not in KINDS:
        raise UsageError.at("--to", f"no kind {to!r}; {known_names(to, KINDS)}")
    if to == "blocks":
        if kind != "files":
            raise UsageError.at(str(source), f"holds {kind}; unpack it to files first, then pack these")
        return len(pack(source, target, spec))
    if kind == to:
        raise UsageError.at(str(source), f"holds {kind} already")
    if to == "files":
        return unpack(source, target) if kind == "blocks" else restore(source, target, kind)
    spec = spec or PackSpec()
    if to == "mds":
        return write_mds(target, samples_of(source, kind), shard_samples=spec.block_samples)
    target.mkdir(parents=True, exist_ok=True)
    return _tar_shards(target, samples_of(source, kind), spec.block_samples)


def restore(source: Path, target: Path, kind: Kind) -> int:
    """Write the samples of tar or MDS shards as files."""
    check_keys((key for key, _ in samples_of(source, kind)), source)
    target.mkdir(parents=True, exist_ok=True)
    count = 0
    made: set[str] = set()
    for key, data in samples_of(source, kind):
        write_file(target, key, data, made)
        count += 1
    return count


def _tar_shards(target: Path, samples: Iterator[tuple[str, bytes]], shard_samples: int) -> int:
    total, held, number = 0, [], 0
    for sample in samples:
        held.append(sample)
        if len(held) == shard_samples:
            total += write_tar(target / f"shard-{number:06d}.tar", held)
            number, held = number + 1, []
    return total + (write_tar(target / f"shard-{number:06d}.tar", held) if held else 0)
