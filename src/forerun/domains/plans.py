"""Planning in any room, and verifying plans that were written down."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from forerun.domains import room_part, rooms
from forerun.errors import (
    CheckFailed,
    ForerunError,
    InputError,
    Problem,
    StoreError,
    UsageError,
)
from forerun.scenario.arguments import path_of, require_scenario
from forerun.scenario.load import from_data, load, located
from forerun.search.plan import PLAN_FORMAT, Plan, read_document

#: the format of a kept measurement
MEASUREMENT_FORMAT = "forerun.measurement/1"


def plan(scenario: Any, objective: str = "", **options: Any) -> Plan:
    """The plan of a scenario in its room. Options that are None are left to the room.

    Raises UsageError for a room without plans or an option it does not know, Infeasible naming what binds.

    >>> found = forerun.plan(forerun.load(forerun.demo("energy").scenario), "time")
    >>> found.summary["batch_size"], found.summary["power_limit_w"]
    (128, 250.0)
    """
    require_scenario(scenario, "plan")
    planner = _planner(scenario.domain)
    given = {name: value for name, value in options.items() if value is not None}
    known = inspect.signature(planner.plan).parameters
    unknown = [name for name in given if name not in known]
    if unknown:
        names = [name.replace("_", "-") for name in known if name not in ("scenario", "objective")]
        what = f"plans of the {scenario.domain} room have no such option; they have: {', '.join(names) or 'none'}"
        raise UsageError(*(Problem(f"--{name.replace('_', '-')}", what) for name in unknown))
    found: Plan = planner.plan(scenario, objective, **given)
    return found


def check(path: str | os.PathLike[str], *, scenario: Any = None) -> str:
    """Verify a plan file (see `check_document`), or that a scenario file (YAML, TOML, JSON) and its files can be read.

    Raises StoreError, ScenarioError, TraceError or ProfileError if not, CheckFailed if a claim of a plan does not hold.

    >>> forerun.check(forerun.demo("energy").scenario)
    'a scenario of the energy room, every value and file of it in order'
    """
    path = path_of(path, "check")
    if scenario is not None:
        require_scenario(scenario, "check")
    document = {} if path.suffix.lower() in (".yaml", ".yml", ".toml") else read_document(path)
    if not document or ("domain" in document and not document.keys() & {"format", "schema"}):
        found = load(path)
        files = room_part(found.domain, "files")
        if files is None:
            return f"a scenario of the {found.domain} room, every value of it in order"
        try:
            files.read(found)
        except InputError as error:
            raise located(error, path) from error
        return f"a scenario of the {found.domain} room, every value and file of it in order"
    return check_document(document, scenario=scenario, name=os.fspath(path))


def check_document(found: Mapping[str, Any], *, scenario: Any = None, name: str = "plan") -> str:
    """Verify a plan file's content, or a certificate by itself (then with its scenario). Says what was verified.

    A measurement's predictions are held to what it measured, where the room knows how (`measured.check_measured`).

    Where the room has a checker of certificates (`check_certificate(certificate, scenario)`), that decides; else the
    plan is made again and must come out the same. Raises CheckFailed, or StoreError if this is no plan.
    """
    schema = found.get("schema")
    if isinstance(schema, str) and schema.startswith("forerun.") and schema.endswith("certificate/1"):
        if scenario is None:
            raise UsageError.at(
                name, "is a certificate by itself: give the scenario it is about (--scenario)"
            )
        return str(_planner(schema.split(".")[1]).check_certificate(found, scenario))
    if found.get("format") == MEASUREMENT_FORMAT:
        measured = room_part(str(found.get("domain")), "measured") if found.get("domain") in rooms() else None
        if measured is None:
            raise StoreError.at(name, "is no plan but a measurement; forerun report shows it")
        return str(measured.check_measured(found, name))
    if found.get("format") != PLAN_FORMAT:
        raise StoreError.at(name, f"is no plan: its format is {found.get('format')!r}, not {PLAN_FORMAT!r}")
    try:
        kept, options = found["plan"], dict(found["options"])
        resolved = scenario if scenario is not None else from_data(found["scenario"], base=Path(), name=name)
        objective = str(found["objective"])
        certificate = kept.get("certificate")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError.at(name, f"is no plan: {type(error).__name__}: {error}") from error
    planner = _planner(resolved.domain)
    if hasattr(planner, "check_plan"):
        return str(planner.check_plan(kept, resolved, objective, options))
    if certificate is not None and hasattr(planner, "check_certificate"):
        return str(planner.check_certificate(certificate, resolved))
    try:
        again = plan(resolved, objective, **options).check()
    except TypeError as error:
        raise StoreError.at(name, f"is no plan: {error}") from error
    except ForerunError as error:
        raise CheckFailed.at(name, f"planned again, there is no such plan: {error}") from error
    if _plain(again.data()) != _plain(kept):
        raise CheckFailed.at(name, "planned again from its scenario, the plan comes out differently")
    return "planned again from its scenario, the plan comes out the same; its certificate holds"


def not_available(domain: str) -> str:
    """That a domain makes no plans, and which do; empty if it does."""
    if domain in rooms() and room_part(domain, "plan") is not None:
        return ""
    able = [name for name in rooms() if room_part(name, "plan") is not None]
    return f"`plan` is not available for the {domain} domain; it is for {', '.join(able[:-1])} and {able[-1]}"


def _planner(domain: str) -> ModuleType:
    part = room_part(domain, "plan")
    if part is None:
        raise UsageError.at("", not_available(domain))
    return part


def _plain(data: Any) -> Any:
    """As JSON gives it back: sequences as lists, keys as text."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return data
