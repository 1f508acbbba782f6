"""Plan in any domain, and verify the files of plans, scenarios and measurements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.domain import domain_names, find_domain, get_domain
from forerun.errors import CheckFailed, InputError, Problem, StoreError, UsageError
from forerun.result.bound import Bounder, Bracket, is_certificate
from forerun.result.plan import PLAN_FORMAT, Plan, Planner
from forerun.result.reading import read_document
from forerun.scenario.arguments import path_of, require_scenario
from forerun.scenario.resolve import located
from forerun.scenario.spec import AnyScenario
from forerun.scenarios import MEASUREMENT_FORMAT, from_data, load


def plan(scenario: AnyScenario, objective: str = "", **options: Any) -> Plan:
    """Find the best configuration for a scenario, and why no other is better.

    scenario: as `forerun.load` returns it.
    objective: what to plan for (default: empty, the domain's first).
    options: of the domain's planner; an option that is None keeps its default.

    Raises UsageError if the domain has no planner or no such option, Infeasible that names the violated constraint.

    >>> planned = forerun.plan(forerun.load(forerun.demo("energy").scenario), "time")
    >>> planned.summary["batch_size"], planned.summary["power_limit_w"]
    (128, 250.0)
    """
    require_scenario(scenario, "plan")
    planner = _planner(scenario.domain)
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := [name for name in given if name not in planner.options]:
        names = ", ".join(name.replace("_", "-") for name in planner.options) or "none"
        what = f"plans of the {scenario.domain} domain have no such option; they have: {names}"
        raise UsageError(*(Problem(f"--{name.replace('_', '-')}", what) for name in unknown))
    return planner.plan(scenario, objective, **given)


def bounds(scenario: AnyScenario, objective: str = "", *, gpus: int = 0) -> Iterator[Bracket]:
    """Closer and closer brackets of what the best policy could reach, the last one the best; see `Bounder.search`.

    Parameters
    ----------
    scenario : as `forerun.load` returns it.
    objective : what to bound (default: empty, the domain's first).
    gpus : on so many GPUs (default 0: those of the scenario).

    Raises UsageError if the domain knows no bounds, UnknownName if it knows none of this objective.
    """
    require_scenario(scenario, "bounds")
    known = find_domain(scenario.domain)
    if known is None or known.bounder is None:
        raise UsageError.at("", f"no bounds are known in the {scenario.domain} domain")
    return known.bounder.search(scenario, objective, gpus)


def check(
    path: str | os.PathLike[str], *, scenario: AnyScenario | None = None, gpus: Sequence[int] = ()
) -> str:
    """Verify a plan file, or check that a scenario file and its inputs can be read; returns what was verified.

    path: a plan, a certificate, a measurement (see `check_document`) or a scenario (YAML, TOML, JSON).
    scenario: the plan's scenario, instead of the one stored with it (default: None); required for a certificate.
    gpus: of the certificate of a bound, what it proves on so many GPUs, too (default: on its own number only).

    Raises CheckFailed if a claim of the plan is false; UsageError if `gpus` is given for another file; StoreError,
    ScenarioError, TraceError or ProfileError if a file cannot be read.

    >>> forerun.check(forerun.demo("energy").scenario)
    'a scenario of the energy domain, every value and file of it in order'
    """
    path = path_of(path, "check")
    if scenario is not None:
        require_scenario(scenario, "check")
    if is_certificate(path):
        return _bounder(scenario, path).check(path, scenario, gpus)
    document = {} if path.suffix.lower() in (".yaml", ".yml", ".toml") else read_document(path)
    if is_certificate(path, document):
        return _bounder(scenario, path).check(path, scenario, gpus)
    if gpus:
        raise UsageError.at("--gpus", f"is about certificates of bounds, and {path} is none")
    if document and ("domain" not in document or document.keys() & {"format", "schema"}):
        return check_document(document, scenario=scenario, name=os.fspath(path))
    read = load(path)
    try:
        get_domain(read.domain).prepare(read)
    except InputError as error:
        raise located(error, path) from error
    return f"a scenario of the {read.domain} domain, every value and file of it in order"


def check_document(
    document: Mapping[str, Any], *, scenario: AnyScenario | None = None, name: str = "plan"
) -> str:
    """Verify the content of a plan file, a certificate (given its scenario) or a measurement; returns what was verified.

    document: plain data. scenario: as for `check`. name: of the file, for messages. Raises CheckFailed if a claim is false,
    StoreError if the document is none of these.
    """
    schema = document.get("schema")
    if isinstance(schema, str) and schema.startswith("forerun.") and schema.endswith("certificate/1"):
        if scenario is None:
            raise UsageError.at(
                name, "is a certificate by itself: give the scenario it is about (--scenario)"
            )
        return _planner(schema.split(".")[1]).check_certificate(document, scenario)
    if document.get("format") == MEASUREMENT_FORMAT:
        domain = find_domain(str(document.get("domain")))
        if domain is None:
            raise StoreError.at(name, "is no plan but a measurement; forerun report shows it")
        return domain.check_measurement(document, name)
    if document.get("format") != PLAN_FORMAT:
        raise StoreError.at(
            name, f"is no plan: its format is {document.get('format')!r}, not {PLAN_FORMAT!r}"
        )
    try:
        saved, options = document["plan"], dict(document["options"])
        resolved = (
            scenario if scenario is not None else from_data(document["scenario"], base=Path(), name=name)
        )
        objective = str(document["objective"])
        saved.get("certificate")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError.at(name, f"is no plan: {type(error).__name__}: {error}") from error
    planner = _planner(resolved.domain)
    if unknown := [option for option in options if option not in planner.options]:
        raise StoreError.at(name, f"is no plan: its option {unknown[0]!r} is unknown")
    try:
        return planner.check_plan(saved, resolved, objective, options)
    except (CheckFailed, StoreError) as error:
        raise type(error)(*(Problem(one.where or name, one.what) for one in error.problems)) from error


def not_available(domain: str) -> str:
    """That a domain makes no plans, and which do; empty if it does."""
    known = find_domain(domain)
    if known is not None and known.planner is not None:
        return ""
    able = [name for name in domain_names() if get_domain(name).planner is not None]
    return f"`plan` is not available for the {domain} domain; it is for {', '.join(able[:-1])} and {able[-1]}"


def _bounder(scenario: AnyScenario | None, certificate: Path) -> Bounder[Any]:
    """What checks the certificate of a bound. Raises UsageError without a scenario, or one whose domain has no bounds."""
    if scenario is None:
        raise UsageError.at(
            certificate, "is a certificate by itself: give the scenario it is about (--scenario)"
        )
    known = find_domain(scenario.domain)
    if known is None or known.bounder is None:
        raise UsageError.at("", f"no bounds are known in the {scenario.domain} domain")
    return known.bounder


def _planner(domain: str) -> Planner[Any]:
    known = find_domain(domain)
    if known is None or known.planner is None:
        raise UsageError.at("", not_available(domain))
    return known.planner
