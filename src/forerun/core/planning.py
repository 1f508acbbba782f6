"""Plan in any domain, and verify the files of plans, scenarios and measurements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.core.documents import document_of, no_plan
from forerun.core.domain import find_domain, get_domain, planner_of
from forerun.core.errors import InputError, Problem, UsageError
from forerun.core.result.bound import Bounder, Bracket, is_certificate
from forerun.core.result.plan import Plan
from forerun.core.result.reading import read_document
from forerun.core.scenario.arguments import path_of, require_scenario
from forerun.core.scenario.resolve import located
from forerun.core.scenario.spec import AnyScenario
from forerun.core.scenarios import load


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
    planner = planner_of(scenario.domain)
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
    return _bounder(scenario.domain).search(scenario, objective, gpus)


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
    proof = is_certificate(path)
    document = {} if proof or path.suffix.lower() in (".yaml", ".yml", ".toml") else read_document(path)
    if proof or is_certificate(path, document):
        about = _given(scenario, path)
        return _bounder(about.domain).check(path, about, gpus)
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
    if isinstance(schema, str) and schema.startswith("forerun.") and ".certificate/" in schema:
        about = _given(scenario, name)
        return planner_of(schema.split(".")[1]).check_certificate(document, about)
    owner = document_of(document)
    if owner is None:
        raise no_plan(document, name)
    return owner.check(document, name, scenario)


def _given(scenario: AnyScenario | None, certificate: str | Path) -> AnyScenario:
    """The scenario of a certificate. Raises UsageError for none."""
    if scenario is None:
        raise UsageError.at(
            certificate, "is a certificate by itself: give the scenario it is about (--scenario)"
        )
    return scenario


def _bounder(domain: str) -> Bounder[Any]:
    """What knows the bounds of a domain. Raises UsageError for one without bounds."""
    known = find_domain(domain)
    if known is None or known.bounder is None:
        raise UsageError.at("", f"no bounds are known in the {domain} domain")
    return known.bounder
