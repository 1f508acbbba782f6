"""Real images and sounds through every path that decodes: the runner, torch's workers, the data set, the verb."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockDataset
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, UsageError
from forerun.loading.measure import decoders
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import open_corpus
from forerun.loading.measure.decoders import decoder_named
from forerun.loading.measure.probing import run_cell
from forerun.loading.measure.store import LatencyStore, StoreSpec
from forerun.loading.policy import Ask, Cell

KINDS = ("pillow", "soundfile")


def library(name: str) -> Any:
    """A library, or a skip that says how to have it."""
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install 'forerun[decode]'")


def pictures(rng: np.random.Generator) -> dict[str, bytes]:
    """JPEG and PNG, colour, grey, with a palette and with transparency."""
    image = library("PIL.Image")
    found = {}
    for number, (kind, mode) in enumerate(
        [("jpeg", "RGB"), ("jpeg", "L"), ("jpeg", "CMYK"), ("png", "RGBA"), ("png", "P"), ("png", "1")] * 4
    ):
        buffer = io.BytesIO()
        colours = image.fromarray(rng.integers(0, 256, (17 + number, 23, 3), np.uint8))
        colours.convert(mode).save(buffer, kind)
        found[f"{mode}/{number:02d}.{kind}"] = buffer.getvalue()
    return found


def sounds(rng: np.random.Generator) -> dict[str, bytes]:
    """WAV, FLAC and Ogg, one and two channels."""
    soundfile = library("soundfile")
    found = {}
    for number, (kind, channels) in enumerate([("WAV", 1), ("FLAC", 2), ("OGG", 1), ("FLAC", 1)] * 6):
        buffer = io.BytesIO()
        soundfile.write(buffer, 0.3 * rng.standard_normal((900 + number, channels)), 16_000, format=kind)
        found[f"{number:02d}.{kind.lower()}"] = buffer.getvalue()
    return found


MADE: dict[str, Callable[[np.random.Generator], dict[str, bytes]]] = {"pillow": pictures, "soundfile": sounds}


def planted(folder: Path, samples: dict[str, bytes]) -> Path:
    for key, data in samples.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_real_samples_are_decoded_on_every_path(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = MADE[kind](np.random.default_rng(1))
    files = planted(tmp_path / "files", samples)
    blocks = pack(files, tmp_path / "blocks", PackSpec(4))
    decode = decoder_named(kind)
    found = dict(BlockDataset(blocks.folder, decode=decode))
    assert found.keys() == samples.keys()
    for key, value in found.items():
        assert meant(kind, samples[key], value), key
    with open_corpus(str(blocks.folder)) as corpus:
        run = run_cell(corpus, Job(batch=8, step_s=0.0, decode=kind), Ask(Cell(4, 2), len(samples)))
    assert run.samples == len(samples) and run.decode_cpu_s > 0 and np.all(run.decode_s > 0)
    arguments = ["--decoder", kind, "--batch", "4", "--step", "5ms", "--probe", "300ms", "-q"]
    assert command_line(["measure", "loading", str(files), *arguments]) == 0
    assert "samples/s" in capsys.readouterr().out


def meant(kind: str, data: bytes, value: Any) -> bool:
    """Whether a sample was decoded to what its library says it holds."""
    if kind == "pillow":
        with library("PIL.Image").open(io.BytesIO(data)) as opened:
            return bool(value == opened.convert("RGB").tobytes() and len(value) == 3 * np.prod(opened.size))
    about = library("soundfile").info(io.BytesIO(data))
    sound, rate = value
    return bool(sound.dtype == np.float32 and len(sound) == about.frames and rate == about.samplerate)


def spoilt(kind: str, samples: dict[str, bytes]) -> dict[str, bytes]:
    """Three samples that cannot be decoded: cut short, of no bytes, and something else under the name."""
    extension = "jpeg" if kind == "pillow" else "flac"
    whole = next(data for key, data in samples.items() if key.endswith(extension))
    return {
        f"bad/cut.{extension}": whole[: len(whole) // 2] if kind == "pillow" else whole[:20],
        f"bad/empty.{extension}": b"",
        f"bad/text.{extension}": b"no such thing " * 20,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_decoded_is_named_with_its_block(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = MADE[kind](np.random.default_rng(1))
    for number, (key, data) in enumerate(spoilt(kind, samples).items()):
        source = planted(tmp_path / f"files{number}", {**samples, key: data})
        blocks = pack(source, tmp_path / f"blocks{number}", PackSpec(4))
        block = int(blocks.index.block[blocks.index.key.index(key)])
        with pytest.raises(
            DataError, match=rf"b{block:06d}\.blk: sample '{key}' cannot be decoded: \w+Error: \S"
        ):
            list(BlockDataset(blocks.folder, decode=decoder_named(kind)))
        torchs = [
            ["--set", "loader=workers", "--set", "workers=[1,2]"],
            ["--set", "loader=pooled_workers", "--set", "workers=[1]", "--set", "block=4"],
        ]
        for arguments in ([], torchs[number % 2]):
            if arguments and "torch" not in sys.modules and not torch_is_here():
                continue
            command = ["measure", "loading", str(blocks.folder), "--decoder", kind, "--batch", "4", "-q"]
            assert command_line([*command, "--step", "1ms", "--probe", "500ms", *arguments]) == 2
            said = capsys.readouterr().err
            assert f"sample '{key}'" in said and f"block {block}" in said and "cannot be decoded" in said
            assert "Traceback" not in said and len(said.strip().splitlines()) == 1, said


def test_files_that_are_no_samples_are_passed_over_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = {f"{number}.jpg": bytes([number]) * 300 for number in range(40)}
    beside = {".DS_Store": b"x", "labels.csv": b"a,b", "empty.jpg": b"", "sub/_note": b"1"}
    planted(tmp_path, samples | beside | {"7.json": b"{}"})
    with open_corpus(str(tmp_path)) as corpus:
        assert set(corpus.index.key) == {*samples, "7.json"}  # a part of sample 7
        assert sorted(corpus.passed_over) == sorted(beside)
    with open_corpus(str(tmp_path), include="*.csv") as corpus:
        assert corpus.index.key == ("labels.csv",)
    with LatencyStore(tmp_path, StoreSpec()) as store, open_corpus(store.url) as corpus:
        assert set(corpus.index.key) == {*samples, "7.json"} and len(corpus.passed_over) == 4
    with (
        pytest.raises(DataError, match=r"none of its 45 files matches \*\.png"),
        open_corpus(str(tmp_path), include="*.png"),
    ):
        pass
    out = tmp_path.parent / f"{tmp_path.name}.json"
    given = [str(tmp_path), "--step", "1ms", "--batch", "8", "--probe", "50ms", "-q", "-o", str(out)]
    assert command_line(["measure", "loading", *given]) == 0
    assert "files passed over as no samples: 4, such as '.DS_Store'" in capsys.readouterr().out
    # What was measured is planned, with the loader that it has now as a row.
    assert command_line(["plan", str(out), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert {(row["block_samples"], row["threads"]) for row in planned["cells"]} >= {(1, 1), (4, 8)}
    kept = planned["summary"]["block_samples"] == planned["summary"]["threads"] == 1
    assert kept or "the present loader, single samples and 1 thread: " in str(planned["notes"])
    texts = tmp_path / "texts"
    planted(texts, {f"{number}.txt": b"words" for number in range(9)} | {"one.jpg": b"1"})
    with open_corpus(str(texts)) as corpus:
        assert len(corpus.index) == 10  # texts are the samples where most files are texts


def torch_is_here() -> bool:
    """Whether torch can be imported."""
    try:
        import torch.utils.data  # noqa: F401
    except ImportError:
        return False
    return True


def test_torchs_workers_decode_in_earnest(tmp_path: Path) -> None:
    data = pytest.importorskip(
        "torch.utils.data", reason="torch is not installed: pip install 'forerun[torch]'"
    )
    samples = pictures(np.random.default_rng(2))
    folder = pack(planted(tmp_path / "files", samples), tmp_path / "blocks", PackSpec(4)).folder
    loader = data.DataLoader(
        BlockDataset(folder, decode=decoder_named("pillow")), batch_size=None, num_workers=2
    )
    found = dict(loader)
    assert all(meant("pillow", samples[key], value) for key, value in found.items()) and len(found) == 24
    spoilt_folder = tmp_path / "spoilt"
    key = "bad/cut.jpeg"
    more = {**samples, key: spoilt("pillow", samples)[key]}
    pack(planted(tmp_path / "more", more), spoilt_folder, PackSpec(4))
    loader = data.DataLoader(
        BlockDataset(spoilt_folder, decode=decoder_named("pillow")), batch_size=None, num_workers=2
    )
    with pytest.raises(DataError, match=rf"\.blk: sample '{key}' cannot be decoded"):
        list(loader)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without either library."""
    decoders._library.cache_clear()
    for name in ("PIL", "PIL.Image", "soundfile"):
        monkeypatch.setitem(sys.modules, name, None)
    yield
    decoders._library.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("nothing_installed")
def test_a_decoder_that_is_not_installed_says_what_to_install(kind: str) -> None:
    with pytest.raises(UsageError, match=r"is not installed: pip install 'forerun\[decode\]'"):
        decoder_named(kind)
