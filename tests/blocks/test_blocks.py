"""The container and tar: exact bytes, round trips, resumption, and everything hostile refused."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container import pack as packing
from forerun.blocks.container.container import Blocks, block_name
from forerun.blocks.container.convert import convert, samples_of
from forerun.blocks.container.pack import PackSpec, pack, unpack
from forerun.blocks.container.samples import BEGUN, check_keys, unsafe, write_file
from forerun.blocks.container.tar import read_tar, write_tar
from forerun.blocks.reader import BlockDataset
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, StoreError, UsageError

from ..conftest import cases

#: trees that are packed and restored, in a run of the suite; set FORERUN_CASES for more
CASES = cases(100)
#: which cuts and bytes of a small file are spoilt: all of them with FORERUN_CASES
EVERY = 1 if cases(0) else 7
ORDERS: tuple[Any, ...] = ("shuffled", "sorted", "class")


def plant(folder: Path, samples: dict[str, bytes]) -> Path:
    for key, data in samples.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def tree_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    return plant(
        tmp_path / "files",
        {f"c{i % 5}/{i:04d}.bin": rng.bytes(int(rng.integers(0, 900))) for i in range(200)},
    )


def test_exact_bytes(golden: Callable[[str], Any], tmp_path: Path) -> None:
    vectors = golden("pack_vectors.json")
    samples = {row["key"]: bytes.fromhex(row["hex"]) for row in vectors["samples"]}
    source = plant(tmp_path / "files", samples)
    for case in vectors["packed"]:
        n = case["block_samples"]
        blocks = pack(source, tmp_path / f"p{n}", PackSpec(block_samples=n), order=vectors["order"])
        found = [blocks.block_path(b).read_bytes() for b in range(blocks.blocks)]
        assert [data.hex() for data in found] == case["blocks_hex"]
        assert blocks.manifest["block_sha256"] == case["blocks_sha256"]
        index = blocks.index
        columns = (index.sample, index.block, index.offset, index.length, index.crc32, index.key)
        rows = [[int(v) if not isinstance(v, str) else v for v in row] for row in zip(*columns)]
        assert rows == case["index"]


def test_exact_tar(golden: Callable[[str], Any], tmp_path: Path) -> None:
    vectors = golden("pack_vectors.json")
    samples = [(row["key"], bytes.fromhex(row["hex"])) for row in vectors["samples"]]
    members = [text.split(" = sample ") for text in vectors["tar"]["members"]]
    path = tmp_path / "x.tar"
    write_tar(path, [(name, samples[int(number)][1]) for name, number in members])
    assert path.stat().st_size == vectors["tar"]["bytes"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == vectors["tar"]["sha256"]


LETTERS = "abcXYZ01 ._-äßñ漢é"


def random_tree(rng: np.random.Generator) -> dict[str, bytes]:
    """A few files with odd names, some empty, some deep."""
    tree: dict[str, bytes] = {}
    for _ in range(int(rng.integers(1, 9))):
        parts = [
            "".join(rng.choice(list(LETTERS), int(rng.integers(1, 6))))
            for _ in range(int(rng.integers(1, 4)))
        ]
        tree["/".join(parts)] = rng.bytes(int(rng.integers(0, 60)))
    return tree


@pytest.mark.timeout(max(300, CASES))
def test_unpacking_restores_every_tree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand trees; whether they reach the disk is another test's business."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    rng = np.random.default_rng(6)
    restored = 0
    for case in range(CASES):
        tree, tmp = random_tree(rng), folder / str(case)
        try:
            check_keys(tree, "made")
            source = plant(tmp / "files", tree)
        except (DataError, OSError):
            continue  # names that no file system could hold beside each other
        spec = PackSpec(
            int(rng.integers(1, 6)), int(rng.integers(0, 41)), ORDERS[case % 3], seed=int(rng.integers(9))
        )
        blocks = pack(source, tmp / "packed", spec)
        assert unpack(tmp / "packed", tmp / "back") == len(tree)
        assert tree_of(tmp / "back") == tree
        if case % 10 == 0:
            blocks.verify()
            assert all(blocks.read_sample(row) == tree[key] for row, key in enumerate(blocks.index.key))
        shutil.rmtree(tmp)
        restored += 1
    assert restored >= 0.7 * CASES


def test_every_way_round(corpus: Path, tmp_path: Path) -> None:
    wanted = tree_of(corpus)
    pack(corpus, tmp_path / "blocks", PackSpec(16))
    assert convert(tmp_path / "blocks", tmp_path / "tar", "tar", spec=PackSpec(64)) == 200
    assert dict(samples_of(tmp_path / "tar")) == wanted
    assert convert(tmp_path / "tar", tmp_path / "from-tar", "files") == 200
    assert tree_of(tmp_path / "from-tar") == wanted
    assert convert(tmp_path / "tar", tmp_path / "again-tar", "blocks", spec=PackSpec(16)) == 200
    assert tree_of(tmp_path / "again-tar") == tree_of(tmp_path / "blocks")
    assert not (tmp_path / ".again-tar.files").exists()
    with pytest.raises(UsageError, match="contains blocks already"):
        convert(tmp_path / "blocks", tmp_path / "more", "blocks")
    damaged(tmp_path / "tar", "shard-000000.tar", lambda data: data[:5000])
    with pytest.raises(DataError):
        convert(tmp_path / "tar", tmp_path / "none", "blocks")
    assert not (tmp_path / ".none.files").exists() and not (tmp_path / "none").exists()


KILLED = """
import os, sys
from pathlib import Path
from forerun.core.cli.main import run as command_line
from forerun.blocks.container import pack as packing
source, base, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
for stop in range(1, kills + 1):
    child = os.fork()
    if not child:
        calls = 0
        def count(handle):
            global calls
            calls += 1
            if calls == stop:
                os.kill(os.getpid(), 9)
        os.fsync = count
        packing.pack(source, base / str(stop), packing.PackSpec(4, seed=4))
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_killed_anywhere_it_goes_on_and_ends_in_the_same_bytes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty processes, each killed before another write has reached the disk."""
    whole = tree_of(pack(corpus, tmp_path / "whole", PackSpec(4, seed=4)).folder)
    command = [sys.executable, "-c", KILLED, str(corpus), str(tmp_path), "50"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert ended == [str(-signal.SIGKILL)] * 50
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    for stop in range(1, 51):
        cut = tmp_path / str(stop)
        with pytest.raises(DataError, match="not packed to the end"):
            Blocks.open(cut)
        done = len(list(cut.glob("*.blk")))
        assert done == max(0, stop - 2)  # the plan comes before the blocks
        assert tree_of(pack(corpus, cut, PackSpec(4, seed=4)).folder) == whole


def test_stopped_at_any_write_it_goes_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty packs, each stopped at another write by a full disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    whole = tree_of(pack(corpus, tmp_path / "whole", PackSpec(4, seed=4)).folder)
    real = packing._replace
    for stop in range(1, 53):  # the journal, fifty blocks, the manifest
        target, calls = tmp_path / f"cut{stop}", [0]

        def full(path: Path, data: bytes, calls: list[int] = calls, stop: int = stop) -> None:
            calls[0] += 1
            if calls[0] == stop:
                path.with_name(path.name + ".part").write_bytes(data[: len(data) // 2])
                raise OSError(28, "No space left on device")
            real(path, data)

        monkeypatch.setattr(packing, "_replace", full)
        with pytest.raises(StoreError, match=r"No space left on device; .* free space and run it again"):
            pack(corpus, target, PackSpec(4, seed=4))
        monkeypatch.setattr(packing, "_replace", real)
        pack(corpus, target, PackSpec(4, seed=4))
        left = {key: data for key, data in tree_of(target).items() if not key.endswith(".part")}
        assert left == whole


def test_restoring_goes_on_where_it_stopped(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes a part of a file and then nothing, a run that was killed: no name holds half a sample."""
    wanted = tree_of(corpus)
    pack(corpus, tmp_path / "p", PackSpec(9))
    real = io.FileIO.write

    class NearlyFull(io.FileIO):
        left_bytes = 9000

        def write(self, data: Any) -> int:
            if not NearlyFull.left_bytes:
                raise OSError(28, "No space left on device")
            taken = min(len(data), NearlyFull.left_bytes, 300)  # never all of a larger one at once
            NearlyFull.left_bytes -= taken
            return real(self, memoryview(data)[:taken])

    plain = Path.open

    def opened(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        return NearlyFull(path, mode) if mode == "xb" else plain(path, mode, *args, **more)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(StoreError, match=r"No space left on device; \d+ of 200 samples are restored"):
        unpack(tmp_path / "p", tmp_path / "back")
    monkeypatch.undo()
    found = tree_of(tmp_path / "back")
    assert 10 < len(found) < 100 and all(wanted[key] == data for key, data in found.items())
    (tmp_path / "back" / BEGUN).write_bytes(b"left by a run that was killed")
    assert unpack(tmp_path / "p", tmp_path / "back") == 200
    assert tree_of(tmp_path / "back") == wanted
    with pytest.raises(DataError, match="while it is restored"):
        write_file(tmp_path / "back", BEGUN, b"")


def test_targets_and_sources_that_do_not_fit(corpus: Path, tmp_path: Path) -> None:
    pack(corpus, tmp_path / "done", PackSpec(9))
    assert len(pack(corpus, tmp_path / "done", PackSpec(9))) == 200  # the same again is done already
    with pytest.raises(StoreError, match="already contains blocks of other files"):
        pack(corpus, tmp_path / "done", PackSpec(10))
    with pytest.raises(StoreError, match="lies inside the source"):
        pack(corpus, corpus / "out", PackSpec(9))
    with pytest.raises(DataError, match="is not a directory"):
        pack(tmp_path / "absent", tmp_path / "x")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreError, match="Too many levels of symbolic links"):
        pack(tmp_path / "loop", tmp_path / "x")
    (corpus / "link").symlink_to("/etc/passwd")
    with pytest.raises(DataError, match="is a link"):
        pack(corpus, tmp_path / "y")
    (corpus / "link").unlink()
    plant(corpus, {"C0/A.bin": b"1", "C0/a.bin": b"2"})
    with pytest.raises(DataError, match="collides with"):
        pack(corpus, tmp_path / "y")


def test_a_file_that_changes_on_the_way_is_named(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def grow(done: int, blocks: int) -> None:
        if not seen:
            seen.append(done)
            for path in sorted(corpus.rglob("*.bin")):
                path.write_bytes(path.read_bytes() + b"!")

    with pytest.raises(DataError, match=r"had \d+ bytes when planned"):
        pack(corpus, tmp_path / "x", PackSpec(9), progress=grow)


def damaged(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


def test_damage_is_found_and_named(corpus: Path, tmp_path: Path) -> None:
    blocks = pack(corpus, tmp_path / "p", PackSpec(9))
    name = block_name(3)
    whole = (tmp_path / "p" / name).read_bytes()
    damaged(tmp_path / "p", name, lambda data: data[:-1])
    with pytest.raises(DataError, match=rf"{name}: has {len(whole) - 1} bytes, the index says {len(whole)}"):
        blocks.read_block(3)
    damaged(tmp_path / "p", name, lambda data: bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(DataError, match=rf"{name}: sample .* fails its checksum"):
        blocks.verify()
    with pytest.raises(DataError, match="fails its checksum"):
        unpack(tmp_path / "p", tmp_path / "back")
    damaged(tmp_path / "p", name, lambda data: whole)
    damaged(tmp_path / "p", "manifest.json", lambda data: data.replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(DataError, match="is of version 9, this forerun reads 1"):
        Blocks.open(tmp_path / "p")
    damaged(tmp_path / "p", "manifest.json", lambda data: data.replace(b'"version": 9', b'"version": 1'))
    damaged(tmp_path / "p", "index.parquet", lambda data: data[:-9] + b"x" + data[-8:])
    with pytest.raises(DataError, match="is not the index that the manifest names"):
        Blocks.open(tmp_path / "p")


def test_mutated_containers_are_refused_or_right(tmp_path: Path) -> None:
    """Spoilt containers and tars: each is refused by name, or gives what it was made of."""
    tree = {f"{i}.bin": bytes([i]) * (i + 1) for i in range(7)}
    samples = sorted(tree.items())
    pack(plant(tmp_path / "files", tree), tmp_path / "p", PackSpec(3))
    (tmp_path / "t").mkdir()
    write_tar(tmp_path / "t" / "x.tar", samples)
    rng = np.random.default_rng(14)
    originals = [path for folder in "pt" for path in sorted((tmp_path / folder).iterdir())]
    refused = 0
    for case in range(spoilt := cases(60, 300)):
        path = originals[case % len(originals)]
        whole = path.read_bytes()
        content = bytearray(whole)
        at = int(rng.integers(len(content)))
        content[at] ^= int(rng.integers(1, 256))
        if rng.random() < 0.5:
            del content[at:]
        path.write_bytes(content)
        try:
            if path.parent.name == "p":
                blocks = Blocks.open(tmp_path / "p")
                blocks.verify()
                assert dict(blocks) == tree
            else:
                # A tar has no checksums of the samples: what is read is at least read safely.
                for key, data in samples_of(path):
                    assert not unsafe(key) and len(data) <= len(whole)
        except DataError as error:
            assert str(tmp_path) in str(error)
            refused += 1
        finally:
            path.write_bytes(whole)
    assert refused >= spoilt / 2


@pytest.mark.parametrize(
    "key", ["", "/etc/x", "../x", "a/../x", "a//b", "C:/x", "a\\b", "a\nb", "./a", "x" * 5000]
)
def test_unsafe_keys(key: str) -> None:
    assert unsafe(key)


def hostile(path: Path, change: Callable[[tarfile.TarInfo], None]) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo("a.bin")
        member.size = 4
        change(member)
        archive.addfile(member, io.BytesIO(b"abcd") if member.isreg() else None)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "name", "/etc/passwd"),
        lambda m: setattr(m, "name", "../x"),
        lambda m: (setattr(m, "type", tarfile.SYMTYPE), setattr(m, "linkname", "/etc/passwd")),
        lambda m: (setattr(m, "type", tarfile.LNKTYPE), setattr(m, "linkname", "b")),
        lambda m: setattr(m, "type", tarfile.CHRTYPE),
        lambda m: setattr(m, "type", tarfile.FIFOTYPE),
    ],
)
def test_hostile_tars_are_refused(tmp_path: Path, change: Callable[[tarfile.TarInfo], None]) -> None:
    with pytest.raises(DataError, match="member"):
        list(read_tar(hostile(tmp_path / "x.tar", change)))


def test_more_hostile_tars(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    write_tar(path, [("a.bin", b"1"), ("A.bin", b"2")])
    with pytest.raises(DataError, match=r"member 'A\.bin' collides with 'a\.bin' where case does not count"):
        list(read_tar(path))
    write_tar(path, [("a.bin", b"1"), ("a.bin", b"2")])
    with pytest.raises(DataError, match=r"member 'a\.bin' occurs twice"):
        list(read_tar(path))
    write_tar(path, [("a.bin", b"x" * 100_000)])
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(DataError):
        list(read_tar(path))
    path.write_bytes(zlib.compress(b"nothing like a tar" * 50))
    with pytest.raises(DataError, match="is no readable tar"):
        list(read_tar(path))


def small_tar(path: Path) -> tuple[list[tuple[str, bytes]], bytes]:
    """Two samples, and the bytes of a tar of them that ends with its end marks."""
    samples = [("a.bin", b"123"), ("b.bin", b"4567")]
    write_tar(path, samples)
    return samples, path.read_bytes()[: 6 * 512]


def read_or_refused(path: Path, content: bytes) -> list[tuple[str, bytes]] | None:
    """What a tar of this content gives; None if it is an error, which names the file."""
    path.write_bytes(content)
    try:
        return list(read_tar(path))
    except DataError as error:
        assert str(path) in str(error)
        return None


def test_every_cut_and_every_bit_of_a_tar_is_seen(tmp_path: Path) -> None:
    """It has a sum of each header and none of contents: of headers and ends nothing may be lost."""
    path = tmp_path / "x.tar"
    samples, whole = small_tar(path)
    assert read_or_refused(path, whole) == samples
    for length in range(0, len(whole), EVERY):
        found = read_or_refused(path, whole[:length])
        # Without the second of the two end marks nothing is lost.
        assert found is None if length < 5 * 512 else found == samples, length
    for at in range(0, len(whole), EVERY):
        block, inside = divmod(at, 512)
        for bit in range(8) if EVERY == 1 and block in (0, 2) else (at % 8,):
            spoilt = bytearray(whole)
            spoilt[at] ^= 1 << bit
            found = read_or_refused(path, bytes(spoilt))
            if block in (1, 3) and inside < len(samples[block // 2][1]):  # a byte of a sample
                assert found is not None and found[1 - block // 2] == samples[1 - block // 2]
            elif block in (1, 3):  # what fills a block up
                assert found == samples
            else:
                assert found in (None, samples), (at, bit)
    for first, last in ((0, 512), (1024, 1536), (0, 1024), (600, 1537)):  # zeros in place of a header
        assert read_or_refused(path, whole[:first] + bytes(last - first) + whole[last:]) is None
    for content, message in (
        (whole[: 4 * 512], "cut short: no end mark at byte 2048"),
        (bytes(512) + whole[512:], "at byte 0 is zeros, and more follows"),
        (whole[:1024] + b"x" + whole[1025:], "the header at byte 1024 is damaged"),
        (whole + whole, "several tars were joined"),
        (whole[:1024] + bytes(20_000), "20000 zeros end it from byte 1024 on.*members are lost"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            list(read_tar(path))


def test_every_cut_and_every_bit_of_a_container_is_seen(tmp_path: Path) -> None:
    tree = {"a.bin": b"123", "b.bin": b"45", "c.bin": b"6"}
    folder = pack(plant(tmp_path / "files", tree), tmp_path / "p", PackSpec(2)).folder
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        cuts = [whole[:length] for length in range(len(whole))]
        flips = [
            whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            for at in range(len(whole))
            for bit in range(8)
        ]
        for content in (*cuts[::EVERY], *flips[:: EVERY**2]):
            path.write_bytes(content)
            try:
                assert dict(Blocks.open(folder)) == tree
            except DataError as error:
                assert str(folder) in str(error)
        path.write_bytes(whole)


def test_shards_with_the_same_keys_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t").mkdir()
    for shard in ("train-0", "train-1"):
        write_tar(tmp_path / f"t/{shard}.tar", [("0.jpg", shard.encode()), ("0.cls", b"1")])
    assert command_line(["pack", str(tmp_path / "t"), str(tmp_path / "p"), "-q"]) == 0
    assert "each key begins with its shard's name" in capsys.readouterr().err
    found = dict(Blocks.open(tmp_path / "p"))
    assert found == {
        f"train-{n}/0.{part}": data
        for n in range(2)
        for part, data in (("jpg", b"train-%d" % n), ("cls", b"1"))
    }
    assert len(Blocks.open(tmp_path / "p")) == 2


def test_a_source_that_was_edited_is_not_mixed_with_what_was_packed_before(
    corpus: Path, tmp_path: Path
) -> None:
    """Edited files of the same size, between a pack that was killed and the next, and after one that ended."""

    def stop(done: int, blocks: int) -> None:
        raise KeyboardInterrupt

    edited = min(path for path in corpus.rglob("*.bin") if path.stat().st_size)
    for target, progress in ((tmp_path / "cut", stop), (tmp_path / "whole", None)):
        with contextlib.suppress(KeyboardInterrupt):
            pack(corpus, target, PackSpec(9), progress=progress)
        content = edited.read_bytes()
        edited.write_bytes(content[::-1])
        later = target.stat().st_mtime_ns + 10**9
        os.utime(edited, ns=(later, later))
        with pytest.raises(
            StoreError, match=rf"before '{edited.relative_to(corpus).as_posix()}' was edited; remove"
        ):
            pack(corpus, target, PackSpec(9))
        edited.write_bytes(content)
        os.utime(edited, ns=(0, 0))


def test_a_dataset_reads_each_sample_once_an_epoch(corpus: Path, tmp_path: Path) -> None:
    pack(corpus, tmp_path / "p", PackSpec(9))
    wanted = tree_of(corpus)
    whole = BlockDataset(tmp_path / "p", seed=5)
    first, second = list(whole), list(whole)
    assert {key: bytes(view) for key, view in first} == wanted and len(first) == len(whole) == 200
    assert [key for key, _ in first] != [key for key, _ in second]
    parts = [BlockDataset(tmp_path / "p", seed=5, rank=rank, world=3) for rank in range(3)]
    keys = [key for part in parts for key, _ in part]
    assert sorted(keys) == sorted(wanted)
    assert BlockDataset(tmp_path / "p", shuffle=False).order() == list(range(200))


def test_unpack_does_not_follow_links(corpus: Path, tmp_path: Path) -> None:
    pack(corpus, tmp_path / "p", PackSpec(9))
    (tmp_path / "back").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "back/c0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="not restored through links"):
        unpack(tmp_path / "p", tmp_path / "back")
    assert not any((tmp_path / "elsewhere").iterdir())
