"""Law: a job that runs on 1, 4, 3 and 2 ranks, killed in between, ends in the weights of a job that always ran on one."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.live.ranks import Group

from forerun.live import checkpoint as checkpoints
from forerun.live.rank_messages import Drain, FirstStep

HERE = Path(__file__).parent
STEPS = 60
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
PROGRAMS = ["numpy", pytest.param("torch", marks=needs_torch)]


def command(program: str, *arguments: str) -> list[str]:
    return [str(HERE / f"{program}_trainer.py"), *arguments]


def rigid(folder: Path, program: str, world: int = 1, *arguments: str) -> dict:
    """The final state of a run that nothing disturbs."""
    with Group(folder, command(program, *arguments), world, iterations=STEPS) as group:
        assert group.ended() == [0] * world
        assert group.why() == {("finished", STEPS)}
        return checkpoints.read(folder / "checkpoints", group.checkpoints()[0])


def flat(state: object) -> np.ndarray:
    """All numbers of a state."""
    if isinstance(state, dict):
        return np.concatenate([flat(state[key]) for key in state]) if state else np.zeros(0)
    if isinstance(state, list | tuple):
        return np.concatenate([flat(one) for one in state]) if state else np.zeros(0)
    return np.ravel(np.asarray(state, dtype=np.float64)) if state is not None else np.zeros(0)


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def expected(program, tmp_path_factory) -> np.ndarray:
    """The final state on one rank."""
    return flat(rigid(tmp_path_factory.mktemp("rigid"), program))


def test_an_elastic_run_with_a_kill_ends_in_the_weights_of_a_rigid_one(tmp_path, program, expected):
    folder, known, ranks_used = tmp_path / "elastic", [], []
    # Each start saves as often as it can, so a kill loses the steps since the last report of a checkpoint only.
    for epoch, (world, end) in enumerate([(1, "drain"), (4, "kill"), (3, "drain"), (2, "finish")], 1):
        with Group(
            folder, command(program), world, epoch=epoch, iterations=STEPS, every_s=1e-6,
            checkpoint=known[0] if known else None, older=tuple(known[1:3]),
        ) as group:  # fmt: skip
            begin = known[0].step if known else 0
            group.until(lambda g: g.of(FirstStep))
            assert group.of(FirstStep)[0].step == begin
            if end != "finish":
                group.until(lambda g: len(g.checkpoints()) >= 3)
            if end == "drain":
                group.tell(Drain())
                assert group.ended() == [0] * world
                (left,) = group.why()
                assert left[0] == "drained" and left[1] == group.checkpoints()[0].step
            elif end == "kill":
                group.signal(world - 1, signal.SIGKILL)
                assert any(group.ended())
            else:
                assert group.ended() == [0] * world
                assert group.why() == {("finished", STEPS)}
            assert not known or group.checkpoints()[0].step > known[0].step, "this start did no step"
            known = [*group.checkpoints(), *known]
            ranks_used.append(world)
    assert known[0].step == STEPS and ranks_used == [1, 4, 3, 2]
    assert flat(checkpoints.read(folder / "checkpoints", known[0])) == pytest.approx(expected, rel=1e-6)


def test_shares_of_ten_samples_must_be_weighted(tmp_path, program, expected):
    """Without weights by share, four ranks end elsewhere; so the law above could fail."""
    unscaled = flat(rigid(tmp_path, program, 4, "unscaled"))
    assert unscaled.shape == expected.shape and unscaled != pytest.approx(expected, rel=1e-3)
