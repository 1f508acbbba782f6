"""Chronus against the reference's runs; the shrunk integer program against the full one."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.replication.chronus.lease_program import Limits, Proof, best_plan
from forerun.replication.chronus.leases import Claim, LeaseBook, fill_backwards, packs
from forerun.replication.chronus.schedule import Chronus

from ..cluster.conftest import GOLDEN, play, rules_of, runs, setting
from ..conftest import cases

GREEDY = [r for r in runs() if r["schedule"] == "chronus" and r["run"].endswith(".none")]


def objective(claims: list[Claim], plans: Any, gpus: int, *, use_now: bool) -> float:
    """What the program maximises, for a given plan: value, and the share of the cluster in use now (or its negative)."""
    granted = [(claim, plan) for claim, plan in zip(claims, plans, strict=True) if plan is not None]
    now = sum(claim.size for claim, plan in granted if plan and plan[0] == 0)
    return sum(claim.value for claim, _ in granted) + (now if use_now else -now) / gpus


def of_run(reference: dict[str, Any], **changes: Any) -> Any:
    machines = (1, reference["nodes"], reference["gpus_per_node"])
    return setting(
        reference["trace"], machines, reference["check_time_interval_s"], reference["gpu_type"], **changes
    )


@pytest.mark.parametrize("reference", GREEDY, ids=lambda r: r["run"])
def test_the_greedy_runs_are_reproduced_job_by_job(reference: dict[str, Any]) -> None:
    record = play(Chronus(), of_run(reference))
    with gzip.open(GOLDEN / f"{reference['run']}.jobs.csv.gz", "rt") as file:
        table = list(csv.DictReader(file))
    assert record.end_s.tolist() == [float(row["end"]) for row in table]
    assert record.first_start_s.tolist() == [int(float(row["start"])) for row in table]
    assert record.preempts.tolist() == [int(row["preempt"]) for row in table]
    assert record.resumes.tolist() == [int(row["resume"]) for row in table]
    assert (~record.declined).tolist() == [row["ddl_met"] == "1" for row in table]
    assert record.accepted == reference["met"]


@pytest.mark.parametrize(
    "reference", [r for r in GREEDY if r["run"] != "chronus/fig8a_bs240.none"], ids=lambda r: r["run"]
)
def test_optimal_plans_meet_as_many_deadlines_as_the_greedy_less_two(reference: dict[str, Any]) -> None:
    made = of_run(reference)
    record = Record(made)
    rules = rules_of(Chronus(solver="highs"), made, record)
    run_rules(rules)
    assert record.accepted >= reference["met"] - 2
    assert rules.solved.get(Proof.FALLBACK.name, 0) == 0  # type: ignore[attr-defined]
    assert record.notes[0].startswith("lease plans by outcome of the search: ")


def greedy_plans(claims: list[Claim], gpus: int) -> list[list[int] | None]:
    book = LeaseBook(gpus)
    plans: list[list[int] | None] = [None] * len(claims)
    for at in sorted(
        range(len(claims)), key=lambda i: (-claims[i].size, claims[i].within - claims[i].needed)
    ):
        claim = claims[at]
        leases = fill_backwards(book.free(0, claim.within), claim.size, claim.needed)
        if leases is not None:
            plans[at] = leases.tolist()
            book.take(leases.tolist(), claim.size)
    return plans


def full_program(claims: list[Claim], gpus: int, *, use_now: bool) -> float:
    """The program as the paper writes it: a binary for every claim and lease; its best value."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    granted = [solver.addBinary() for _ in claims]
    holds = [[solver.addBinary() for _ in range(claim.within)] for claim in claims]
    for claim, taken, mine in zip(claims, granted, holds):
        solver.addConstr(sum(mine) == claim.needed * taken)
    for lease in range(max(claim.within for claim in claims)):
        solver.addConstr(sum(c.size * x[lease] for c, x in zip(claims, holds) if lease < c.within) <= gpus)
    now = sum((claim.size / gpus) * mine[0] for claim, mine in zip(claims, holds))
    value = sum(claim.value * taken for claim, taken in zip(claims, granted))
    solver.maximize(value + now if use_now else value - now)
    return float(solver.getObjectiveValue())


sizes = st.sampled_from([1, 1, 2, 4, 8])
claim_strategy = st.builds(
    lambda size, within, short: Claim(size, max(1, within - short), within),
    sizes,
    st.integers(1, 6),
    st.integers(0, 4),
)


@settings(max_examples=cases(25), deadline=None)
@given(
    claims=st.lists(claim_strategy, min_size=1, max_size=6),
    gpus=st.sampled_from([8, 12]),
    use_now=st.booleans(),
)
def test_the_shrunk_program_is_the_full_one(claims: list[Claim], gpus: int, use_now: bool) -> None:
    planned = best_plan(claims, gpus, use_now=use_now, incumbent=greedy_plans(claims, gpus), limits=Limits())
    used = Counter[int]()
    for claim, leases in zip(claims, planned.leases):
        if leases is not None:
            assert len(set(leases)) == claim.needed and max(leases) < claim.within
            used.update(dict.fromkeys(leases, claim.size))
    assert max(used.values(), default=0) <= gpus
    best = full_program(claims, gpus, use_now=use_now)
    assert objective(claims, planned.leases, gpus, use_now=use_now) == pytest.approx(best, abs=1e-6)


def test_counts_that_fit_a_segment_may_not_fit_its_leases() -> None:
    """8 GPUs, two leases: a large job wants one, a small one wants both. 10 of 16 places, yet they do not fit."""
    claims = [Claim(8, 1, 3), Claim(1, 2, 3), Claim(8, 1, 3), Claim(8, 1, 3)]
    planned = best_plan(claims, 8, use_now=True, incumbent=greedy_plans(claims, 8), limits=Limits())
    assert planned.proof is Proof.SOLVED
    assert objective(claims, planned.leases, 8, use_now=True) == pytest.approx(
        full_program(claims, 8, use_now=True)
    )


def test_a_limit_that_is_met_keeps_the_plan_the_run_had() -> None:
    claims = [Claim(8, 1, 3), Claim(1, 2, 3), Claim(8, 1, 3), Claim(8, 1, 3)]
    incumbent = greedy_plans(claims, 8)
    planned = best_plan(claims, 8, use_now=True, incumbent=incumbent, limits=Limits(refinements=0))
    assert planned.proof is Proof.FALLBACK
    assert [None if p is None else list(p) for p in planned.leases] == incumbent


def test_packing_needs_every_claim() -> None:
    free = np.full(4, 4, np.int64)
    assert packs([Claim(4, 2, 4), Claim(2, 4, 4)], free) is False
    assert packs([Claim(4, 2, 4), Claim(2, 2, 4), Claim(2, 2, 4)], free) is True
    assert packs([Claim(1, 3, 2)], free) is False
    assert free.tolist() == [4, 4, 4, 4]
