"""What a plan may choose for the stages that serve language models, and what each choice costs.

A *variant* of a stage is what it runs on and its settings; with a number of replicas it is a *choice*; a *cell* has one
choice for every such stage. Stages without a language model stay as the scenario has them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

from forerun.core.errors import ForerunError, Problem, ScenarioError, UsageError, known_names
from forerun.core.scenario.spec import NamedSpec, canonical_json, to_data
from forerun.serving.inputs.clients import UNLIMITED
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.profile import ARTIFACT_PRICES_USD_PER_H
from forerun.serving.inputs.routing import visited_stages
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.inputs.resolve import language_model_of
from forerun.serving.llm.plan.draws import drawn
from forerun.serving.llm.scenario.language_model import (
    LATER_AXES,
    PLAN_AXES,
    DecodePoolSpec,
    DrawnPrefixes,
    FixedTokens,
    HistoryPrefixes,
    LanguageModelSpec,
    PlannedHardware,
    RecordedPrefixes,
    Scored,
    SpeculationSpec,
    Weighted,
)
from forerun.serving.plan.space import KEPT
from forerun.serving.policies.chunked_prefill import ChunkedPrefill
from forerun.serving.scenario import Scenario

#: cells that a plan looks at
MOST_CELLS: Final = 200_000


@dataclass(frozen=True)
class Variant:
    """What a stage runs on, and its settings. Two are equal if they are written alike.

    Parameters
    ----------
    hardware : as the prices call it.
    settings : by axis, in the order of PLAN_AXES.
    """

    hardware: str
    settings: tuple[Any, ...] = field(compare=False)
    #: the settings as text: a policy or a pool need not be hashable
    written: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", canonical_json(self.settings))


class Choice(NamedTuple):
    """How one stage is run.

    Parameters
    ----------
    variant : what it runs on, and its settings.
    replicas : how many there are.
    """

    variant: Variant
    replicas: int

    def data(self) -> dict[str, Any]:
        """As plain data."""
        # Left out where it is not used: cells are written as before there was it.
        named = {
            axis: value
            for axis, value in zip(PLAN_AXES, self.variant.settings)
            if axis not in LATER_AXES or value is not None
        }
        return {"hardware": self.variant.hardware, "replicas": self.replicas, **to_data(named)}


#: a choice for every stage that serves a language model, in the pipeline's order
Cell = tuple[Choice, ...]


@dataclass(frozen=True)
class StageSpace:
    """What may be chosen for one stage.

    Parameters
    ----------
    name, number : of the stage in the pipeline.
    specs : by variant, the section of the scenario that it stands for.
    models : by variant, its limits and costs; the tokens in it are not those of any trace.
    prices : exact price of a replica in $/h, by hardware.
    replicas : numbers of replicas, ascending.
    """

    name: str
    number: int
    specs: Mapping[Variant, LanguageModelSpec] = field(repr=False)
    models: Mapping[Variant, LanguageModel] = field(repr=False)
    prices: Mapping[str, Fraction]
    replicas: tuple[int, ...]

    def usd_per_h(self, choice: Choice) -> Fraction:
        """What a choice costs, exactly, with the replicas that decode for others."""
        hardware, pool = choice.variant.hardware, self.specs[choice.variant].decode
        cost = self.prices[hardware] * choice.replicas
        return cost if pool is None else cost + self.prices[pool.hardware or hardware] * pool.replicas

    def alike(self, choice: Choice) -> Hashable:
        """Equal for choices that differ in nothing but seats, and in how requests choose one replica."""
        variant, replicas, model = *choice, self.models[choice.variant]
        chosen = dict(zip(PLAN_AXES, variant.settings))
        if model.decode is None and model.routing != "longest-prefix" and not model.cost.tabled:
            del chosen["max_seqs"]
        if model.decode is None and replicas == 1:
            del chosen["balance"]
        # Seats may take memory from the cache, and say up to how many tokens iterations are recorded.
        return variant.hardware, replicas, canonical_json(chosen), model.kv_blocks, model.cost.launch_tokens

    @property
    def largest(self) -> Choice:
        """That with most seats."""
        most = max(self.replicas)

        def seats(spec: LanguageModelSpec) -> int:
            pool = spec.decode
            return spec.max_seqs * most + (pool.replicas * (pool.max_seqs or spec.max_seqs) if pool else 0)

        return Choice(max(self.specs, key=lambda variant: seats(self.specs[variant])), most)

    def choices(self) -> Iterator[Choice]:
        """All choices."""
        return (Choice(variant, count) for variant in self.specs for count in self.replicas)


@dataclass(frozen=True)
class Space:
    """What may be chosen for all stages that serve language models.

    Parameters
    ----------
    scenario : what is planned; its own configuration is what the plan is compared with.
    stages : those that serve language models, in the pipeline's order.
    fixed_usd_per_h : what the other stages cost, exactly.
    """

    scenario: Scenario
    stages: tuple[StageSpace, ...]
    fixed_usd_per_h: Fraction

    @property
    def count(self) -> int:
        """How many cells there are."""
        return math.prod(len(stage.specs) * len(stage.replicas) for stage in self.stages)

    @property
    def varied(self) -> tuple[str, ...]:
        """The axes on which something may be chosen, besides hardware and replicas."""
        plans = [
            llm.plan for placed in self.scenario.configuration.values() if (llm := placed.llm) is not None
        ]
        return tuple(axis for axis in PLAN_AXES if any(len(getattr(plan, axis) or ()) > 1 for plan in plans))

    def cells(self) -> Iterator[Cell]:
        """All cells."""
        return itertools.product(*(stage.choices() for stage in self.stages))

    def cost(self, cell: Cell) -> Fraction:
        """$ per hour, exactly."""
        parts = (stage.usd_per_h(choice) for stage, choice in zip(self.stages, cell))
        return sum(parts, self.fixed_usd_per_h)

    def named(self, cell: Cell) -> str:
        """A cell in words, with the settings that may be chosen: `Chat: 3 x H100, max_seqs 64`."""
        words = []
        for stage, choice in zip(self.stages, cell):
            settings = dict(zip(PLAN_AXES, choice.variant.settings))
            chosen = [f"{axis} {_shown(settings[axis])}" for axis in self.varied]
            words.append(", ".join([f"{stage.name}: {choice.replicas} x {choice.variant.hardware}", *chosen]))
        return "; ".join(words)

    def data(self, cell: Cell) -> dict[str, Any]:
        """A cell as plain data, by stage."""
        return {stage.name: choice.data() for stage, choice in zip(self.stages, cell)}

    def now(self) -> Cell:
        """What the scenario runs now; it may lie outside the space."""
        return tuple(
            Choice(
                Variant(placed.hardware, tuple(getattr(placed.llm, axis) for axis in PLAN_AXES)),
                placed.replicas,
            )
            for placed in (self.scenario.configuration[stage.name] for stage in self.stages)
            if placed.llm is not None
        )

    def placed(self, cell: Cell) -> Scenario:
        """The scenario with a cell as its configuration, ready to be simulated."""
        placed = dict(self.scenario.configuration)
        for stage, choice in zip(self.stages, cell):
            placed[stage.name] = placed[stage.name].with_(
                hardware=choice.variant.hardware,
                replicas=choice.replicas,
                llm=stage.specs[choice.variant],
            )
        return self.scenario.with_(configuration=placed)

    def drawn(self, number: int) -> Space:
        """The space in a world (see `plan.draws`)."""
        stages = []
        for stage in self.stages:
            models = {one: drawn(model, self.scenario.seed, number) for one, model in stage.models.items()}
            stages.append(replace(stage, models=models))
        return replace(self, stages=tuple(stages)) if number else self

    def inputs(self, cell: Cell, traffic: Inputs) -> Inputs:
        """Some inputs with a cell's choices.

        Parameters
        ----------
        traffic : the scenario's inputs, on any traffic.
        """
        stages, clients = list(traffic.pipeline.stages), traffic.clients
        for stage, choice in zip(self.stages, cell):
            own, gateway = stages[stage.number], stage.specs[choice.variant].gateway
            assert own.llm is not None
            model = on_traffic(stage.models[choice.variant], own.llm)
            stages[stage.number] = replace(own, replicas=choice.replicas, llm=model)
            if gateway is not None and clients is not None:
                clients = replace(clients, gate=min(gateway.per_replica * choice.replicas, UNLIMITED))
        return replace(traffic, pipeline=replace(traffic.pipeline, stages=tuple(stages)), clients=clients)


def output_tokens(inputs: Inputs) -> int:
    """Tokens of all answers that inputs get: those of the requests that no stage refuses."""
    pipeline, queries = inputs.pipeline, len(inputs.arrivals_ms)
    return sum(
        int(stage.llm.output[:queries][came & ~stage.llm.refused[:queries]].sum())
        for stage, came in zip(pipeline.stages, visited_stages(pipeline, queries))
        if stage.llm is not None
    )


def _shown(value: object) -> object:
    """A setting in words: a policy by its name, replicas that decode by their number, a draft by its tokens."""
    if isinstance(value, SpeculationSpec):
        return f"{value.draft_tokens} at {value.acceptance:g}"
    if isinstance(value, RecordedPrefixes | DrawnPrefixes | HistoryPrefixes):
        return "on"
    if isinstance(value, DecodePoolSpec):
        return f"{value.replicas} x {value.hardware}" if value.hardware else value.replicas
    if isinstance(value, Weighted | Scored):
        return "by scores" if isinstance(value, Scored) else f"by lot {':'.join(map(str, value.weights))}"
    return value.__struct_config__.tag if isinstance(value, NamedSpec) else value or "none"


def on_traffic(limits: LanguageModel, own: LanguageModel) -> LanguageModel:
    """A variant's limits and costs with the requests of some inputs.

    Parameters
    ----------
    limits : of the variant.
    own : the stage's model in the inputs, with its requests.
    """
    pool = limits.decode
    return replace(
        limits,
        prompt=own.prompt,
        output=own.output,
        shared=None if limits.shared is None else own.shared,
        ranks=None if limits.rules.classes is None else own.ranks,
        keys=own.keys,
        decode=None if pool is None else replace(pool, llm=on_traffic(pool.llm, own)),
    )


def space_of(scenario: Scenario, inputs: Inputs, *, max_replicas: int) -> Space:
    """What a plan may choose.

    Parameters
    ----------
    scenario : with the stages' sections `plan`.
    inputs : its files read.
    max_replicas : of a stage that lists no numbers of replicas.

    Raises ScenarioError, ProfileError or UsageError with every problem.
    """
    prices = {**ARTIFACT_PRICES_USD_PER_H, **scenario.prices_usd_per_h}
    problems = list(_unplannable(scenario))
    stages, fixed = [], Fraction(0)
    for number, stage in enumerate(inputs.pipeline.stages):
        placed = scenario.configuration[stage.name]
        if placed.llm is None:
            fixed += Fraction(repr(inputs.prices_usd_per_h[number])) * placed.replicas
            continue
        known = {}
        for name in _priced(placed.hardware, placed.llm):
            if name in prices:
                known[name] = Fraction(repr(float(prices[name])))
            else:
                where = f"$.configuration.{stage.name}.llm.plan"
                what = (
                    f"no price of {name!r}; {known_names(name, prices)}; give it as prices_usd_per_h.{name}"
                )
                problems.append(Problem(where, what))
        specs, models = {}, {}
        for variant, there in _variants(placed.hardware, placed.llm):
            try:
                specs[variant] = there.with_(**dict(zip(PLAN_AXES, variant.settings)))
                models[variant] = _limits_of(specs[variant], stage.name, inputs)
            except ForerunError as error:
                where = "" if variant in specs else f"$.configuration.{stage.name}.llm.plan."
                problems.extend(Problem(where + one.where, one.what) for one in error.problems)
        replicas = tuple(sorted(placed.llm.plan.replicas)) or tuple(range(1, max_replicas + 1))
        stages.append(StageSpace(stage.name, number, specs, models, known, replicas))
    if problems:
        raise ScenarioError(*dict.fromkeys(problems))
    space = Space(scenario, tuple(stages), fixed)
    space.placed(tuple(stage.largest for stage in stages))
    if space.count > MOST_CELLS:
        what = (
            f"the space has {space.count:,} cells; at most {MOST_CELLS:,} are planned: list fewer values, or give "
            "max_replicas"
        )
        raise UsageError.at("plan", what)
    return space


def _unplannable(scenario: Scenario) -> Iterator[Problem]:
    if scenario.tuned:
        yield Problem("$.tuner", f"{KEPT}; plan with tuner: fixed (--set tuner=fixed)")
    for name, placed in scenario.configuration.items():
        where, llm = f"$.configuration.{name}", placed.llm
        if placed.changes:
            yield Problem(f"{where}.changes", f"{KEPT}; remove the changes")
        if llm is None:
            continue
        if any(one.rules().classes is not None for one in llm.plan.scheduler if one != llm.scheduler):
            what = "has classes of requests; let it be the stage's own"
            yield Problem(f"{where}.llm.plan.scheduler", what)
        if any(one not in (None, llm.prefix_cache) for one in llm.plan.prefix_cache or ()):
            yield Problem(f"{where}.llm.plan.prefix_cache", "is the stage's own or null")


def _hardware(hardware: str, llm: LanguageModelSpec) -> tuple[PlannedHardware, ...]:
    """What a stage may run on; its own where nothing is listed."""
    return llm.plan.hardware or (PlannedHardware(hardware=hardware),)


def _priced(hardware: str, llm: LanguageModelSpec) -> list[str]:
    """Hardware that a choice may have, for the stage or for the replicas that decode."""
    pools = llm.plan.decode or (llm.decode,)
    names = [one.hardware for one in _hardware(hardware, llm)]
    return list(
        dict.fromkeys([*names, *(pool.hardware for pool in pools if pool is not None and pool.hardware)])
    )


def _variants(hardware: str, llm: LanguageModelSpec) -> Iterator[tuple[Variant, LanguageModelSpec]]:
    """All variants of a stage, and the section of the scenario with the hardware of each."""
    axes = [getattr(llm.plan, axis) or (getattr(llm, axis),) for axis in PLAN_AXES]
    for one in _hardware(hardware, llm):
        there = one.on(llm)
        for settings in itertools.product(*axes):
            yield Variant(one.hardware, settings), there


def _limits_of(spec: LanguageModelSpec, stage: str, inputs: Inputs) -> LanguageModel:
    """A variant's limits and costs, with one request of two tokens; no token is drawn and no trace is read for them."""
    bare = spec.with_(
        tokens=FixedTokens(prompt=1, output=1),
        prefix_cache=spec.prefix_cache and DrawnPrefixes(system_prompts=1, system_tokens=1),
        scheduler=ChunkedPrefill(),
    )
    model, _ = language_model_of(bare, stage, inputs.files, None, 1, 0)
    rules, pool = spec.scheduler.rules(), model.decode
    pool = None if pool is None else replace(pool, llm=replace(pool.llm, rules=rules))
    return replace(model, rules=rules, decode=pool)
