"""Applications measured for Pollux: true step times by placement and batch, gradient noise and progress by epoch.

Reads folders `<app>/placements.csv`, `scalability.csv` and `validation-<batch>.csv` as published with the OSDI'21
artifact (github.com/petuum/adaptdl, branch osdi21-artifact; Apache-2.0).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.inputs.files import read_rows
from forerun.core.errors import Problem, ProfileError

#: epochs each application trains for
EPOCHS: Final = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
#: largest local batch that fits, where more was profiled
_MOST_LOCAL: Final = {"yolov3": 8}
#: applications whose global batch stays fixed
FIXED_BATCH: Final = {"ncf": 32768.0}

Point = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Application:
    """One measured application.

    Parameters
    ----------
    name : of its folder.
    epochs : how many it trains for.
    batches : validated global batches, ascending.
    least_local, most_local : the range of local batches that may run.
    fixed_batch : the only global batch; 0: it is elastic.
    placements : per placement (GPUs on each node, smallest rotation) float64[points, 3] of local batch, step seconds and
        exchange seconds, by batch.
    averaged : the same per (nodes, replicas), averaged over placements, with the larger scales measured separately.
    progress : float64[batches, epochs], iterations of the initial batch at the end of each epoch.
    grad_sqr, grad_var : float64[batches, epochs], squared norm and variance of the gradient.
    """

    name: str
    epochs: int
    batches: F64
    least_local: int
    most_local: int
    fixed_batch: float
    placements: Mapping[tuple[int, ...], F64]
    averaged: Mapping[tuple[int, int], F64]
    progress: F64
    grad_sqr: F64
    grad_var: F64

    @property
    def init_batch(self) -> float:
        """The initial batch: the least validated one."""
        return float(self.batches[0])

    @property
    def most_batch(self) -> float:
        """The largest validated batch."""
        return float(self.batches[-1])

    def limits(self) -> F64:
        """Initial batch, largest batch, least and largest local batch: what the search for a batch needs."""
        return np.array([self.init_batch, self.most_batch, self.least_local, self.most_local], np.float64)

    def step_and_exchange_s(self, placement: Sequence[int], local_batch: float) -> tuple[float, float]:
        """Measured seconds of a step and of its exchange, linear in the local batch.

        A placement that was not profiled is estimated: linear along the batch, along replicas, then along nodes, the
        latter two constant beyond the ends. Raises ProfileError outside the measured local batches of a profiled placement.
        """
        known = self.placements.get(smallest_rotation(placement))
        if known is not None:
            low, high = known[0, 0], known[-1, 0]
            if not low <= local_batch <= high:
                raise ProfileError.at(
                    f"{self.name} on {tuple(placement)}",
                    f"local batch {local_batch:g} lies outside what was measured, {low:g} to {high:g}",
                )
            return _along(known, local_batch)
        return self._estimated(len([count for count in placement if count]), sum(placement), local_batch)

    def local_range(self, placement: Sequence[int]) -> tuple[int, int]:
        """Least and largest local batch that may run on a placement: the application's, within what was measured."""
        known = self.placements.get(smallest_rotation(placement))
        if known is None:
            return self.least_local, self.most_local
        return max(self.least_local, int(known[0, 0])), min(self.most_local, int(known[-1, 0]))

    def _estimated(self, nodes: int, replicas: int, local_batch: float) -> tuple[float, float]:
        """Step and exchange seconds between the measured numbers of nodes."""
        known = sorted({n for n, _ in self.averaged})
        below = max((n for n in known if n <= nodes), default=known[0])
        above = min((n for n in known if n >= nodes), default=known[-1])
        low, high = (self._at_nodes(n, replicas, local_batch) for n in (below, above))
        part = (nodes - below) / (above - below) if above > below else 0.0
        return low[0] + part * (high[0] - low[0]), low[1] + part * (high[1] - low[1])

    def _at_nodes(self, nodes: int, replicas: int, local_batch: float) -> tuple[float, float]:
        counts = sorted(r for n, r in self.averaged if n == nodes)
        pairs = [_beyond(self.averaged[nodes, r], local_batch) for r in counts]
        steps, exchanges = zip(*pairs, strict=True)
        return float(np.interp(replicas, counts, steps)), float(np.interp(replicas, counts, exchanges))

    def gradients(self, batch: float, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient in an epoch, linear between validated batches."""
        at = min(epoch, self.grad_sqr.shape[1] - 1)
        return (
            float(np.interp(batch, self.batches, self.grad_sqr[:, at])),
            float(np.interp(batch, self.batches, self.grad_var[:, at])),
        )

    def progress_at(self, epoch: int) -> float:
        """Progress at the end of an epoch: the least over the validated batches."""
        return float(self.progress[:, min(epoch, self.progress.shape[1] - 1)].min())


def smallest_rotation(placement: Sequence[int]) -> tuple[int, ...]:
    """GPUs on the nodes that hold any, turned so that the sequence is the least."""
    used = [count for count in placement if count]
    return min((tuple(used[at:] + used[:at]) for at in range(len(used))), default=())


def _along(points: F64, local_batch: float) -> tuple[float, float]:
    return (
        float(np.interp(local_batch, points[:, 0], points[:, 1])),
        float(np.interp(local_batch, points[:, 0], points[:, 2])),
    )


def _beyond(points: F64, local_batch: float) -> tuple[float, float]:
    """Like `_along`, but the last stretch goes on beyond the largest batch: steps get longer there, never shorter."""
    if len(points) < 2 or local_batch <= points[-1, 0]:
        return _along(points, local_batch)
    (low, *before), (high, *after) = points[-2].tolist(), points[-1].tolist()
    part = (local_batch - low) / (high - low)
    step_s = max(before[0] + part * (after[0] - before[0]), after[0])
    return step_s, min(max(before[1] + part * (after[1] - before[1]), 0.0), step_s)


def read_applications(folder: Path) -> dict[str, Application]:
    """All applications in a folder of measurements, by name; ProfileError names what is missing or wrong."""
    if not folder.is_dir():
        raise ProfileError.at(str(folder), "is no folder of measurements")
    folders = sorted(path for path in folder.iterdir() if (path / "placements.csv").exists())
    if not folders:
        raise ProfileError.at(str(folder), "contains no <app>/placements.csv")
    return {path.name: _application(path) for path in folders}


def _application(folder: Path) -> Application:
    """An application from its folder. Raises ProfileError for a table that is missing or wrong."""
    placements: dict[tuple[int, ...], list[Point]] = defaultdict(list)
    averaged: dict[tuple[int, int], dict[float, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for where, row in _rows(folder / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time")):
        gpus = tuple(int(digit) for digit in row["placement"] or "" if digit in "123456789")
        if not gpus:
            raise ProfileError.at(where, f"placement {row['placement']!r} contains no GPU")
        point = _point(where, row)
        placements[smallest_rotation(gpus)].append(point)
        averaged[len(gpus), sum(gpus)][point[0]].append(point)
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    for where, row in _rows(folder / "scalability.csv", columns):
        point = _point(where, row)
        nodes, replicas = (int(_number(where, row, name)) for name in ("num_nodes", "num_replicas"))
        averaged[nodes, replicas][point[0]].append(point)
    batches, tables = _validation(folder)
    every = sorted({point[0] for points in placements.values() for point in points})
    return Application(
        name=folder.name,
        epochs=EPOCHS.get(folder.name, int(tables.shape[1])),
        batches=batches,
        least_local=int(every[0]),
        most_local=_MOST_LOCAL.get(folder.name, int(every[-1])),
        fixed_batch=FIXED_BATCH.get(folder.name, 0.0),
        placements={key: np.array(sorted(points)) for key, points in placements.items()},
        averaged={key: _averages(groups.values()) for key, groups in averaged.items()},
        progress=tables[:, :, 0],
        grad_sqr=tables[:, :, 1],
        grad_var=tables[:, :, 2],
    )


def _averages(groups: Iterable[Sequence[Point]]) -> F64:
    return np.array(sorted(tuple(np.mean(points, axis=0).tolist()) for points in groups))


def _validation(folder: Path) -> tuple[F64, F64]:
    """Validated batches, ascending, and float64[batches, epochs, 3] of progress, squared norm and variance."""
    files = {}
    for path in sorted(folder.glob("validation-*.csv")):
        batch = path.stem.removeprefix("validation-")
        if not (batch.isascii() and batch.isdigit() and len(batch) < 12):
            raise ProfileError.at(str(path), f"is not named validation-BATCH.csv, {batch!r} is no batch")
        files[int(batch)] = path
    if not files:
        raise ProfileError.at(str(folder), "contains no validation-<batch>.csv")
    names = ("progress", "grad_sqr", "grad_var")
    tables = [
        [[_number(where, row, name) for name in names] for where, row in _rows(files[batch], names)]
        for batch in sorted(files)
    ]
    if len({len(table) for table in tables}) > 1:
        raise ProfileError.at(str(folder), "validation tables have different numbers of epochs")
    return np.array(sorted(files), np.float64), np.array(tables, np.float64)


def _rows(path: Path, names: Sequence[str]) -> list[tuple[str, dict[str, str | None]]]:
    """The rows of a table by column, each with its place."""
    (_, header), *read = read_rows(path, ProfileError) or [(1, [])]
    rows = [
        (f"{path.parent.name}/{path.name}:{at}", dict(zip_longest(header, cells[: len(header)])))
        for at, (_, cells) in enumerate(read, 2)
    ]
    if not rows:
        raise ProfileError.at(str(path), "contains no rows")
    missing = [name for name in names if name not in header]
    if missing:
        raise ProfileError.at(f"{path}:1", f"misses the columns {', '.join(missing)}")
    return rows


def _point(where: str, row: Mapping[str, str | None]) -> Point:
    """Local batch, step seconds and exchange seconds of a row. Raises ProfileError for such as cannot be."""
    batch, step_s, exchange_s = (
        _number(where, row, name) for name in ("local_bsz", "step_time", "sync_time")
    )
    if not (batch >= 1 and step_s > 0 and 0 <= exchange_s < step_s):
        raise ProfileError(
            Problem(where, f"step {step_s:g} s with exchange {exchange_s:g} s at batch {batch:g} cannot be")
        )
    return batch, step_s, exchange_s


def _number(where: str, row: Mapping[str, str | None], name: str) -> float:
    """A cell as a finite number; raises ProfileError with its place otherwise."""
    try:
        value = float(row[name] or "")
    except ValueError:
        raise ProfileError.at(where, f"{name} is {row[name]!r}, a number is expected") from None
    if not np.isfinite(value):
        raise ProfileError.at(where, f"{name} is {row[name]!r}, a finite number is expected")
    return value
