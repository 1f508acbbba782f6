"""Files behind a URL as a source of packing, and blocks put to one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from forerun.blocks.container.container import INDEX, MANIFEST, Blocks
from forerun.blocks.container.samples import FileEntry, in_order
from forerun.blocks.container.shards import refuse_shards
from forerun.blocks.reader.clients import open_client
from forerun.core.errors import DataError, UsageError


def remote_files(url: str, token: str = "") -> tuple[FileEntry, ...]:
    """The files that a URL lists, to be packed.

    Raises StoreError if it cannot be listed, DataError for names that are unsafe or collide, and for blocks.

    Parameters
    ----------
    url : of a folder or a prefix.
    token : bearer token of an HTTP store (default: none).
    """
    client = open_client(url, token)
    names = []
    for name, size in client.names():
        if name == MANIFEST:
            raise DataError.at(url, "contains blocks already")
        read = partial(client.read, name, 0, size, f"sample {name!r}")
        names.append(FileEntry(name, Path(name), size, read))
    refuse_shards(None, [(entry.key, entry.size_bytes) for entry in names], url)
    return in_order(names, url)


def upload(folder: Path, url: str) -> tuple[int, int]:
    """Put the blocks of a folder to a URL; the manifest is last, so that a container without one is incomplete.

    Returns how many files and bytes. Raises DataError if the folder is no container, UsageError for a URL that takes
    nothing, StoreError where writing fails.

    Parameters
    ----------
    folder : of a container.
    url : where its files are put, under their own names.
    """
    blocks = Blocks.open(folder)
    client = open_client(url)
    if not hasattr(client, "write"):
        raise UsageError.at(url, "takes no uploads; s3, gs, az and fsspec's URLs do")
    paths = [*(blocks.block_path(block) for block in range(blocks.blocks)), folder / INDEX, folder / MANIFEST]
    for path in paths:
        client.write(path.name, path)
    return len(paths), sum(path.stat().st_size for path in paths)
