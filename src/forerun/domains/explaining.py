"""A run explained by its own room's question and levers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forerun.domains import room, room_part
from forerun.result.run import Result, SavedRun, require_run
from forerun.scenario.load import build
from forerun.scenario.spec import to_data
from forerun.scenario.text import Document
from forerun.study.executors import Executor, Here
from forerun.study.executors.processes import Processes
from forerun.study.expand import Plan
from forerun.study.explain import Explanation, Progress, explain
from forerun.study.ties import Ties, Untied, tie_sensitivity


def explain_run(
    run: Result | SavedRun,
    *,
    workers: int = 1,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Explanation:
    """Explain a run, kept or fresh; rooms without a `levers` module tell causes and what binds only.

    Every value tried is a simulation; `progress` is told beforehand how many it can become, and after each. They run in
    `workers` processes (1: in this one), and what is found does not depend on how many.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0", "policy=default"]))
    >>> found = forerun.explain(result)
    >>> found.answer.question, found.answer.holds
    ('Is energy saved against the default configuration without training longer?', False)

    A room's `levers` has `answer(summary)`, `levers(scenario, run)`, and, if it wants, `changes(scenario, run)`,
    `reasons(run)` (sentences on single things that went wrong) and `bare(scenario)`: the scenario without all that neither
    the question nor the room's objectives read.
    """
    require_run(run, "explain")
    part = room_part(run.domain, "levers")
    scenario = _scenario(run)
    bare = getattr(part, "bare", None)
    plan = Plan(
        _name(run), to_data(bare(scenario) if bare is not None else scenario), Path.cwd(), (), (scenario.seed,), ()
    )  # fmt: skip
    if part is None:
        return explain(run, None, (), plan)
    named, reasons = getattr(part, "changes", None), getattr(part, "reasons", None)
    executor: Executor = Processes(workers) if workers > 1 else Here()
    return explain(
        run,
        part.answer,
        part.levers(scenario, run),
        plan,
        changes=named(scenario, run) if named is not None else (),
        objectives=getattr(room(run.domain), "OBJECTIVES", ()),
        reasons=reasons(run) if reasons is not None else (),
        executor=executor,
        progress=progress,
    )


def ties_of(
    run: Result | SavedRun, orders: int, *, progress: Callable[[str], None] = lambda _: None
) -> Ties | Untied:
    """What other orders of same-instant events do to a run, or why it has none."""
    part = room_part(run.domain, "ties")
    if part is None:
        return Untied(f"the {run.domain} room says nothing of the order of same-instant events")
    found = part.orders(_scenario(run))
    if isinstance(found, Untied):
        return found
    return tie_sensitivity(run.summary, found, orders=orders, progress=progress)


def _name(run: Result | SavedRun) -> str:
    """Where a run's scenario stands, for messages."""
    return str(run.folder / "scenario.json") if isinstance(run, SavedRun) else f"run {run.id}"


def _scenario(run: Result | SavedRun) -> Any:
    """A run's scenario in the types of its room. Raises ScenarioError if it is none any more (a file that changed)."""
    data: Mapping[str, Any] = run.scenario if isinstance(run, SavedRun) else to_data(run.scenario)
    return build(Document(_name(run), dict(data)), base=Path.cwd())
