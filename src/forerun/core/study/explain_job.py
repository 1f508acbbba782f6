"""Explain one job of a run: its story, and what would have changed it, each change simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forerun.core.domain import domain_names, get_domain
from forerun.core.errors import StoreError, UsageError
from forerun.core.result.job import JobExplanation
from forerun.core.result.run import Result, SavedRun, require_run
from forerun.core.result.tables import Table
from forerun.core.scenario.spec import to_data
from forerun.core.study.cell import Failed, Outcome
from forerun.core.study.executors.processes import workers_of
from forerun.core.study.expand import StudyPlan
from forerun.core.study.explain import name_of, scenario_of
from forerun.core.study.searches import Reached, Searching, run_searches


def explain_job(
    run: Result | SavedRun,
    job: str,
    *,
    workers: int = 1,
    progress: Callable[[Reached], None] = lambda _: None,
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
    story = explainer.story(scenario, run, job)
    plan = StudyPlan.of(name_of(run), scenario, tables=explainer.tables)
    searches = [
        Searching(search, most, f"job {job}") for search, most in explainer.searches(scenario, run, story)
    ]
    found = run_searches(plan, searches, workers_of(workers), progress, answer=_tables)
    tried = tuple(one for search in found for one in search)
    return JobExplanation(run.id, run.domain, to_data(scenario), story, tried)


def _tables(outcome: Outcome) -> Mapping[str, Table] | str:
    """The tables of a run, or why there is none."""
    return " ".join(outcome.reason.split()) if isinstance(outcome, Failed) else outcome.tables
