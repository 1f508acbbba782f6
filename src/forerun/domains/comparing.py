"""Comparing in any room: policies and variants of one scenario, on the same randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from forerun.domains import room, simulate
from forerun.errors import UnknownName, UsageError
from forerun.scenario.arguments import require_scenario
from forerun.study.compare import Comparison, Variant, pick_objective
from forerun.study.compare import compare as compare_variants
from forerun.study.executors import Executor, Here
from forerun.study.executors.processes import Processes


def compare(
    scenario: Any,
    policies: Sequence[str] = (),
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    objective: str = "",
    seeds: int = 20,
    precision: float = 0.0,
    workers: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare policies by name, and variants made of overrides (`{"cheap": {"price.spot_usd_per_h": 0.5}}`).

    The first is the reference; one alone is compared with the scenario as given. `objective` is the summary figure to rank
    by, as `figure` or `figure:lower` (default: the room's first that the results have). See
    `forerun.study.compare.compare` for seeds, precision and what is raised; UsageError too for policies or variants of
    another shape.

    >>> scenario = forerun.load(forerun.demo("energy").scenario, ["trials=0"])
    >>> found = forerun.compare(scenario, ["default", "joint"], objective="energy_j", seeds=3)
    >>> [(standing.variant.name, round(standing.value / 1e6)) for standing in found.standings]
    [('joint', 50), ('default', 98)]
    """
    require_scenario(scenario, "compare")
    _check(policies, variants)
    candidates = [Variant(name, ((policy_field(scenario, name), name),)) for name in policies]
    candidates += [Variant(name, tuple(changes.items())) for name, changes in (variants or {}).items()]
    if len(candidates) == 1:
        candidates.insert(0, Variant("as given", ()))
    offered = getattr(room(scenario.domain), "OBJECTIVES", ())
    first = {} if offered and not objective else simulate(scenario).summary
    executor: Executor = Processes(workers) if workers > 1 else Here()
    return compare_variants(
        scenario,
        candidates,
        tuple(offered) if offered and not objective else pick_objective(scenario.domain, objective, first),
        seeds=seeds,
        precision=precision,
        executor=executor,
        progress=progress,
    )


def _check(policies: Any, variants: Any) -> None:
    """Policies are names, variants a mapping of names to overrides; a pair among the policies is a usual slip."""
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        raise UsageError.at("compare", f"policies are a list of names, not {policies!r}")
    for one in policies:
        if not isinstance(one, str):
            what = "a policy is a name; overrides go into variants={'name': {'key': value}}"
            raise UsageError.at("compare", f"{what}, not {one!r} among the policies")
    if variants is not None and not isinstance(variants, Mapping):
        raise UsageError.at("compare", f"variants are {{'name': {{'key': value}}}}, not {variants!r}")
    for name, changes in (variants or {}).items():
        if (
            not isinstance(name, str)
            or not isinstance(changes, Mapping)
            or not all(isinstance(k, str) for k in changes)
        ):
            raise UsageError.at("compare", f"variant {name!r} is {{'key': value}}, not {changes!r}")


def policy_field(scenario: Any, name: str) -> str:
    """The scenario's field that a policy of this name belongs into, by the kind that the room lists it under.

    Raises UsageError for a policy that parts of the scenario choose, UnknownName where no field takes such a name.
    """
    kinds, fields = getattr(room(scenario.domain), "POLICIES", {}), type(scenario).__struct_fields__
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
