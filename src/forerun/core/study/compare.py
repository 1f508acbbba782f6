"""Variants of one scenario against each other, on the same randomness.

Every variant meets the same seeds, so a difference is between variants and not between arrivals. With randomness the
difference carries Student's paired interval, Holm's correction where there are several, and seeds are added until the
interval is as narrow as asked. Where the seed changes nothing (a replayed trace), the difference is exact for that
trace, and split by where the ledgers' seconds, joules or dollars went; its interval is over blocks of the trace (`blocks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.domain import code_of, get_domain, instance_of, left_out, objectives_of, simulate
from forerun.core.errors import Problem, UnknownName, UsageError, known_names
from forerun.core.result.numbers import format_number
from forerun.core.result.objective import Objective
from forerun.core.result.stats import chosen_best_p, holm, skewness
from forerun.core.scenario.arguments import require_scenario
from forerun.core.scenario.spec import AnyScenario, NamedSpec, label_of
from forerun.core.study.best import bounder_of, with_best
from forerun.core.study.blocks import DAY_S, BlockDifference, block_difference
from forerun.core.study.cell import Done, Failed, run_cell
from forerun.core.study.compared import Comparison, Shift, Standing, Variant
from forerun.core.study.executors import Executor, Here
from forerun.core.study.executors.processes import workers_of
from forerun.core.study.expand import Cell, StudyPlan
from forerun.core.study.replicates import INDEPENDENT, RUNS, Replicates, of_a_fit
from forerun.core.study.verdict import ledger_name, recommended, tail_figures, tail_text, why

Draws = NDArray[np.float64]

#: seeds before the first look at the precision, and the factor by which they grow
FIRST_SEEDS: Final = 10
GROWTH: Final = 1.5
#: begins the name of a figure of the summary as it really was
RECORDED_FIGURE: Final = "recorded_"
#: a 99th percentile of a replayed log that is so many times the reference's is named, significant or not
WORSE_ON_THIS_LOG: Final = 1.25


def compare(
    scenario: AnyScenario,
    policies: Sequence[str | NamedSpec | type[NamedSpec]] = (),
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    objective: str = "",
    seeds: int = 20,
    precision: float = 0.0,
    workers: int = 1,
    bound: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare policies and variants of a scenario on common seeds. The first is the reference for differences.

    scenario: as `forerun.load` returns it. It is the reference if there is only one policy or variant.
    policies: names of policies, or policies and classes of policies as `simulate` takes them (default: none).
    variants: overrides by name, such as `{"cheap": {"price.spot_usd_per_h": 0.5}}` (default: none).
    objective: summary figure to rank by, as `figure` or `figure:lower` (default: empty, the domain's first in the results).
    seeds: number of common seeds (default: 20).
    precision: if above 0, add seeds until the half-width of every paired interval is at most this, in the objective's unit
        (default: 0).
    workers: number of processes (default: 1). progress: called with a message at each step.
    bound: also search for the best possible, and say which share of it each variant is (default: no).

    Raises UsageError for fewer than two variants, an unknown objective or one without a bound, ScenarioError for an invalid
    variant.

    >>> scenario = forerun.load(forerun.demo("energy").scenario, ["trials=0"])
    >>> comparison = forerun.compare(scenario, ["default", "joint"], objective="energy_j", seeds=3)
    >>> [(standing.variant.name, round(standing.value / 1e6)) for standing in comparison.standings]
    [('joint', 50), ('default', 96)]
    """
    require_scenario(scenario, "compare")
    _check_candidates(policies, variants)
    candidates = [_candidate(scenario, policy) for policy in policies]
    candidates += [Variant(name, tuple(changes.items())) for name, changes in (variants or {}).items()]
    if len(candidates) == 1:
        candidates.insert(0, Variant("as given", ()))
    if bound:
        bounder_of(scenario.domain, objective.partition(":")[0])
    offered = get_domain(scenario.domain).objectives
    first = {} if offered and not objective else simulate(scenario).summary
    comparison = compare_variants(
        scenario,
        candidates,
        tuple(offered) if offered and not objective else pick_objective(scenario.domain, objective, first),
        seeds=seeds,
        precision=precision,
        executor=workers_of(workers),
        progress=progress,
    )
    return with_best(comparison, progress) if bound else comparison


def _check_candidates(policies: Any, variants: Any) -> None:
    """Variants are a mapping of names to overrides; a pair among the policies is a usual slip."""
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        raise UsageError.at("compare", f"policies are a list of names or policies, not {policies!r}")
    for one in policies:
        if not isinstance(instance_of(one), str | NamedSpec):
            what = "a policy is a name, a policy or its class; overrides go into variants={'name': {'key': value}}"
            raise UsageError.at("compare", f"{what}, not {one!r} among the policies")
    if variants is not None and not isinstance(variants, Mapping):
        raise UsageError.at("compare", f"variants are {{'name': {{'key': value}}}}, not {variants!r}")
    for name, changes in (variants or {}).items():
        keys = [name, *(changes if isinstance(changes, Mapping) else (None,))]
        if not all(isinstance(key, str) for key in keys):
            raise UsageError.at("compare", f"variant {name!r} is {{'key': value}}, not {changes!r}")


def _candidate(scenario: Any, policy: str | NamedSpec | type[NamedSpec]) -> Variant:
    """The variant of a policy; one of one's own is called by its name and the parameters that are not its defaults."""
    if isinstance(policy, str):
        return Variant(policy, ((policy_field(scenario, policy), policy),))
    made = instance_of(policy)
    assert isinstance(made, NamedSpec)
    return Variant(label_of(made), (("policy", made),))


def policy_field(scenario: Any, name: str) -> str:
    """The scenario's field that a policy of this name belongs into, by the kind that the domain lists it under.

    Raises UsageError for a policy that parts of the scenario choose, UnknownName where no field takes such a name.
    """
    kinds, fields = get_domain(scenario.domain).policy_kinds, type(scenario).__struct_fields__
    for kind, registry in kinds.items():
        if name in registry.names() and kind in fields:
            return str(kind)
    if "policy" in fields:
        return "policy"  # reading it says what is wrong with the name
    for kind, registry in kinds.items():
        if name in registry.names():
            what = f"a {kind} policy, which parts of the scenario choose: compare variants that set ...{kind}.name={name}"
            raise UsageError.at(f"policy {name!r}", what)
    here = {kind: registry.names() for kind, registry in kinds.items() if kind in fields}
    raise UnknownName.among(
        " or ".join(here) or "policy", name, [one for names in here.values() for one in names]
    )


def compare_variants(
    scenario: AnyScenario,
    variants: Sequence[Variant],
    objective: Objective | Sequence[Objective],
    *,
    seeds: int = 20,
    precision: float = 0.0,
    most_seeds: int = 400,
    executor: Executor | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare variants of a resolved scenario; the first is the reference.

    If there are several objectives, the first that the results have is used (a log without deadlines has no share of
    deadlines met). With `precision` > 0, seeds are added, from FIRST_SEEDS up to `most_seeds`, until the half-width of every
    paired interval is at most `precision`, in the objective's unit. Raises UsageError for fewer than two variants or an
    objective that the results do not have, ScenarioError if a variant is not a valid scenario.
    """
    code = _check(scenario, variants)
    target = seeds if not precision else FIRST_SEEDS
    runner = _Runner(scenario, variants, executor or Here(), progress, target, precision)
    runner.extend(min(2, seeds))
    runner.settle([objective] if isinstance(objective, Objective) else objective)
    while not runner.exact:
        runner.extend(target)
        if not precision or runner.seeds >= most_seeds or runner.replicates().blocks:
            break
        if _half_width(runner) <= precision:
            break
        target = next_look(runner.seeds, most_seeds)
    return replace(_conclude(runner), code=code)


def next_look(seeds: int, most_seeds: int) -> int:
    """How many seeds to run before the precision is looked at again."""
    return min(most_seeds, int(seeds * GROWTH) + 1)


@dataclass(frozen=True)
class LedgerDifference:
    """A ledger in which variants differ from the reference. whole: the difference of all parts together, by variant.

    parts: (part, shift by variant), largest first; the others, whose shifts are zero, are left out.
    """

    ledger: str
    whole: Mapping[str, float]
    parts: tuple[tuple[str, Mapping[str, Shift]], ...]

    @property
    def name(self) -> str:
        """What is accounted for, without its unit."""
        return ledger_name(self.ledger)[0]

    @property
    def unit(self) -> str:
        """The unit of its parts."""
        return ledger_name(self.ledger)[1]


def moved_parts(comparison: Comparison) -> tuple[LedgerDifference, ...]:
    """The ledgers that differ from the reference's, in the domain's order: where each difference comes from."""
    others = [standing for standing in comparison.standings if standing.variant.name != comparison.reference]
    ledgers = dict.fromkeys(ledger for standing in others for ledger in standing.parts)
    table = []
    for ledger in ledgers:
        names = dict.fromkeys(name for standing in others for name in standing.parts.get(ledger, {}))
        rows = [
            (
                name,
                {
                    standing.variant.name: standing.parts.get(ledger, {}).get(name, Shift(0.0))
                    for standing in others
                },
            )
            for name in names
        ]
        moved = [row for row in rows if any(shift.mean for shift in row[1].values())]
        moved.sort(key=lambda row: -max(abs(shift.mean) for shift in row[1].values()))
        if moved:
            whole = {
                standing.variant.name: math.fsum(row[1][standing.variant.name].mean for row in rows)
                for standing in others
            }
            table.append(LedgerDifference(ledger, whole, tuple(moved)))
    return tuple(table)


def pick_objective(domain: str, named: str, summary: Mapping[str, Any]) -> Objective:
    """The objective that a user names, or the domain's first.

    Raises UsageError if there is none of that name, with what is known.
    """
    offered = {objective.key: objective for objective in objectives_of(domain)}
    if not named and offered:
        return next(iter(offered.values()))
    key, _, better = named.partition(":")
    if key in offered:
        return offered[key]
    numbers = [name for name, value in summary.items() if isinstance(value, (int, float))]
    if key not in numbers or better not in ("", "higher", "lower"):
        raise UsageError(Problem("--objective", f"no figure named {key!r}; {known_names(key, numbers)}"))
    return Objective(key, "higher" if better == "higher" else "lower")


class _Runner:
    """Runs every variant on the same seeds, more of them when asked."""

    def __init__(
        self,
        scenario: Any,
        variants: Sequence[Variant],
        executor: Executor,
        progress: Callable[[str], None],
        planned_seeds: int,
        precision: float,
    ) -> None:
        self.plan = StudyPlan.of("compare", scenario, units=True)
        self.variants = tuple(variants)
        self.executor = executor
        self.progress = progress
        self.seeds = 0
        self.planned_seeds = planned_seeds
        #: the half-width that was asked for, 0 for none: then no seeds are added to those planned
        self.precision = precision
        self.objective: Objective
        #: whether the seed changes nothing
        self.exact = False
        self.runs = 0
        self.outcomes: dict[str, list[Done]] = {variant.name: [] for variant in variants}
        self.failed: dict[str, str] = {}
        self.blocks: dict[tuple[str, str, str], BlockDifference | None] = {}

    @property
    def alive(self) -> list[Variant]:
        """The variants that did not fail; the first is the reference."""
        return [variant for variant in self.variants if variant.name not in self.failed]

    def values(self, variant: Variant, key: str) -> Draws:
        """A figure of a variant on each seed. Raises UsageError if a result lacks it."""
        done = self.outcomes[variant.name]
        missing = [one for one in done if not isinstance(one.summary.get(key), (int, float))]
        if missing:
            what = f"the results have no figure {key!r}; {known_names(key, _figures(missing[0]))}"
            if key in missing[0].summary:
                what = f"{variant.name}: {key} has no value on {len(missing)} of {len(done)} seeds; see the notes of a run"
            raise UsageError.at("--objective", what)
        return np.array([float(one.summary[key]) for one in done])

    def differences(self, key: str) -> list[Draws]:
        """The differences of each other variant from the reference in a figure, one on each seed."""
        reference, *others = (self.values(variant, key) for variant in self.alive)
        return [values - reference for values in others]

    def extend(self, target: int) -> None:
        """Run the seeds up to `target` that were not run yet."""
        fresh = range(self.seeds, target)
        if not fresh:
            return
        tried = [(seed, variant) for seed in fresh for variant in self.alive]
        cells = [
            Cell(number, variant.overrides, self.plan.seeds[0] + seed)
            for number, (seed, variant) in enumerate(tried)
        ]
        later = max(0, self.planned_seeds - target) * len(self.alive)
        planned = self.runs + len(cells) + later
        # The first seeds may show that the seed changes nothing: then no more are run.
        most = "at most " if later and not self.seeds and not self.precision else ""
        outcomes = {}
        for outcome in self.executor.run(self.plan, cells):
            outcomes[outcome.number] = outcome
            self.runs += 1
            self.progress(f"{self.runs} of {most}{planned} runs")
        for number, (_, variant) in enumerate(tried):
            outcome = outcomes[number]
            if isinstance(outcome, Failed):
                self.failed.setdefault(variant.name, outcome.reason)
            else:
                self.outcomes[variant.name].append(outcome)
        self.seeds = max(self.seeds, target)

    def replicates(self) -> Replicates:
        """How the seeds belong together."""
        return Replicates.of(one.summary for variant in self.alive for one in self.outcomes[variant.name])

    def settle(self, objectives: Sequence[Objective]) -> None:
        """Choose the first objective that every run has so far, and see whether the seed changes anything.

        If no objective is there, the first is chosen, which then says what is missing. The seed changes nothing where both
        first runs of every variant have the same figures.
        """
        runs = [self.outcomes[variant.name] for variant in self.alive]
        done = [_figures(one) for some in runs for one in some]
        there = (one for one in objectives if all(one.key in figures for figures in done))
        self.objective = next(there, objectives[0])
        first_two = ((_figures(some[0]), _figures(some[1])) for some in runs)
        self.exact = self.seeds > 1 and bool(runs) and all(one == other for one, other in first_two)

    def block(self, variant: Variant, other: Variant, key: str) -> BlockDifference | None:
        """The interval of a figure's difference over blocks of the recorded log; None where there is none."""
        asked = (variant.name, other.name, key)
        if asked not in self.blocks:
            done, base = (self.outcomes[one.name][0] for one in (variant, other))
            self.blocks[asked] = None
            if base.units is not None and done.units is not None and base.units.has(key):
                gap = float(done.summary[key]) - float(base.summary[key])
                self.blocks[asked] = block_difference(done.units, base.units, key, gap)
        return self.blocks[asked]

    def caution(self) -> str:
        """That the base does not reproduce what was recorded, as its run says; empty: it does, or nothing is recorded."""
        known = self.outcomes[self.alive[0].name][0].summary
        if not any(name.startswith(RECORDED_FIGURE) for name in known):
            return ""
        done = next((self.outcomes[one.name][0] for one in self.alive if self.is_base(one)), None)
        base = done or run_cell(self.plan, Cell(0, (), self.plan.seeds[0]))
        return str(base.summary.get("caution", "")) if isinstance(base, Done) else ""

    def is_base(self, variant: Variant) -> bool:
        """Whether a variant changes nothing."""
        seed = self.plan.seeds[0]
        one, base = (self.plan.scenario(Cell(0, given, seed)) for given in (variant.overrides, ()))
        return bool(one == base)

    def why(self, variant: Variant) -> str:
        """Why a variant did as it did; only the base is judged by what was recorded."""
        done = self.outcomes[variant.name][0]
        said = done.summary.get("caution")
        return done.why.removeprefix(f"{said}; ") if said and not self.is_base(variant) else done.why

    def left_out(self, variant: Variant, key: str) -> tuple[float, str]:
        """How much of the work a figure of a variant is not about, and in words."""
        amount, words = left_out(str(self.plan.base["domain"]), key, _means(self.outcomes[variant.name]))
        return round(amount, 9), words if amount else ""

    def p(self, variant: Variant, other: Variant, key: str) -> float | None:
        """The p value of no difference in a figure; None where there is none, or one leaves out more of the work."""
        if self.left_out(variant, key) != self.left_out(other, key):
            return None
        if self.exact:
            over = self.block(variant, other, key)
            return None if over is None else over.p
        return self.replicates().p(self.values(variant, key) - self.values(other, key))


def _check(scenario: Any, variants: Sequence[Variant]) -> dict[str, str]:
    """The code outside forerun that decides in any variant.

    Raises UsageError for fewer than two variants or a name that stands twice, ScenarioError for overrides that make no
    scenario.
    """
    names = [variant.name for variant in variants]
    if len(variants) < 2:
        raise UsageError.at("compare", "at least two variants are needed")
    for twice in (name for name in names if names.count(name) > 1):
        raise UsageError.at("compare", f"the variant {twice!r} is given twice")
    code: dict[str, str] = {}
    for variant in variants:
        plan = StudyPlan.of(variant.name, scenario)
        code |= code_of(plan.scenario(Cell(0, variant.overrides, scenario.seed)))
    return code


def _half_width(runner: _Runner) -> float:
    """The largest half-width of the intervals of the differences."""
    intervals = [INDEPENDENT.mean(gaps) for gaps in runner.differences(runner.objective.key)]
    return max(((one.high - one.low) / 2 for one in intervals if one), default=0.0)


def _conclude(runner: _Runner) -> Comparison:
    """The comparison from what ran: variants ranked, differences tested, the method and the answer in words.

    Raises UsageError if every variant failed.
    """
    alive, objective, exact = runner.alive, runner.objective, runner.exact
    if not alive:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in runner.failed.items())
        raise UsageError.at("compare", f"every variant failed: {reasons}")
    reference = alive[0]
    key = objective.key
    tested = {one.name: runner.p(one, reference, key) for one in alive[1:]}
    p_values = {name: p for name, p in tested.items() if p is not None}
    over = {
        one.name: runner.block(one, reference, key) for one in alive[1:] if exact and one.name in p_values
    }
    blocks = {name: one for name, one in over.items() if one is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values()))))
    standings = [_standing(runner, variant, reference, adjusted, blocks) for variant in alive]
    sign = -1.0 if objective.better == "higher" else 1.0
    standings.sort(key=lambda one: (runner.left_out(one.variant, key)[0], sign * one.value))
    level = _level(runner, standings)
    advised = recommended(standings, level, reference.name)
    caution = runner.caution()
    said = why(
        standings,
        objective,
        exact=exact,
        reference=reference.name,
        level=level,
        tails=_worse_tails(runner, (standings[0], advised), standings),
    )
    said = said.replace(f"{caution}; ", "") if caution else said
    return Comparison(
        objective,
        tuple(standings),
        reference.name,
        1 if exact else runner.seeds,
        exact,
        _exact_method(runner, blocks) if exact else _method(runner),
        f"{caution}; {said}" if caution else said,
        dict(runner.failed),
        runner.plan.base,
        level=level,
        recommended=advised.variant.name,
        recorded=runner.outcomes[reference.name][0].summary.get(RECORDED_FIGURE + key),
        caution=caution,
    )


def _level(runner: _Runner, standings: Sequence[Standing]) -> tuple[str, ...]:
    """The variants that do not differ significantly from the best, which was chosen on the same seeds."""
    best, *others = standings
    p_values = [runner.p(one.variant, best.variant, runner.objective.key) for one in others]
    adjusted = iter(chosen_best_p([p for p in p_values if p is not None], len(standings)))
    p_values = [p if p is None else next(adjusted) for p in p_values]
    for at, one in enumerate(others):
        if None in (one.difference, best.difference) and p_values[at] is not None:
            p_values[at] = best.p if one.difference is None else one.p  # the reference was fixed before
    same = [one.value == best.value and one.left_out == best.left_out for one in others]
    return tuple(
        one.variant.name
        for one, p, equal in zip(others, p_values, same)
        if equal or (p is not None and p > 0.05)
    )


def _worse_tails(runner: _Runner, ones: Sequence[Standing], standings: Sequence[Standing]) -> list[str]:
    """In words, the 99th percentiles of some variants that are significantly worse than the reference's."""
    base = next(one for one in standings if one.difference is None)
    texts = []
    for tail in tail_figures(str(runner.plan.base["domain"]), runner.objective, base.figures):
        for one in ones:
            if one is base or tail.key not in one.figures:
                continue
            p = runner.p(one.variant, base.variant, tail.key)
            value, other = one.figures[tail.key], base.figures[tail.key]
            alike = runner.exact and one.left_out == base.left_out and value > WORSE_ON_THIS_LOG * other
            if tail.ahead(other - value) and ((p is not None and p <= 0.05) or alike):
                texts.append(tail_text(one, base, tail, p))
    return list(dict.fromkeys(texts))


def _standing(
    runner: _Runner, variant: Variant, reference: Variant, adjusted: Mapping[str, float],
    blocks: Mapping[str, BlockDifference],
) -> Standing:  # fmt: skip
    """How one variant did.

    adjusted: p values after Holm, by variant that has one. blocks: differences over blocks of the log, for exact
    comparisons.
    """
    objective, done, base = runner.objective, runner.outcomes[variant.name], runner.outcomes[reference.name]
    values, against = (runner.values(one, objective.key) for one in (variant, reference))
    random, replicates = not runner.exact and len(values) > 1, runner.replicates()
    itself = variant.name == reference.name
    apart, words = runner.left_out(variant, objective.key)
    return Standing(
        variant,
        float(values.mean()),
        replicates.mean(values, objective) if random else None,
        None if itself else float((values - against).mean()),
        replicates.difference(values - against, objective)
        if random and not itself and apart == runner.left_out(reference, objective.key)[0]
        else objective.cut_difference(blocks[variant.name].interval)
        if variant.name in blocks
        else None,
        adjusted.get(variant.name),
        {} if itself else _part_differences(done, base, replicates if random else None),
        runner.why(variant),
        _means(done),
        tuple(values.tolist()),
        done[0].notes,
        left_out=words,
    )


def _means(done: Sequence[Done]) -> dict[str, float]:
    """The mean of each figure that is a number on every seed."""
    seen = [_figures(one) for one in done]
    means = {name: float(np.mean([one.get(name, math.nan) for one in seen])) for name in seen[0]}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


def _part_differences(
    done: Sequence[Done], base: Sequence[Done], replicates: Replicates | None
) -> dict[str, dict[str, Shift]]:
    """By ledger, the shift of each part, largest first; with intervals where there is randomness."""
    # A part may be absent on some seeds: then it is nothing there. A ledger that only one of the two has says nothing.
    known = dict.fromkeys(ledger for one in base for ledger in one.parts)
    ledgers = [name for name in known if any(name in one.parts for one in done)]
    by_ledger = {}
    for ledger in ledgers:
        names = dict.fromkeys(name for one in (*base, *done) for name in one.parts.get(ledger, {}))
        shifts = {name: _shift(done, base, ledger, name, replicates) for name in names}
        by_ledger[ledger] = dict(sorted(shifts.items(), key=lambda item: -abs(item[1].mean)))
    return by_ledger


def _shift(
    done: Sequence[Done], base: Sequence[Done], ledger: str, name: str, replicates: Replicates | None
) -> Shift:
    ones, others = (
        np.array([one.parts.get(ledger, {}).get(name, 0.0) for one in runs]) for runs in (done, base)
    )
    gaps = ones - others
    return Shift(float(gaps.mean()), replicates.difference(gaps) if replicates else None)


def _figures(done: Done) -> dict[str, Any]:
    return {
        name: value
        for name, value in done.summary.items()
        if isinstance(value, (int, float)) and name != RUNS  # which the first seed, as recorded, has not
    }


def _method(runner: _Runner) -> str:
    """How intervals over seeds were made, and what they leave out."""
    text = _over_seeds(runner, runner.replicates())
    return text + (f"; {fit}" if runner.seeds > 1 and (fit := of_a_fit(runner.plan.base)) else "")


def _over_seeds(runner: _Runner, replicates: Replicates) -> str:
    seeds, precision = runner.seeds, runner.precision
    if seeds < 2:
        return "one seed: differences are of one draw, without an interval"
    after = ", p values after Holm" if len(runner.alive) > 2 else ""
    if replicates.why_not:
        return f"paired over {seeds} common seeds; {replicates.caution}"
    if replicates.blocks:
        return (
            f"paired over {seeds} resamples of {replicates.sample}, whose spread is the interval, "
            f"95 %{after}; {replicates.caution}"
        )
    text = f"paired over {seeds} common seeds, Student's t, 95 %{after}"
    if not precision:
        return text
    reached, skewed = (
        _half_width(runner),
        max(map(skewness, runner.differences(runner.objective.key)), key=abs, default=0.0),
    )
    if reached <= precision:
        text += f"; seeds were added until half widths were at most {precision:g}"
    else:
        text += f"; half widths of {precision:g} were asked and are {reached:.3g} still: the seeds ran out"
    return (
        f"{text}. Stopping at narrow intervals favours seeds that miss a tail: where differences are skewed (here: "
        f"{skewed:+.1f}; 0 is symmetric), expect one interval in ten to miss the truth, not one in twenty"
    )


def _exact_method(runner: _Runner, blocks: Mapping[str, BlockDifference]) -> str:
    """How exact differences were judged: what is exact, and what an interval over blocks of the log covers."""
    text = "the seed changes nothing here: differences are exact"
    units = next((done[0].units for done in runner.outcomes.values() if done and done[0].units), None)
    if units is None:
        return text
    text += " for this log"
    if not units.has(runner.objective.key):
        return f"{text}; {runner.objective.title} is not made of {units.name}, so it has no interval over blocks of it"
    if not blocks:
        return f"{text}; the log is too short for an interval over blocks of it"
    ones = tuple(blocks.values())
    sizes = " or ".join(dict.fromkeys(f"{one.blocks} blocks of {_duration(one.block_s)}" for one in ones))
    text += (
        f"; intervals are for logs like this one: block bootstrap of its {units.name} over {sizes}, Student's t, "
        f"95 %{', p values after Holm' if len(ones) > 1 else ''}. They cover which {units.name} come, as "
        "far as blocks are alike and independent; not another load or other machines. Queues that outlast a block, and "
        "congestion rarer than the log is long, make them too narrow: read them as the least that is unknown"
    )
    if any(one.correlated for one in ones):
        worst = max(one.correlation for one in ones)
        text += f". Neighbouring blocks are correlated ({worst:.2f}): the intervals are too narrow"
    return text


def _duration(seconds: float) -> str:
    return f"{seconds / DAY_S:g} d" if seconds >= DAY_S else f"{format_number(seconds)} s"
