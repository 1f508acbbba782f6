"""Containers as other libraries write and read them; tests with the libraries themselves are skipped without these."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.cli.main import run as command_line
from forerun.domains.loading.blocks.convert import convert, kind_of, member_stem, passed_over, samples_of
from forerun.domains.loading.blocks.pack import PackSpec, pack
from forerun.domains.loading.blocks.tar import write_tar
from forerun.errors import DataError, StoreError
from forerun.regular import read_regular


def library(name: str, package: str) -> Any:
    """A library, or a skip that says how to have it."""
    return pytest.importorskip(name, reason=f"{package} is not installed: pip install {package}")


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, bytes]:
    """Files of many kinds of names below `files`: pairs of image and class, dots in folders, no extension, no text."""
    rng = np.random.default_rng(3)
    found = {f"c{i % 3}/{i:04d}.bin": rng.bytes(int(rng.integers(0, 900))) for i in range(40)}
    found |= {f"pairs/{i:03d}.{ext}": rng.bytes(30) for i in range(11) for ext in ("cls", "jpg")}
    found |= {"README": b"x", "a.b.c": b"y", ".hidden": b"z", "dir.v1/x.bin": b"", "ünï/ç.bin": b"u"}
    for key, data in found.items():
        path = tmp_path / "files" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return found


@pytest.mark.parametrize("packed", [False, True])
def test_webdataset_reads_our_shards(tree: dict[str, bytes], tmp_path: Path, packed: bool) -> None:
    """Every member with an extension, image and class as one sample even out of shuffled blocks."""
    wds = library("webdataset", "webdataset")
    source = tmp_path / "files"
    if packed:
        source = pack(source, tmp_path / "blocks", PackSpec(5, seed=2)).folder
    convert(source, tmp_path / "tar", "tar", spec=PackSpec(7))
    shards = sorted(str(path) for path in (tmp_path / "tar").glob("*.tar"))
    assert len(shards) > 5
    samples = list(wds.WebDataset(shards, shardshuffle=False))
    found = {
        f"{sample['__key__']}.{part}": data
        for sample in samples
        for part, data in sample.items()
        if not part.startswith("__")
    }
    skipped = passed_over(tmp_path / "tar")
    assert sorted(skipped) == [".hidden", "README"]
    assert found == {key: data for key, data in tree.items() if key not in skipped}
    assert sum("jpg" in sample and "cls" in sample for sample in samples) == 11


def test_we_read_the_shards_of_webdataset(tmp_path: Path) -> None:
    wds = library("webdataset", "webdataset")
    with wds.TarWriter(str(tmp_path / "x.tar")) as writer:
        for i in range(5):
            writer.write({"__key__": f"d/s{i}", "jpg": b"abc" * i, "cls": str(i).encode()})
    found = dict(samples_of(tmp_path / "x.tar"))
    assert found == {
        f"d/s{i}.{ext}": data for i in range(5) for ext, data in (("jpg", b"abc" * i), ("cls", b"%d" % i))
    }
    assert convert(tmp_path / "x.tar", tmp_path / "back", "files") == 10
    assert (tmp_path / "back/d/s3.jpg").read_bytes() == b"abcabcabc"


def test_streaming_reads_our_shards_and_we_read_its(tree: dict[str, bytes], tmp_path: Path) -> None:
    streaming = library("streaming", "mosaicml-streaming")
    convert(tmp_path / "files", tmp_path / "mds", "mds", spec=PackSpec(16))
    data = streaming.StreamingDataset(local=str(tmp_path / "mds"), shuffle=False, batch_size=1)
    assert {sample["key"]: sample["data"] for sample in data} == tree
    ordered = sorted(tree.items())
    for name, columns in (("both", {"data": "bytes", "key": "str"}), ("more", {"data": "bytes", "x": "int"})):
        with streaming.MDSWriter(out=str(tmp_path / name), columns=columns, size_limit=2000) as writer:
            for number, (key, content) in enumerate(ordered):
                row = {"data": content, "key": key, "x": number}
                writer.write({column: row[column] for column in columns})
        assert len(list((tmp_path / name).glob("*.mds"))) > 3
        found = list(samples_of(tmp_path / name))
        assert [content for _, content in found] == [content for _, content in ordered]
        assert name == "more" or found == ordered
    with streaming.MDSWriter(
        out=str(tmp_path / "zstd"), columns={"data": "bytes"}, compression="zstd"
    ) as writer:
        writer.write({"data": b"x" * 100})
    with pytest.raises(DataError, match=r"is compressed by zstd"):
        list(samples_of(tmp_path / "zstd"))


def test_parts_of_a_sample_stay_together(tree: dict[str, bytes], tmp_path: Path) -> None:
    """Without the library: members of one stem follow each other, in one shard, whatever the blocks' order."""
    blocks = pack(tmp_path / "files", tmp_path / "blocks", PackSpec(5, seed=2))
    assert convert(blocks.folder, tmp_path / "tar", "tar", spec=PackSpec(7)) == len(tree)
    placed: dict[str, list[tuple[str, int]]] = {}
    for shard in sorted((tmp_path / "tar").glob("*.tar")):
        for at, (key, data) in enumerate(samples_of(shard)):
            assert data == tree[key]
            placed.setdefault(member_stem(key), []).append((shard.name, at))
    assert sum(map(len, placed.values())) == len(tree)
    for held in placed.values():
        assert len({shard for shard, _ in held}) == 1
        assert [at - held[0][1] for _, at in held] == list(range(len(held)))
    first = list(dict.fromkeys(member_stem(key) for key in blocks.index.key))
    assert list(placed) == first  # shuffled as the blocks are
    assert member_stem("dir.v1/x.a.b") == "dir.v1/x"


def test_what_webdataset_passes_over_is_told(
    tree: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["pack", str(tmp_path / "files"), str(tmp_path / "tar"), "--to", "tar", "-q"]) == 0
    assert "webdataset passes over 2 of them" in capsys.readouterr().err


def test_compressed_shards_are_not_taken_for_files(tmp_path: Path) -> None:
    """Shards that only their own library reads are told by name, not packed as if they were samples."""
    write_tar(tmp_path / "x.tar", [("a.bin", b"1")])
    (tmp_path / "y.tar").write_bytes(gzip.compress((tmp_path / "x.tar").read_bytes()))
    with pytest.raises(DataError, match=r"y\.tar: is compressed by gzip; decompress it first"):
        list(samples_of(tmp_path / "y.tar"))
    folder = tmp_path / "mds"
    folder.mkdir()
    shard = {
        "raw_data": {"basename": "shard.00000.mds"},
        "compression": "zstd",
        "format": "mds",
        "version": 2,
    }
    change: Callable[[Any], Any]
    for change, message in (
        (lambda s: s, "is compressed by zstd"),
        (lambda s: {**s, "compression": None, "version": 3}, "is not of format mds, version 2"),
    ):
        (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [change(shard)]}))
        assert kind_of(folder) == "mds"
        with pytest.raises(DataError, match=message):
            list(samples_of(folder))
    (folder / "index.json").write_text('{"classes": []}')
    assert kind_of(folder) == "files"


@pytest.mark.parametrize("to", ["tar", "mds"])
def test_shards_are_whole_or_not_there(
    tree: dict[str, bytes], tmp_path: Path, to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that cannot be read, a full disk, a target in use: told by name, and nothing is left behind."""
    target = tmp_path / "out" / to

    def unreadable(path: Path) -> bytes:
        if path.name == "006.jpg":
            raise PermissionError(13, "Permission denied")
        return read_regular(path)

    monkeypatch.setattr("forerun.domains.loading.blocks.convert.read_regular", unreadable)
    with pytest.raises(DataError, match=r"pairs/006\.jpg: cannot be read: Permission denied"):
        convert(tmp_path / "files", target, to, spec=PackSpec(8))
    monkeypatch.undo()
    assert list((tmp_path / "out").iterdir()) == []

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tarfile.TarFile.addfile", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        StoreError, match=r"cannot be written: No space left on device; nothing is left of it"
    ):
        convert(tmp_path / "files", target, to, spec=PackSpec(8))
    monkeypatch.undo()
    assert list((tmp_path / "out").iterdir()) == []
    target.mkdir()
    assert convert(tmp_path / "files", target, to) == len(tree) and dict(samples_of(target)) == tree
    with pytest.raises(StoreError, match="holds something already"):
        convert(tmp_path / "files", target, to)
