"""Measured service surfaces: what a batch costs, by model, hardware and batch size.

A profile is a set of rows (model, hardware, batch, p99_ms, throughput_qps). Between rows service is linear, exact at
rows, and an error outside them. Prices of the hardware that the built-in profile knows stand here too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.core.errors import Problem, ProfileError, TraceError, known_names
from forerun.serving.inputs.pipeline import Floats

#: kinds of service time that a profile row gives
KINDS: Final = ("mean", "p99", "notebook")

#: $ per hour and replica, from the InferLine authors' later artifact
ARTIFACT_PRICES_USD_PER_H: Final[Mapping[str, float]] = MappingProxyType(
    {"V100": 2.528, "TXP": 2.1, "cpu": 0.0665}
)

EMBEDDED: Final = Path(__file__).parents[1] / "data" / "profiles.csv"


@dataclass(frozen=True)
class Row:
    """One measured point.

    Parameters
    ----------
    batch : queries in the batch.
    p99_ms : 99th percentile of its time.
    throughput_qps : queries a second that one replica serves in such batches, in steady state.
    """

    batch: int
    p99_ms: float
    throughput_qps: float

    def service_ms(self, kind: str) -> float:
        """Service time of a batch in ms.

        Parameters
        ----------
        kind : `mean`: batch over throughput. `p99`: as measured. `notebook`: milliseconds per *query* used for a
            whole batch, the notebook's slip.
        """
        match kind:
            case "mean":
                return self.batch * 1000 / self.throughput_qps
            case "p99":
                return self.p99_ms
            case "notebook":
                return 1 / (self.throughput_qps / 1000)
        raise AssertionError(f"no service kind {kind!r}")


class Profile:
    """Measured rows by (model, hardware), batches ascending.

    Parameters
    ----------
    rows : the points of each surface.
    name : of the profile, for messages (default: `profile`).

    Raises ProfileError for an empty surface, batches that do not ascend, and values that are not above 0.
    """

    def __init__(self, rows: Mapping[tuple[str, str], Sequence[Row]], name: str = "profile") -> None:
        self._rows = {key: tuple(points) for key, points in rows.items()}
        self.name = name
        faults = [Problem(f"{name}: {' on '.join(key)}", what) for key, what in self._faults()]
        if faults:
            raise ProfileError(*faults)

    @property
    def models(self) -> tuple[str, ...]:
        """Models measured, sorted."""
        return tuple(sorted({model for model, _ in self._rows}))

    def hardware_of(self, model: str) -> tuple[str, ...]:
        """Hardware that a model was measured on, in the order measured."""
        return tuple(hardware for known, hardware in self._rows if known == model)

    def rows(self, model: str, hardware: str, *, where: str = "") -> tuple[Row, ...]:
        """The points of one surface.

        Parameters
        ----------
        model, hardware : as the profile spells them.
        where : path in the scenario that an error names (default: none).

        Raises ProfileError with what is known.
        """
        if model not in self.models:
            raise ProfileError(
                Problem(where, f"no profile of model {model!r}; {known_names(model, self.models)}")
            )
        if (model, hardware) not in self._rows:
            known = known_names(hardware, self.hardware_of(model))
            raise ProfileError(Problem(where, f"{model} was not measured on {hardware!r}; {known}"))
        return self._rows[model, hardware]

    def service_ms(self, model: str, hardware: str, kind: str, batch: int, *, where: str = "") -> float:
        """Service time of a batch in ms: exact at rows, linear between them.

        Parameters
        ----------
        model, hardware : whose surface is read.
        kind : `mean`, `p99` or `notebook`, as of `Row.service_ms`.
        batch : queries in it.
        where : path in the scenario that an error names (default: none).

        Raises ProfileError for an unknown surface, and outside its rows.
        """
        rows = self.rows(model, hardware, where=where)
        if not rows[0].batch <= batch <= rows[-1].batch:
            what = f"{model} on {hardware} was measured for batches {rows[0].batch} to {rows[-1].batch}, not {batch}"
            raise ProfileError(Problem(where, what))
        above = next(row for row in rows if row.batch >= batch)
        if above.batch == batch:
            return above.service_ms(kind)
        below = rows[rows.index(above) - 1]
        low, high = below.service_ms(kind), above.service_ms(kind)
        return low + (batch - below.batch) * ((high - low) / (above.batch - below.batch))

    def table_ms(self, model: str, hardware: str, kind: str, max_batch: int, *, where: str = "") -> Floats:
        """float64[max_batch + 1]: service time in ms of a batch of n at index n, 0 at index 0.

        Parameters
        ----------
        model, hardware : whose surface is read.
        kind : `mean`, `p99` or `notebook`, as of `Row.service_ms`.
        max_batch : the largest batch; sizes from 1 on must lie within the measured rows.
        where : path in the scenario that an error names (default: none).
        """
        self.service_ms(
            model, hardware, kind, max_batch, where=where
        )  # names the batch asked for, if it is outside
        sizes = range(1, max_batch + 1)
        return np.array([0.0, *(self.service_ms(model, hardware, kind, n, where=where) for n in sizes)])

    def joined(self, other: Profile) -> Profile:
        """This profile with the surfaces of another added; surfaces of one name are replaced."""
        return Profile({**self._rows, **other._rows}, f"{self.name} and {other.name}")

    def _faults(self) -> list[tuple[tuple[str, str], str]]:
        faults = []
        for key, rows in self._rows.items():
            batches = [row.batch for row in rows]
            if not rows:
                faults.append((key, "has no rows"))
            if any(row.batch < 1 for row in rows):
                faults.append((key, f"batch {min(batches)} is below 1"))
            for before, after in pairwise(batches):
                if before == after:
                    faults.append((key, f"batch {after} stands twice"))
                elif before > after:
                    faults.append((key, f"batch {after} comes after {before}; rows ascend by batch"))
            for row in rows:
                if not 0 < row.throughput_qps < np.inf:
                    faults.append(
                        (key, f"batch {row.batch}: throughput_qps {row.throughput_qps} is not above 0")
                    )
                if not 0 < row.p99_ms < np.inf:
                    faults.append((key, f"batch {row.batch}: p99_ms {row.p99_ms} is not above 0"))
        return faults


def read_profile(path: Path, name: str = "") -> Profile:
    """The profile in a CSV file with columns model, hardware, batch, p99_ms, throughput_qps; # begins a comment.

    In place of the last two, or of one of them, `mean_ms` (or `latency_ms`), the mean time of a batch: one replica
    serves one batch after another, so throughput is batch over mean. The mean stands for the 99th percentile if that
    is not given, the percentile for the mean, each said by the missing column.

    Parameters
    ----------
    path : of the file, which may be compressed with gzip or xz.
    name : of the profile in messages (default: the path).

    Raises ProfileError naming file, line and field.
    """
    from forerun.core.trace.repair import RepairLog
    from forerun.core.trace.rows import Field, gathered, read_rows
    from forerun.core.trace.source import Source

    fields = (
        Field(name="model", kind="text"),
        Field(name="hardware", kind="text"),
        Field(name="batch", kind="int", minimum=1),
        Field(name="p99_ms", unit="ms", minimum=0, required=False),
        Field(name="throughput_qps", unit="qps", minimum=0, required=False),
        Field(name="mean_ms", unit="ms", minimum=0, required=False),
        Field(name="latency_ms", unit="ms", minimum=0, required=False),
    )
    try:
        read = gathered(read_rows(Source(path, repairs=RepairLog()), fields, comment="#")).columns
    except TraceError as error:
        raise ProfileError(*error.problems) from error
    mean_ms = read.get("mean_ms", read.get("latency_ms"))
    p99_ms, qps = read.get("p99_ms"), read.get("throughput_qps")
    longest_ms = p99_ms if p99_ms is not None else mean_ms
    if longest_ms is None and qps is None:
        raise ProfileError.at(
            str(path), "has no column of times: p99_ms and throughput_qps, or mean_ms, is required"
        )
    with np.errstate(divide="ignore"):
        if qps is None:
            qps = read["batch"] * 1000 / (mean_ms if mean_ms is not None else longest_ms)
        if longest_ms is None:
            longest_ms = read["batch"] * 1000 / qps
    rows: dict[tuple[str, str], list[Row]] = {}
    columns = (read["model"], read["hardware"], read["batch"], longest_ms, qps)
    for model, hardware, batch, tail_ms, rate in zip(*(column.tolist() for column in columns), strict=True):
        rows.setdefault((model, hardware), []).append(Row(batch, tail_ms, rate))
    return Profile(rows, name or str(path))


@functools.cache
def embedded_profile() -> Profile:
    """The six measured tables that come with the package."""
    return read_profile(EMBEDDED, "built-in profile")
