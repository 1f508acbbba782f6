"""A study file to its cells: one scenario times the product of its axes and seeds."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

import forerun
from forerun.errors import Problem, ScenarioError
from forerun.scenario.decode import decode
from forerun.scenario.load import build
from forerun.scenario.spec import Spec, canonical_json, content_id, to_data
from forerun.scenario.text import Document, read_document

#: cells above which a study is refused
MAX_CELLS: Final = 1_000_000


class Range(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evenly spaced values from `start` to `stop`, both included: `count` of them, or every `step`."""

    start: float
    stop: float
    step: Annotated[float, msgspec.Meta(gt=0)] | None = None
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Exactly one of step and count; stop not before start."""
        found = []
        if (self.step is None) == (self.count is None):
            found.append(("", "give exactly one of 'step' and 'count'"))
        if self.stop < self.start:
            found.append(("stop", f"{self.stop} is before start {self.start}"))
        return found

    def values(self) -> list[float | int]:
        """The values; whole numbers stay whole."""
        if self.count is not None:
            gap = (self.stop - self.start) / max(1, self.count - 1)
            raw = [self.start + i * gap for i in range(self.count)]
        else:
            assert self.step is not None
            # Each value from its origin, so that rounding does not add up.
            steps = math.floor((self.stop - self.start) / self.step + 1e-9)
            raw = [self.start + i * self.step for i in range(steps + 1)]
        return [int(value) if float(value).is_integer() else value for value in raw]


class StudyFile(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study as written: the base scenario (a file, or a section), axes, and seeds (how many, or which).

    metrics: which figures of the summaries to show. objective: what to rank by, as `metric` or `metric:higher|lower`.
    """

    base: str | dict[str, Any]
    axes: dict[str, list[Any] | Range] = {}
    seeds: Annotated[int, msgspec.Meta(ge=1)] | list[int] = 1
    metrics: list[str] = []
    objective: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One variation: its number in the study, the overrides that make it, and its seed."""

    number: int
    overrides: tuple[tuple[str, Any], ...]
    seed: int


@dataclass(frozen=True)
class Plan:
    """A study ready to run: the base scenario as plain data with its inputs pinned, its axes and seeds.

    metrics, objective: what to show and to rank by; no part of what the study is.

    id: digest of all that the results depend on, the package version among it.
    """

    name: str
    base: dict[str, Any]
    folder: Path
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    objective: str = ""

    @property
    def id(self) -> str:
        """What the results depend on, as a digest."""
        text = canonical_json([content_id(self.scenario(), forerun.__version__), self.axes, self.seeds])
        return hashlib.sha256(text).hexdigest()[:16]

    def __len__(self) -> int:
        return self.combinations * len(self.seeds)

    @property
    def combinations(self) -> int:
        """How many combinations of axis values there are."""
        return math.prod(len(values) for _, values in self.axes)

    def cells(self) -> Iterator[Cell]:
        """The cells in order: the last axis varies fastest, seeds fastest of all."""
        names = [name for name, _ in self.axes]
        combinations = itertools.product(*(values for _, values in self.axes), self.seeds)
        for number, (*values, seed) in enumerate(combinations):
            yield Cell(number, tuple(zip(names, values)), seed)

    def cell(self, number: int) -> Cell:
        """The cell of a number."""
        combination, seed = divmod(number, len(self.seeds))
        names = (name for name, _ in self.axes)
        return Cell(number, tuple(zip(names, self.combination(combination))), self.seeds[seed])

    def combination(self, number: int) -> tuple[Any, ...]:
        """The axis values of combination `number`: of the cells from `number` times the seeds on."""
        return tuple(values[place] for (_, values), place in zip(self.axes, self.places(number)))

    def places(self, number: int) -> tuple[int, ...]:
        """For each axis, the place among its values that combination `number` takes."""
        found: list[int] = []
        for _, values in reversed(self.axes):
            number, place = divmod(number, len(values))
            found.append(place)
        return tuple(reversed(found))

    def scenario(self, cell: Cell | None = None) -> Any:
        """The resolved scenario of a cell (of the base without one). Raises ScenarioError."""
        data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.base))
        overrides = [f"{name}={_text(value)}" for name, value in cell.overrides] if cell else []
        document = Document(self.name, data)
        return build(document, base=self.folder, overrides=overrides, seed=cell.seed if cell else None)


def load_study(path: str | os.PathLike[str]) -> Plan:
    """The plan of a study file; every axis is tried on its first value, so that a name without meaning is found now.

    Raises ScenarioError with every problem: an axis that names nothing, an empty axis, too many cells.
    """
    source = Path(path)
    document = read_document(source)
    given = decode(document, StudyFile)
    folder = source.resolve().parent
    if isinstance(given.base, str):
        base_path = folder / given.base
        base_document, base_folder = read_document(base_path), base_path.resolve().parent
    else:
        base_document, base_folder = Document(f"{source}: base", given.base), folder
    scenario = build(base_document, base=base_folder)
    axes = tuple(
        (name, tuple(axis.values() if isinstance(axis, Range) else axis)) for name, axis in given.axes.items()
    )
    seeds = tuple(given.seeds) if isinstance(given.seeds, list) else seeds_from(scenario.seed, given.seeds)
    plan = Plan(
        str(source), to_data(scenario), base_folder, axes, seeds, tuple(given.metrics), given.objective
    )
    _check(plan, document)
    return plan


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """The seeds of `count` replications of a scenario: its own and those that follow."""
    return tuple(range(first, first + count))


def _check(plan: Plan, document: Document) -> None:
    if len(plan) > MAX_CELLS:
        sizes = " x ".join(str(len(values)) for _, values in plan.axes)
        what = f"{sizes} x {len(plan.seeds)} seeds are {len(plan)} cells; at most {MAX_CELLS}"
        raise ScenarioError(Problem(document.where(("axes",)), what))
    problems = []
    if plan.objective.partition(":")[2] not in ("", "higher", "lower"):
        what = f"{plan.objective!r}: write metric, metric:higher or metric:lower"
        problems.append(Problem(document.where(("objective",)), what))
    for name, values in plan.axes:
        where = document.where(("axes", name))
        if not values:
            problems.append(Problem(where, "the axis has no values, so the study has no cells"))
        elif len(set(map(_text, values))) < len(values):
            problems.append(Problem(where, "the axis has a value twice"))
    if not plan.seeds or len(set(plan.seeds)) < len(plan.seeds):
        problems.append(
            Problem(document.where(("seeds",)), "seeds are different whole numbers, at least one")
        )
    for name, values in plan.axes:
        for value in values[:1]:
            try:
                plan.scenario(Cell(0, ((name, value),), plan.seeds[0] if plan.seeds else 0))
            except ScenarioError as error:
                where = document.where(("axes", name))
                problems.extend(Problem(where, problem.what) for problem in error.problems)
    if problems:
        raise ScenarioError(*problems)


def _text(value: Any) -> str:
    """A value as an override writes it."""
    return canonical_json(value).decode() if not isinstance(value, str) else value
