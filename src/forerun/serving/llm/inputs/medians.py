"""Imported measurements of a language model's iterations: medians over a grid of prompt lengths and batch sizes.

Two files are read: one row a point with medians (columns model, hardware, tensor_parallel, prompt_tokens, batch,
output_tokens, prompt_ms_median, token_ms_median), or one row a repetition as published with Splitwise (`perf_model.csv`;
columns model, hardware, tensor_parallel, prompt_size, batch_size, token_size, prompt_time, token_time) [Patel et al.,
ISCA'24]. Between measured points time is linear, along the axis that was measured; outside them it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from forerun.core.errors import ProfileError, TraceError, known_names
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.serving.llm.inputs.model import Cost

OURS: Final = ("prompt_tokens", "batch", "output_tokens", "prompt_ms_median", "token_ms_median")
SPLITWISE: Final = ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time")


class Key(NamedTuple):
    """What was measured.

    Parameters
    ----------
    model : its name in the file.
    hardware : the kind of accelerator.
    tensor_parallel : accelerators that the model is split over.
    """

    model: str
    hardware: str
    tensor_parallel: int

    def __str__(self) -> str:
        return f"{self.model} on {self.tensor_parallel} x {self.hardware}"


class Point(NamedTuple):
    """One measured point.

    Parameters
    ----------
    prompt_tokens : of each prompt.
    batch : requests at once.
    output_tokens : of each answer.
    prompt_ms : time to process the prompts.
    token_ms : time of a token for each request after that.
    """

    prompt_tokens: int
    batch: int
    output_tokens: int
    prompt_ms: float
    token_ms: float


@dataclass(frozen=True)
class Medians:
    """Measured points by what was measured.

    Parameters
    ----------
    points : of each model, hardware and split in file order, ascending; medians where a point was repeated.
    name : of the file, for messages.
    """

    points: Mapping[Key, Sequence[Point]]
    name: str

    def key(self, model: str, hardware: str, tensor_parallel: int) -> Key:
        """The key of a model on a machine.

        Parameters
        ----------
        model, hardware : as the file spells them.
        tensor_parallel : accelerators that the model is split over.

        Raises ProfileError with what is known.
        """
        asked = Key(model, hardware, tensor_parallel)
        for place, what in enumerate(("model", "hardware", "tensor_parallel")):
            left = [key for key in self.points if key[:place] == asked[:place]]
            known = list(dict.fromkeys(str(key[place]) for key in left))
            if str(asked[place]) not in known:
                where = f" of {' on '.join(map(str, asked[:place]))}" if place else ""
                raise ProfileError.at(
                    self.name,
                    f"{what} {asked[place]!r}{where} was not measured; {known_names(str(asked[place]), known)}",
                )
        return asked

    def cost(self, key: Key, token_budget: int, max_seqs: int) -> tuple[Cost, tuple[str, ...]]:
        """What iterations of up to this many tokens and requests take, and what a user must know about it.

        Prefills follow the prompt lengths measured alone; shorter ones lead down to a decode of one request. Decodes
        follow the batch sizes measured at the shortest output.

        Parameters
        ----------
        key : what was measured, from `key`.
        token_budget : most prompt tokens of an iteration that a time is needed for.
        max_seqs : most requests that decode at once.

        Raises ProfileError where the measurements do not reach that far.
        """
        lengths, batches = self.line(key, "prompt_tokens"), self.line(key, "batch")
        problems = [
            f"{key} was measured for up to {axis[-1][0]} {what}, not for {asked}"
            for axis, what, asked in (
                (lengths, "prompt tokens in one iteration (token_budget)", token_budget),
                (batches, "requests at once (max_seqs)", max_seqs),
            )
            if asked > axis[-1][0]
        ]
        if problems:
            raise ProfileError.at(self.name, "; ".join(problems))
        decodes = np.arange(max_seqs + 1)
        decode_ms = np.interp(decodes, *_curve(batches, lambda point: point.token_ms))
        tokens, prompt_ms = _curve(lengths, lambda point: point.prompt_ms)
        one_ms = float(decode_ms[1])
        if tokens[0] > 1:
            tokens, prompt_ms = [1, *tokens], [min(one_ms, prompt_ms[0]), *prompt_ms]
        prefill_ms = np.interp(np.arange(token_budget + 1), tokens, prompt_ms)
        prefill_ms[0] = decode_ms[0] = 0.0
        cost = Cost(prefill_ms=prefill_ms, decode_ms=decode_ms)
        if not cost.least_ms > 0:
            raise ProfileError.at(self.name, f"{key}: an iteration would take {cost.least_ms:g} ms or less")
        falls = [
            f"{key}: more requests at once were measured to take less time per token ({after.token_ms:g} ms at {at}, "
            f"{before.token_ms:g} ms at {less}); taken as measured"
            for (less, before), (at, after) in pairwise(batches)
            if at <= max_seqs and after.token_ms < 0.98 * before.token_ms
        ]
        return cost, tuple(falls)

    def line(self, key: Key, axis: str) -> list[tuple[int, Point]]:
        """(place, point) along an axis through the point where the measured axes cross, ascending.

        Parameters
        ----------
        axis : `prompt_tokens`, `batch` or `output_tokens`; the other two are those of the crossing.
        """
        base, axes = self._base(key), ("prompt_tokens", "batch", "output_tokens")
        others = [name for name in axes if name != axis]
        return [
            (getattr(point, axis), point)
            for point in self.points[key]
            if all(getattr(point, name) == getattr(base, name) for name in others)
        ]

    def _base(self, key: Key) -> Point:
        """Where the measured axes cross: the point that shares most coordinates with the others."""
        points = self.points[key]
        return max(
            points, key=lambda one: sum(own == its for other in points for own, its in zip(one[:3], other))
        )


def read_medians(path: Path, name: str = "") -> Medians:
    """The measurements in a file.

    Raises ProfileError naming file, line and field.
    """
    name = name or str(path)
    try:
        source = Source(path, repairs=RepairLog())
        first = source.head(1)
        names = SPLITWISE if first and "prompt_size" in first[0] else OURS
        fields = (
            Field(name="model", kind="text"),
            Field(name="hardware", kind="text"),
            Field(name="tensor_parallel", kind="int", minimum=1),
            *(Field(name=column, kind="int", minimum=1) for column in names[:3]),
            *(Field(name=column, unit="ms", minimum=1e-6) for column in names[3:]),
        )
        rows = gathered(read_rows(Source(path, repairs=RepairLog()), fields))
    except TraceError as error:
        raise ProfileError(*error.problems) from error
    columns = [rows.columns[field.name].tolist() for field in fields]
    return Medians(_points(zip(*columns)), name)


def _points(rows: Iterable[tuple[str, str, int, int, int, int, float, float]]) -> dict[Key, list[Point]]:
    """Medians of the rows that repeat a point."""
    repeats: dict[Key, dict[tuple[int, int, int], list[tuple[float, float]]]] = {}
    for model, hardware, parallel, prompt, batch, output, prompt_ms, token_ms in rows:
        at = repeats.setdefault(Key(model, hardware, parallel), {})
        at.setdefault((prompt, batch, output), []).append((prompt_ms, token_ms))
    return {
        key: [
            Point(*place, *(float(median(values)) for values in zip(*measured)))
            for place, measured in sorted(points.items())
        ]
        for key, points in repeats.items()
    }


def _curve(
    line: Sequence[tuple[int, Point]], value: Callable[[Point], float]
) -> tuple[list[int], list[float]]:
    return [at for at, _ in line], [value(point) for _, point in line]
