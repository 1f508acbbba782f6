"""The room's question, what a user can turn to change its answer, and what each published accident does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forerun.domain import Answer, Change, Explainer, Orders, Untied, WhatIf
from forerun.domains.cluster.generate import JobGenerator
from forerun.domains.cluster.refusals import refusals, sentences
from forerun.domains.cluster.scenario import Scenario
from forerun.domains.cluster.switches import SWITCHES, Switch
from forerun.registry import member_name
from forerun.result.run import Result, SavedRun

#: the share of deadlines that counts as met
WANTED = 0.95
#: policies that stand for what others would do: elastic or rigid, by deadline, by length, by arrival
OTHERS = ("ef-accessctrl", "edf-accessctrl", "edf-rigid", "srtf", "las", "fifo")


def answer(summary: Mapping[str, Any]) -> Answer:
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


def what_ifs(scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
    """More or fewer nodes, another policy, less or more load, looser or tighter deadlines, the slot."""
    holds = answer(run.summary).holds
    found = [
        WhatIf(
            f"machines.nodes[{at}].count",
            nodes.count,
            tuple(_counts(nodes.count, fewer=holds)),
            f"nodes of {nodes.name or 'group ' + str(at)}",
        )
        for at, nodes in enumerate(scenario.machines.nodes)
    ]
    policy = member_name(type(scenario.policy))
    found.append(WhatIf("policy", policy, tuple(name for name in OTHERS if name != policy), "policy"))
    shares = (0.9, 0.75, 0.5, 0.25) if holds else (1.1, 1.25, 1.5, 2.0, 4.0)
    drawn = scenario.trace.generate or scenario.trace.published
    if drawn is not None:
        where = "generate" if scenario.trace.generate is not None else "published"
        for name, meaning in (
            ("mean_gap_s", "mean gap between submissions in s"),
            ("most_slack", "largest deadline slack, in durations"),
        ):
            now = getattr(drawn, name, None)
            if now is None and scenario.profile and isinstance(drawn, JobGenerator):
                now = drawn.slack[1]  # not written, and drawn all the same
            if isinstance(now, (int, float)) and now > 0:
                found.append(
                    WhatIf(f"trace.{where}.{name}", now, tuple(now * share for share in shares), meaning)
                )
    slots = [round(scenario.slot_s * share) for share in ((2, 5, 10) if holds else (0.5, 0.2, 0.1))]
    found.append(
        WhatIf(
            "slot_s",
            scenario.slot_s,
            tuple(slot for slot in dict.fromkeys(slots) if slot >= 1 and slot != scenario.slot_s),
            "slot in s",
        )
    )
    return tuple(found)


def reasons(run: Result | SavedRun) -> tuple[str, ...]:
    """Why jobs were refused, by the constraint that binds, the most frequent first."""
    jobs = run.tables["jobs"]
    return sentences(refusals(zip(jobs["job"].tolist(), jobs["refused_because"].tolist(), strict=True)))


def _counts(now: int, *, fewer: bool) -> Iterable[int]:
    """Numbers of nodes, ever further from the present one."""
    shares = (0.75, 0.5, 0.25) if fewer else (1.25, 1.5, 2.0, 3.0, 4.0)
    step = -1 if fewer else 1
    counts = [now + step, *(round(now * share) for share in shares)]
    return [count for count in dict.fromkeys(counts) if count >= 1 and count != now]


def changes(scenario: Scenario, run: Result | SavedRun) -> tuple[Change, ...]:
    """Each known bug of the published simulator that touches this policy, switched alone.

    ElasticFlow keeps its promises only where eight switches are corrected together. So that a single one of them shows
    its own effect, it is compared with a run that keeps none, and `promises_kept` stands for what they do together.
    """
    from forerun.domains.cluster.promises import NEEDED  # here: it brings compiled code

    policy = member_name(type(scenario.policy))
    corrected = scenario.corrected

    def change(name: str, switch: Switch) -> Change:
        meaning = f"{switch.published} → {switch.corrected}"
        given: tuple[tuple[str, str], ...] = ()
        if name in corrected:
            meaning = f"{switch.corrected} → {switch.published}"
        if policy in SWITCHES["promises_kept"].touches and name in NEEDED:
            together = corrected ^ {name} >= NEEDED or corrected >= NEEDED
            if name == "promises_kept" and together:
                others = ", ".join(sorted(NEEDED - {name}))
                meaning += f"; promises end, too, where one of {others} is compat"
            elif together:
                given = (("compat.promises_kept", "compat"),)
        return Change(f"compat.{name}", "compat" if name in corrected else "corrected", meaning, given)

    return tuple(change(name, switch) for name, switch in SWITCHES.items() if policy in switch.touches)


class ClusterExplainer(Explainer[Scenario]):
    """The cluster domain's question, its what-if parameters and its other orders of events."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """See `answer`."""
        return answer(summary)

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """See `what_ifs`."""
        return what_ifs(scenario, run)

    def changes(self, scenario: Scenario, run: Result | SavedRun) -> tuple[Change, ...]:
        """See `changes`."""
        return changes(scenario, run)

    def reasons(self, run: Result | SavedRun) -> tuple[str, ...]:
        """See `reasons`."""
        return reasons(run)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """See `forerun.domains.cluster.ties.orders`."""
        from forerun.domains.cluster.ties import orders

        return orders(scenario)
