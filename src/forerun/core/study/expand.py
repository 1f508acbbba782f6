"""A study file to its cells: one scenario times the product of its axes and seeds."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from forerun.core.domain import code_of, get_domain, instance_of, own_specs
from forerun.core.errors import Problem, ScenarioError, known_names
from forerun.core.result.numbers import is_number
from forerun.core.scenario.decode import decode
from forerun.core.scenario.numbers import Count
from forerun.core.scenario.spec import (
    AnyScenario,
    NamedSpec,
    Spec,
    canonical_json,
    content_id,
    override,
    to_data,
)
from forerun.core.scenario.text import Document, Place, read_document, refuse_other
from forerun.core.scenarios import build
from forerun.core.study.wording import axis_labels, axis_unit, combination_text
from forerun.core.units import parse_quantity, stem, unit_of, whole_number
from forerun.core.version import VERSION

#: maximum number of cells of a study
MAX_CELLS: Final = 1_000_000


class Range(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evenly spaced values from `start` to `stop`, both included: `count` of them, or every `step`.

    Numbers, or quantities such as `5min` where the axis has a unit.
    """

    start: float | str
    stop: float | str
    step: float | str | None = None
    count: Count | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Exactly one of step and count; stop not before start."""
        faults = []
        if (self.step is None) == (self.count is None):
            faults.append(("", "give exactly one of 'step' and 'count'"))
        if not isinstance(self.start, str) and not isinstance(self.stop, str) and self.stop < self.start:
            faults.append(("stop", f"{self.stop} is before start {self.start}"))
        if self.step is not None and not isinstance(self.step, str) and not self.step > 0:
            faults.append(("step", f"{self.step:g} is not above 0"))
        return faults

    def in_unit(self, unit: str) -> Range:
        """The range in numbers of a unit; raises ValueError for text that is no such quantity."""
        ends = {
            name: parse_quantity(value, unit)
            for name in ("start", "stop", "step")
            if isinstance(value := getattr(self, name), str)
        }
        converted = msgspec.structs.replace(self, **ends)
        for _, what in converted.problems():
            raise ValueError(what)
        return converted

    def __len__(self) -> int:
        if self.count is not None:
            return self.count
        assert self.step is not None
        if any(isinstance(value, str) for value in (self.start, self.stop, self.step)):
            return 1  # counted once its unit is known
        steps = (self.stop - self.start) / self.step  # type: ignore[operator]
        return sys.maxsize if not math.isfinite(steps) or steps >= 2**62 else math.floor(steps + 1e-9) + 1

    def values(self) -> list[float | int]:
        """The values; whole numbers stay whole."""
        start, stop, step = self.start, self.stop, self.step
        assert not isinstance(start, str) and not isinstance(stop, str) and not isinstance(step, str)
        gap = step if step is not None else (stop - start) / max(1, len(self) - 1)
        # Each value from its origin, so that rounding does not add up.
        raw = [start + i * gap for i in range(len(self))]
        return [int(value) if float(value).is_integer() else value for value in raw]


class StudyFile(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study as written: the base scenario (a file, or a section), axes, and seeds (how many, or which).

    paths: the axis whose values are paths of the world, such as traces: every combination of the other axes meets all of
    them, and intervals are of two levels, over paths and seeds. given: the axes that are the environment, such as a
    load, and no choice: the best combination of the others is sought at each of their values (default: the axes within
    the sections that the domain calls given; `[]`: every axis is a choice). metrics: which figures of the summaries to show.
    objective: what to rank by, as `metric` or `metric:higher|lower`.
    """

    base: str | dict[str, Any]
    axes: dict[str, list[Any] | Range] = {}
    seeds: Count | list[int] = 1
    paths: str = ""
    given: list[str] | None = None
    metrics: list[str] = []
    objective: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One variation: its number in the study, the overrides that make it, and its seed."""

    number: int
    overrides: tuple[tuple[str, Any], ...]
    seed: int


@dataclass(frozen=True)
class StudyPlan:
    """A study ready to run: the base scenario as plain data with its inputs pinned, its axes, paths and seeds.

    metrics, objective, given: what to show and to rank by, and which axes are no choice; no part of what the study is.
    paths: the axis that is no choice but a sample of the world, with its values. inputs: digests of files that axis
    values name. units: whether cells of the first seed also keep the units that their figures are made of. tables: of the
    results, that outcomes keep. own: policies of one's own in the base scenario, with their places.

    id: digest of all that the results depend on, the package version among it.
    """

    name: str
    base: dict[str, Any]
    folder: Path
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    objective: str = ""
    paths: tuple[str, tuple[Any, ...]] | None = None
    inputs: tuple[str, ...] = ()
    given: tuple[str, ...] | None = None
    units: bool = False
    tables: tuple[str, ...] = ()
    own: tuple[tuple[Place, NamedSpec], ...] = ()

    @classmethod
    def of(
        cls, name: str, scenario: AnyScenario, *, units: bool = False, tables: tuple[str, ...] = ()
    ) -> StudyPlan:
        """A study of one scenario under its own seed, whose cells change it.

        Parameters
        ----------
        name : for messages.
        scenario : whose paths begin here.
        units, tables : what is kept of each run.
        """
        data = to_data(scenario)
        own = own_specs(scenario)
        return cls(name, data, Path.cwd(), (), (data["seed"],), (), units=units, tables=tables, own=own)

    @property
    def id(self) -> str:
        """What the results depend on, as a digest."""
        base = content_id(scenario := self.scenario(), VERSION, code_of(scenario))
        text = canonical_json([base, self.axes, self.seeds, self.paths, self.inputs])
        return hashlib.sha256(text).hexdigest()[:16]

    @property
    def sourceless(self) -> str:
        """A class without a source that decides in a cell, if there is one."""
        return next((one.strip() for one in self.inputs if one.endswith(" ")), "")

    def __len__(self) -> int:
        return self.combinations * self.replications

    @property
    def replications(self) -> int:
        """How many cells each combination has: its paths times its seeds."""
        return len(self.seeds) * (len(self.paths[1]) if self.paths else 1)

    @property
    def independent(self) -> int:
        """How many of them are independent of each other: the paths where there are any, else the seeds."""
        return len(self.paths[1]) if self.paths else len(self.seeds)

    @property
    def combinations(self) -> int:
        """How many combinations of axis values there are."""
        return math.prod(len(values) for _, values in self.axes)

    def cells(self) -> Iterator[Cell]:
        """The cells in order: the last axis varies fastest, then the paths, seeds fastest of all."""
        axes = [*self.axes, *([self.paths] if self.paths else [])]
        names = [name for name, _ in axes]
        combinations = itertools.product(*(values for _, values in axes), self.seeds)
        for number, (*values, seed) in enumerate(combinations):
            yield Cell(number, tuple(zip(names, values)), seed)

    def cell(self, number: int) -> Cell:
        """The cell of a number."""
        combination, replication = divmod(number, self.replications)
        path, seed = divmod(replication, len(self.seeds))
        names = (name for name, _ in self.axes)
        overrides = tuple(zip(names, self.combination(combination)))
        if self.paths:
            overrides += ((self.paths[0], self.paths[1][path]),)
        return Cell(number, overrides, self.seeds[seed])

    def combination(self, number: int) -> tuple[Any, ...]:
        """The axis values of combination `number`: of the cells from `number` times the replications on."""
        return tuple(values[place] for (_, values), place in zip(self.axes, self.places(number)))

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """Short names of the axes."""
        return axis_labels([name for name, _ in self.axes])

    @property
    def varied(self) -> tuple[int, ...]:
        """The places of the axes that have two values or more; of all axes, if none has."""
        many = tuple(at for at, (_, values) in enumerate(self.axes) if len(values) > 1)
        return many or tuple(range(len(self.axes)))

    def in_words(self, values: Sequence[Any], places: Sequence[int] | None = None) -> str:
        """A combination in one line, by the axes that vary, or those at `places`."""
        shown = self.varied if places is None else places
        units = [axis_unit(self.axes[at][0]) for at in shown]
        return combination_text([self.labels[at] for at in shown], [values[at] for at in shown], units)

    def places(self, number: int) -> tuple[int, ...]:
        """For each axis, the place among its values that combination `number` takes."""
        places: list[int] = []
        for _, values in reversed(self.axes):
            number, place = divmod(number, len(values))
            places.append(place)
        return tuple(reversed(places))

    def scenario(self, cell: Cell | None = None) -> Any:
        """The resolved scenario of a cell (of the base without one). Raises ScenarioError.

        A policy of one's own among the overrides goes where `simulate(policy=)` puts it.
        """
        data: Any = msgspec.json.decode(msgspec.json.encode(self.base))
        for place, spec in self.own:
            here = data
            for step in place[:-1]:
                here = here[step]
            here[place[-1]] = spec
        given = cell.overrides if cell else ()
        overrides = [override(name, value) for name, value in given if not isinstance(value, NamedSpec)]
        scenario = build(
            Document(self.name, data), base=self.folder, overrides=overrides, seed=cell.seed if cell else None
        )
        for _, policy in given:
            if isinstance(policy, NamedSpec):
                scenario = get_domain(scenario.domain).with_policy(scenario, policy)
        return scenario


def load_study(path: str | os.PathLike[str], policies: Sequence[object] = ()) -> StudyPlan:
    """The plan of a study file; every axis is tried on its first value, so that an unknown name is an error now.

    policies: of one's own, or their classes; an axis more (default: none).

    Raises ScenarioError with every problem: an axis that names nothing, an empty axis, too many cells.
    """
    source = Path(path)
    document = read_document(source)
    refuse_other(document, "a study")
    given = decode(document, StudyFile)
    folder = source.resolve().parent
    if isinstance(given.base, str):
        base_path = folder / given.base
        base_document, base_folder = read_document(base_path), base_path.resolve().parent
    else:
        base_document, base_folder = Document(f"{source}: base", given.base), folder
    scenario = build(base_document, base=base_folder)
    given = _in_numbers(given, StudyPlan(str(source), to_data(scenario), base_folder, (), (0,), ()), document)
    _not_too_many(given, document)
    every = {
        name: tuple(axis.values() if isinstance(axis, Range) else axis) for name, axis in given.axes.items()
    }
    if given.paths and given.paths not in every:
        what = f"{given.paths!r} is no axis of the study; {known_names(given.paths, list(every))}"
        raise ScenarioError(Problem(document.where(("paths",)), what))
    if policies and "policy" in every:
        raise ScenarioError.at(
            document.where(("axes", "policy")), "is an axis, and policies are given beside the study"
        )
    if policies:
        every["policy"] = tuple(map(instance_of, policies))
    paths = (given.paths, every.pop(given.paths)) if given.paths else None
    for name in given.given or ():
        if name not in every:
            what = f"{name!r} is no axis of the study; {known_names(name, list(every))}"
            raise ScenarioError(Problem(document.where(("given",)), what))
    seeds = tuple(given.seeds) if isinstance(given.seeds, list) else seeds_from(scenario.seed, given.seeds)
    plan = StudyPlan(
        str(source), to_data(scenario), base_folder, tuple(every.items()), seeds, tuple(given.metrics),
        given.objective, paths, given=None if given.given is None else tuple(given.given),
    )  # fmt: skip
    _check(plan, document)
    return replace(plan, inputs=_inputs(plan))


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """The seeds of `count` replications of a scenario: its own and those that follow."""
    return tuple(range(first, first + count))


def _in_numbers(given: StudyFile, base: StudyPlan, document: Document) -> StudyFile:
    """The study with quantities in numbers: `gap: [5min, 1h]` is `gap_s: [300, 3600]`, so that it is an axis to draw."""
    axes: dict[str, list[Any] | Range] = {}
    renamed = {}
    for name, axis in given.axes.items():
        given_values = [axis.start, axis.stop, axis.step] if isinstance(axis, Range) else axis
        texts = [value for value in given_values if isinstance(value, str)]
        tried = (_resolved(base, name, value) for value in texts[:2])
        path, number = next((one for one in tried if is_number(one[1])), (name, None))
        unit = unit_of(path.rpartition(".")[2])
        if not is_number(number) or unit is None:
            if texts and isinstance(axis, Range):
                what = f"{texts[0]!r} is no value of the axis; a range has numbers, or quantities of its unit"
                raise ScenarioError(Problem(document.where(("axes", name)), what))
            axes[name] = axis
            continue
        try:
            axes[path] = (
                axis.in_unit(unit)
                if isinstance(axis, Range)
                else [parse_quantity(value, unit) if isinstance(value, str) else value for value in axis]
            )
        except ValueError as error:
            raise ScenarioError(Problem(document.where(("axes", name)), str(error))) from error
        renamed[name] = path
    paths = renamed.get(given.paths, given.paths)
    environment = None if given.given is None else [renamed.get(name, name) for name in given.given]
    return msgspec.structs.replace(given, axes=axes, paths=paths, given=environment)


def _resolved(base: StudyPlan, name: str, value: Any) -> tuple[str, Any]:
    """The path and the value that an override stands for once it is resolved: `gap=5min` is `gap_s` 300.0."""
    try:
        data: Any = to_data(base.scenario(Cell(0, ((name, value),), base.base.get("seed", 0))))
    except ScenarioError:
        return name, None  # reported when the axis is tried
    *parents, last = name.replace("[", ".").replace("]", "").split(".")
    for step in parents if not parents or parents[0] in data else parents[1:]:
        index = whole_number(step)
        inner = data[index] if isinstance(data, list) and index is not None and index < len(data) else None
        data = data.get(step) if isinstance(data, dict) else inner
    if not isinstance(data, dict):
        return name, None
    key = last if last in data else next((key for key in data if stem(key) == last and unit_of(key)), last)
    return name.removesuffix(last) + key, data.get(key)


def _not_too_many(given: StudyFile, document: Document) -> None:
    """Counted before anything is spelt out: a slip of the pen must not fill the memory."""
    sizes = [len(axis) for axis in given.axes.values()]
    seeds = given.seeds if isinstance(given.seeds, int) else len(given.seeds)
    cells = math.prod(sizes) * seeds
    if cells > MAX_CELLS or max([*sizes, seeds]) > MAX_CELLS:
        product = " x ".join([*(f"{size:,}" for size in sizes), f"{seeds:,} seeds"])
        what = f"{product} are {cells:,} cells; at most {MAX_CELLS:,}"
        raise ScenarioError(Problem(document.where(("axes",) if sizes else ("seeds",)), what))


def _inputs(plan: StudyPlan) -> tuple[str, ...]:
    """The digests of files that axis values name, and of code: a file that changes makes another study."""
    given = _counted(plan.scenario())
    digests: set[str] = set()
    for name, values in (*plan.axes, *([plan.paths] if plan.paths else [])):
        for at, value in enumerate(values):
            try:
                here = _counted(plan.scenario(Cell(0, ((name, value),), plan.seeds[0])))
            except ScenarioError:
                continue  # the cell will say so
            if at == 0 and here == given and not isinstance(value, (dict, str, NamedSpec)):
                break  # numbers name no files
            digests |= here - given
    return tuple(sorted(digests))


def _counted(scenario: Any) -> set[str]:
    """The digests of a scenario's files, and each class outside forerun that decides in it with that of its source."""
    return _digests(to_data(scenario)).union(map(" ".join, code_of(scenario).items()))


def _digests(data: Any) -> set[str]:
    """Every `sha256` of plain data."""
    if isinstance(data, dict):
        own = {str(value) for name, value in data.items() if name == "sha256" and value}
        return own.union(*(_digests(value) for value in data.values()))
    return set().union(*map(_digests, data)) if isinstance(data, (list, tuple)) else set()


def _check(plan: StudyPlan, document: Document) -> None:
    """Raise ScenarioError with every axis that has no values, a value twice, or a first value that makes no
    scenario.
    """
    every = (*plan.axes, *([plan.paths] if plan.paths else []))
    problems = []
    if plan.objective.partition(":")[2] not in ("", "higher", "lower"):
        what = f"{plan.objective!r}: write metric, metric:higher or metric:lower"
        problems.append(Problem(document.where(("objective",)), what))
    for name, values in every:
        where = document.where(("axes", name))
        if name in ("seed", f"{plan.base.get('domain')}.seed"):
            what = "is no axis: write `seeds: [1, 2, 3]`, or how many; every combination meets the same ones"
            problems.append(Problem(where, what))
        elif not values:
            problems.append(Problem(where, "the axis has no values, so the study has no cells"))
        elif len({override(name, value) for value in values}) < len(values):
            problems.append(Problem(where, "the axis has a value twice"))
        elif (name, values) == plan.paths and len(values) < 2:
            problems.append(Problem(where, "the paths are one: an interval over paths needs two or more"))
    if not plan.seeds or len(set(plan.seeds)) < len(plan.seeds) or min(plan.seeds) < 0:
        problems.append(
            Problem(document.where(("seeds",)), "seeds are different whole numbers from 0 on, at least one")
        )
    for name, values in every:
        for value in values[:1]:
            try:
                plan.scenario(Cell(0, ((name, value),), plan.seeds[0] if plan.seeds else 0))
            except ScenarioError as error:
                where = document.where(("axes", name))
                problems.extend(Problem(where, problem.what) for problem in error.problems)
    if problems:
        raise ScenarioError(*problems)
