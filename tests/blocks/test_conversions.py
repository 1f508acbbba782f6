"""Files, blocks and tar as each other, as webdataset writes and reads tar; and what is none of these, refused by name."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container.convert import convert, kind_of, passed_over, samples_of
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.container.samples import member_stem, sample_groups
from forerun.blocks.container.shards import _masked_crc32c as masked_crc32c
from forerun.blocks.container.tar import write_tar
from forerun.blocks.reader import BlockDataset
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, StoreError
from forerun.core.regular import read_regular
from forerun.core.scenario.spec import Input
from forerun.loading.inputs import read_sizes
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import open_corpus
from forerun.loading.measure.probing import run_cell
from forerun.loading.measure.store import LatencyStore
from forerun.loading.policy import Ask, Cell


def library(name: str, package: str) -> Any:
    """A library, or a skip that says how to have it."""
    return pytest.importorskip(name, reason=f"{package} is not installed: pip install {package}")


#: samples of `tree`: 40 alone, 11 of two parts, 5 odd ones
SAMPLES = 56


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
    assert convert(tmp_path / "x.tar", tmp_path / "back", "files") == 5
    assert (tmp_path / "back/d/s3.jpg").read_bytes() == b"abcabcabc"


def test_parts_of_a_sample_stay_together(tree: dict[str, bytes], tmp_path: Path) -> None:
    """Without the library: members of one stem follow each other, in one shard, whatever the blocks' order."""
    blocks = pack(tmp_path / "files", tmp_path / "blocks", PackSpec(5, seed=2))
    assert convert(blocks.folder, tmp_path / "tar", "tar", spec=PackSpec(7)) == SAMPLES
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
    write_tar(tmp_path / "x.tar", [("a.bin", b"1")])
    (tmp_path / "y.tar").write_bytes(gzip.compress((tmp_path / "x.tar").read_bytes()))
    with pytest.raises(
        DataError, match=r"y\.tar: is compressed by gzip; .* gzip -dc < y\.tar > y\.plain\.tar"
    ):
        list(samples_of(tmp_path / "y.tar"))
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "index.json").write_text('{"classes": []}')
    assert kind_of(folder) == "files"


def test_shards_are_whole_or_not_there(
    tree: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample that cannot be read, a full disk, a target in use: told by name, and nothing is left behind."""
    target = tmp_path / "out" / "tar"

    def unreadable(path: Path) -> bytes:
        if path.name == "006.jpg":
            raise PermissionError(13, "Permission denied")
        return read_regular(path)

    monkeypatch.setattr("forerun.blocks.container.convert.read_regular", unreadable)
    with pytest.raises(DataError, match=r"pairs/006\.jpg: cannot be read: Permission denied"):
        convert(tmp_path / "files", target, "tar", spec=PackSpec(8))
    monkeypatch.undo()
    assert list((tmp_path / "out").iterdir()) == []

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tarfile.TarFile.addfile", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        StoreError, match=r"cannot be written: No space left on device; nothing is left of it"
    ):
        convert(tmp_path / "files", target, "tar", spec=PackSpec(8))
    monkeypatch.undo()
    assert list((tmp_path / "out").iterdir()) == []
    target.mkdir()
    assert convert(tmp_path / "files", target, "tar") == SAMPLES and dict(samples_of(target)) == tree
    with pytest.raises(StoreError, match="is not empty"):
        convert(tmp_path / "files", target, "tar")


def test_a_tar_of_a_folder_itself(tmp_path: Path) -> None:
    """`tar -C dir .` calls its members `./x`; what is unsafe behind that stays so."""
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in (".", "./001", "./001/x.jpg", "././002/y.jpg"):
            member = tarfile.TarInfo(name)
            member.type, member.size = (tarfile.DIRTYPE, 0) if "jpg" not in name else (tarfile.REGTYPE, 3)
            archive.addfile(member, io.BytesIO(b"abc"))
    assert dict(samples_of(tmp_path / "x.tar")) == {"001/x.jpg": b"abc", "002/y.jpg": b"abc"}
    for name in ("./../x", ".//x", "./", "./a/./b", "./001/x.jpg"):
        with tarfile.open(tmp_path / "bad.tar", "w") as archive:
            for each in ("001/x.jpg", name):
                member = tarfile.TarInfo(each)
                member.size = 1
                archive.addfile(member, io.BytesIO(b"x"))
        with pytest.raises(DataError, match=r"bad\.tar: member"):
            list(samples_of(tmp_path / "bad.tar"))


def unmasked(stored: bytes) -> int:
    rotated = int.from_bytes(stored, "little") - 0xA282EAD8 & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def test_the_checksum_of_a_record() -> None:
    """Published values: the check value of CRC-32C, and 32 bytes of zeros and of ones (RFC 3720, B.4)."""
    assert unmasked(masked_crc32c(b"123456789")) == 0xE3069283
    found = [unmasked(masked_crc32c(data)) for data in (bytes(32), b"\xff" * 32)]
    assert found == [0x8A9136AA, 0x62A8AB43]


def tfrecord(data: bytes) -> bytes:
    """One record, as TFRecord frames it; the checksum of the data is left out, nobody looks at it."""
    length = len(data).to_bytes(8, "little")
    return length + masked_crc32c(length) + data + bytes(4)


SHARDS: dict[str, tuple[dict[str, bytes], str]] = {
    "LitData": ({"index.json": b'{"chunks": [{"filename": "chunk-0-0.bin"}], "config": {}}', "chunk-0-0.bin": b"x"},
                "LitData"),
    "LitData compressed": ({"index.json": b"{}", "chunk-0-0.zstd.bin": b"x", "chunk-1-0.zstd.bin": b"x"}, "LitData"),
    "LitData below": ({"train/index.json": b'{"chunks": [], "config": {}}', "train/chunk-0-0.bin": b"x"}, "LitData"),
    "Parquet": ({"train-00000-of-00002.parquet": b"PAR1..", "README.md": b"", "_SUCCESS": b""}, "Parquet"),
    "Parquet without a suffix": ({"part-0": b"PAR1.....", "part-1": b"PAR1....."}, "Parquet"),
    "TFRecord": ({"a.tfrecord": b"", "b.tfrecord": b""}, "TFRecord"),
    "TFRecord compressed": ({"a.tfrecord.gz": b"x"}, "TFRecord"),
    "TFRecord without a suffix": ({"train-00000-of-00002": b"", "train-00001-of-00002": b""}, "TFRecord"),
    "Arrow": ({"data-00000-of-00001.arrow": b"\xff\xff\xff\xff", "dataset_info.json": b"{}"}, "Arrow"),
    "LMDB": ({"data.mdb": b"x", "lock.mdb": b"x"}, "LMDB"),
    "MDS": ({"index.json": b'{"shards": [], "version": 2}', "shard.00000.mds": b"x"}, "MDS"),
    "MDS compressed": ({"index.json": b'{"shards": [], "version": 2}', "shard.00000.mds.zstd": b"x"}, "MDS"),
    "MDS below": ({"train/index.json": b'{"shards": [], "version": 2}', "train/shard.00000.mds": b"x"}, "MDS"),
    "tar below": ({"train/0.tar": b"x", "train/1.tar": b"x"}, "tar"),
    "compressed tar": ({"0.tar.gz": b"x", "1.tar.gz": b"x"}, "compressed tar"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARDS)
def test_shards_of_other_formats_are_refused_by_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packing, measuring and converting refuse them, in a folder, alone and behind a URL, and say what to do instead."""
    files, said = SHARDS[name]
    source = tmp_path / "source"
    for key, data in files.items():
        (source / key).parent.mkdir(parents=True, exist_ok=True)
        (source / key).write_bytes(data or (tfrecord(b"0123456789") if said == "TFRecord" else b""))
    target = str(tmp_path / "out")
    for arguments in (
        ["pack", str(source), target], ["pack", str(source), target, "--to", "tar"], ["measure", "loading", str(source)],
    ):  # fmt: skip
        assert command_line([*arguments, "-q"]) == 2
        problem = capsys.readouterr().err
        assert said in problem and str(source) in problem and problem.count("\n") == 1
        assert "tar" in said or "forerun measure loading --dataset MODULE:FUNCTION" in problem
    if "tar" not in said:
        alone = source / next(key for key in files if not key.endswith("index.json"))
        with LatencyStore(source) as store:
            for where in (str(alone), *([] if "without" in name else [store.url])):
                for command in (["pack", where, target], ["measure", "loading", where]):
                    assert command_line([*command, "-q"]) == 2
                    assert f"is of the format {said}, whose files" in capsys.readouterr().err
        with pytest.raises(DataError, match=f"is of the format {said}"):
            read_sizes(Input(path=str(alone)))
    assert not (tmp_path / "out").exists()


def test_sizes_of_samples_come_from_a_tar_and_from_blocks(triples: dict[str, bytes], tmp_path: Path) -> None:
    """The bytes of each sample with all its parts, as the stored files have them."""
    wanted = {stem: sum(map(len, parts.values())) for stem, parts in by_stem(triples).items()}
    blocks = pack(tmp_path / "triples", tmp_path / "blocks", PackSpec(7, seed=3))
    convert(tmp_path / "triples", tmp_path / "tar", "tar", spec=PackSpec(64))
    (shard,) = (tmp_path / "tar").glob("*.tar")
    assert read_sizes(Input(path=str(shard))).tolist() == [wanted[stem] for stem in sorted(wanted)]
    ordered = dict.fromkeys(member_stem(key) for key in blocks.index.key)
    assert read_sizes(Input(path=str(blocks.folder / "index.parquet"))).tolist() == [
        wanted[stem] for stem in ordered
    ]
    shard.write_bytes(shard.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"\.tar: "):
        read_sizes(Input(path=str(shard)))


def test_samples_beside_a_table_are_samples(tmp_path: Path) -> None:
    """A file of Parquet among pictures, JSON of no index, records that only begin like some."""
    files = {
        "a.jpg": b"1",
        "b.jpg": b"2",
        "labels.parquet": b"PAR1",
        "index.json": b'{"chunks": 3}',
        "c": bytes(12),
    }
    for key, data in files.items():
        (tmp_path / key).write_bytes(data)
    assert dict(samples_of(tmp_path)) == files


@pytest.mark.parametrize("to", ["tar", "blocks"])
def test_a_killed_conversion_leaves_nothing_that_lasts(
    tree: dict[str, bytes], tmp_path: Path, to: Any
) -> None:
    """Killed in the middle: what it leaves is removed by the next run; a process that lives is not disturbed."""
    source = tmp_path / "files"
    if to == "blocks":
        convert(source, tmp_path / "shards", "tar")
        source = tmp_path / "shards"
    target = tmp_path / "out" / "new"
    script = (
        "import os, sys, pathlib\n"
        "from forerun.blocks.container import convert, samples, tar\n"
        "def wait(*_):\n"
        "    sys.stdout.write('here\\n'); sys.stdout.flush(); sys.stdin.read(); os._exit(9)\n"
        f"convert.{'write_tar' if to == 'tar' else 'pack'} = wait\n"
        f"convert.convert(pathlib.Path({str(source)!r}), pathlib.Path({str(target)!r}), {to!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    with pytest.raises(StoreError, match=r"new: is being converted into by another process"):
        convert(source, target, to)
    (left,) = (tmp_path / "out").iterdir()
    assert left.name.startswith(".forerun-converting-")
    process.kill()
    process.communicate()
    (left / "files" / "stale.bin").write_bytes(b"of another source")
    assert convert(source, target, to) == SAMPLES
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]
    assert dict(samples_of(target)) == tree
    shutil.rmtree(target)
    left.mkdir()
    (left / "theirs").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"is not of this program"):
        convert(source, target, to)
    assert [path.name for path in left.iterdir()] == ["theirs"]


def test_what_is_one_sample() -> None:
    """Files of one stem are parts of a sample; numbers, names without an extension and hidden ones are samples."""
    keys = ["a/1.cls", "a/1.jpg", "a/1.json", "a/1.seg.png", "b/1.cls", "b/1.jpg", "x.0001.png", "x.0002.png", "README",
            "README.md", ".x.jpg", ".x.cls", "0.5_1.wav", "0.5_2.wav", "d.v1/2.jpg", "d.v1/2.cls"]  # fmt: skip
    groups = [[keys[at] for at in group] for group in sample_groups(keys)]
    assert groups == [keys[:4], keys[4:6], *([key] for key in keys[6:14]), keys[14:]]
    many = [f"s.p{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(33)]
    assert len(sample_groups(many[:32])) == 1 and len(sample_groups(many)) == 33


@pytest.fixture
def triples(tmp_path: Path) -> dict[str, bytes]:
    """40 samples of an image, a class and JSON, below `triples`."""
    rng = np.random.default_rng(4)
    found = {}
    for number in range(40):
        stem = f"{number % 2}/{number:03d}"
        found |= {
            f"{stem}.jpg": rng.bytes(900),
            f"{stem}.cls": b"%d" % number,
            f"{stem}.json": b'{"n": %d}' % number,
        }
    for key, data in found.items():
        path = tmp_path / "triples" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return found


def test_a_sample_of_several_parts_is_one_in_every_container(
    triples: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, blocks and tar, each made of each other: 40 samples, with the same parts and bytes."""
    holds: dict[str, Path] = {"files": tmp_path / "triples"}
    blocks = pack(holds["files"], tmp_path / "blocks", PackSpec(7, seed=3))
    holds["blocks"] = blocks.folder
    holds["tar"] = tmp_path / "tar"
    assert convert(holds["blocks"], holds["tar"], "tar", spec=PackSpec(7)) == 40
    assert (len(blocks), blocks.blocks, len(blocks.index)) == (40, 6, 120)
    assert (blocks.manifest["samples"], blocks.manifest["parts"]) == (40, 120)
    assert len(list(holds["tar"].glob("*.tar"))) == 6
    for source, target in itertools.permutations(holds, 2):
        assert dict(samples_of(holds[source])) == triples
        if (source, target) != ("blocks", "blocks"):
            made = tmp_path / f"{source}-{target}"
            assert convert(holds[source], made, target) == 40  # type: ignore[arg-type]
            assert dict(samples_of(made)) == triples
    blocks.verify()
    assert command_line(["pack", str(blocks.folder), "--verify"]) == 0
    assert "40 samples in 6 blocks" in capsys.readouterr().out


def test_training_sees_a_sample_of_several_parts_at_once(triples: dict[str, bytes], tmp_path: Path) -> None:
    blocks = pack(tmp_path / "triples", tmp_path / "blocks", PackSpec(7, seed=3))
    data = BlockDataset(blocks.folder)
    assert len(data) == 40
    seen = {key: {part: bytes(view) for part, view in sample.items()} for key, sample in data}
    assert {f"{key}.{part}": view for key, sample in seen.items() for part, view in sample.items()} == triples
    numbers = BlockDataset(blocks.folder, decode=lambda sample: int(bytes(sample["cls"])))
    assert sorted(number for _, number in numbers) == list(range(40))


@pytest.mark.parametrize("kind", ["blocks", "files", "http", "http blocks"])
def test_loaders_read_all_parts_of_a_sample(triples: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    """A sample is what a step takes: a block of 7 is seven of them, a file of its own three files."""
    blocks = pack(tmp_path / "triples", tmp_path / "blocks", PackSpec(7, seed=3))
    served = blocks.folder if "blocks" in kind else tmp_path / "triples"
    with contextlib.ExitStack() as open_now:
        store = open_now.enter_context(LatencyStore(served))
        corpus = open_now.enter_context(open_corpus(store.url if "http" in kind else str(served)))
        assert corpus.samples == 40 and corpus.mean_bytes == sum(map(len, triples.values())) / 40
        for block in (1, 7) if corpus.largest_piece > 1 else (1,):
            pieces = corpus.pieces(block, 40)
            assert sum(len(piece.lengths) for piece in pieces) == 40
            seen: set[bytes] = set()
            for piece in pieces:
                data = memoryview(
                    corpus.client_for(block).read(piece.name, piece.first, piece.length, piece.what)
                )
                edges = itertools.accumulate(piece.lengths, initial=0)
                for at, (a, b) in enumerate(itertools.pairwise(edges)):
                    piece.check(at, data[a:b])
                    names = piece.keys[piece.row(at) : piece.row(at) + 3]
                    parts = [bytes(part) for part in piece.parts_of(at, data[a:b])]
                    assert (
                        dict(zip(names, parts)).items() <= triples.items() and len(names) == len(parts) == 3
                    )
                    half = piece.cut(at, at + 1)
                    assert (half.length, half.keys) == (b - a, names)
                    assert piece.decoded(at, data[a:b], len) == 900  # the largest part
                    seen.update(parts)
            # One block of all 40 is cut into pieces of 7; its rest is left for the next round.
            assert seen <= set(triples.values())
            assert seen == set(triples.values()) or (kind == "files" and block == 7)
            if corpus.checked:
                spoilt = bytearray(data)
                spoilt[-1] ^= 1
                last = len(pieces[-1].lengths) - 1
                with pytest.raises(DataError, match="fails its checksum"):
                    pieces[-1].check(last, memoryview(spoilt)[-pieces[-1].lengths[last] :])
        run = run_cell(corpus, Job(batch=8, step_s=0.0, decode_s=0.0), Ask(Cell(1, 2), 40))
        assert run.samples == 40


def in_two_workers(dataset: Any) -> list[Any]:
    """All samples that torch's loader gives with two workers, as they come."""
    data = library("torch.utils.data", "torch")
    return list(data.DataLoader(dataset, batch_size=None, num_workers=2))


def by_stem(triples: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Each sample with its parts."""
    samples: dict[str, dict[str, bytes]] = {}
    for key, content in triples.items():
        samples.setdefault(member_stem(key), {})[key.rpartition(".")[2]] = content
    return samples


def test_webdataset_and_we_read_each_other_in_two_workers(triples: dict[str, bytes], tmp_path: Path) -> None:
    """Image, class and JSON are one sample on both sides, and each comes once."""
    wds = library("webdataset", "webdataset")
    wanted = by_stem(triples)
    convert(tmp_path / "triples", tmp_path / "tar", "tar", spec=PackSpec(7))
    shards = sorted(str(path) for path in (tmp_path / "tar").glob("*.tar"))
    found = in_two_workers(wds.WebDataset(shards, shardshuffle=False))
    parts = {
        sample["__key__"]: {part: data for part, data in sample.items() if not part.startswith("_")}
        for sample in found
    }
    assert parts == wanted and len(found) == 40
    (tmp_path / "theirs").mkdir()
    with wds.ShardWriter(str(tmp_path / "theirs/s-%06d.tar"), maxcount=9, verbose=0) as writer:
        for key, sample in wanted.items():
            writer.write({"__key__": key, **sample})
    convert(tmp_path / "theirs", tmp_path / "blocks", "blocks", spec=PackSpec(6))
    ours = in_two_workers(BlockDataset(tmp_path / "blocks", threads=2))
    assert dict(ours) == wanted and len(ours) == 40


def test_two_workers_of_webdataset_share_our_shards_without_torch(
    triples: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its workers' numbers from the environment, too: each shard is one worker's."""
    wds = library("webdataset", "webdataset")
    convert(tmp_path / "triples", tmp_path / "tar", "tar", spec=PackSpec(7))
    shards = sorted(str(path) for path in (tmp_path / "tar").glob("*.tar"))
    monkeypatch.setenv("NUM_WORKERS", "2")
    shares = []
    for worker in "01":
        monkeypatch.setenv("WORKER", worker)
        shares.append(list(wds.WebDataset(shards, shardshuffle=False)))
    assert [len(share) for share in shares] == [7 * 3, 7 * 2 + 5]
    parts = {
        sample["__key__"]: {part: data for part, data in sample.items() if not part.startswith("_")}
        for share in shares
        for sample in share
    }
    assert parts == by_stem(triples)
