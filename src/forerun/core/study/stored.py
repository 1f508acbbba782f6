"""Run the cells of a study that are not done yet, then read its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from forerun.core.errors import StoreError, UsageError
from forerun.core.scenario.arguments import path_of
from forerun.core.scenario.spec import NamedSpec
from forerun.core.study.executors import Executor, Here
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import load_study
from forerun.core.study.ranking import SavedStudy
from forerun.core.study.run import Progress
from forerun.core.study.run import run_study as run_plan
from forerun.core.study.saved import load_saved


def run_study(
    study: str | os.PathLike[str],
    *,
    policies: Sequence[NamedSpec | type[NamedSpec]] = (),
    store: str | os.PathLike[str] = "",
    executor: Executor | None = None,
    retry: bool = False,
    objective: str = "",
    progress: Callable[[Progress], None] = lambda _: None,
) -> SavedStudy:
    """Run the cells of a study that are not in its store yet, and return the whole study.

    study: the study file.
    policies: an axis more: policies of one's own, or their classes, as `simulate` takes them (default: none).
    store: the file that stores the cells (default: the study's name with `.sqlite`, in the current folder). If the process
        is killed, the same call continues.
    executor: where cells run (default: None, in this process, one after another).
    retry: run failed cells again (default: False).
    objective: metric to rank by, as `figure` or `figure:lower` (default: empty, the file's, else the domain's).
    progress: called with the number of finished cells.

    Raises ScenarioError, UsageError or StoreError; also for a store that exists where code without a source decides, as in a
    notebook: nobody can say whether its cells are of that code.

    >>> from pathlib import Path
    >>> base = forerun.demo("energy").scenario
    >>> _ = Path("taste.yaml").write_text(f"{{base: {base}, axes: {{eta: [0.2, 0.8], trials: [0]}}, seeds: 2}}")
    >>> study = forerun.run_study("taste.yaml", objective="energy_j")
    >>> study.done, study.ranked()[0].values
    (4, (0.8, 0))
    """
    plan = load_study(path_of(study, "run_study"), policies)
    path = store_path(study, store)
    if plan.sourceless and path.exists():
        what = f"exists, and {plan.sourceless} has no source to compare with what its cells were made by; name a new store"
        raise StoreError.at(path, what)
    run_plan(plan, path, executor or Here(), retry=retry, progress=progress)
    return load_saved(path, objective)


def store_path(study: str | os.PathLike[str], store: str | os.PathLike[str] = "") -> Path:
    """The path of a study's store."""
    return Path(store) if os.fspath(store) else Path(Path(study).stem + ".sqlite")


def executor_of(
    kind: str, workers: int | None = None, *, address: str = "", limit_s: float = 0.0
) -> Executor:
    """Where cells run: `processes` of this machine, or on a `ray` cluster at an address (`local` starts one here).

    `workers` None is one process here, and all of the cluster's there. Raises UsageError for an address without Ray.
    """
    if kind == "ray":
        from forerun.core.study.executors.ray import OnRay

        return OnRay(address, workers=workers or 0, limit_s=limit_s)
    if address:
        raise UsageError.at("--address", "belongs to --executor ray")
    # Also one worker is a process of its own: a cell that dies takes only itself along.
    return Processes(workers or 1, limit_s=limit_s)
