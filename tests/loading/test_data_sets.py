"""Data sets of other libraries in training loops: Parquet, TFRecord and MDS give what was written, wherever they lie.

What is written is compared by digest, through forked and spawned processes, behind stores that fail; damaged and hostile
files are a line. Parquet is written by pyarrow, examples by Google's own library of protocol buffers, where these are
installed; records and shards are put together here, in other words than the product's.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cli.main import run as command_line
from forerun.domains.loading.blocks import optional
from forerun.domains.loading.blocks.container import Blocks
from forerun.domains.loading.blocks.convert import kind_of, samples_of
from forerun.domains.loading.blocks.datasets import DataSet, local_data_set
from forerun.domains.loading.blocks.tfrecord import example, is_example
from forerun.errors import DataError, ForerunError, StoreError, UsageError
from forerun.loading import BlockDataset, BlockSamples
from forerun.measure.loading import objects
from forerun.measure.loading.clients import LocalFiles
from forerun.measure.loading.corpus import open_corpus
from forerun.measure.loading.store import LatencyStore

from .test_interop import mds_folder
from .test_reader import FAILING, HAS_TORCH, START_METHODS

#: what each format is read through
NEEDED = {"parquet": "pyarrow", "tfrecord": "google_crc32c", "mds": "json", "litdata": "json"}
#: drawn damages of each format in a run of the suite; set FORERUN_CASES for more
CASES = max(150, int(os.environ.get("FORERUN_CASES", "0")))
SAMPLES = 90
#: what is read by processes that are started afresh in every run of the suite
SPAWNED = {("failing", "parquet", 2), ("folder", "tfrecord", 1), ("failing", "mds", 2)}


def needed(kind: str) -> None:
    """Skip, and say how to have it, where the library of a format is absent."""
    name = NEEDED[kind]
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'forerun[{kind}]'")


def drawn() -> list[dict[str, Any]]:
    """Pictures of no and of many bytes, with a class, a caption and a score."""
    rng = np.random.default_rng(5)
    return [
        {
            "image": rng.bytes(int(rng.integers(0, 3000)) * (number % 9 > 0)),
            "label": int(rng.integers(-5, 2**40)),
            "caption": f"ünïcode {number}" * (number % 4),
            "score": float(np.float32(rng.random())),
        }
        for number in range(SAMPLES)
    ]


def masked(data: bytes) -> bytes:
    """A checksum as TFRecord stores it."""
    from google_crc32c import value

    crc = value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(number: int) -> bytes:
    number %= 2**64
    head = []
    while number >= 128:
        head.append(number % 128 + 128)
        number //= 128
    return bytes([*head, number])


def field(number: int, content: bytes) -> bytes:
    return varint(8 * number + 2) + varint(len(content)) + content


def encoded(features: dict[str, Any]) -> bytes:
    """A `tf.train.Example`."""
    entries = []
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], bytes):
            feature = field(1, b"".join(field(1, each) for each in values))
        elif isinstance(values[0], float):
            feature = field(2, field(1, np.array(values, "<f4").tobytes()))
        else:
            feature = field(3, field(1, b"".join(map(varint, values))))
        entries.append(field(1, field(1, name.encode()) + field(2, feature)))
    return field(1, b"".join(entries))


def write(kind: str, folder: Path) -> Path:
    """The drawn samples as a data set of two files."""
    rows = drawn()
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        for number, half in enumerate((rows[:50], rows[50:])):
            columns = {name: [row[name] for row in half] for name in rows[0]}
            columns["image"] = arrow.array(columns["image"], arrow.binary())
            parquet.write_table(
                arrow.table(columns), folder / f"train-{number}.parquet", row_group_size=14,
                write_page_checksum=True,
            )  # fmt: skip
    elif kind == "tfrecord":
        for number, half in enumerate((rows[:50], rows[50:])):
            text = [{**row, "caption": row["caption"].encode()} for row in half]
            (folder / f"train-{number}-of-2").write_bytes(b"".join(record(encoded(row)) for row in text))
    elif kind == "litdata":
        chunks = []
        for number, half in enumerate((rows[:50], rows[50:])):
            values = [
                (
                    struct.pack("<d", row["score"]),
                    row["image"],
                    row["caption"].encode(),
                    struct.pack("<q", row["label"]),
                )
                for row in half
            ]
            items = [struct.pack("<4I", *map(len, each)) + b"".join(each) for each in values]
            edges = itertools.accumulate(map(len, items), initial=4 * (len(items) + 2))
            content = struct.pack(f"<{len(items) + 2}I", len(items), *edges) + b"".join(items)
            (folder / f"chunk-0-{number}.bin").write_bytes(content)
            chunks.append(
                {"filename": f"chunk-0-{number}.bin", "samples_here": len(half), "chunk_bytes": len(content)}
            )
        write_litdata_index(
            folder, chunks, ["float", "jpeg", "str", "int"], ["score", "image", "caption", "label"]
        )
    else:
        folder.rmdir()
        types = {
            "image": ("jpeg", None),
            "label": ("int", 8),
            "caption": ("str", None),
            "score": ("float64", 8),
        }
        content = [
            {
                "image": row["image"], "label": struct.pack("<q", row["label"]), "caption": row["caption"].encode(),
                "score": struct.pack("<d", row["score"]),
            }
            for row in rows
        ]  # fmt: skip
        mds_folder(folder, types, content)  # type: ignore[arg-type]
    return folder


def write_litdata_index(folder: Path, chunks: list[Any], encodings: list[str], names: list[str]) -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.dict", "context": json.dumps(names), "children_spec": [leaf] * len(names)}
    config = {
        "compression": None, "encryption": None, "data_format": encodings, "item_loader": "PyTreeLoader",
        "data_spec": json.dumps([1, tree]),
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config, "updated_at": "0"}))


def canon(value: Any) -> Any:
    """Values that compare: views and arrays as what they contain."""
    if isinstance(value, dict):
        return {name: canon(each) for name, each in sorted(value.items())}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return bytes(value) if isinstance(value, memoryview) else value


def digest(sample: Any) -> str:
    return hashlib.sha256(repr(canon(sample)).encode()).hexdigest()


def wanted(kind: str) -> list[Any]:
    """The samples as that format gives them, in the order in which they were written."""
    if kind != "tfrecord":
        return [canon(row) for row in drawn()]
    return [
        {
            "image": row["image"], "label": [row["label"]], "caption": row["caption"].encode(), "score": [row["score"]]
        }
        for row in drawn()
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each format of which the library is here."""
    base = tmp_path_factory.mktemp("data sets")
    return {kind: write(kind, base / kind) for kind in NEEDED if find_spec(NEEDED[kind]) is not None}


def folder_of(folders: dict[str, Path], kind: str) -> Path:
    needed(kind)
    return folders[kind]


@pytest.mark.parametrize("kind", NEEDED)
def test_an_epoch_is_what_was_written(folders: dict[str, Path], kind: str) -> None:
    """In the order that was said, with any threads, buffers and blocks; by number too; and resumed anywhere."""
    folder, stored = folder_of(folders, kind), wanted(kind)
    blocks = [None] if kind == "parquet" else [None, 1, 7]
    for threads, buffer_samples, block in itertools.product((0, 2), (0, 30), blocks):
        reader = BlockDataset(
            folder, threads=threads, buffer_samples=buffer_samples, block_samples=block, seed=3
        )
        order = reader.order()
        assert sorted(order) == list(range(SAMPLES)) == list(range(len(reader)))
        begun = iter(reader)
        got = [canon(sample) for _, sample in itertools.islice(begun, 31)]
        state = json.loads(json.dumps(reader.state_dict()))
        begun.close()  # type: ignore[attr-defined]
        again = BlockDataset(folder, block_samples=block, seed=3)
        again.load_state_dict(state)
        got += [canon(sample) for _, sample in again]
        assert got == [stored[number] for number in order]
    by_number = BlockSamples(folder, threads=2)
    assert [canon(sample) for _, sample in by_number.__getitems__([5, 6, 88, -1, 0])] == [
        canon(each) for each in (stored[5], stored[6], stored[88], stored[89], stored[0])
    ]
    keys = [key for key, _ in BlockDataset(folder, shuffle=False)]
    assert len(set(keys)) == SAMPLES and keys == sorted(keys)
    labels = BlockDataset(folder, decode=lambda sample: int(np.ravel(sample["label"])[0]))
    assert sorted(label for _, label in labels) == sorted(row["label"] for row in drawn())


@pytest.mark.parametrize("kind", NEEDED)
def test_samples_that_are_kept_stay_as_they_are(folders: dict[str, Path], kind: str) -> None:
    """Blocks are read into memory that was used before, never into what a sample still looks at."""
    reader = BlockDataset(folder_of(folders, kind), threads=2, buffer_samples=8)
    kept = [list(reader)[::3], list(reader), list(reader)[1::2]]
    stored = {digest(sample) for sample in wanted(kind)}
    assert all(digest(sample) in stored for samples in kept for _, sample in samples)


@pytest.mark.parametrize("kind", NEEDED)
def test_views_are_bytes_where_they_are_sent(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockDataset, "_give", bytes)
    for _, sample in BlockDataset(folder_of(folders, kind)):
        assert isinstance(sample["image"], bytes)


def _read_share(reader: BlockDataset, results: Any) -> None:
    """A process: the digest of every sample of its share, or what went wrong."""
    try:
        results.put([(key, digest(sample)) for key, sample in reader])
    except BaseException as error:
        results.put(f"{type(error).__name__}: {error}")


@pytest.fixture(scope="module")
def urls(folders: dict[str, Path]) -> Iterator[dict[tuple[str, str], str]]:
    """Each format in a folder, behind HTTP that fails in every way it knows, and through fsspec."""
    stores = {kind: LatencyStore(folder, FAILING) for kind, folder in folders.items()}
    for store in stores.values():
        store.__enter__()
    found = {("folder", kind): str(folder) for kind, folder in folders.items()}
    found |= {("fsspec", kind): f"file://{folder}" for kind, folder in folders.items()}
    found |= {("failing", kind): store.url for kind, store in stores.items()}
    yield found
    for store in stores.values():
        store.__exit__(None, None, None)


@pytest.mark.parametrize("method", START_METHODS)
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("kind", NEEDED)
@pytest.mark.parametrize("place", ["folder", "failing", "fsspec"])
def test_processes_read_what_was_written(
    urls: dict[tuple[str, str], str],
    folders: dict[str, Path],
    place: str,
    kind: str,
    workers: int,
    method: str,
) -> None:
    """By digest, every sample once, from readers that the parent has used before and goes on using meanwhile."""
    folder_of(folders, kind)
    if place == "fsspec":
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'forerun[stores]'")
    if method == "spawn" and (place, kind, workers) not in SPAWNED and "FORERUN_CASES" not in os.environ:
        pytest.skip("starting afresh takes a second a process: FORERUN_CASES asks for all combinations")
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    shares = [
        BlockDataset(
            urls[place, kind], threads=2, buffer_samples=9, seed=7, rank=rank, world=workers, retries=8,
            timeout_s=0.5,
        )
        for rank in range(workers)
    ]  # fmt: skip
    next(iter(shares[0]))
    shares[0].set_epoch(0)
    crew = [context.Process(target=_read_share, args=(share, results), daemon=True) for share in shares]
    for process in crew:
        process.start()
    try:
        ours = [(key, digest(sample)) for key, sample in shares[0]]
        found = [results.get(timeout=120) for _ in crew]
    finally:
        for process in crew:
            process.join(10)
            process.kill()
    assert all(isinstance(share, list) for share in found), found
    every = [pair for share in found for pair in share]
    assert len(every) == SAMPLES == len(dict(every)) and set(ours) <= set(every)
    assert sorted(each for _, each in every) == sorted(digest(sample) for sample in wanted(kind))


@pytest.mark.parametrize("kind", NEEDED)
def test_an_object_store_that_fails_gives_what_was_written(
    folders: dict[str, Path], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of 503, bodies that end early or stall, as S3's own client sees them; the latency store lists no buckets."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'forerun[stores]'")
    folder = folder_of(folders, kind)
    shutil.copytree(folder, tmp_path / "bucket" / "set")
    monkeypatch.setattr(objects.ObjectFiles, "names", lambda self: LocalFiles(folder).names())
    for name, value in (("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s"), ("REGION", "r")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with LatencyStore(tmp_path, replace(FAILING, error_share=0.15, reset_share=0.15)) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        for epoch in range(3):
            reader = BlockDataset("s3://bucket/set", threads=2, retries=9, timeout_s=0.5)
            reader.set_epoch(epoch)
            order, stored = reader.order(), wanted(kind)
            assert [canon(sample) for _, sample in reader] == [canon(stored[number]) for number in order]
        assert store.counters.errors > 3


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: pip install 'forerun[torch]'")
@pytest.mark.parametrize("kind", NEEDED)
def test_torchs_workers_share_an_epoch_and_resume_it(
    urls: dict[tuple[str, str], str], folders: dict[str, Path], kind: str
) -> None:
    """Behind a store that fails: killed after some batches, and gone on with another number of workers."""
    folder_of(folders, kind)
    import torch.utils.data as data

    def opened() -> BlockDataset:
        reader = BlockDataset(urls["failing", kind], seed=7, batch_samples=8, retries=8, timeout_s=0.5)
        reader.set_epoch(1)
        return reader

    def batches(reader: BlockDataset, workers: int) -> Iterator[list[Any]]:
        return iter(data.DataLoader(reader, batch_size=8, num_workers=workers, collate_fn=list))

    first = opened()
    got = [pair for batch in itertools.islice(batches(first, 4), 5) for pair in batch]
    state = first.state_dict(samples=len(got))
    second = opened()
    second.load_state_dict(state)
    got += [pair for batch in batches(second, 2) for pair in batch]
    stored = wanted(kind)
    assert [canon(sample) for _, sample in got] == [canon(stored[number]) for number in opened().order()]


def test_examples_are_what_protocol_buffers_say() -> None:
    """Messages of Google's library, packed and not, with fields that nobody knows: the same features."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is not installed")
    from google.protobuf import descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")
    kinds = (("BytesList", 12), ("FloatList", 2), ("Int64List", 3))
    for name, kind in kinds:
        file.message_type.add(name=name).field.add(name="value", number=1, label=3, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, _) in enumerate(kinds, start=1):
        feature.field.add(
            name=name.lower(), number=number, label=1, type=11, type_name=f".t.{name}", oneof_index=0
        )
    features = file.message_type.add(name="Features")
    features.field.add(name="feature", number=1, label=3, type=11, type_name=".t.Features.FeatureEntry")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".t.Feature")
    file.message_type.add(name="Example").field.add(
        name="features", number=1, label=1, type=11, type_name=".t.Features"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        message, expected = made(), {}
        for number in range(int(rng.integers(1, 5))):
            name, count = f"f/{number}é", int(rng.integers(0, 4))
            value = message.features.feature[name]
            kind = int(rng.integers(3))
            if kind == 0:
                content = [rng.bytes(int(rng.integers(0, 300))) for _ in range(count)]
                value.byteslist.value.extend(content)
                expected[name] = content[0] if count == 1 else content
            elif kind == 1:
                content = np.float32(rng.normal(size=count)).tolist()
                value.floatlist.value.extend(content)
                expected[name] = content
            else:
                content = rng.integers(-(2**62), 2**62, size=count).tolist()
                value.int64list.value.extend(content)
                expected[name] = content
            if not count:  # an empty list has a kind; it may be written as none
                getattr(value, kinds[kind][0].lower()).SetInParent()
        unknown = field(15, b"of a later version") + varint(8 * 7) + varint(300)
        found = example(memoryview(message.SerializeToString() + unknown))
        lists = {
            name: [bytes(each) for each in value] if isinstance(value, list) else value
            for name, value in found.items()
        }
        assert canon(lists) == canon(expected)
    loose = field(1, field(1, field(1, b"x") + field(2, field(2, b"\x0d\0\0\x80?\x0d\0\0\0@"))))
    assert example(memoryview(loose))["x"].tolist() == [1.0, 2.0]
    loose = field(1, field(1, field(1, b"x") + field(2, field(3, b"\x08\x01\x08\x02"))))
    assert example(memoryview(loose))["x"].tolist() == [1, 2]


def test_records_that_are_no_examples_are_bytes(tmp_path: Path) -> None:
    needed("tfrecord")
    content = [b"\xff\xd8\xff JPEG", b"", b"z" * 5000]
    assert not any(map(is_example, content))
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(record, content)))
    reader = BlockDataset(tmp_path, shuffle=False)
    assert [bytes(sample) for _, sample in reader] == content
    assert [key for key, _ in reader] == ["a/00000000", "a/00000001", "a/00000002"]
    # An index says where records lie, and no record is looked for; one of another file is refused.
    lines, at = [], 0
    for each in content:
        lines.append(f"{at} {len(each) + 16}")
        at += len(each) + 16
    (tmp_path / "a.tfrecord.idx").write_text("\n".join(lines) + "\n")
    with LatencyStore(tmp_path) as store:
        assert [bytes(sample) for _, sample in BlockDataset(store.url, shuffle=False)] == content
        assert store.counters.bytes < 3 * at
    (tmp_path / "a.tfrecord.idx").write_text("\n".join(lines[:2]))
    with pytest.raises(DataError, match=r"a\.tfrecord\.idx: covers 40 of .* bytes: it is of another file"):
        BlockDataset(tmp_path)


def damaged(rng: np.random.Generator, content: bytes) -> bytes:
    """Bytes that are cut, flipped, doubled or left out."""
    at = int(rng.integers(len(content)))
    length = int(rng.integers(1, 200))
    kind = int(rng.integers(4))
    if kind == 0:
        return content[:at]
    if kind == 1:
        flipped = bytes(each ^ int(rng.integers(1, 256)) for each in content[at : at + 3])
        return content[:at] + flipped + content[at + 3 :]
    if kind == 2:
        return content[:at] + content[at : at + length] + content[at:]
    return content[:at] + content[at + length :]


@pytest.mark.parametrize("kind", NEEDED)
def test_damaged_files_are_a_line_and_no_wrong_byte(
    folders: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    """Drawn damages. What has checksums gives the stored bytes or an error; MDS and LitData give no traceback."""
    copy = Path(shutil.copytree(folder_of(folders, kind), tmp_path / kind))
    path = sorted(path for path in copy.iterdir() if path.suffix != ".json")[0]
    whole, stored = path.read_bytes(), [digest(sample) for sample in wanted(kind)]
    rng = np.random.default_rng(9)
    refused = 0
    for _ in range(CASES):
        path.write_bytes(damaged(rng, whole))
        got = []
        try:
            for _, sample in BlockDataset(copy, shuffle=False, threads=int(rng.integers(2))):
                got.append(digest(sample))
        except ForerunError as error:
            refused += 1
            assert str(error).count("\n") == len(error.problems) - 1 and str(copy.name) in str(error)
        if kind in ("parquet", "tfrecord"):
            assert got == stored[: len(got)] or len(got) == 0
    assert refused > CASES // 4


def test_litdata_writes_what_we_read(tmp_path: Path) -> None:
    """With the library itself: dictionaries, pairs and single values; arrays are refused by name."""
    litdata = pytest.importorskip("litdata", reason="litdata is not installed: pip install litdata")
    for name, function in (("rows", _row), ("pairs", _pair), ("single", _single), ("arrays", _array)):
        litdata.optimize(
            fn=function, inputs=list(range(40)), output_dir=str(tmp_path / name), chunk_size=7, num_workers=1
        )
        if name == "arrays":
            with pytest.raises(DataError, match=r"index\.json: is of LitData, where '0' has the encoding"):
                BlockDataset(tmp_path / name)
            continue
        found = [canon(sample) for _, sample in BlockDataset(tmp_path / name, shuffle=False)]
        expected = [function(number) for number in range(40)]
        if name == "pairs":
            expected = [{"0": a, "1": b} for a, b in expected]
        assert found == [canon(each) for each in expected]


def _row(number: int) -> Any:
    return {
        "n": -number,
        "data": bytes([number]) * number,
        "text": f"é{number}",
        "x": number / 3,
        "odd": bool(number % 2),
    }


def _pair(number: int) -> Any:
    return bytes([number]) * 3, number


def _single(number: int) -> Any:
    return bytes([number]) * (number + 1)


def _array(number: int) -> Any:
    return np.arange(number + 1.0), number


def test_litdata_that_is_not_read_is_named(tmp_path: Path) -> None:
    chunks = [{"filename": "chunk-0-0.bin"}]
    for encodings, said in (
        (
            ["pickle"],
            "has the encoding 'pickle'; read are bytes, jpeg.*pickles are not read, they can run code",
        ),
        (["no_header_tensor:1"], "has the encoding 'no_header_tensor:1'; read are bytes"),
    ):
        write_litdata_index(tmp_path, chunks, encodings, ["x"])
        with pytest.raises(DataError, match=said):
            BlockDataset(tmp_path)
    write_litdata_index(tmp_path, chunks, ["int"], ["x"])
    with pytest.raises(DataError, match=r"chunk-0-0\.bin: is absent, and the index names it"):
        BlockDataset(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    for key, value, said in (
        ("compression", "zstd", "LitData with compression 'zstd'"), ("item_loader", "TokensLoader", "for 'TokensLoader'"),
        ("data_spec", "[1]", "no dictionary or list of values"), ("data_format", None, "names no chunks, or no data_format"),
    ):  # fmt: skip
        (tmp_path / "index.json").write_text(json.dumps(index | {"config": index["config"] | {key: value}}))
        with pytest.raises(DataError, match=said):
            BlockDataset(tmp_path)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    columns: dict[str, tuple[str, int | None]] = {"data": ("bytes", None), "x": ("pkl", None)}
    folder = mds_folder(tmp_path / "pickled", columns, [{"data": b"", "x": b"cos\nsystem\n"}])
    with pytest.raises(
        DataError, match=r"column 'x' has the encoding 'pkl'.*pickles are not read, they can run"
    ):
        list(BlockDataset(folder))
    columns = {
        "__key__": ("str", None),
        "n": ("str_int", None),
        "j": ("json", None),
        "d": ("str_decimal", None),
    }
    row = {"__key__": b"a/b", "n": b"-12", "j": b'{"k": [1]}', "d": b"1.50"}
    folder = mds_folder(tmp_path / "typed", columns, [row])
    ((key, sample),) = BlockDataset(folder)
    assert key == "a/b" and sample["n"] == -12 and sample["j"] == {"k": [1]} and str(sample["d"]) == "1.50"
    folder = mds_folder(tmp_path / "wrong", {"n": ("str_int", None)}, [{"n": b"twelve"}])
    with pytest.raises(DataError, match=r"shard\.00000\.mds: sample 0 is no str_int in 'n': ValueError"):
        list(BlockDataset(folder))


@pytest.mark.parametrize("kind", NEEDED)
def test_every_command_takes_them(
    folders: dict[str, Path], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packed into blocks, the parts of a sample together; measured; and their sizes simulated."""
    folder = folder_of(folders, kind)
    assert kind_of(folder) == kind
    blocks = tmp_path / "blocks"
    assert command_line(["pack", str(folder), str(blocks), "--block-samples", "16"]) == 0
    packed = Blocks.open(blocks)
    packed.verify()
    assert len(packed) == SAMPLES and f"{SAMPLES} samples" in capsys.readouterr().out
    parts = dict(samples_of(folder))
    together = [sample for _, sample in BlockDataset(blocks)]
    images = [next(sample[name] for name in ("image", "image.jpg") if name in sample) for sample in together]
    assert sorted(map(bytes, images)) == sorted(row["image"] for row in drawn())
    assert sorted(content for key, content in parts.items() if key.endswith(".label.txt")) == sorted(
        str(row["label"]).encode() for row in drawn()
    )
    with open_corpus(str(folder)) as corpus, LatencyStore(folder) as store, open_corpus(store.url) as remote:
        assert corpus.samples == remote.samples == SAMPLES and corpus.format == kind
        for each in (corpus, remote):
            for piece in each.pieces(8, SAMPLES):
                data = each.client_for(8).read(piece.name, piece.first, piece.length, piece.what)
                assert len(data) == piece.length
    assert command_line(["measure", "loading", str(folder), "--decoder", "pillow"]) == 2
    assert f"decode files and blocks, not {kind}: run `forerun pack" in capsys.readouterr().err
    first = "index.json" if kind in ("mds", "litdata") else sorted(path.name for path in folder.iterdir())[0]
    for file, count in (
        (folder / first, SAMPLES if kind in ("mds", "litdata") else 50),
        (blocks / "index.parquet", SAMPLES),
    ):
        text = tmp_path / "scenario.yaml"
        text.write_text(SIMULATED.format(file=file, samples=count))
        simulated = forerun.simulate(forerun.load(text))
        assert simulated.summary["store_bytes"] == sum_of(file)


def sum_of(file: Path) -> int:
    """Bytes of samples that a file speaks of, by another way than the product's."""
    if file.name == "index.json":
        index = json.loads(file.read_text())
        if "chunks" in index:
            return sum(each["chunk_bytes"] - 4 * (each["samples_here"] + 2) for each in index["chunks"])
        shards = index["shards"]
        return sum(each["raw_data"]["bytes"] for each in shards) - head_bytes(file.parent)
    if file.name == "index.parquet":
        return sum(path.stat().st_size for path in file.parent.glob("*.blk"))
    if file.suffix == ".parquet":
        import pyarrow.parquet as parquet

        total = 0
        for group in parquet.read_metadata(file).to_dict()["row_groups"]:
            # Old writers leave some bytes between the columns of a row group.
            begins = [
                column["dictionary_page_offset"] or column["data_page_offset"] for column in group["columns"]
            ]
            ends = [a + column["total_compressed_size"] for a, column in zip(begins, group["columns"])]
            total += max(ends) - min(begins)
        return total
    return file.stat().st_size


def head_bytes(folder: Path) -> int:
    """Bytes before the first sample of the only shard."""
    return int.from_bytes((folder / "shard.00000.mds").read_bytes()[4:8], "little")


#: a store with the sizes of a data set
SIMULATED = """\
domain: loading
spec_version: 1
dataset: {{samples: {samples}, sample_bytes: {{empirical: "{file}"}}}}
layout: {{block_samples: 4}}
store: {{latency_s: 10ms}}
loader: {{mode: threads, threads: 2}}
step: {{step_s: 100ms}}
run: {{batch: 8}}
"""


@pytest.mark.parametrize("kind", NEEDED)
def test_a_data_set_that_is_written_anew_under_way_is_refused(
    folders: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder_of(folders, kind), tmp_path / "copy"))
    with LatencyStore(copy) as store:
        for url in (str(copy), store.url):
            reader = BlockDataset(url, threads=0, shuffle=False, retries=1)
            begun = iter(reader)
            next(begun)
            for path in copy.iterdir():
                if path.suffix != ".json":
                    path.write_bytes(path.read_bytes()[:2000])
            with pytest.raises((DataError, StoreError)) as raised:
                list(begun)
            assert "\n" not in str(raised.value)
            shutil.rmtree(copy)
            shutil.copytree(folders[kind], copy)


@pytest.mark.parametrize("kind", ["parquet", "tfrecord"])
def test_without_its_library_a_format_is_refused_in_a_line(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(folders, kind)

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(optional, "import_module", absent)
    with pytest.raises(UsageError, match=rf"not installed: pip install 'forerun\[{kind}\]'"):
        BlockDataset(folder)
    assert command_line(["measure", "loading", str(folder)]) == 2
    assert f"pip install 'forerun[{kind}]'" in capsys.readouterr().err


def test_what_has_blocks_of_its_own_is_cut_no_other_way(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"block_samples: .* has blocks of its own, of row groups"):
        BlockDataset(folder_of(folders, "parquet"), block_samples=8)
    found = local_data_set(folders["mds"])
    assert isinstance(found, DataSet) and found.files == ("shard.00000.mds",) * 2
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(DataError, match=r"manifest\.json: cannot be read"):
        BlockDataset(tmp_path)
    (tmp_path / "a.arrow").write_bytes(b"x")
    with pytest.raises(DataError, match="is of an Arrow data set"):
        BlockDataset(tmp_path)
