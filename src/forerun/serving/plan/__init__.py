"""The cheapest pipeline that keeps its objective, and proof; or the most traffic that a budget carries.

    from forerun.serving.plan import plan
    print(plan(scenario).why)

What is chosen per stage: hardware it was measured on, largest batch, replicas; for language models, see `plan.llm`. The
scenario's own configuration is what the plan is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from forerun.core.errors import CheckFailed, Infeasible, Problem, StoreError, UsageError, known_names, worded
from forerun.core.result.numbers import plain
from forerun.core.result.plan import Planner
from forerun.serving.inputs.fresh import check_fresh, fresh
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.prepare import prepare
from forerun.serving.plan.certify import SCHEMA
from forerun.serving.plan.serving_plan import ServingPlan, check_certificate
from forerun.serving.plan.space import MAX_REPLICAS, Traffic, space_of, traffic_of
from forerun.serving.scenario import Scenario
from forerun.serving.scenario.limits import check_traces

if TYPE_CHECKING:
    from forerun.serving.llm.plan import LanguagePlan

OBJECTIVES: Final = ("cost", "throughput")
LANGUAGE_OBJECTIVES: Final = ("cost", "token-cost")
METHODS: Final = ("exact", "greedy", "sweep", "brute")

#: replicas of a stage, and traces, that a plan looks at
MOST_REPLICAS: Final = 10_000
MOST_TRACES: Final = 100_000

#: fresh traces that a chance-constrained plan is tried on
FRESH: Final = 60

Method = Literal["exact", "greedy", "sweep", "brute"]


def plan(
    scenario: Scenario,
    objective: str = "",
    *,
    method: str = "exact",
    max_replicas: int = MAX_REPLICAS,
    every_batch: bool = False,
    budget_usd_per_h: float = 0.0,
    confidence: float = 0.0,
    traces: int = 0,
    frontier: bool = False,
) -> ServingPlan | LanguagePlan:
    """Plan a scenario's pipeline.

    Parameters
    ----------
    scenario : the pipeline; its own configuration is what the plan is compared with.
    objective : `cost` (default): the cheapest configuration whose misses keep the attainment; `throughput`: the
        highest rate on a grid of 2 % steps that `budget_usd_per_h` carries; `token-cost`, for language models: the fewest $
        per token of the answers.
    method : `exact` (default), or a published optimiser: `greedy`, `sweep`; `brute` enumerates.
    max_replicas : of one stage (default: 60).
    every_batch : choose from all batch sizes, not only measured ones (default: no).
    budget_usd_per_h : what a plan for throughput may cost.
    confidence, traces : the objective must be met on all but floor((1 - confidence) * traces) of that many fresh
        traces (default: on the scenario's own); for language models each comes with a draw of all costs, and traces may be
        left out.
    frontier : also plan at other objectives and rates; for language models, the Pareto front (default: no).

    Stages that serve language models are planned by what their sections `plan` list (see `plan.llm`); method, every_batch
    and budget_usd_per_h then say nothing.

    Raises Infeasible naming the stage and the constraint that bind, ScenarioError or UsageError.
    """
    chosen = objective or "cost"
    waits, models = scenario.waits_for_answers, _serves_models(scenario)
    if waits and (chosen == "token-cost" or not models):
        where, what = (
            "trace",
            "a plan without language models is proved from arrivals; compare with simulate --set",
        )
        if models:
            where, what = "objective", "tokens in an hour differ between choices; minimise cost"
        raise UsageError.at(where, f"when queries are sent depends on answers here, and {what}")
    if models:
        _check_language_options(chosen, method, every_batch, budget_usd_per_h)
        _check_options("cost", method, max_replicas, 0.0, confidence, traces or int(confidence > 0))
        from forerun.serving.llm.plan import language_plan

        return language_plan(
            scenario,
            "token-cost" if chosen == "token-cost" else "cost",
            max_replicas=max_replicas,
            confidence=confidence,
            traces=traces,
            frontier=frontier,
        )
    _check_options(chosen, method, max_replicas, budget_usd_per_h, confidence, traces)
    inputs = prepare(scenario)
    space = space_of(scenario, max_replicas=max_replicas, every_batch=every_batch, inputs=inputs)
    # Searching is compiled; it is imported only when something is planned.
    from forerun.serving.plan import answers

    if chosen == "throughput":
        return answers.throughput(scenario, space, budget_usd_per_h)
    if traces:
        check_traces(traces + FRESH, len(inputs.arrivals_ms))
        drawn = fresh_traffic(inputs, range(1, traces + 1))
        tried = fresh_traffic(inputs, range(traces + 1, traces + 1 + FRESH))
        return answers.chance(scenario, space, drawn, confidence, tried)
    return answers.cost(scenario, inputs, space, method, frontier)


def _serves_models(scenario: Scenario) -> bool:
    return any(placed.llm is not None for placed in scenario.configuration.values())


def _check_language_options(objective: str, method: str, every_batch: bool, budget: float) -> None:
    says = "says nothing about language models, whose plans search the whole space"
    known = known_names(objective, LANGUAGE_OBJECTIVES)
    checks = [
        (objective not in LANGUAGE_OBJECTIVES, "objective", f"no {objective!r}; {known}"),
        (method != "exact", "method", says),
        (every_batch, "every_batch", says),
        (budget != 0, "budget_usd_per_h", says),
    ]
    problems = [Problem(where, what) for wrong, where, what in checks if wrong]
    if problems:
        raise UsageError(*problems)


def _check_options(
    objective: str, method: str, max_replicas: int, budget: float, confidence: float, traces: int
) -> None:
    throughput = objective == "throughput"
    replicas = f"is {max_replicas}; a stage has at least one, and at most {MOST_REPLICAS:,}"
    many = f"{traces:,} were asked for; at most {MOST_TRACES:,} are planned on"
    share = 0 <= confidence < 1
    checks = [
        (objective not in OBJECTIVES, "objective", f"no {objective!r}; {known_names(objective, OBJECTIVES)}"),
        (method not in METHODS, "method", f"no {method!r}; {known_names(method, METHODS)}"),
        (not 1 <= max_replicas <= MOST_REPLICAS, "max_replicas", replicas),
        (traces > MOST_TRACES, "traces", many),
        (throughput and not 0 < budget < math.inf, "budget_usd_per_h", "throughput needs a budget above 0"),
        (not throughput and budget != 0, "budget_usd_per_h", "is read with objective throughput only"),
        (
            share and (confidence != 0) != (traces != 0),
            "confidence",
            "confidence and traces belong together; one of them is missing",
        ),
        (not share, "confidence", f"{confidence:g} is no share of traces below 1, such as 0.9"),
        (traces < 0, "traces", f"{traces} were asked for; 1 or more are needed"),
        (
            (traces != 0 or throughput) and method != "exact",
            "method",
            f"{method} plans for cost on one trace only",
        ),
        (traces != 0 and throughput, "confidence", "is read with objective cost only"),
    ]
    problems = [Problem(where, what) for wrong, where, what in checks if wrong]
    if problems:
        raise UsageError(*problems)


def fresh_traffic(inputs: Inputs, numbers: range) -> tuple[Traffic, ...]:
    """Traces that could have come instead (see `fresh`).

    Parameters
    ----------
    inputs : with the trace that they take the place of.
    numbers : of the traces; one number gives the same trace in every plan.

    Raises UsageError where the seed changes nothing, or where traces would not be equally long.
    """
    others = [fresh(inputs, number) for number in numbers]
    check_fresh(inputs, others)
    traffics = tuple(map(traffic_of, others))
    if len({traffic.queries for traffic in traffics}) > 1:
        raise UsageError.at("traces", "give the trace's length in queries: fresh traces must be equally long")
    return traffics


class ServingPlanner(Planner[Scenario]):
    """The planner of the serving domain."""

    options = (
        "method",
        "max_replicas",
        "every_batch",
        "budget_usd_per_h",
        "confidence",
        "traces",
        "frontier",
    )

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> Any:
        """See `plan`."""
        return plan(scenario, objective, **options)

    def check_plan(
        self, saved: Mapping[str, Any], scenario: Scenario, objective: str, options: Mapping[str, Any]
    ) -> str:
        """Verify a plan read from a file: by its certificate, or by making it again. Says what was verified.

        Parameters
        ----------
        saved : content of the plan file.
        scenario : what was planned.
        objective, options : as they were given to `plan`.

        Raises CheckFailed where the plan is not what it claims to be.
        """
        certificate = saved.get("certificate")
        _check_version(certificate, scenario)
        if _serves_models(scenario):
            return _check_language_plan(saved, scenario, objective, options)
        if not certificate:
            try:
                again = plan(scenario, objective, **options).check()
            except TypeError as error:
                raise CheckFailed.at("plan", f"malformed options: {worded(error)}") from error
            except Infeasible as error:
                raise CheckFailed.at("plan", f"planned again, there is none: {error}") from error
            if plain(again.data()["configuration"]) != saved.get("configuration"):
                raise CheckFailed.at("plan", "planned again, it differs")
            return "planned again, the plan is the same; simulated, it keeps its objective"
        if saved.get("configuration") != certificate.get("plan"):
            raise CheckFailed.at("plan", "its configuration is not the one that the certificate is about")
        if saved.get("summary", {}).get("cost_usd_per_h") != certificate.get("cost"):
            raise CheckFailed.at("plan", "its cost is not the one that the certificate is about")
        return check_certificate(certificate, scenario)

    def check_certificate(self, certificate: Mapping[str, Any], scenario: Scenario) -> str:
        """See `check_certificate`."""
        _check_version(certificate, scenario)
        if _serves_models(scenario):
            from forerun.serving.llm.plan.language_plan import check_certificate as check_language

            return check_language(certificate, scenario)
        return check_certificate(certificate, scenario)


def _check_version(certificate: object, scenario: Scenario) -> None:
    """Refuse a certificate of another version than is read. Raises StoreError."""
    from forerun.serving.llm.plan.checker import SCHEMA as LANGUAGE_SCHEMA

    read = LANGUAGE_SCHEMA if _serves_models(scenario) else SCHEMA
    schema = certificate.get("schema") if isinstance(certificate, Mapping) else None
    if isinstance(schema, str) and schema != read and schema.startswith("forerun.serving."):
        raise StoreError.at("certificate", f"is a {schema}, and {read} is read: plan again")


def _check_language_plan(
    saved: Mapping[str, Any], scenario: Scenario, objective: str, options: Mapping[str, Any]
) -> str:
    """Verify a saved plan for language models; parameters as those of `ServingPlanner.check_plan`."""
    from forerun.serving.llm.plan.confidence import WORLDS
    from forerun.serving.llm.plan.language_plan import check_certificate as check_language
    from forerun.serving.scenario.limits import may_miss

    certificate, confidence = saved.get("certificate"), options.get("confidence", 0.0)
    if not isinstance(certificate, Mapping):
        raise CheckFailed.at("plan", "it has no certificate")
    if not isinstance(saved.get("summary"), Mapping):
        raise CheckFailed.at("plan", "it has no summary")
    # With a confidence alone the planner chooses how many traces.
    traces = options.get("traces", certificate.get("traces") if confidence else 0)
    try:
        failing = may_miss(confidence, traces) if traces else 0
        few = bool(confidence) and "traces" not in options and traces < WORLDS
    except (TypeError, ArithmeticError) as error:
        raise CheckFailed.at("plan", f"malformed options: {worded(error)}") from error
    if few:
        raise CheckFailed.at(
            "plan", f"it holds in {traces} traces; without --traces it must in {WORLDS} or more"
        )
    asked = {
        "plan": saved.get("configuration"),
        "cost_usd_per_h": saved.get("summary", {}).get("cost_usd_per_h"),
        "objective": objective or "cost",
        "max_replicas": options.get("max_replicas", MAX_REPLICAS),
        "traces": traces,
        "failing": failing,
    }
    strange = [name for name, value in asked.items() if certificate.get(name) != value]
    # What the page says of worlds follows from these.
    stated = {"confidence": confidence, "traces": traces, "traces_allowed_to_fail": failing}
    strange += [name for name, value in stated.items() if saved["summary"].get(name, value) != value]
    if strange:
        raise CheckFailed.at("plan", f"its {strange[0]} is not what the certificate is about")
    return check_language(certificate, scenario)
