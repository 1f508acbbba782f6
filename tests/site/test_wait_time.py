"""Forecasts of waits: nothing later than the instant matters, and the draws play the queue of that instant on."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import Cluster, Jobs
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.core.cli.main import run
from forerun.site.history import History, Names, read_history
from forerun.site.inference import KnownAt
from forerun.site.kernels import play_on as kernel
from forerun.site.shown import outages_of
from forerun.site.wait_time import forecast as fc
from forerun.site.wait_time import reference
from forerun.site.wait_time.alike import Alike
from forerun.site.wait_time.answer import StartForecast, answer, covered, share_up_to
from forerun.site.wait_time.backtest import block_interval
from forerun.site.wait_time.classes import class_of
from forerun.site.wait_time.situation import HORIZON_S, TERMS, Question, Situation

from ..conftest import cases

DAY_S = 86_400.0
CASES = cases(0)


def history(
    submit_s: object, start_s: object, end_s: object, nodes: object, requested_s: object, **others: object
) -> History:
    """A log of these jobs, complete from its beginning."""
    columns = [np.array(column, np.float64) for column in (submit_s, start_s, end_s, requested_s)]
    none = Names.of([""] * len(columns[0]))
    made = History(
        job_id=np.array([str(at) for at in range(len(columns[0]))]),
        submit_s=columns[0],
        eligible_s=columns[0].copy(),
        start_s=columns[1],
        end_s=columns[2],
        gpus=np.array(nodes, np.int64),
        nodes=np.array(nodes, np.int64),
        exclusive=np.zeros(len(columns[0]), np.bool_),
        requested_s=columns[3],
        user=none,
        account=none,
        partition=none,
        qos=none,
        state=none,
        gpu_type=none,
        on_nodes=none,
        array=none,
        origin_s=1_600_000_000.0,
        clock="UTC",
        selection="submit",
        complete_from_s=0.0,
        complete_until_s=30 * DAY_S,
    )
    return replace(made, **others)  # type: ignore[arg-type]


def easy(
    submit_s: object, need: object, request_s: object, work_s: object, nodes: int, order: int
) -> np.ndarray:
    """The starts of a whole run under EASY, by the engine of `simulate`."""
    made = Setting(
        Jobs.of(submit_s, need, work_s, requested_s=request_s), Cluster.uniform(1, 1, nodes), None, 60
    )
    rules = NodeQueueRules(made, Record(made), TERMS._replace(order=order), Fcfs())
    nq.advance(rules.queue, rules.terms, np.inf)
    return rules.queue.first_start


def busy_log(seed: int, jobs: int = 240, days: int = 10) -> History:
    """Random jobs on 16 nodes, and when EASY started them."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, int(days * DAY_S), jobs))
    submit_s -= submit_s[0]
    request_s = rng.choice([1800, 7200, 20_000, 40_000, 90_000], jobs)
    work_s = np.maximum((request_s * rng.random(jobs) * 1.02).astype(np.int64), 1)
    need = rng.choice([1, 2, 4, 8, 16], jobs)
    start_s = easy(submit_s, need, request_s, work_s, 16, qs.FIXED)
    return history(submit_s, start_s, start_s + work_s, need, request_s)


def bits(found: StartForecast) -> str:
    """All of an answer; floats as they are."""
    return json.dumps(found.data(), sort_keys=True)


# -- nothing later matters -----------------------------------------------------------------------------------------------

LOG = busy_log(1)


def two_pools() -> History:
    """Large jobs, of which none runs in the last hours of each other day, and small ones, which queue for two nodes."""
    rng, count = np.random.default_rng(3), 800
    submit_s = np.floor(np.arange(count) * 10 * DAY_S / count)
    small = np.arange(count) % 2 == 0
    run_s = np.where(small, 4320.0, rng.integers(600, 15_000, count))
    start_s = submit_s + np.where(small, 2500.0, rng.integers(0, 5000, count))
    back_s = np.ceil(start_s / (2 * DAY_S)) * 2 * DAY_S
    start_s = np.where(~small & (start_s + run_s > back_s - 4 * 3600.0), back_s, start_s)
    nodes = np.where(small, 1, rng.choice([8, 16, 32], count))
    return history(submit_s, start_s, start_s + run_s, nodes, np.where(small, 7200.0, 20_000.0))


TWO_POOLS = two_pools()


@settings(max_examples=max(3, CASES), deadline=None)
@given(
    whole=st.sampled_from([LOG, TWO_POOLS]),
    day=st.floats(5, 9.5),
    seed=st.integers(0, 2**32 - 1),
    keep=st.floats(0, 1),
    added=st.integers(0, 50),
)
def test_what_comes_later_changes_no_bit(
    whole: History, day: float, seed: int, keep: float, added: int
) -> None:
    """Later submissions, starts, ends, requests, names and announcements are other ones, and the answer is the same.

    So is what the logs show of their completeness.
    """
    at_s, rng = day * DAY_S, np.random.default_rng(seed)
    question, whole = Question(at_s, 4, 7200.0), whole.as_of(whole.last_s)
    announced = Window(at_s + 3600.0, at_s + 7200.0, 0, at_s - 100.0)
    known = answer(fc.Forecaster(whole, windows=[announced]), question, 3600.0)
    assert known.known
    stays = whole.of((whole.submit_s <= at_s) | (rng.random(len(whole)) < keep))
    new_s = at_s + 1.0 + np.sort(rng.random(added)) * DAY_S

    def column(name: str, later: np.ndarray) -> np.ndarray:
        return np.concatenate([getattr(stays, name), later])

    later = {
        "submit_s": column("submit_s", new_s),
        "start_s": column("start_s", new_s + 5.0),
        "end_s": column("end_s", new_s + 50.0),
        "nodes": column("nodes", rng.integers(1, 1000, added)),
        "requested_s": column("requested_s", rng.random(added) * DAY_S),
    }
    count = len(later["submit_s"])
    unseen = at_s + 1.0 + rng.random(count) * 9 * DAY_S
    begins = ~(later["start_s"] <= at_s)
    later["start_s"] = np.where(begins, np.maximum(unseen, later["submit_s"]), later["start_s"])
    later["start_s"][begins & (rng.random(count) < 0.2)] = np.nan
    ends = ~(later["end_s"] <= at_s)
    later["end_s"] = np.where(ends, np.maximum(unseen, np.nan_to_num(later["start_s"])) + 1.0, later["end_s"])
    later["end_s"][ends & (rng.random(count) < 0.2)] = np.nan
    order = np.argsort(later["submit_s"], kind="stable")
    changed = history(**{name: values[order] for name, values in later.items()})
    changed = changed.as_of(changed.last_s)
    unannounced = Window(at_s + 10.0, at_s + 5 * DAY_S, 0, at_s + 1.0)
    again = answer(fc.Forecaster(changed, windows=[unannounced, announced]), question, 3600.0)
    assert bits(again) == bits(known)


def test_an_announcement_counts_from_its_instant_on() -> None:
    question = Question(5 * DAY_S, 16, 7200.0)
    window = Window(5 * DAY_S + 60.0, 6 * DAY_S, 0, 5 * DAY_S)
    waits = {
        announced: situation.waits_s(situation.draw(np.random.default_rng(0), 50)).min()
        for announced in (5 * DAY_S, 5 * DAY_S + 1.0)
        for situation in [
            Situation(LOG.as_of(5 * DAY_S), question, 16, [replace(window, announced_s=announced)])
        ]
    }
    assert waits[5 * DAY_S] >= DAY_S - 1.0 > waits[5 * DAY_S + 1.0]


def test_an_answer_within_a_back_test_is_the_answer_then() -> None:
    """Errors, pools and streams of a question depend on what was submitted before it, not on how far the log goes."""
    forecaster, before = fc.Forecaster(LOG), fc.Forecaster(LOG.as_of(6 * DAY_S))
    known = before.rows_like(Question(6 * DAY_S, 4, 1.0))
    count = len(known)
    rows = np.append(known, np.arange(known[-1] + 1, len(LOG)))
    asked, then = forecaster.ask(rows), before.ask(known)
    assert 100 < count < len(rows)
    np.testing.assert_array_equal(then.middle, asked.middle[:count])
    which = np.arange(count - 20, count)
    np.testing.assert_array_equal(
        fc.Answers(before, known, then).quantiles(which), fc.Answers(forecaster, rows, asked).quantiles(which)
    )


def test_levels_are_corrected_to_what_former_answers_reached() -> None:
    """Answers that are too wide by a known amount become as wide as they should be, the more there are the nearer."""
    rng = np.random.default_rng(7)
    wide = fc.Distribution.of(rng.normal(3.0, 1.0, 4000), np.ones(4000))
    came = rng.normal(3.0, 0.5, 4000)
    reached = np.array([wide.levels_of(wait)[0] for wait in came[:2000].tolist()])
    off = []
    for count in (fc.LEAST_PAST - 1, 100, 2000):
        low, high = wide.corrected(reached[:count]).quantiles([0.25, 0.75])
        off.append(abs(float(np.mean((came >= low) & (came <= high))) - 0.5))
    assert off[0] > 0.25 > off[1] > off[2]
    assert off[2] < 0.03
    corrected = wide.corrected(reached)
    assert corrected.share_within(float(fc.unscale(corrected.quantiles([0.9])[0]))) == pytest.approx(
        0.9, abs=1e-6
    )
    same = fc.Distribution.of(np.array([2.0, 3.0, 3.0, 3.0, 4.0]), np.ones(5))
    assert [*same.levels_of(3.0), *same.levels_of(3.5)] == pytest.approx([0.3, 0.7, 0.8, 0.8])
    assert [same.levels_of(wait) for wait in (1.0, 5.0)] == [(0.0, 0.0), (1.0, 1.0)]


@pytest.mark.parametrize("at_once", [0.0, 0.3, 0.7, 0.95])
def test_the_truth_has_the_coverage_that_it_promises_however_often_jobs_start_at_once(at_once: float) -> None:
    """Waits are drawn from the answer itself; half as wide or twice as wide an answer is seen as such."""
    rng, count = np.random.default_rng(3), 4000
    none = rng.random((2, count)) < at_once
    truth, came = np.where(none, fc.scale(0.0), rng.normal(4.0, 0.5, (2, count)))
    shares = {}
    for wide in (0.5, 1.0, 2.0):
        points = np.where(none[0], truth, 4.0 + wide * (truth - 4.0))
        answer_ = fc.Distribution.of(points, np.ones(count))
        levels = np.array([answer_.levels_of(wait) for wait in came.tolist()])
        shares[wide] = covered(levels).shares
        assert share_up_to(levels, 1.0).min() == 1.0 and np.mean(levels) == pytest.approx(0.5, abs=0.03)
    assert all(abs(share - promised) < 0.025 for promised, share in shares[1.0].items())
    if at_once < 0.5:
        assert shares[0.5][0.5] < 0.47 and shares[2.0][0.5] > 0.53


def test_jobs_are_alike_that_have_as_many_before_them() -> None:
    """Who comes while nobody waits starts at once; who comes to a queue of twenty waits for hours: alike are one's own."""
    submit_s = np.arange(400) * 3600.0
    queue = (np.arange(400) // 20) % 2 == 1
    start_s = np.where(queue, (np.arange(400) // 20 + 1) * 20 * 3600.0, submit_s)
    log = history(submit_s, start_s, start_s + 600.0, [4] * 400, [1800.0] * 400)
    at_once = {}
    for row, gpus in ((394, 4), (370, 4), (394, 2)):
        waits_s, alike = Alike(log).waits_s(Question(float(submit_s[row]), gpus, 1800.0), row, 0.0)
        assert alike.sum() == pytest.approx(1.0)
        at_once[row, gpus] = float(alike[waits_s == 0.0].sum())
    assert at_once[394, 4] < 0.1, "fourteen wait"
    assert at_once[370, 4] > 0.8, "nobody waits"
    assert at_once[394, 2] > 0.8, "nobody waits who asks for so little"


def test_the_kind_of_answer_that_was_better_has_the_weight() -> None:
    """Draws that are right to a minute beside a history that says nothing, and the other way round."""
    rng, count = np.random.default_rng(5), 700
    submit_s = np.arange(count) * 3600.0
    wait_s = np.round(10.0 ** rng.uniform(2.0, 4.5, count))
    log = history(submit_s, submit_s + wait_s, submit_s + wait_s + 60.0, [4] * count, [1800.0] * count)
    rows = np.arange(count)
    loss = {}
    for right in (True, False):
        said = fc.scale(wait_s) if right else rng.permutation(fc.scale(wait_s))
        asked = fc.Asked(submit_s, log.start_s, said, np.full(count, 0.2))
        quantiles = fc.Answers(fc.Forecaster(log), rows, asked).quantiles(rows[200:])
        loss[right] = fc.pinball(quantiles, asked.wait()[200:]).mean()
    blind = fc.pinball(np.quantile(fc.scale(wait_s), fc.LEVELS), fc.scale(wait_s[200:])).mean()
    assert loss[True] < 0.1 * blind
    assert loss[False] < 1.1 * blind


# -- the draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [qs.FIXED, qs.WFP3])
@pytest.mark.parametrize("seed", range(cases(5, 500)))
def test_with_true_times_the_middle_of_a_run_goes_on_as_the_run_did(seed: int, order: int) -> None:
    """The last job of a whole run starts when it did if the run is taken up at its submission."""
    rng = np.random.default_rng(seed)
    jobs, nodes = 60, 16
    submit_s = np.cumsum(rng.integers(1, 2000, jobs))
    request_s = rng.choice([1800, 7200, 20_000], jobs)
    work_s = np.maximum((request_s * rng.random(jobs) * 1.1).astype(np.int64), 1)
    need = rng.choice([1, 2, 4, 8, 16], jobs)
    start_s = easy(submit_s, need, request_s, work_s, nodes, order)
    log = history(submit_s, start_s, start_s + work_s, need, request_s)
    at_s = float(submit_s[-1])
    question = Question(at_s, int(need[-1]), float(request_s[-1]))
    situation = Situation(log.of(np.arange(jobs - 1)).as_of(at_s), question, nodes, ())
    runs, waits = (np.flatnonzero(mask) for mask in (log.running_at(at_s), ~(log.start_s <= at_s)))
    runs, waits = runs[runs < jobs - 1], np.append(waits[waits < jobs - 1], jobs - 1)
    none = np.zeros((1, 0), np.int64)
    draws = kernel.Draws(
        (start_s + work_s)[None, runs],
        work_s[None, waits].astype(np.float64),
        none,
        none,
        none.astype(np.float64),
    )
    found = np.zeros(1)
    arrays, begun = situation.arrays(draws, ())
    terms = TERMS._replace(order=order)
    kernel.play_on(arrays, terms, situation.queue, draws, begun, at_s + HORIZON_S, found)
    assert found[0] == start_s[-1]


def test_draws_of_an_empty_machine_start_at_once() -> None:
    situation = Situation(LOG.of(np.arange(0)).as_of(0.0), Question(0.0, 3, 100.0), 4, ())
    assert situation.waits_s(situation.draw(np.random.default_rng(0), 10)).tolist() == [0.0] * 10


def test_run_times_are_those_of_jobs_that_ran_longer() -> None:
    """Jobs took 100 or 900 of 1,000 s; one that has run for 500 s takes 900, whatever is drawn."""
    ended = np.arange(100) * 1000.0
    took = np.where(np.arange(100) % 2, 100.0, 900.0)
    log = history(
        [*ended, 99_500.0], [*ended, 99_500.0], [*(ended + took), np.nan], [1] * 101, [1000.0] * 101
    )
    situation = Situation(log.as_of(100_000.0), Question(100_000.0, 1, 10.0), 1, ())
    assert set(situation.waits_s(situation.draw(np.random.default_rng(0), 40)).tolist()) == {400.0}


def test_the_nodes_of_a_job_beyond_its_limit_are_not_free() -> None:
    """The only node has a job that has outlived its limit of 100 s by 200: nobody starts beside it."""
    log = history([0.0, 700.0], [0.0, 700.0], [100.0, np.nan], [1, 1], [100.0, 100.0])
    situation = Situation(log.as_of(1000.0), Question(1000.0, 1, 10.0), 1, ())
    assert situation.waits_s(situation.draw(np.random.default_rng(0), 20)).min() > 0.0


def test_a_job_that_is_passed_over_is_kept_back() -> None:
    """0 waits while three later ones like it start."""
    log = history(
        [0.0, 10.0, 20.0, 30.0, 5.0][:4] + [40.0],
        [np.nan, 11.0, 21.0, 31.0, np.nan],
        [np.nan, 111.0, 121.0, 131.0, np.nan],
        [1, 1, 1, 1, 4],
        [100.0] * 5,
    )
    situation = Situation(log.as_of(50.0), Question(50.0, 1, 100.0), 4, ())
    assert situation.kept_back.tolist() == [True, False]


# -- the machine ---------------------------------------------------------------------------------------------------------


def test_maintenance_that_comes_every_other_week_is_expected() -> None:
    begins = np.array([10.0, 24.0, 38.0]) * DAY_S
    submit_s = np.arange(0, 45 * DAY_S, 3600.0)
    start_s = submit_s.copy()
    for begin_s in begins:
        start_s[(submit_s > begin_s - 3600.0) & (submit_s < begin_s + 8 * 3600.0)] = begin_s + 8 * 3600.0
    log = history(submit_s, start_s, start_s + 3600.0, [1] * len(submit_s), [3600.0] * len(submit_s))
    assert [round(one.to_s / DAY_S) for one in outages_of(log, 1, 0)] == [10, 24, 38]
    early, late = KnownAt(20 * DAY_S), KnownAt(30 * DAY_S)
    assert early.windows(early.seen(log), 1) == ()
    (window,) = late.windows(late.seen(log), 1)
    assert window.from_s == pytest.approx(38 * DAY_S, abs=3600.0)
    assert window.to_s - window.from_s == pytest.approx(8 * 3600.0, abs=3600.0)
    assert KnownAt(DAY_S).gpus(log.as_of(DAY_S))[0] == 1


def test_a_job_that_an_empty_machine_has_room_for_waits_for_nobody() -> None:
    """Nothing runs, nobody waits and all nodes are free: no end brings a pass, and the job starts all the same."""
    submit_s = np.arange(300) * 3600.0
    log = history(submit_s, submit_s, submit_s + 600.0, [50] * 300, [1200.0] * 300)
    found = answer(fc.Forecaster(log, gpus=50), Question(float(submit_s[-1]) + 1800.0, 8, 3600.0))
    assert (found.pool.free_gpus, found.pool.running_jobs, found.pool.waiting_jobs) == (50, 0, 0)
    assert set(found.medians_s.values()) == {0.0}


@pytest.mark.parametrize("given", ["3-00:00:00", "72:00:00", "3d", "3-0"])
def test_times_may_be_written_as_slurm_does(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(LOG.of(np.arange(50)), tmp_path / "log.csv")
    assert (
        run(["wait-time", str(path), "--job", f"nodes=4,requested={given}", "--by", "1-12:00:00", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["job"]["requested_s"] == 3 * DAY_S and found["by"]["wait_s"] == 1.5 * DAY_S


def test_every_command_has_a_text_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].strip().splitlines()
    assert len(listed) > 20 and all(len(line.split()) > 1 for line in listed), listed


def test_pools_are_seen_by_their_ceiling() -> None:
    """Small jobs have two nodes and wait for them while the 64 others are free."""
    gap_s = np.arange(300) * 1000.0
    small_start = gap_s + 1500.0
    log = history(
        np.concatenate([gap_s, gap_s + 1.0]),
        np.concatenate([small_start, gap_s + 1.0]),
        np.concatenate([small_start + 2000.0, gap_s + 400.0]),
        [1] * 300 + [32] * 300,
        [2000.0] * 600,
    )
    log = log.of(np.argsort(log.submit_s, kind="stable"))
    known, forecaster = KnownAt(7 * DAY_S), fc.Forecaster(TWO_POOLS)
    words = [forecaster.pool(Question(7 * DAY_S, gpus, 1.0)) for gpus in (1, 2)]
    assert words == ["jobs of up to 1 nodes", "jobs of 2 nodes and more"]
    assert known.windows(forecaster.known(Question(7 * DAY_S, 2, 1.0)), 32)
    (small, large), _ = known.pools(log)
    assert (small.most_gpus, large.most_gpus) == (1, 0)
    assert len(KnownAt(50_000.0).pools(log.as_of(50_000.0))[0]) == 1
    assert len(KnownAt(90 * DAY_S).pools(log)[0]) == 2, "though none of the large ones ran lately"


# -- real logs and the command line --------------------------------------------------------------------------------------


def test_below_forty_former_questions_there_is_no_answer() -> None:
    found = answer(fc.Forecaster(LOG), Question(float(LOG.submit_s[30]), 4, 7200.0))
    assert not found.known and found.past < 40 and found.covered is None


def table(log: History, path: Path) -> Path:
    """A log in the file format of our own."""
    rows = [
        ",".join("" if np.isnan(cell) else repr(float(cell)) for cell in cells)
        for cells in zip(
            log.submit_s + log.origin_s, log.start_s + log.origin_s, log.end_s + log.origin_s, log.requested_s
        )
    ]
    lines = [
        f"{name},{nodes},{row}" for name, nodes, row in zip(log.job_id.tolist(), log.gpus.tolist(), rows)
    ]
    path.write_text("\n".join(["id,nodes,submit_s,start_s,end_s,requested_s", *lines]) + "\n")
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(LOG, tmp_path / "log.csv")
    asked = ["wait-time", str(path), "--job", "nodes=4,requested=2h"]
    at = str(int(LOG.origin_s + 8 * DAY_S))
    assert run([*asked, "--at", at, "--by", "6h"]) == 0
    text = capsys.readouterr().out
    assert "with probability" in text and "running jobs to end" in text
    assert run([*asked, "--at", at, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["answer"] and data["reliability"]["answers"] > 40
    assert list(data["wait_quantiles_s"].values()) == sorted(data["wait_quantiles_s"].values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--job", "nodes=4,requested=2h,colour=red"],
            "--job: colour: known: gpus, nodes, partition, requested",
        ),
        (["--job", "nodes=4"], "--job: misses requested"),
        (["--job", "nodes=0,requested=2h"], "nodes=0: a whole number from 1 is required"),
        (["--job", "nodes=4,requested=2"], "requested=2: '2' has no unit"),
        (["--job", "nodes=4,nodes=5,requested=2h"], "nodes is given twice"),
        (["--job", "nodes=4,requested=2h", "--at", "1990-01-01T00:00"], "is before 2020-09-"),
        (["--job", "nodes=4,requested=2h", "--at", "2040-01-01T00:00"], "where the log ends"),
        (["--job", "nodes=4,requested=2h", "--at", "noon"], "'noon' is no instant"),
        (["--job", "nodes=4,requested=2h", "--by", "1990-01-01T00:00"], "is before the job is submitted"),
        (
            ["--job", "nodes=4,requested=2h", "--zone", "Nowhere/Land", "--at", "2020-09-20T00:00"],
            "no time zone",
        ),
        (["--job", "nodes=4,requested=2h", "--maintenance", "tomorrow"], "is not FROM/TO"),
        (["--job", "nodes=4,requested=2h", "--history", "other.csv"], "is for a snapshot"),
        (["--job", "nodes=4,requested=2h,partition=big"], "the log has no partition 'big'; known: none"),
        (["--job", "nodes=40,requested=2h", "--nodes", "16"], "asks for 40 nodes; the pool has 16"),
        (["--job", "nodes=40,requested=2h"], "the pool has 16, as more were not in use lately"),
    ],
)
def test_bad_questions(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(LOG, tmp_path / "log.csv")
    assert run(["wait-time", str(path), *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1 and shown.out == ""


def test_a_log_without_requested_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(replace(LOG, requested_s=np.full(len(LOG), np.nan)), tmp_path / "log.csv")
    assert run(["wait-time", str(path), "--job", "nodes=4,requested=2h"]) == 2
    assert "log.csv: no job has a requested time" in capsys.readouterr().err


SNAPSHOT = (
    "JOBID|USER|PARTITION|NODES|TIME_LIMIT|STATE|SUBMIT_TIME|START_TIME|TIME\n"
    "901|ann|big|12|1-00:00:00|RUNNING|{submit}|{start}|1:00:00\n"
    "902|bob|big|8|2:00:00|PENDING|{submit}|N/A|0:00\n"
)


def snapshot(at_unix_s: int) -> str:
    """A queue of two jobs at an instant."""
    submit, start = (np.datetime64(at_unix_s - ago_s, "s").item().isoformat() for ago_s in (7200, 3600))
    return SNAPSHOT.format(submit=submit, start=start)


def test_a_snapshot_on_top_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = table(LOG, tmp_path / "log.csv")
    now = tmp_path / "queue.txt"
    now.write_text(snapshot(int(LOG.origin_s + 8 * DAY_S)))
    assert (
        run(["wait-time", str(now), "--history", str(past), "--job", "nodes=8,requested=1h", "--json"]) == 0
    )
    data = json.loads(capsys.readouterr().out)
    assert data["at_unix_s"] == LOG.origin_s + 8 * DAY_S
    assert (data["pool"]["running_jobs"], data["pool"]["waiting_jobs"]) == (1, 1)
    assert data["answer"] and data["past_questions"] > 40
    assert run(["wait-time", str(now), "--job", "nodes=8,requested=1h"]) == 0
    assert "no answer: 0 former jobs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("|NODES", "|CPUS"), "queue.txt:1: misses the column NODES"),
        (("|12|", "|many|"), "queue.txt:2: NODES: 'many' is no number of nodes"),
        (("1-00:00:00", "soon"), "queue.txt:2: TIME_LIMIT or TIME: 'soon'"),
        (("|0:00", ""), "queue.txt:3: has 8 columns, the header 9"),
        (("PENDING", "RUNNING"), "queue.txt:3: START_TIME: 'N/A' is not a time"),
    ],
)
def test_bad_snapshots(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = tmp_path / "queue.txt"
    now.write_text(snapshot(1_600_000_000).replace(*change))
    assert run(["wait-time", str(now), "--job", "nodes=8,requested=1h"]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and "Traceback" not in shown.err


THETA = Path(os.environ.get("FORERUN_SHARED", "../shared")) / "data/replay"


@pytest.mark.skipif(not THETA.is_dir(), reason=f"no logs of Theta at {THETA}")
@pytest.mark.parametrize(
    ("name", "selection", "days"),
    [("theta_2023a_first60", "end", 2), ("theta_2022_main", "submit", 1)],
    ids=["end", "submit"],
)
def test_a_real_log_cut_at_an_instant_gives_the_same_bits(
    name: str, selection: str, days: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a file says of later times can be cut off or be there."""
    path = THETA / f"{name}.csv.gz"
    whole = read_history(path)
    assert whole.selection == selection
    at_s = whole.origin_s + float(
        whole.submit_s[np.searchsorted(whole.submit_s, whole.complete_from_s + days * DAY_S)]
    )
    cut = table(whole.as_of(at_s - whole.origin_s), tmp_path / "cut.csv")
    job = ["--job", "nodes=256,requested=6h", "--json"]
    texts = []
    for file in (path, cut):
        assert run(["wait-time", str(file), *job, "--at", str(int(at_s))]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and json.loads(texts[0])["answer"]


# -- back-tests ----------------------------------------------------------------------------------------------------------


def test_class_histories_are_the_quantiles_of_what_was_known() -> None:
    rows = np.flatnonzero(LOG.submit_s >= 0)
    asked = rows[::7]
    found = reference.class_histories(LOG, rows, asked)["nodes and requested time, last 25"]
    for k, row in enumerate(asked.tolist()):
        known = np.flatnonzero(LOG.start_s <= LOG.submit_s[row])
        known = known[np.argsort(LOG.start_s[known], kind="stable")]
        mine = known[class_of(LOG.gpus, LOG.requested_s)[known] == class_of(LOG.gpus, LOG.requested_s)[row]]
        last = (mine if len(mine) >= reference.LEAST else known)[-25:]
        if len(last) < reference.LEAST:
            assert np.isnan(found[k]).all()
        else:
            np.testing.assert_allclose(found[k], np.quantile(fc.scale(LOG.wait_s[last]), fc.LEVELS))


def test_bounds_hold_as_often_as_they_say() -> None:
    """Waits that are alike: a bound on the 90 % quantile is above nine in ten of them, with confidence."""
    rng = np.random.default_rng(0)
    submit_s = np.arange(2000) * 10_000.0
    start_s = submit_s + rng.exponential(1000.0, 2000)
    log = history(submit_s, start_s, start_s + 1.0, [1] * 2000, [60.0] * 2000)
    rows = np.arange(2000)
    bounds = reference.qbets(log, rows, rows)[500:]
    wait = fc.scale(log.wait_s)[500:]
    shares = (wait[:, None] <= bounds).mean(axis=0)
    assert (shares[3:8] > np.array(fc.LEVELS)[3:8] - 0.02).all() and shares[6] < 0.97


def test_the_interval_of_a_mean_difference() -> None:
    rng = np.random.default_rng(0)
    at_s = np.arange(600) * DAY_S / 10
    noise = rng.standard_normal(600)
    mean, low, high = block_interval(noise - 0.5, at_s, 0)
    assert low < mean < high < 0 and high - low == pytest.approx(2 * 1.96 / np.sqrt(600), rel=0.3)
    wide = block_interval(np.repeat(rng.standard_normal(20), 30), at_s, 0)
    assert wide[2] - wide[1] > 4 * (high - low), "neighbours that are alike count as few"


def test_pinball_loss() -> None:
    quantiles = np.tile(np.arange(9.0), (2, 1))
    found = fc.pinball(quantiles, np.array([2.5, np.nan]))
    levels = np.array(fc.LEVELS)
    expected = [
        level * (2.5 - q) if q < 2.5 else (1 - level) * (q - 2.5) for level, q in zip(levels, range(9))
    ]
    assert found[0] == pytest.approx(np.mean(expected)) and np.isnan(found[1])


def test_a_back_test_is_saved_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(busy_log(2, 400, 40), tmp_path / "log.csv")
    saved, page = tmp_path / "back.json", tmp_path / "page.html"
    words = ["--every", "2", "-o", str(saved), "--report", str(page)]
    assert run(["wait-time", "backtest", str(path), *words]) == 0
    text = capsys.readouterr().out
    assert "of the best class history" in text and "busy machine" in text
    content = json.loads(saved.read_text())
    (whole, *regimes) = content["coverage"]
    assert whole["answers"] == sum(part["answers"] for part in regimes)
    assert whole["answers"] == sum(part["answers"] for part in content["fortnights"])
    widths = [whole[f"width at {promised:.0%}"] for promised in fc.INTERVALS]
    assert 0 < widths[0] < widths[1] < widths[2] < widths[3], "an interval that promises more is wider"
    weighed = sum(part["answers"] * part["width at 90%"] for part in regimes) / whole["answers"]
    assert whole["width at 90%"] == pytest.approx(weighed)
    assert content["jobs asked about"] == whole["answers"] + content["without an answer"]
    assert "Is a quantile what it promises?" in page.read_text()
    assert run(["report", str(saved), "-o", str(tmp_path / "again.html")]) == 0
    capsys.readouterr()
    assert run(["wait-time", "backtest", str(path), "--every", "100"]) == 2
    assert "answers can be scored" in capsys.readouterr().err
    assert run(["wait-time", "backtest", str(path), "-o", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err
