"""What might have changed a job's story: single changes of its world, each simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from forerun.cluster.explain import OTHERS
from forerun.cluster.explain.ahead import total_ahead
from forerun.cluster.explain.job_story import Changes, Fate, Others, Search, Story, TriedChange
from forerun.cluster.inputs.arrays import BOOL, F64
from forerun.cluster.inputs.edit import levels_of
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BACKFILLING
from forerun.cluster.policy import Allocator, played_in
from forerun.cluster.scenario import Scenario
from forerun.core.registry import member_name
from forerun.core.result.numbers import duration
from forerun.core.result.tables import Table
from forerun.core.scenario.spec import to_data

#: by how much a job is submitted earlier and later
SHIFT_S: Final = 3600
#: at most so many times the nodes that are there are added, but at least as many as below
MOST_TIMES: Final = 3
LEAST_ADDED: Final = 8
#: at most so many slots later a refused job is due
MOST_SLOTS: Final = 1 << 14
#: policies that read deadlines
BY_DEADLINE: Final = ("elasticflow", "edf-accessctrl", "edf-rigid")

#: a run that a search asked for: its tables, or why there is none
Answer: TypeAlias = Mapping[str, Table] | str


class Searches:
    """The searches of a job: single changes of its request, its submission, nodes, jobs ahead, the policy, its deadline.

    Parameters
    ----------
    scenario, setting : of the run.
    jobs : its table.
    story : of the job.
    """

    def __init__(self, scenario: Scenario, setting: Setting, jobs: Table, story: Story) -> None:
        self.scenario, self.setting, self.story = scenario, setting, story
        self.beside = Beside(jobs, story.job)
        self.row = self.beside.row_of[story.job]
        self.data: dict[str, Any] = to_data(scenario)
        self.policy = member_name(type(scenario.policy))

    def all(self) -> list[tuple[Search, int]]:
        """All of them, in the order in which they are shown, each with the most runs that it asks for."""
        found: list[tuple[Search, int]] = [(one, 1) for one in (*self._requests(), *self._submissions())]
        if self.story.fate.refused:
            found.append((self._later_deadline(), 2 * int(math.log2(MOST_SLOTS)) + 2))
        found.append((self._nodes(), 4 * math.ceil(math.log2(self._most_added() + 1)) + 2))
        found += [
            (one, 1) for one in (*self._without_those_ahead(), *self._without_terms(), *self._policies())
        ]
        return found

    def _edit(self, key: str, value: Any) -> Changes:
        """A change of the job, besides what the trace's own edit changes already."""
        edit = dict(self.data["trace"].get("edit") or {})
        if key == "without":
            edit[key] = [*edit.get(key, ()), value]
        else:
            edit[key] = {**edit.get(key, {}), self.story.job: value}
        return (("trace.edit", {name: part for name, part in edit.items() if part}),)

    def _once(self, what: str, changes: Changes, without: str = "") -> Search:
        """One run. without: the job that it leaves out."""
        answer = yield changes
        return (self.beside.tried(what, changes, answer, without),)

    def _requests(self) -> list[Search]:
        """The next smaller and larger count on which the job is known to run."""
        asked = int(self.setting.jobs.gpus[self.row])
        if not self.scenario.policy.keeps_requests:
            return [_never("other GPUs asked for", f"{self.policy} chooses each job's GPUs itself")]
        levels = levels_of(self.setting.jobs, self.row, self.setting.profile)
        if not levels:
            what = "the job has no throughput, so nobody knows how long it takes on other GPUs"
            return [
                _never("other GPUs asked for", f"{what} (profile: [{{analytic: balanced}}] makes a curve up)")
            ]
        smaller = [level for level in levels if level < asked][-1:]
        larger = [level for level in levels if asked < level <= self.setting.cluster.gpus][:1]
        return [
            self._once(f"asks for {count} GPU{'s' * (count != 1)}, not {asked}", self._edit("gpus", count))
            for count in (*smaller, *larger)
        ]

    def _submissions(self) -> list[Search]:
        """Submitted an hour earlier, at most with the first of the log; and an hour later."""
        submit_s = int(self.setting.jobs.submit_s[self.row])
        earlier_s = max(submit_s - SHIFT_S, int(self.setting.jobs.submit_s.min()))
        if earlier_s < submit_s:
            sooner = self._once(
                f"submitted {duration(submit_s - earlier_s)} earlier", self._edit("submit_s", earlier_s)
            )
        else:
            sooner = _never("submitted earlier", "no job of the log is submitted before it")
        later = self._once(f"submitted {duration(SHIFT_S)} later", self._edit("submit_s", submit_s + SHIFT_S))
        return [sooner, later]

    def _later_deadline(self) -> Search:
        """The least later deadline, in slots, with which a refused job is admitted."""
        due_s, slot_s = int(self.setting.jobs.deadline_s[self.row]), self.scenario.slot_s

        def changes(slots: int) -> Changes:
            return self._edit("deadline_s", due_s + slots * slot_s)

        def admitted(answer: Answer) -> bool:
            fate = self.beside.fate(answer)
            return fate is not None and not fate.refused

        seen: dict[int, Answer] = {}
        slots = yield from _least(changes, admitted, MOST_SLOTS, seen)
        if slots is None:
            return (
                TriedChange(
                    "due later", why_not=f"refused however much later, up to {duration(MOST_SLOTS * slot_s)}"
                ),
            )
        what = f"due {duration(slots * slot_s)} later: admitted"
        return (self.beside.tried(what, changes(slots), seen[slots]),)

    def _most_added(self) -> int:
        return max(LEAST_ADDED, MOST_TIMES * max(group.count for group in self.setting.cluster.groups))

    def _nodes(self) -> Search:
        """The fewest nodes more with which the job starts at once, and with which it meets its deadline."""
        groups = self.setting.cluster.groups
        if not self.scenario.machines.nodes and len(groups) > 1:
            what = "the machines come from a file with several switches; write them as machines.nodes"
            return (TriedChange("more nodes", why_not=what),)
        at = max(range(len(groups)), key=lambda number: groups[number].count * groups[number].gpus)
        group, most = groups[at], self._most_added()
        of = f" of {group.name}" if len(groups) > 1 else ""
        submit_s = float(self.setting.jobs.submit_s[self.row])
        policy = self.scenario.policy
        at_once_s = policy.round_s if isinstance(policy, Allocator) else float(self.scenario.slot_s)

        def changes(more: int) -> Changes:
            count = group.count + more
            if self.scenario.machines.nodes:
                return ((f"machines.nodes[{at}].count", count),)
            nodes = {"name": group.name, "count": count, "gpus": group.gpus, "gpu_type": group.gpu_type}
            return (("machines", {"nodes": [nodes]}),)

        def at_once(answer: Answer) -> bool:
            fate = self.beside.fate(answer)
            return fate is not None and fate.start_s is not None and fate.start_s - submit_s <= at_once_s

        def in_time(answer: Answer) -> bool:
            fate = self.beside.fate(answer)
            return fate is not None and bool(fate.met)

        fate, seen = self.story.fate, dict[int, Answer]()
        goals: list[tuple[str, Callable[[Answer], bool]]] = []
        if fate.met is False:
            goals.append(("it meets its deadline", in_time))
        if fate.start_s is None or fate.start_s - submit_s > at_once_s:
            goals.append(("it starts at once", at_once))
        tried = []
        for goal, reached in goals:
            more = yield from _least(changes, reached, most, seen)
            if more is None:
                tried.append(
                    TriedChange(f"more nodes{of}, so that {goal}", why_not=f"not with up to {most} more")
                )
            else:
                what = f"{more} node{'s' * (more != 1)}{of} more: {goal}"
                tried.append(self.beside.tried(what, changes(more), seen[more]))
        return tuple(tried)

    def _without_those_ahead(self) -> list[Search]:
        """Without each of the two jobs that had most GPU time while it waited."""
        largest = [job for job, _ in total_ahead(self.story.waits)[:2]]
        return [self._once(f"without job {job}", self._edit("without", job), job) for job in largest]

    def _without_terms(self) -> list[Search]:
        """Without quotas or limits, or on any GPUs, where the job waited for that; and without maintenance."""
        causes = {wait.cause for wait in self.story.waits}
        terms: dict[str, tuple[bool, str, Any]] = {
            "without quotas": ("limit" in causes and self.scenario.quota is not None, "quota", None),
            "without limits": ("limit" in causes and bool(self.scenario.limits), "limits", None),
            "on any GPUs, however spread": ("fragmentation" in causes, "placement", "anywhere"),
            "without maintenance": (bool(self.scenario.maintenance), "maintenance", None),
        }
        return [self._once(what, ((path, value),)) for what, (there, path, value) in terms.items() if there]

    def _policies(self) -> list[Search]:
        """Under other policies; those by deadlines or requested times only where jobs have them."""
        if self.scenario.maintenance:  # the others refuse it
            return [
                self._once(f"policy {name}", (("policy", name),))
                for name in BACKFILLING
                if name != self.policy
            ]
        deadlines = bool(self.setting.jobs.has_deadline.any())
        requests = bool(np.isfinite(self.setting.jobs.request_s).all())
        known = [
            name for name in played_in(self.scenario.mode, OTHERS) if deadlines or name not in BY_DEADLINE
        ]
        names = [name for name in (*known, *(BACKFILLING if requests else ())) if name != self.policy]
        return [self._once(f"policy {name}", (("policy", name),)) for name in names]


class Beside:
    """What a changed run did to a job and to the others, beside the run as it was.

    Parameters
    ----------
    jobs : the table of the run as it was.
    job : the job.
    """

    def __init__(self, jobs: Table, job: str) -> None:
        self.job = job
        self.row_of = _rows(jobs)
        self._met, self._jct_s = _met(jobs), _jct_s(jobs)

    def fate(self, answer: Answer) -> Fate | None:
        """What became of the job; None if the run could not be simulated, or has it not."""
        if isinstance(answer, str):
            return None
        jobs = answer["jobs"]
        row = _rows(jobs).get(self.job)
        if row is None:
            return None
        start_s, end_s, due_s = (float(jobs[name][row]) for name in ("first_start_s", "end_s", "deadline_s"))
        because = str(jobs["refused_because"][row])
        return Fate(
            start_s=None if math.isnan(start_s) else start_s,
            end_s=None if math.isnan(end_s) else end_s,
            deadline_s=None if math.isnan(due_s) else due_s,
            refused=because or ("" if jobs["admitted"][row] else "by the policy"),
        )

    def as_it_was(self) -> Others:
        """The other jobs in the run as it was."""
        others = np.ones(len(self._met), np.bool_)
        others[self.row_of[self.job]] = False
        ended_s = self._jct_s[others & np.isfinite(self._jct_s)]
        return Others(int(self._met[others].sum()), 0, float(ended_s.mean()) if len(ended_s) else None, 0.0)

    def tried(self, what: str, changes: Changes, answer: Answer, without: str = "") -> TriedChange:
        """A change and what it did. without: another job that the changed run does not have."""
        fate = self.fate(answer)
        if isinstance(answer, str) or fate is None:
            return TriedChange(
                what, changes, why_not=answer if isinstance(answer, str) else "the job is not in it"
            )
        jobs = answer["jobs"]
        pairs = [
            (self.row_of[name], row)
            for name, row in _rows(jobs).items()
            if name not in (self.job, without) and name in self.row_of
        ]
        before, after = np.array(pairs, np.int64).reshape(-1, 2).T
        met, then = self._met[before], _met(jobs)[after]
        change_s = _jct_s(jobs)[after] - self._jct_s[before]
        both = np.isfinite(change_s)
        others = Others(
            met=int(then.sum()),
            met_change=int(then.sum()) - int(met.sum()),
            mean_s=float(_jct_s(jobs)[after][both].mean()) if both.any() else None,
            mean_change_s=float(change_s[both].mean()) if both.any() else None,
        )
        return TriedChange(what, changes, fate, others)


def _least(
    changes: Callable[[int], Changes],
    reached: Callable[[Answer], bool],
    most: int,
    seen: dict[int, Answer],
) -> Generator[Changes, Answer, int | None]:
    """A number from 1 to `most` that reaches a goal, the least that was tried: by doubling, then halving the gap below it.

    None where none of those tried does. Nothing is assumed to be monotone; what is returned was simulated.

    Parameters
    ----------
    changes : of the scenario, for a number.
    reached : whether a run reaches the goal.
    most : the largest number to try.
    seen : runs by number, which are not asked for again; new ones are added.
    """

    def reaches(number: int) -> Generator[Changes, Answer, bool]:
        if number not in seen:
            seen[number] = yield changes(number)
        return reached(seen[number])

    below, number = 0, 1
    while not (yield from reaches(number)):
        if number >= most:
            return None
        below, number = number, min(2 * number, most)
    while number - below > 1:
        middle = (below + number) // 2
        if (yield from reaches(middle)):
            number = middle
        else:
            below = middle
    return number


def _never(what: str, why_not: str) -> Search:
    """A search that simulates nothing, and says why."""
    yield from ()
    return (TriedChange(what, why_not=why_not),)


def _rows(jobs: Table) -> dict[str, int]:
    """The row of each job by its name."""
    return {str(name): row for row, name in enumerate(jobs["job"].tolist())}


def _met(jobs: Table) -> BOOL:
    """Which jobs met a deadline."""
    met: BOOL = jobs["met"].astype(np.bool_) & np.isfinite(jobs["deadline_s"])
    return met


def _jct_s(jobs: Table) -> F64:
    """Completion times; nan for jobs that did not end."""
    jct_s: F64 = jobs["end_s"] - jobs["submit_s"]
    return jct_s
