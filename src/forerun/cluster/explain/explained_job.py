"""Explain one job of a run: its story, and what would have changed it, each change simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from forerun.cluster.explain.job import story_of
from forerun.cluster.explain.job_changes import Searches
from forerun.cluster.explain.job_story import JobExplanation
from forerun.core.domain import get_domain
from forerun.core.errors import StoreError, UsageError
from forerun.core.result.document import ExplainedJob, StoredDocument
from forerun.core.result.run import Result, SavedRun, require_run
from forerun.core.result.tables import Table
from forerun.core.scenario.spec import to_data
from forerun.core.study.cell import Failed, Outcome
from forerun.core.study.executors.processes import workers_of
from forerun.core.study.expand import StudyPlan
from forerun.core.study.explain import name_of, scenario_of
from forerun.core.study.searches import Reached, Searching, run_searches
from forerun.core.version import VERSION

#: what a log says of a job, beside the simulation
_RECORDED: Final = ("recorded wait_s", "recorded start_s")
#: title and explanation of each table of a job of a run
_TABLES: Final = {
    "life": ("What happened to it", "GPUs and nodes: from then on"),
    "waits": (
        "Every stretch in which it waited",
        "in use, free: means over the stretch; most of it: the jobs that had most GPU-seconds then",
    ),
    "recorded": (
        "Every stretch in which it really waited, by the log",
        "the causes follow from who had GPUs when",
    ),
    "ahead": (
        "Who had the GPUs while it waited",
        "share: of all GPU time in use then; most GPUs: at once; came: how it came to be ahead",
    ),
    "time": ("Where its time went", "the parts sum to its time from submission to end, or to its refusal"),
    "changes": (
        "What would have changed it, each simulated alone",
        "deadline: by how much it ends before (+) or after (-) it; others: deadlines met by all other jobs, and their mean "
        "completion time, with the change",
    ),
}


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

    Raises UsageError for a run of another domain, UnknownName if the run has no such job, StoreError for a run that lacks
    a table, or that is another one when it is simulated again.

    >>> scenario = forerun.load(forerun.demo("cluster").scenario, ["trace.generate.jobs=30", "policy=fifo"])
    >>> explained = forerun.explain_job(forerun.simulate(scenario), "9")
    >>> explained.story.ledger.parts["waiting: nodes in use"] == sum(wait.seconds for wait in explained.story.waits)
    True
    """
    require_run(run, "explain_job")
    if run.domain != "cluster":
        raise UsageError.at("--job", f"is not available for the {run.domain} domain; it is for cluster")
    if "jobs" not in run.tables:
        where = run.folder if isinstance(run, SavedRun) else f"run {run.id}"
        raise StoreError.at(where, "has no table 'jobs', from which a job is explained")
    domain, scenario = get_domain(run.domain), scenario_of(run)
    story = story_of(domain, scenario, run, job)
    plan = StudyPlan.of(name_of(run), scenario, tables=("jobs",))
    changes = Searches(scenario, domain.prepare(scenario).setting, run.tables["jobs"], story)
    searches = [Searching(search, most, f"job {job}") for search, most in changes.all()]
    found = run_searches(plan, searches, workers_of(workers), progress, answer=_tables)
    tried = tuple(one for search in found for one in search)
    return JobExplanation(run.id, run.domain, to_data(scenario), story, tried)


def _tables(outcome: Outcome) -> Mapping[str, Table] | str:
    """The tables of a run, or why there is none."""
    return " ".join(outcome.reason.split()) if isinstance(outcome, Failed) else outcome.tables


def explained_job(
    run: SavedRun, job: str, *, workers: int, progress: Callable[[Reached], None]
) -> ExplainedJob:
    """The explanation of one job of a run, as pages and terminals show it; takes what `explain_job` takes."""
    explained = explain_job(run, job, workers=workers, progress=progress)
    story, best = explained.story, explained.best
    fate, ledger = story.fate, story.ledger
    page = StoredDocument(
        name=f"job {story.job} of {run.folder.name}",
        kind="explanation",
        domain=explained.domain,
        version=VERSION,
        answer=story.why,
        notes=tuple(f"{one.what}: {one.why_not}" for one in explained.tried if one.why_not),
        facts={
            "waited_s": math.fsum(wait.seconds for wait in story.waits),
            "from submission to end_s": ledger.whole,
            "start_s": fate.start_s,
            "end_s": fate.end_s,
            "deadline_s": fate.deadline_s,
            "before deadline_s": fate.early_s,
            **({} if story.recorded_s is None else dict(zip(_RECORDED, story.recorded_s, strict=True))),
        },
        tables={},
        scenario=explained.scenario,
        provenance={"run": explained.run},
        figures=() if story.figure is None else (story.figure,),
    )
    changes = () if best is None else tuple(best.changes)
    return ExplainedJob.of(page, explained.shown(), _TABLES, explained.data(), changes)
