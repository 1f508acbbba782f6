"""Explain one job of a run: its story, and what would have changed it, each change simulated.

A domain's searches do not wait for each other: each asks for its next run when the last outcome is there, so what it finds
does not depend on how many are simulated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forerun.core.domain import domain_names, get_domain, own_specs
from forerun.core.errors import StoreError, UsageError
from forerun.core.result.job import JobExplanation, Search, Tried
from forerun.core.result.run import Result, SavedRun, require_run
from forerun.core.scenario.spec import to_data
from forerun.core.study.cell import Failed, Outcome
from forerun.core.study.executors import Executor, Feed, Here
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import Cell, StudyPlan
from forerun.core.study.explain import Progress, name_of, scenario_of


def explain_job(
    run: Result | SavedRun,
    job: str,
    *,
    workers: int = 1,
    progress: Callable[[Progress], None] = lambda _: None,
) -> JobExplanation:
    """Explain one job of a run: why it waited, who had what it needed, and what would have changed that.

    run: as `simulate` or `load_result` returns it. job: its name in the trace.
    workers: number of processes (default: 1, this one); the result does not depend on it.
    progress: called before the first simulation, with the maximum number of simulations, and after each.

    Raises UsageError for a domain that explains no jobs, UnknownName if the run has no such job, StoreError for a run that
    lacks a table, or that is another one when it is simulated again.

    >>> scenario = forerun.load(forerun.demo("cluster").scenario, ["trace.generate.jobs=30", "policy=fifo"])
    >>> explained = forerun.explain_job(forerun.simulate(scenario), "9")
    >>> explained.story.ledger.parts["waiting for GPUs"] == sum(wait.seconds for wait in explained.story.waits)
    True
    """
    require_run(run, "explain_job")
    explainer = get_domain(run.domain).job_explainer
    if explainer is None:
        able = ", ".join(name for name in domain_names() if get_domain(name).job_explainer is not None)
        raise UsageError.at("--job", f"is not available for the {run.domain} domain; it is for {able}")
    for table in explainer.tables:
        if table not in run.tables:
            where = run.folder if isinstance(run, SavedRun) else f"run {run.id}"
            raise StoreError.at(where, f"has no table {table!r}, from which a job is explained")
    scenario = scenario_of(run)
    data = to_data(scenario)
    story = explainer.story(scenario, run, job)
    plan = StudyPlan(
        name_of(run),
        data,
        Path.cwd(),
        (),
        (scenario.seed,),
        (),
        tables=explainer.tables,
        own=own_specs(scenario),
    )
    executor: Executor = Processes(workers) if workers > 1 else Here()
    searchers = _Searchers(scenario.seed, explainer.searches(scenario, run, story))
    progress(Progress(0, searchers.most))
    for outcome in executor.run(plan, searchers.feed):
        searchers.take(outcome)
        progress(Progress(searchers.done, searchers.most, f"job {job}"))
    return JobExplanation(run.id, run.domain, data, story, searchers.tried)


class _Searchers:
    """The searches under way; what each asks for is a cell, whose number says who asked."""

    def __init__(self, seed: int, searches: Sequence[tuple[Search, int]]) -> None:
        self.feed = Feed()
        self.done = 0
        self._seed, self._searches = seed, searches
        self._found: list[tuple[Tried, ...] | None] = [None] * len(searches)
        self._asked: list[int] = []
        for at in range(len(searches)):
            self._advance(at, None)

    @property
    def most(self) -> int:
        """Simulations so far, under way and possible."""
        asked = [self._asked.count(at) for at in range(len(self._searches))]
        return sum(
            count if found is not None else max(most, count)
            for (_, most), found, count in zip(self._searches, self._found, asked, strict=True)
        )

    @property
    def tried(self) -> tuple[Tried, ...]:
        """What the searches tried, in their order."""
        return tuple(one for found in self._found if found is not None for one in found)

    def take(self, outcome: Outcome) -> None:
        """Let whoever asked for an outcome go on."""
        self.done += 1
        answer: Any = " ".join(outcome.reason.split()) if isinstance(outcome, Failed) else outcome.tables
        self._advance(self._asked[outcome.number], answer)

    def _advance(self, at: int, answer: Any) -> None:
        """One step of a search; one that has not begun takes None."""
        try:
            changes = self._searches[at][0].send(answer)
        except StopIteration as end:
            self._found[at] = end.value
            return
        self.feed.put(Cell(len(self._asked), changes, self._seed))
        self._asked.append(at)
