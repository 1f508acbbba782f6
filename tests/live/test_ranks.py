"""Ranks without a node: checkpoints that are damaged, drains, skips, and what a program alone does."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.live.ranks import Group

from forerun.core.errors import StoreError
from forerun.live import checkpoint as checkpoints
from forerun.live import job
from forerun.live.engines.engine import Checkpoint, Pace
from forerun.live.job import SHIM_LOST, _Order, _unequal_layers
from forerun.live.rank_messages import (
    MOST_BYTES,
    Drain,
    FirstStep,
    Leaving,
    Lines,
    Progress,
    Rendezvous,
    Saved,
    Skip,
    line,
)
from forerun.spot.engine.closed_forms import young

HERE = Path(__file__).parent
NUMPY = [str(HERE / "numpy_trainer.py")]
PACED = ["-m", "forerun.live.programs.paced"]
#: a pace at which no step ends within a test
FOREVER = Pace(rate_per_s=1e-6)


def state(value: float) -> dict:
    return {
        "weights": np.full(3, value),
        "optimiser": {"rate": 0.1, "moments": [np.eye(2), 7], "name": "x", "none": None, "on": True},
    }


# ------------------------------------------------------------------------------------------------------ checkpoints


def test_a_checkpoint_reads_back_as_it_was(tmp_path):
    read = checkpoints.read(tmp_path, checkpoints.write(tmp_path, 1, 5, state(2.5)))
    assert json.dumps(read, default=np.ndarray.tolist) == json.dumps(state(2.5), default=np.ndarray.tolist)
    assert read["weights"].dtype == np.float64


def damaged_in_every_byte(data: bytes):
    """Files that a crash or a disk could leave of one: cut anywhere, or with any one byte altered."""
    for at in range(0, len(data), 7):
        yield data[:at]
        yield data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
    yield data + b"\0"


def test_a_torn_or_altered_checkpoint_is_never_read(tmp_path):
    saved = checkpoints.write(tmp_path, 1, 5, state(2.5))
    whole = (tmp_path / saved.file).read_bytes()
    tried = 0
    for data in damaged_in_every_byte(whole):
        (tmp_path / saved.file).write_bytes(data)
        assert checkpoints.read(tmp_path, saved) is None
        tried += 1
    assert tried > 200
    (tmp_path / saved.file).write_bytes(whole)
    assert checkpoints.read(tmp_path, saved) is not None


def test_only_files_of_the_folder_are_read(tmp_path):
    (tmp_path / "inside").mkdir()
    saved = checkpoints.write(tmp_path, 1, 5, state(2.5))
    for name in (f"../{saved.file}", str(tmp_path / saved.file), "other.npz"):
        assert checkpoints.read(tmp_path / "inside", Checkpoint(name, 5, saved.sha256)) is None
    (tmp_path / "inside" / saved.file).symlink_to(tmp_path / "absent")
    assert checkpoints.read(tmp_path / "inside", saved) is None


def test_what_would_need_pickle_is_refused_before_it_is_written(tmp_path):
    for value in (object(), {1, 2}, np.array([object()]), {("a", 1): 2.0}):
        with pytest.raises(StoreError, match="state"):
            checkpoints.write(tmp_path, 1, 5, {"part": value})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoints.write(tmp_path, 1, 5, state(2.5))
    assert list(tmp_path.iterdir()) == []


def test_youngs_interval_is_that_of_the_spot_domain():
    assert checkpoints.young_s(2.0, 3600.0) == young(3600.0, 2.0)


@pytest.mark.parametrize("damage", ["altered", "torn", "absent"])
def test_ranks_go_on_from_the_checkpoint_before_a_damaged_one(tmp_path, damage):
    with Group(tmp_path, NUMPY, 2, iterations=10**9, every_s=1e-6) as group:
        group.until(lambda g: len(g.checkpoints()) >= 3).tell(Drain())
        assert group.ended() == [0, 0]
        newest, before, *_ = group.checkpoints()
    path = tmp_path / "checkpoints" / newest.file
    data = path.read_bytes()
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "torn" else data[:99] + b"!" + data[100:])
    end = newest.step + 2
    with Group(tmp_path, NUMPY, 2, epoch=2, iterations=end, checkpoint=newest, older=(before,)) as group:
        assert group.ended() == [0, 0]
        assert group.of(FirstStep)[0].step == before.step < newest.step
        assert group.why() == {("finished", end)}


def test_old_checkpoints_go_but_not_young_ones_that_the_controller_may_not_know(tmp_path):
    folder = tmp_path / "checkpoints"
    for hold_s, most in ((0.0, 2), (1e6, math.inf)):
        with Group(tmp_path, NUMPY, 1, iterations=10**9, every_s=1e-6, hold_s=hold_s) as group:
            group.until(lambda g: len(g.checkpoints()) >= 20).tell(Drain())
            group.ended()
            names = [one.file for one in group.checkpoints()]
            left = [name for name in names if (folder / name).exists()]
            assert left == names[: len(left)] and len(left) == min(most, len(names))
    # The next start removes what an earlier one left and nobody names.
    (folder / ".000001-000000000001.npz.99.partial").write_bytes(b"torn")
    newest, before = group.checkpoints()[:2]
    with Group(
        tmp_path, NUMPY, 1, epoch=2, iterations=newest.step, checkpoint=newest, older=(before,)
    ) as group:
        group.ended()
    assert sorted(path.name for path in folder.iterdir()) == sorted([newest.file, before.file])


# ------------------------------------------------------------------------------------------------- drains and skips


@pytest.mark.parametrize("told", [[0], [2], [0, 1, 2]])
def test_all_ranks_leave_at_the_same_step_whoever_is_told_to(tmp_path, told):
    with Group(tmp_path, NUMPY, 3, iterations=10**9) as group:
        group.until(lambda g: g.of(FirstStep)).tell(Drain(), told)
        assert group.ended() == [0, 0, 0]
        ((why, step),) = group.why()
        assert why == "drained" and len(group.of(Leaving)) == 3
        assert [one.step for one in group.of(Saved)] == ([step] if step else [])


def test_a_drain_during_the_start_ends_before_the_first_step(tmp_path):
    with Group(tmp_path, NUMPY, 2) as group:
        group.tell(Drain())
        assert group.ended() == [0, 0]
        assert group.why() == {("drained", 0)} and not group.of(FirstStep) and not group.of(Saved)


def test_a_paced_job_skips_and_ends_when_it_is_told_to(tmp_path):
    with Group(tmp_path, PACED, 2, iterations=1000, pace=Pace(rate_per_s=0.0)) as group:
        group.until(lambda g: g.of(FirstStep)).tell(Skip(step=400), [0])
        group.until(lambda g: any(one.step >= 400 for one in g.of(Progress)))
        group.tell(Skip(step=10), [0])  # steps back are none
        group.tell(Skip(step=10**6), [0])
        assert group.ended() == [0, 0]
        assert group.why() == {("finished", 1000)}


def test_a_paced_job_that_skipped_is_drained_where_it_is(tmp_path):
    with Group(tmp_path, PACED, 1, iterations=1000, pace=Pace(rate_per_s=0.0)) as group:
        group.until(lambda g: g.of(FirstStep)).tell(Skip(step=400))
        group.tell(Drain())
        assert group.ended() == [0]
        ((why, step),) = group.why()
        # Without a rate of its own, it does no step that it was not told to.
        assert (why, step) == ("drained", 400)


def test_a_paced_job_goes_no_faster_than_its_pace(tmp_path):
    """Its start and its steps take at least the wall time that is given; how much longer depends on the machine."""
    pace = Pace(rate_per_s=20.0, start_s=0.3)
    clock = __import__("time")
    begun_s = clock.clock_gettime(clock.CLOCK_BOOTTIME)
    with Group(tmp_path, PACED, 1, iterations=10, pace=pace, started_s=begun_s, report_s=0.1) as group:
        assert group.ended() == [0]
        assert clock.clock_gettime(clock.CLOCK_BOOTTIME) - begun_s >= 0.3 + 10 / 20.0
        assert group.of(Progress)


# ------------------------------------------------------------------------------------------------------ ends of ranks


def test_a_rank_whose_shim_is_gone_exits(tmp_path):
    with Group(tmp_path, PACED, 1, pace=FOREVER) as group:
        group.until(lambda g: g.of(FirstStep))
        group._ends[0].close()
        assert group.ranks[0].wait(240) == SHIM_LOST


def test_a_failing_program_says_what_failed(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(
        "from forerun.live import job\n"
        "with job.attach(torch=False) as me:\n"
        "    raise RuntimeError('no such data')\n"
    )
    with Group(tmp_path, [str(program)], 1) as group:
        assert group.ended() == [1]
        (left,) = group.of(Leaving)
        assert (left.why, left.detail) == ("failed", "RuntimeError: no such data")


@pytest.mark.parametrize("how", ["break", "raise SystemExit(0)"])
def test_a_program_that_ends_before_its_last_step_has_failed_and_by_itself_it_has_not(tmp_path, how):
    program = tmp_path / "early.py"
    program.write_text(
        "import numpy as np\nfrom forerun.live import job\n"
        "with job.attach(iterations=100, torch=False) as me:\n"
        "    me.state(x=np.zeros(1))\n"
        "    for step in me.steps():\n"
        "        me.step()\n"
        f"        if me.done == 10: {how}\n"
    )
    with Group(tmp_path, [str(program)], 2) as group:
        group.ended()
        assert {(left.why, left.step) for left in group.of(Leaving)} == {("failed", 10)}
        assert group.of(Leaving)[0].detail == "ended after 10 of 100 steps"
    assert subprocess.run([sys.executable, str(program)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for _ in me.steps(): me.step()", "me.state"),
        ("me.state(x=x)\n    for _ in me.steps(): pass", "without me.step"),
        ("me.state(x=x)\n    for _ in me.batches(x, 1): me.step()", "cannot be shared by 2"),
        ("me.state(x=object())\n    for _ in me.batches(x, 2): me.step()", "a state has arrays"),
    ],
)
def test_misuse_is_told_in_a_line(tmp_path, body, message):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom forerun.live import job\nx = np.zeros(3)\n"
        f"with job.attach(torch=False) as me:\n    {body}\n"
    )
    with Group(tmp_path, [str(program)], 2) as group:
        assert any(group.ended())
        assert any(message in left.detail for left in group.of(Leaving))


def test_strangers_cannot_join_a_group(tmp_path):
    import socket

    with Group(tmp_path, NUMPY, 2, secret="known") as group:
        # Rank 1 is kept waiting until a stranger, who knows no secret, has tried to be rank 1.
        group.tell = lambda message, ranks=None: None  # type: ignore[method-assign]
        group.until(lambda g: g.of(Rendezvous))
        where = group.of(Rendezvous)[0]
        with socket.create_connection((where.address, where.port)) as stranger:
            stranger.sendall(b"\0\0\0\1" + b"x" * 32)
            assert stranger.recv(1) == b""
        del group.tell
        group.tell(where, [1])
        assert group.ended() == [0, 0]


def test_the_same_program_runs_alone_and_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "forerun.live.programs.numpy_job", "--iterations", "20", "--hidden", "8"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "after 20 steps" in done.stdout and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_example_of_a_user_is_drained_and_goes_on(tmp_path):
    """A data set, Adam's moments and DistributedDataParallel go from two ranks to one."""
    example = [str(Path(__file__).parents[2] / "examples" / "live" / "train.py")]
    with Group(tmp_path, example, 2, iterations=10**9) as group:
        group.until(lambda g: g.of(FirstStep)).tell(Drain())
        assert group.ended() == [0, 0]
        ((_, step),) = group.why()
        known = group.checkpoints()[0] if step else None
    with Group(tmp_path, example, 1, epoch=2, iterations=step + 2, checkpoint=known) as group:
        assert group.ended() == [0]
        assert group.of(FirstStep)[0].step == step and group.why() == {("finished", step + 2)}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_rank_takes_the_part_of_the_cores_that_its_slot_is(tmp_path):
    program = tmp_path / "threads.py"
    program.write_text(
        "import torch\nfrom forerun.live import job\nwith job.attach() as me: raise RuntimeError(torch.get_num_threads())\n"
    )
    cores = len(os.sched_getaffinity(0))
    for node_slots, threads in ((1, cores), (cores, 1), (8 * cores, 1)):
        with Group(tmp_path, [str(program)], 1, node_slots=node_slots) as group:
            group.ended()
            assert group.of(Leaving)[0].detail == f"RuntimeError: {threads}"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_layers_that_depend_on_the_number_of_ranks_are_named():
    from torch.nn import BatchNorm1d, Dropout, LayerNorm, Linear, Sequential

    equal = Sequential(Linear(3, 3), LayerNorm(3), Dropout(0.0))
    assert _unequal_layers(equal) == []
    assert _unequal_layers(Sequential(equal, BatchNorm1d(3), Dropout(0.1))) == ["BatchNorm1d", "Dropout"]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_arrays_data_sets_and_loaders_give_the_same_batches():
    import torch

    values = np.arange(33.0)
    pairs = [(value, 2 * value) for value in values]
    loader = torch.utils.data.DataLoader(pairs, batch_size=7, shuffle=True)

    def batches(data) -> list[list[float]]:
        got = []
        with job.attach(iterations=6, torch=False) as me:
            me.state(nothing=np.zeros(1))
            for first, second in me.batches(data, 10):
                assert np.array_equal(2 * np.asarray(first), np.asarray(second))
                got.append([float(one) for one in first])
                me.step()
        return got

    expected = [[float(one) for one in _Order(33, seed=0).of(10 * step, 10 * step + 10)] for step in range(6)]
    assert batches((values, 2 * values)) == batches(pairs) == batches(loader) == expected


# ------------------------------------------------------------------------------------------------------------ pieces


def test_every_pass_has_each_sample_once_and_an_order_of_its_own():
    order = _Order(33, seed=4)
    everything = order.of(0, 99)
    for begin in (0, 33, 66):
        assert sorted(everything[begin : begin + 33]) == list(range(33))
    assert list(everything[:33]) != list(everything[33:66])
    # Any cut, in any sequence of starts, gives the same samples.
    for low, high in ((70, 99), (0, 5), (30, 40), (5, 98)):
        assert list(_Order(33, seed=4).of(low, high)) == list(everything[low:high])


def test_lines_come_whole_however_the_stream_is_cut():
    sent = b"".join(
        map(line, (FirstStep(step=1), Progress(step=2, rate=0.5), Leaving(why="finished", step=3)))
    )
    for size in range(1, len(sent) + 1):
        lines, got = Lines(), []
        for at in range(0, len(sent), size):
            got += lines.feed(sent[at : at + size])
        assert b"\n".join(got) + b"\n" == sent
    with pytest.raises(ValueError, match="more than"):
        Lines().feed(b"x" * (MOST_BYTES + 1))


def test_importing_the_api_brings_in_neither_torch_nor_numpy():
    code = (
        "import sys, forerun.live.job; "
        "print([m for m in ('torch', 'numpy', 'polars', 'numba', 'altair', 'yaml', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
