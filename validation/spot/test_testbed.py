"""A training whose processes a trace kills, beside its prediction."""

from __future__ import annotations

import math

import pytest

from forerun.core.errors import TraceError
from forerun.spot.engine.membership import Membership
from forerun.spot.measure.fleet import CheckpointWrite, CompletedStep, FleetLog, Segment, Work
from forerun.spot.measure.profile import measure
from validation.spot.testbed import ledger, run, schedule

#: of the run; a restart that takes half a second longer than those measured is a fortieth of it
END_S = 20.0
TRACE = Membership.from_rows([(0.0, True, "a"), (0.0, True, "b"), (300.0, False, "a"), (420.0, True, "c")])


def test_the_books_of_a_log_by_hand() -> None:
    """Two steps kept of three, a checkpoint that never became durable, an idle stretch, a last segment."""
    one = Segment(
        0.0, 0.0, 1, 0, 0.0, [CompletedStep(i, 1.0 * i, 1.0 * i + 1, 0.0) for i in range(3)], [], 3.5, "loss"
    )
    one.steps[2] = CompletedStep(2, 2.5, 3.2, 0.0)
    one.checkpoints = [CheckpointWrite(1, 2.0, 2.5, 3.0), CheckpointWrite(2, 3.2, 3.4, math.inf)]
    two = Segment(
        5.0,
        6.0,
        1,
        2,
        0.0,
        [CompletedStep(2, 6.0, 7.0, 0.0)],
        [CheckpointWrite(2, 7.0, 7.25, math.inf)],
        8.0,
        "end",
    )
    parts = ledger(FleetLog((one, two), (), ((3.5, 5.0),), 8.0))
    assert parts == pytest.approx(
        {"useful": 3.0, "stall": 0.75, "lost": 1.0, "reconfig": 1.0, "idle": 1.5, "inflight": 0.75}
    )


def test_both_ledgers_sum_to_the_run_and_agree() -> None:
    """One node of two is killed. Where the time went is predicted to a tenth of the run."""
    profile = measure(Work(kind="numpy", parameters=200_000, batch=32), restarts=2)
    compared = run(profile, schedule(TRACE, speed=60.0, end_s=END_S), end_s=END_S)
    for seconds in (compared.measured_s, compared.predicted_s):
        assert math.fsum(seconds.values()) == pytest.approx(END_S, abs=1e-6)
    assert compared.measured["active nodes lost"] == compared.predicted["active nodes lost"] == 1
    assert compared.measured["steps completed"] > 0
    gaps = [compared.predicted_s[line] - seconds for line, seconds in compared.measured_s.items()]
    assert max(map(abs, gaps)) < 0.1 * END_S


def test_a_trace_without_a_first_node_is_refused() -> None:
    with pytest.raises(TraceError, match="first instant"):
        schedule(Membership.from_rows([(5.0, True, "a")]), speed=1.0, end_s=10.0)
