"""The result of a live run: nothing is lost between its parts, and it says what a simulation says where both agree."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.domain import DOMAIN
from forerun.cluster.engine.run import Outcome
from forerun.cluster.policies.priority import Fifo
from forerun.live.compare import compare, errors_of, measured_costs
from forerun.live.result import live_result
from forerun.live.stays import Stay

NODES = {"a": 4, "b": 4}


class Own(Fifo, tag="own-fifo", frozen=True):
    """A policy outside forerun."""


def outcome(seed: int = 0, **changes: object) -> Outcome:
    scenario = forerun.load(
        forerun.demo("cluster").scenario, ["trace.generate.jobs=9", "machines.nodes[0].count=2"], seed=seed
    )
    return DOMAIN.run(DOMAIN.prepare(scenario.with_(**changes)))


def stays_like(ran: Outcome, *, failing: float = 0.0, seed: int = 0) -> list[Stay]:
    """Stays as real jobs would have them that did what a simulation says, some of them failing."""
    draw = np.random.default_rng(seed)
    stays: list[Stay] = []
    for row in DOMAIN.summarize(ran).tables["allocations"].records():
        numbers: list[int] = []
        for part in row["gpu_numbers"].split():
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
        slots = {
            node: tuple(number % 4 for number in numbers if number // 4 == at)
            for at, node in enumerate(NODES)
            if any(number // 4 == at for number in numbers)
        }
        begin, end = row["from_s"], row["to_s"]
        why = "failed" if draw.random() < failing else "drained"
        epoch = 1 + sum(stay.job == str(row["job"]) for stay in stays)
        span = end - begin
        stays.append(
            Stay(
                str(row["job"]), epoch, begin, slots, begin + 0.1 * span, 0, 50, begin + 0.6 * span, 30,
                end - 0.1 * span, end - 0.05 * span, why, dict.fromkeys(slots, end),
            )
        )  # fmt: skip
    return stays


@pytest.mark.parametrize(("seed", "failing"), [(0, 0.0), (1, 0.3), (2, 1.0)])
def test_ledgers_and_timeline_account_for_all_of_the_time(seed: int, failing: float) -> None:
    ran = outcome(seed)
    stays = stays_like(ran, failing=failing, seed=seed)
    result = live_result(ran, stays, NODES).check()
    slots, job = result.ledgers
    held = sum((max(stay.free_s.values()) - stay.start_s) * stay.count for stay in stays)
    assert math.isclose(slots.whole - slots.parts["free"], held)
    assert result.timeline is not None
    assert math.isclose(float(np.sum(result.timeline.to_s - result.timeline.from_s)), held)
    assert (slots.parts["lost"] > 0) == (failing > 0) == (result.summary["lost_steps"] > 0)
    assert math.isclose(job.whole, result.summary["jct_mean_s"])


def test_a_live_run_is_saved_read_back_and_drawn(tmp_path: Path) -> None:
    ran = outcome()
    stays = stays_like(ran, failing=0.3)
    result = live_result(ran, stays, NODES, compare(ran.inputs, ran.record, stays).jobs)
    saved = forerun.load_result(result.save(tmp_path / "run"))
    assert len(saved.tables["stays"]) == len(stays)
    names = set(saved.figures)
    assert {"slots-by-state", "jobs-beside-simulated", "completion-beside-simulated"} <= names
    page = Path(forerun.write_page([saved], tmp_path / "page.html")).read_text()
    assert "What each slot did" in page and "Jobs, measured and simulated" in page


def test_a_run_that_went_as_simulated_has_no_error() -> None:
    ran = outcome()
    comparison = compare(ran.inputs, ran.record, stays_like(ran))
    assert comparison.forecast is not None and comparison.same_admissions and comparison.same_deadlines
    assert (comparison.forecast.makespan, comparison.forecast.mean_jct, comparison.forecast.worst_jct) == (
        0,
        0,
        0,
    )
    assert comparison.forecast.jobs == len(comparison.jobs) == 9


def test_a_late_job_is_an_error_of_its_size() -> None:
    ran = outcome()
    row = int(np.argmin(ran.record.end_s))
    before = ran.record.end_s[row] - ran.record.setting.jobs.submit_s[row]
    ran.record.end_s[row] += 0.5 * before
    comparison = compare(ran.inputs, ran.record, stays_like(ran))
    assert comparison.forecast is not None
    assert comparison.forecast.worst_jct == pytest.approx(0.5)
    job = comparison.jobs[row]
    assert job.jct_error == pytest.approx(0.5)


def test_errors_are_over_the_jobs_that_ended_in_both() -> None:
    nan = math.nan
    errors = errors_of([(0, 110, 100), (0, nan, 50), (50, 140, 150), (60, 70, nan)])
    assert errors is not None and errors.jobs == 2
    assert errors.makespan == pytest.approx(140 / 150 - 1)
    assert errors.mean_jct == pytest.approx((110 + 90) / 200 - 1)
    assert errors.worst_jct == pytest.approx(0.1)
    assert errors_of([(0, nan, 3)]) is None


def stay(job: str, epoch: int, start: float, first: float, asked: float, free: float, count: int) -> Stay:
    return Stay(
        job,
        epoch,
        start,
        {"a": tuple(range(count))},
        first,
        0,
        9,
        None,
        None,
        asked,
        free,
        "drained",
        {"a": free},
    )


def test_measured_costs_are_from_the_start_command_and_from_the_request_to_leave() -> None:
    stays = [
        stay("x", 1, 0, 3, 10, 12, 1),  # start 3, drain 2
        stay("x", 2, 12, 15, 20, 21, 2),  # 1->2: 3; drain 1
        stay("x", 3, 21, 24, 30, 31, 2),  # migrate: 3; drain 1
        stay("x", 4, 60, 62, 70, 71, 1),  # it waited: restart 2
        stay("y", 1, 0, 3, 10, 12, 4),  # start 3, drain 2
        stay("y", 2, 12, 14, 20, 21, 2),  # 4->2: 14 - 10
    ]
    assert measured_costs(stays, {"x": "bert", "y": ""}) == {
        "bert": {"start": 3, "drain": 1, "1->2": 3, "migrate": 3, "restart": 2, "2->1": 4},
        "*": {"start": 3, "drain": 2, "4->2": 4, "1->2": 3},
    }


def test_measured_costs_explain_a_run() -> None:
    """A simulation under costs that a run measured has those costs."""
    ran = outcome()
    cheap = compare(ran.inputs, ran.record, stays_like(ran))
    dear = [
        dataclasses.replace(one, first_step_s=(one.first_step_s or 0.0) + 60.0) for one in stays_like(ran)
    ]
    costly = compare(ran.inputs, ran.record, dear)
    assert cheap.explanation is not None and costly.explanation is not None
    ends = [sum(job.explained_end_s - job.submit_s for job in one.jobs) for one in (cheap, costly)]
    assert ends[1] > ends[0]


def test_a_live_result_names_the_code_that_decided() -> None:
    result = live_result(outcome(policy=Own()), [], NODES)
    assert list(result.provenance["code"]) == [f"{__name__}:Own"]
    assert "code" not in live_result(outcome(), [], NODES).provenance
