"""What a job loses when its GPUs change: seconds by model and kind of change.

A table has a row a model and a column a change: `1->2` (growing), `16->8` (shrinking), `migrate` (other GPUs, the same
number) and `restart` (after it had none); `start` is its first start, and `drain` the time until the GPUs that it gives up
are free, for which whoever gets GPUs at that instant waits. Between measured counts the cost goes with the logarithm of the
larger count, beyond them the nearest measured one applies; what is not given for restarts is that for migrating, starts and
drains that are not given take no time. The row `*` is for all other models. Jobs without a model have the scenario's plain
seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import F64, I64, Jobs
from forerun.cluster.inputs.files import read_rows
from forerun.core.errors import Problem, ScenarioError, known_names

#: the kinds of change, in the order of the kernels' arrays
KINDS: Final = ("restart", "grow", "shrink", "move", "start", "drain")
#: those that have a name in a table, not counts of GPUs
_NAMED: Final = {"restart": "restart", "migrate": "move", "start": "start", "drain": "drain"}
_NOTHING: Final = ((0.0, 0.0),)
ANY_MODEL: Final = "*"
_CHANGE: Final = re.compile(r"(\d+)\s*(?:->|→)\s*(\d+)")

#: median seconds measured on A100 servers with the elastic runtime (Gu et al., ElasticFlow, ASPLOS'23, figure 12(b));
#: migrations are of 8 GPUs. The row of deepspeech2 is as given; the published plot labels it otherwise.
PRESETS: Final[dict[str, dict[str, dict[str, float]]]] = {
    "elasticflow": {
        "resnet50": {"1->2": 1.884, "2->1": 1.659, "8->16": 1.666, "16->8": 1.787, "migrate": 0.887},
        "vgg16": {"1->2": 1.82, "2->1": 1.629, "8->16": 2.407, "16->8": 2.354, "migrate": 3.209},
        "inception3": {"1->2": 1.819, "2->1": 1.099, "8->16": 1.738, "16->8": 1.733, "migrate": 0.69},
        "gpt2": {"1->2": 2.344, "2->1": 3.101, "8->16": 3.203, "16->8": 3.198, "migrate": 2.119},
        "bert": {"1->2": 3.904, "2->1": 2.611, "8->16": 4.239, "16->8": 4.222, "migrate": 3.191},
        "deepspeech2": {"1->2": 1.573, "2->1": 1.131, "8->16": 1.757, "16->8": 1.636, "migrate": 2.429},
    }
}
SOURCES: Final = {
    "elasticflow": "published medians (Gu et al., ElasticFlow, ASPLOS'23, figure 12(b))",
}


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of each job's changes.

    Parameters
    ----------
    row : int64[jobs], which curves a job has.
    points : curves, by row and kind of change: (log2 of a count, seconds), ascending.
    source : where the costs come from, for the result (default: not said).
    models : the model of each row of `points`; those of the last one are jobs without a model (default: not said).
    """

    row: I64
    points: tuple[dict[str, tuple[tuple[float, float], ...]], ...]
    source: str = ""
    models: tuple[str, ...] = ()

    def of(self, jobs: Jobs) -> CostTable:
        """The same costs for other jobs. Raises ScenarioError for a model that has none."""
        return replace(self, row=rows_of(self.models, jobs, self.source or "$.costs"))

    def change_s(self, job: int, before: int, after: int) -> float:
        """Seconds a job loses when it goes from `before` to `after` GPUs; `before` 0: it starts again."""
        kind = "move" if before == after else "grow" if after > before else "shrink"
        kind = "restart" if before == 0 else kind
        return _at(self.points[int(self.row[job])][kind], max(before, after))

    def start_s(self, job: int, gpus: int) -> float:
        """Seconds until a job works that starts for the first time."""
        return _at(self.points[int(self.row[job])]["start"], gpus)

    def drain_s(self, job: int, gpus: int) -> float:
        """Seconds until the GPUs are free that a job gives up, of so many that it had."""
        return _at(self.points[int(self.row[job])]["drain"], gpus)

    @property
    def longest_drain_s(self) -> float:
        """The most that anybody can have to wait for GPUs that others give up."""
        return max(seconds for kinds in self.points for _, seconds in kinds["drain"])

    def curves(self, most: int) -> F64:
        """Seconds by row, kind of change and larger count, float64[rows, kinds, most + 1]; 0 at count 0."""
        out = np.zeros((len(self.points), len(KINDS), most + 1))
        for row, kinds in enumerate(self.points):
            for at, kind in enumerate(KINDS):
                out[row, at, 1:] = [_at(kinds[kind], count) for count in range(1, most + 1)]
        return out

    def between(self, levels: I64) -> F64:
        """Seconds by row, level before and level after (0: none, then `levels`), float64[rows, 2 + levels, 1 + levels].

        The last row of levels before is the first start. Whoever may have to wait for GPUs that others give up, does.
        """
        curves = self.curves(int(levels[-1]))
        counts = [0, *levels.tolist()]
        out = np.zeros((len(self.points), len(counts) + 1, len(counts)))
        for k, after in enumerate(counts[1:], 1):
            for i, before in enumerate(counts):
                kind = 0 if before == 0 else 3 if before == after else 1 if after > before else 2
                out[:, i, k] = curves[:, kind, max(before, after)] + (kind != 2) * self.longest_drain_s
            out[:, -1, k] = curves[:, 4, after] + self.longest_drain_s
        return out

    def worst_s(self, most: I64) -> F64:
        """The most a single change can cost each job on up to `most[jobs]` GPUs."""
        curves = self.curves(int(most.max(initial=1)))[:, : KINDS.index("drain")]
        worst: F64 = np.maximum.accumulate(curves.max(axis=1), axis=1)[self.row, most]
        return worst + self.longest_drain_s

    def restart_s(self, gpus: I64) -> I64:
        """Whole seconds, rounded up, that each job loses when it starts again on its GPUs."""
        seconds = [self.change_s(job, 0, count) for job, count in enumerate(gpus.tolist())]
        return np.ceil(np.array(seconds) - 1e-9).astype(np.int64)


def _at(points: Sequence[tuple[float, float]], count: int) -> float:
    if len(points) == 1:
        return points[0][1]
    return float(np.interp(math.log2(count), [x for x, _ in points], [y for _, y in points]))


def read_costs(path: Path) -> dict[str, dict[str, float]]:
    """The costs of a CSV file: seconds by model and change.

    The header is `model`, then changes as `1->2`, `16->8`, `migrate` or `restart`; empty cells are not measured. Raises
    ScenarioError with everything that is wrong with the file.
    """
    rows = [(line, [cell.strip() for cell in cells]) for line, cells in read_rows(path, ScenarioError)]
    if not rows or rows[0][1][0] != "model" or len(rows) < 2:
        raise ScenarioError.at(
            f"{path.name}:1",
            "is no table of costs; the header is model,1->2,2->1,8->16,16->8,migrate, then a row a model",
        )
    header = rows[0][1][1:]
    problems: list[Problem] = []
    table: dict[str, dict[str, float]] = {}
    for line, cells in rows[1:]:
        where = f"{path.name}:{line}"
        if len(cells) != len(header) + 1:
            problems.append(Problem(where, f"has {len(cells)} fields, the header has {len(header) + 1}"))
            continue
        if cells[0] in table:
            problems.append(Problem(where, f"model {cells[0]!r} has a row already"))
        row: dict[str, float] = {}
        for change, cell in zip(header, cells[1:], strict=True):
            if not cell:
                continue
            try:
                row[change] = float(cell)
            except ValueError:
                problems.append(Problem(where, f"{change} is {cell!r}; seconds are expected, or nothing"))
        table[cells[0]] = row
        problems += [Problem(where, what) for what in faults(row)]
    if problems:
        raise ScenarioError(*problems)
    return table


def faults(changes: Mapping[str, float]) -> list[str]:
    """What is wrong with a model's costs: changes that are none, seconds that cannot be, kinds without any."""
    problems = []
    kinds: set[str] = set()
    for change, seconds in changes.items():
        if (kind := _kind_of(change)) is None:
            problems.append(
                f"{change!r} is no change; known: migrate, restart, start, drain, and counts of GPUs as 1->2 or 16->8"
            )
            continue
        kinds.add(kind)
        if not 0 <= seconds < math.inf:
            problems.append(f"{change} is {seconds:g} s; a finite number from 0 is expected")
    if missing := [
        name
        for name, kind in (("growing (1->2)", "grow"), ("shrinking (2->1)", "shrink"))
        if kind not in kinds
    ]:
        problems.append(f"has no seconds for {' and '.join(missing)}")
    return problems


def _kind_of(change: str) -> str | None:
    """Which kind a change is, by its name; None: it is none."""
    if change in _NAMED:
        return _NAMED[change]
    if (match := _CHANGE.fullmatch(change)) is None:
        return None
    before, after = int(match[1]), int(match[2])
    if before == after or not before or not after:
        return None
    return "grow" if after > before else "shrink"


def _points(changes: Mapping[str, float]) -> dict[str, tuple[tuple[float, float], ...]]:
    """The curves of a model: seconds at the logarithm of the larger count."""
    points_of: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for change, seconds in changes.items():
        kind = _kind_of(change)
        assert kind is not None, change
        match = _CHANGE.fullmatch(change)
        count = max(int(match[1]), int(match[2])) if match else 1
        points_of[kind].append((math.log2(count), seconds))
    points_of["move"] = points_of["move"] or points_of["restart"] or points_of["grow"]
    points_of["restart"] = points_of["restart"] or points_of["move"]
    return {kind: tuple(sorted(points)) or _NOTHING for kind, points in points_of.items()}


def plain(restart_s: float, grow_s: float, shrink_s: float) -> dict[str, tuple[tuple[float, float], ...]]:
    """Curves of jobs that all cost the same; moving is restarting."""
    seconds = {"restart": restart_s, "grow": grow_s, "shrink": shrink_s, "move": restart_s}
    points: dict[str, tuple[tuple[float, float], ...]] = {"start": _NOTHING, "drain": _NOTHING}
    return points | {kind: ((0.0, amount),) for kind, amount in seconds.items()}


def cost_table(
    models: Mapping[str, Mapping[str, float]],
    jobs: Jobs,
    otherwise: Mapping[str, tuple[tuple[float, float], ...]],
    where: str,
    source: str = "",
) -> CostTable:
    """Each job's costs by its model.

    Raises ScenarioError for a model of the jobs that is not in the table, if it has no row `*`.

    Parameters
    ----------
    models : seconds by model and change, as `1->2`, `migrate` or `restart`.
    jobs : the jobs.
    otherwise : curves of jobs without a model.
    where : the table's place, for errors.
    source : where the costs come from, for the result (default: not said).
    """
    names = tuple(models)
    row = rows_of(names, jobs, where)
    points = (*(_points(models[name]) for name in names), dict(otherwise))
    return CostTable(row, points, source, names)


def rows_of(names: Sequence[str], jobs: Jobs, where: str) -> I64:
    """The row of each job in a table with these models; raises ScenarioError as `cost_table`, which `where` is of."""
    row_of = {name: at for at, name in enumerate(names)}
    unknown = _unknown(row_of, jobs.model)
    if unknown:
        raise ScenarioError(
            *(
                Problem(where, f"has no costs of model {model!r} ({count} jobs); {known_names(model, names)}")
                for model, count in unknown.items()
            )
        )
    last = len(names)
    row = [last if not model else row_of.get(model, row_of.get(ANY_MODEL, last)) for model in jobs.model]
    return np.array(row, np.int64)


def _unknown(known: Mapping[str, int], models: Iterable[str]) -> dict[str, int]:
    unknown: dict[str, int] = {}
    for model in models:
        if model and model not in known and ANY_MODEL not in known:
            unknown[model] = unknown.get(model, 0) + 1
    return unknown
