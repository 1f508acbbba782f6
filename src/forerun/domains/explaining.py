"""A kept run explained by its own room's question and levers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forerun.domains import room, room_part, simulate
from forerun.result.run import SavedRun
from forerun.scenario.load import build
from forerun.scenario.text import Document
from forerun.study.explain import Explanation, explain
from forerun.study.ties import Ties, Untied, tie_sensitivity


def explain_run(run: SavedRun, *, progress: Callable[[str], None] = lambda _: None) -> Explanation:
    """Explain a run; rooms without a `levers` module tell causes and what binds only.

    A room's `levers` has `answer(summary)`, `levers(scenario, run)`, and `changes(scenario, run)` if it names some.
    """
    part = room_part(run.domain, "levers")
    document = Document(str(run.folder / "scenario.json"), dict(run.scenario))

    # Intervals that take more runs of a world are not asked for here.
    bare = getattr(room(run.domain), "without_intervals", None)

    def simulate_with(path: str, value: Any) -> Any:
        scenario = build(document, base=Path.cwd(), overrides=[f"{path}={json.dumps(value)}"])
        return simulate(bare(scenario) if bare is not None else scenario)

    if part is None:
        return explain(run, None, (), simulate_with)
    scenario = build(document, base=Path.cwd())
    named = getattr(part, "changes", None)
    return explain(
        run,
        part.answer,
        part.levers(scenario, run),
        simulate_with,
        changes=named(scenario, run) if named is not None else (),
        objectives=getattr(room(run.domain), "OBJECTIVES", ()),
        progress=progress,
    )


def ties_of(run: SavedRun, orders: int) -> Ties | Untied:
    """What other orders of same-instant events do to a run, or why it has none."""
    part = room_part(run.domain, "ties")
    if part is None:
        return Untied(f"the {run.domain} room says nothing of the order of same-instant events")
    document = Document(str(run.folder / "scenario.json"), dict(run.scenario))
    found = part.orders(build(document, base=Path.cwd()))
    return found if isinstance(found, Untied) else tie_sensitivity(run.summary, found, orders=orders)
