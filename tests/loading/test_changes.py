"""A store that changes while it is read: the same before the instant, slower after it, in a run and in the store to try."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import ScenarioError
from forerun.core.scenario.spec import content_id, to_data
from forerun.core.scenarios import from_data, loads
from forerun.loading.engine.model import Reader, StoreModel
from forerun.loading.engine.threads import stream
from forerun.loading.measure.store import StoreSpec
from forerun.loading.verbs.store import command

BASE = """
domain: loading
seed: 3
dataset: {samples: 25600, sample_bytes: {mean_bytes: 50000, sigma: 0.5}}
layout: {block_samples: 4}
store: {latency_s: {mean_s: 5ms}, conn_bytes_per_s: 600MB/s}
cpu: {decode_s: 1ms}
loader: {threads: 2, buffer_samples: 256}
step: {step_s: 100ms}
run: {batch: 64}
"""


def test_a_latency_that_changes_is_the_same_store_before() -> None:
    rng = np.random.default_rng(23)
    blocks = [rng.uniform(1e4, 1e5, 3) for _ in range(60)]
    reader, latency = Reader(blocks, 3, 5, 0.004), rng.exponential(0.01, 61)
    calm = stream([reader], StoreModel(conn_bytes_per_s=1e8), latency_s=latency)
    half = calm.end_s / 2
    doubled = stream([reader], StoreModel(conn_bytes_per_s=1e8, changes=((half, 2.0),)), latency_s=latency)
    granted = calm.jobs[0].requests.grant_s
    same = granted < half
    assert same.any() and not same.all()
    wait = [run.jobs[0].requests.first_byte_s - run.jobs[0].requests.grant_s for run in (calm, doubled)]
    assert np.allclose(wait[1][same], wait[0][same]) and doubled.end_s > calm.end_s
    late = doubled.jobs[0].requests.grant_s >= half
    assert np.allclose(wait[1][late], 2 * wait[0][late])


def test_5_ms_become_40() -> None:
    """Two threads hide 5 ms, not 40; the instant counts from the start of the run, so a later epoch is slow as a whole."""
    result = forerun.simulate(loads(BASE, ["store.changes=[{at_s: 20, latency_s: 40ms}]"])).check()
    # 200 steps of 100 ms, and then 200 of what two threads take for a batch: 16 blocks of 4, read and decoded.
    slow_s = 16 / 2 * (0.040 + 4 * 50_000 / 600e6 + 4 * 0.001)
    assert result.summary["total_s"] == pytest.approx(20 + 200 * slow_s, rel=0.02)
    assert any("store as it is at the start" in note for note in result.notes)
    halves = forerun.simulate(
        loads(BASE, ["store.changes=[{at_s: 20, latency_s: 40ms}]", "run={batch: 64, epochs: 2, steps: 200}"])
    )
    first, second = halves.table("epochs")["total_s"].tolist()
    assert first < 21 and second > 2 * first


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("store.changes=[{at_s: 0, latency_s: 1ms}]", "store.changes[0].at_s"),
        ("store.changes=[{at_s: 5, latency_s: 1ms}, {at_s: 5, latency_s: 2ms}]", "store.changes[1].at_s"),
        ("store.changes=[{at_s: 5, latency_s: -1ms}]", "store.changes[0].latency_s"),
        ("store={latency_s: 0, changes: [{at_s: 5, latency_s: 1ms}]}", "store.changes"),
    ],
)
def test_bad_changes_name_the_place(override: str, where: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(BASE, [override])
    assert where in str(caught.value)


def test_changes_need_threads() -> None:
    with pytest.raises(ScenarioError, match=r"store\.changes: needs loader.mode threads"):
        loads(BASE, ["loader.mode=workers", "store.changes=[{at_s: 5, latency_s: 1ms}]"])


def test_keys_that_are_gone() -> None:
    """A run from before, which set none of them, has its id and is simulated again; who sets one learns that it is gone."""
    scenario = loads(BASE)
    before = to_data(scenario) | dict(scenario.removed)
    assert scenario.removed and from_data(before) == scenario
    assert content_id(from_data(before), "1") == content_id(scenario, "1")
    with pytest.raises(ScenarioError, match=r"pace: unknown key 'pace'"):
        from_data(before | {"pace": {"name": "by_interval"}})


def test_a_store_to_try_it_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(b"a")
    assert StoreSpec(latency_s=1.0, changes=((5.0, 2.0), (9.0, 3.0))).latency_at(6.0) == 2.0
    done = CliRunner().invoke(
        command, [str(tmp_path), "--for", "0.1s", "--latency", "1ms", "--then", "30s=40ms"]
    )
    assert done.exit_code == 0 and done.output.startswith("http://127.0.0.1:")
    for bad, message in (
        (["--then", "30s"], "such as 30s=40ms"),
        (["--then", "5s=1ms", "--then", "5s=2ms"], "ascending"),
    ):
        assert command_line(["store", str(tmp_path), "--for", "0.1s", *bad]) == 2
        assert message in capsys.readouterr().err
