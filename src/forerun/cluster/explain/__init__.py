"""What `forerun explain` asks of a cluster: its question, its what-if parameters, and what the mode can change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.cluster.engine import engine_of
from forerun.cluster.engine.run import Outcome
from forerun.cluster.inputs.arrays import F64, Jobs
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.policies.backfilling.base import BACKFILLING
from forerun.cluster.policy import Schedule, played_in
from forerun.cluster.scenario import Costs, Scenario
from forerun.cluster.summary.refusals import refusals, sentences
from forerun.core.domain import Answer, Change, Domain, Explainer, Orders, Untied, WhatIf
from forerun.core.registry import member_name
from forerun.core.result.run import Result, SavedRun
from forerun.core.rng import stream

#: the share of deadlines from which on they count as met
WANTED: Final = 0.95
#: slots in seconds in which a run comes nearer to a bound, which knows none; and all that are tried for their effect
FINE_SLOTS: Final = (10, 1)
SLOTS: Final = (240, 60, *FINE_SLOTS)
#: the other policies that are tried: elastic or rigid, by deadline, by length, by arrival
OTHERS: Final = ("elasticflow", "edf-accessctrl", "edf-rigid", "srtf", "las", "fifo")


class ClusterExplainer(Explainer[Scenario]):
    """The cluster domain's question, its what-if parameters and its other orders of events."""

    def __init__(self, domain: Domain[Scenario, Inputs, Outcome]) -> None:
        self.domain = domain

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether nearly all deadlines are met; without deadlines, whether jobs work longer than they wait."""
        if summary.get("jobs_with_deadline"):
            ratio = summary.get("deadline_ratio")
            question = f"Are at least {WANTED:.0%} of the deadlines met?"
            return Answer(question, ratio is not None and ratio >= WANTED)
        waits = sum(
            amount or 0.0
            for name, amount in summary.items()
            if name.startswith("wait_") and name.endswith("_mean_s")
        )
        total = summary.get("jct_mean_s") or 0.0
        return Answer("Do jobs spend less than half of their time waiting?", waits < 0.5 * total)

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """More or fewer nodes, another policy, less or more load, looser or tighter deadlines, the slot.

        Where the answer is yes values are tried that make it harder, else such that make it easier.
        """
        yes = self.answer(run.summary).holds
        parameters = [
            WhatIf(
                f"machines.nodes[{at}].count",
                nodes.count,
                tuple(_counts(nodes.count, fewer=yes)),
                f"nodes of {nodes.name or 'group ' + str(at)}",
            )
            for at, nodes in enumerate(scenario.machines.nodes)
        ]
        policy = member_name(type(scenario.policy))
        # only policies that plan by requested times know of maintenance
        others = () if scenario.maintenance else played_in(scenario.mode, OTHERS)
        if "requested_s" in scenario.policy.needs:
            others = (*BACKFILLING, *others)
        parameters.append(
            WhatIf("policy", policy, tuple(name for name in others if name != policy), "policy")
        )
        shares = (0.9, 0.75, 0.5, 0.25) if yes else (1.1, 1.25, 1.5, 2.0, 4.0)
        for path, now, meaning in _drawn_parameters(scenario):
            values = tuple(now * share for share in shares)
            parameters.append(WhatIf(path, now, values, meaning))
        slots = [round(scenario.slot_s * share) for share in ((2, 5, 10) if yes else (0.5, 0.2, 0.1))]
        if scenario.policy.plans_slots:
            slots += [slot for slot in SLOTS if slot not in slots]
        parameters.append(
            WhatIf(
                "slot_s",
                scenario.slot_s,
                tuple(slot for slot in dict.fromkeys(slots) if slot >= 1 and slot != scenario.slot_s),
                "slot in s",
            )
        )
        return tuple(parameters)

    def reasons(self, run: Result | SavedRun) -> tuple[str, ...]:
        """Why jobs were refused, by the constraint that binds, the most frequent first."""
        jobs = run.tables["jobs"]
        return sentences(refusals(zip(jobs["job"].tolist(), jobs["refused_because"].tolist(), strict=True)))

    def changes(self, scenario: Scenario, run: Result | SavedRun) -> tuple[Change, ...]:
        """What the mode can change, each alone; and other slots.

        Schedules that plan ahead admit other jobs with each slot, now more and now fewer.
        """
        slots = [slot for slot in SLOTS if slot != scenario.slot_s and scenario.policy.plans_slots]
        switches = engine_of(scenario).changes(scenario.policy)
        return (*switches, *(Change("slot_s", slot, f"a slot of {slot} s") for slot in slots))

    def relaxations(self, scenario: Scenario) -> tuple[Change, ...]:
        """Quotas, limits, places, slower jobs, slots and the costs of changes, as far as the scenario has them."""
        plans = isinstance(
            scenario.policy, Schedule
        )  # rules of its own, which know no quotas, limits and places
        given = {
            "quota": (scenario.quota is not None and not plans, None, "without quotas"),
            "limits": (bool(scenario.limits) and not plans, None, "without limits"),
            "placement": (scenario.placement != "anywhere" and not plans, "anywhere", "GPUs anywhere"),
            "multi_node_penalty": (
                scenario.multi_node_penalty != (1.0,) and not plans,
                [1.0],
                "several nodes are as fast as one",
            ),
            "slowdown": (scenario.slowdown is not None, None, "no job slower than its throughput says"),
        }
        changes = [Change(path, value, meaning) for path, (there, value, meaning) in given.items() if there]
        changes += [
            Change("slot_s", slot, f"slot of {slot} s")
            for slot in FINE_SLOTS
            if plans and slot < scenario.slot_s
        ]
        free = {"models": {"*": {"1->2": 0.0, "2->1": 0.0}}} if plans else {}
        if plans or scenario.costs != Costs():
            changes.append(Change("costs", free, "changes of GPUs that cost nothing"))
        return tuple(changes)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Jobs submitted in the same second, in other orders of their rows.

        Completions and arrivals of one second are no tie: every schedule says which it takes first.
        """
        inputs = self.domain.prepare(scenario)
        jobs = inputs.setting.jobs
        tied = int(np.count_nonzero(np.diff(jobs.submit_s) == 0))
        if not tied:
            return Untied(
                "no two jobs are submitted in the same second; completions and arrivals of one second follow the "
                "policy's rule"
            )

        def simulate(number: int) -> Result:
            setting = replace(inputs.setting, jobs=permuted(jobs, scenario.seed, number))
            return self.domain.summarize(self.domain.run(replace(inputs, setting=setting)))

        what = "the rows of jobs submitted in the same second change places"
        return Orders(f"{what} ({tied} jobs follow another of their second)", simulate)


def _drawn_parameters(scenario: Scenario) -> Iterator[tuple[str, float, str]]:
    """Path, value and meaning of the parameters of a generated trace: mean gap and, where jobs have deadlines, slack."""
    trace = scenario.trace
    if trace.generate is not None:
        where, gap_s, slack = "generate", trace.generate.mean_gap_s, trace.generate.most_slack
        if slack is None and scenario.profile:
            slack = trace.generate.slack[1]  # the default, which jobs with a model have
    elif trace.published is not None:
        where, gap_s, slack = "published", trace.published.mean_gap_s, trace.published.most_slack
    else:
        return
    yield f"trace.{where}.mean_gap_s", gap_s, "mean gap between submissions in s"
    if slack is not None and slack > 0:
        yield f"trace.{where}.most_slack", slack, "largest deadline slack, in durations"


def _counts(now: int, *, fewer: bool) -> Iterable[int]:
    """Numbers of nodes, ever further from the present one."""
    shares = (0.75, 0.5, 0.25) if fewer else (1.25, 1.5, 2.0, 3.0, 4.0)
    step = -1 if fewer else 1
    counts = [now + step, *(round(now * share) for share in shares)]
    return [count for count in dict.fromkeys(counts) if count >= 1 and count != now]


def permuted(jobs: Jobs, seed: int, number: int) -> Jobs:
    """The jobs with those of each second in another order: reversed in order 0, random in the others.

    A job keeps its id and all that is known of it; row numbers follow the new order, as if the log had it.
    """
    draw = stream(seed, "ties", number).random(len(jobs))
    within: F64 = -np.arange(len(jobs), dtype=np.float64) if number == 0 else draw
    moved = jobs.take(np.lexsort((within, jobs.submit_s)))
    return replace(moved, file_row=np.arange(len(jobs)))
