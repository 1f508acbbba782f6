"""Tiresias against the reference's runs, and its laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.replication.elasticflow.known_bugs import touching
from forerun.replication.elasticflow.schedules.tiresias import Tiresias, TiresiasRules

from ..cluster.conftest import (
    assert_equals_reference,
    assert_equals_small_setting,
    play,
    rules_of,
    runs,
    setting,
    small_worlds,
)


@pytest.mark.parametrize(
    "reference", [r for r in runs() if r["schedule"] == "dlas-gpu"], ids=lambda r: r["run"]
)
def test_every_reference_run_is_reproduced_job_by_job(reference: dict[str, Any]) -> None:
    made = setting(reference["trace"], reference["cluster"], reference["slot_s"], reference["gpu_type"])
    record = play(Tiresias(), made)
    assert_equals_reference(record, reference)
    assert record.end_s.max() - made.jobs.submit_s.min() == reference["makespan_s"]


@pytest.mark.parametrize("small", small_worlds(), ids=lambda w: w["trace"])
def test_every_small_setting_is_reproduced(small: dict[str, Any]) -> None:
    assert_equals_small_setting(Tiresias(), small, "dlas-gpu")


@pytest.mark.parametrize("switch", ["tiresias_promotion", "tiresias_overhead_in_end", "queue_limits"])
def test_every_known_bug_matters_somewhere(switch: str) -> None:
    plain = play(Tiresias(), setting("elasticVpollux_e.csv", "n16g4", 60, "T4"))
    righted = play(Tiresias(), setting("elasticVpollux_e.csv", "n16g4", 60, "T4", corrected=(switch,)))
    assert len(righted.completed) == 195
    assert righted.end_s.tolist() != plain.end_s.tolist()


def test_promotion_shortens_the_mean_completion_here() -> None:
    """A job that waits long returns to the first queue; on this trace that helps on average."""
    waits = []
    for corrected in ((), ("tiresias_promotion",)):
        made = setting("elasticVpollux_e.csv", "n16g4", 60, "T4", corrected=corrected)
        record = play(Tiresias(promote_after=2.0), made)
        waits.append(float((record.end_s - made.jobs.submit_s).mean()))
    assert waits[1] < waits[0]


def test_learned_limits_part_the_ended_jobs_into_thirds() -> None:
    made = setting("195job.csv", "n16g8", 240, corrected=("queue_limits",))
    rules = rules_of(Tiresias(), made, Record(made))
    assert isinstance(rules, TiresiasRules)
    run_rules(rules)
    sizes = made.jobs.gpus * made.jobs.duration_s
    first, second = rules.limits
    assert 60 <= (sizes < first).sum() <= 70
    assert 60 <= (sizes >= second).sum() <= 70


def test_how_long_later_jobs_take_changes_nothing_before_they_come() -> None:
    """Tiresias does not know durations, corrected neither: its limits come from jobs that have ended."""
    made = setting("elasticVpollux_e.csv", "n16g4", 60, "T4", corrected=touching("dlas-gpu"))
    late = np.arange(len(made.jobs)) >= len(made.jobs) - 30
    until_s = int(made.jobs.submit_s[late].min()) - made.slot_s
    longer = replace(made.jobs, duration_s=np.where(late, made.jobs.duration_s * 40, made.jobs.duration_s))
    before = []
    for jobs in (made.jobs, longer):
        times, rows, gpus = play(Tiresias(), replace(made, jobs=jobs)).changes()
        early = times < until_s
        before.append((times[early].tolist(), rows[early].tolist(), gpus[early].tolist()))
    assert before[0] == before[1] and len(before[0][0]) > 50


@pytest.mark.parametrize(("limits", "said"), [((0.0, 5.0), "must rise"), ((9.0, 5.0), "must rise")])
def test_queue_limits_must_rise(limits: tuple[float, float], said: str) -> None:
    assert said in Tiresias(queue_limits_gpu_s=limits).problems()[0][1]
