"""A data set and a transform of the user's own: where the time of a sample goes, what binds, and what is wrong in a line."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from forerun.blocks.container.pack import PackSpec, pack
from forerun.core.cli.main import run as command_line
from forerun.core.errors import UsageError
from forerun.loading.measure.answers import Host, Job, keeps_up
from forerun.loading.measure.corpus import make_corpus
from forerun.loading.measure.own import OwnAnswer, OwnRow, OwnTransform

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install 'forerun[torch]'"
)

PROGRAM = """
import hashlib, time
from pathlib import Path
from torch.utils.data import Dataset, IterableDataset
from forerun.blocks.reader import BlockDataset

WORK = bytes(20_000)

def spend(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        hashlib.sha256(WORK).digest()

class Mapped(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, number):
        time.sleep(0.004)
        spend(0.001)
        return number

class Streamed(IterableDataset):
    def __iter__(self):
        for number in range(100):
            time.sleep(0.004)
            yield number

class Short(Streamed):
    def __iter__(self):
        yield from range(3)

class Nothing(Streamed):
    def __iter__(self):
        return iter(())

class NoLength(Dataset):
    def __getitem__(self, number):
        return number

class Broken(Mapped):
    def __getitem__(self, number):
        raise KeyError(f"no sample {number}\\nand more")

class Ends(Mapped):
    def __getitem__(self, number):
        raise StopIteration

class Dies(Mapped):
    def __getitem__(self, number):
        import os
        os._exit(7)

class Empty(Mapped):
    def __len__(self):
        return 0

def mapped():
    return Mapped()

def blocks():
    return BlockDataset(Path(__file__).with_name("blocks"), threads=2)

def raises():
    raise RuntimeError("no data here\\nat all")

def number():
    return 7

def transform(sample):
    spend(0.002)
    return sample

def forgets(sample):
    sample

def fails(sample):
    raise ValueError("not an image")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `ours` in the working directory, and a container beside it."""
    (tmp_path / "ours.py").write_text(PROGRAM)
    make_corpus(tmp_path / "files", 120, mean_bytes=500)
    pack(tmp_path / "files", tmp_path / "blocks", PackSpec(8))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("ours", None)


ARGUMENTS = ["--batch", "8", "--step", "20ms", "--probe", "300ms", "--set", "workers=[1,2]", "-q"]


@needs_torch
@pytest.mark.parametrize("source", ["mapped", "Mapped", "Streamed", "blocks"])
def test_waiting_and_work_are_measured_apart(
    program: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sleeping is no work and work no waiting, and the parts sum.

    The program works until its processor clock has advanced by what is asserted here, so a busy machine cannot fall below.
    """
    command = [
        "measure",
        "loading",
        "--dataset",
        f"ours:{source}",
        "--transform",
        "ours:transform",
        *ARGUMENTS,
    ]
    assert command_line([*command, "--json", "-o", "measured.json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["workers"] for row in said["own"]] == [1, 2] and said["loader"] == "own"
    for row in said["own"]:
        assert row["transform_cpu_s"] >= 0.002 and row["transform_s"] >= 0.002
        assert row["cpu_s"] >= (0.003 if source.lower() == "mapped" else 0.002)
        assert row["total_s"] >= row["transform_s"] + (0.0 if source == "blocks" else 0.004)
        # two clocks: that of the processor may run ahead by less than it resolves
        assert row["waiting_s"] <= max(0.0, row["total_s"] - row["cpu_s"]) + 1e-9
        if source != "blocks":
            assert row["waiting_s"] + row["queued_s"] > 0.0039
    assert said["needed_samples_per_s"] == pytest.approx(400)
    assert "a sample takes one worker" in said["answer"] and said["binds"] in (
        "step",
        "store",
        "link",
        "cpu",
        "workers",
    )
    assert command_line(command) == 0
    printed = capsys.readouterr().out
    assert "waiting s" in printed and "its processor s" in printed
    assert command_line(["report", "measured.json", "-o", "page.html"]) == 0


@needs_torch
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "ours:raises"], "--dataset: 'ours:raises' raised RuntimeError: no data here"),
        (["--dataset", "ours:absent"], "'ours:absent' cannot be imported: AttributeError"),
        (["--dataset", "nowhere:mapped"], "'nowhere:mapped' cannot be imported: ModuleNotFoundError"),
        (["--dataset", "ours"], "'ours' is not of the form module:name"),
        (["--dataset", "ours:number"], "gives a int, which has no __getitem__"),
        (["--dataset", "ours:NoLength"], "gives a map-style data set without a length: TypeError"),
        (["--dataset", "ours:Empty"], "gives an empty data set"),
        (["--dataset", "ours:Short"], "ours:Short: gave 3 samples; 1 workers need more than"),
        (["--dataset", "ours:Nothing"], "ours:Nothing: gave no samples"),
        (["--dataset", "ours:Broken"], r"cannot be loaded: KeyError: "),
        (["--dataset", "ours:Ends"], "raised StopIteration"),
        (["--dataset", "ours:Dies"], "ours:Dies: a worker ended: "),
        (["--dataset", "ours:mapped", "--transform", "ours:forgets"], "ours:forgets returned nothing"),
        (["--dataset", "ours:mapped", "--transform", "ours:fails"], "cannot be transformed: ValueError: not an image"),
        (["--dataset", "ours:mapped", "--transform", "ours:WORK"], "'ours:WORK' is a bytes, not a function"),
        (["--dataset", "ours:mapped", "files"], "name either a folder or URL, or --dataset"),
        ([], "name either a folder or URL, or --dataset"),
        (["blocks", "--transform", "ours:forgets"], r"cannot be decoded: ValueError: ours:forgets returned nothing"),
        (["blocks", "--transform", "ours:fails", "--decoder", "numpy"], "both decode; name one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(
    program: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert command_line(["measure", "loading", *options, *ARGUMENTS, "-o", "measured.json"]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said and len(said.splitlines()) == 1
    assert not (program / "measured.json").exists()


def test_a_transform_decodes_the_samples_of_a_folder(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec("torch") is None:
        (program / "ours.py").write_text("def transform(sample):\n    return bytes(sample)\n")
    command = ["measure", "loading", "blocks", "--transform", "ours:transform", *ARGUMENTS, "--json"]
    assert command_line(command) == 0
    assert json.loads(capsys.readouterr().out)["samples_per_s"] > 0
    assert OwnTransform.of("math:sqrt")(4.0) == 2.0
    with pytest.raises(UsageError, match="cannot be imported"):
        OwnTransform.of("math:nothing")


def row(workers: int, rate: float, wait: float, cpu: float, queued: float = 0.0) -> OwnRow:
    """A row whose fetches wait, compute and queue so many milliseconds."""
    return OwnRow(workers, 100, rate, (wait + cpu + queued) / 1e3, cpu / 1e3, 0.0, 0.0, queued / 1e3)


#: one worker and four, of eight processors; 640 samples/s are needed
CASES = {
    "step": [row(1, 300, 2, 1), row(4, 1200, 2, 1)],
    "store": [row(1, 50, 19, 1), row(4, 200, 19, 1)],
    "link": [row(1, 50, 19, 1), row(4, 60, 65, 1)],
    "workers": [row(1, 50, 1, 19), row(4, 200, 1, 19)],
    "cpu": [row(1, 50, 1, 19), row(4, 60, 1, 30, 35)],
}


@pytest.mark.parametrize("binds", CASES)
def test_what_binds_follows_from_what_grows(binds: str) -> None:
    rows = CASES[binds]
    found = OwnAnswer("x:y", Job(64, 0.1), tuple(rows), 8, Host(8, 0.0, 0.0, ""))
    assert found.binds == binds
    assert found.enough == {"step": 4, "store": 13, "link": None, "workers": None, "cpu": None}[binds]
    assert json.loads(json.dumps(found.data()))["binds"] == binds
    roomy = OwnAnswer("x:y", Job(64, 0.1), tuple(rows), 64, Host(8, 0.0, 0.0, ""))
    assert roomy.enough == {"step": 4, "store": 13, "link": None, "workers": 13, "cpu": None}[binds]


def test_a_step_of_no_time_is_never_hidden() -> None:
    found = OwnAnswer("x:y", Job(64, 0.0), tuple(CASES["store"]), 8, Host(8, 0.0, 0.0, ""))
    assert math.isinf(found.needed_per_s) and found.binds == "store" and found.enough is None
    assert (keeps_up(None, 4, 2), keeps_up(1, 4, 2)) == ("", "1 worker keeps up")
    assert keeps_up(3, 2, 8) == "3 workers keep up (extrapolated from 2)"
    assert (
        keeps_up(15, 4, 2)
        == "15 workers keep up (extrapolated from 4 on 2 cores, where more than 2 may not run at once)"
    )
    assert found.data()["needed_samples_per_s"] is None


def test_parts_sum_to_the_whole_on_drawn_rows() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        wait, cpu, queued = rng.exponential(10.0, size=3)
        one = row(1, 10.0, wait, cpu, queued)
        assert one.waiting_s + one.cpu_s + one.queued_s == pytest.approx(one.total_s)
        assert one.waiting_s == pytest.approx(wait / 1e3)
