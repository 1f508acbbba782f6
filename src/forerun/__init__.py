"""forerun: run it before you run it. A trace-driven simulator and planner for ML systems.

    import forerun
    scenario = forerun.load("pipeline.yaml")
    result = forerun.simulate(scenario)
    print(result.summary)
    result.save("runs/first")

The rooms (serving, cluster, ...) are `forerun.room("serving")` and so on; each tells its world in its docstring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from forerun.domains import room, rooms, simulate
    from forerun.domains.comparing import compare
    from forerun.domains.demos import demo
    from forerun.domains.explaining import explain_run as explain
    from forerun.domains.listing import policies, schema
    from forerun.domains.offering import profile_of
    from forerun.domains.plans import check, plan
    from forerun.domains.reproductions import reproduce, reproduce_all
    from forerun.domains.studying import run_study
    from forerun.errors import ForerunError
    from forerun.report import chart, write_page, write_pictures
    from forerun.result.run import Result, load_result
    from forerun.scenario.load import load, loads

__all__ = [
    "ForerunError",
    "Result",
    "chart",
    "check",
    "compare",
    "demo",
    "explain",
    "load",
    "load_result",
    "loads",
    "plan",
    "policies",
    "profile_of",
    "reproduce",
    "reproduce_all",
    "room",
    "rooms",
    "run_study",
    "schema",
    "simulate",
    "write_page",
    "write_pictures",
]

#: where each public name lives; after a colon its name there, if it differs
_HOME = {
    "ForerunError": "forerun.errors",
    "Result": "forerun.result.run",
    "chart": "forerun.report",
    "check": "forerun.domains.plans",
    "compare": "forerun.domains.comparing",
    "demo": "forerun.domains.demos",
    "explain": "forerun.domains.explaining:explain_run",
    "load": "forerun.scenario.load",
    "load_result": "forerun.result.run",
    "loads": "forerun.scenario.load",
    "plan": "forerun.domains.plans",
    "policies": "forerun.domains.listing",
    "profile_of": "forerun.domains.offering",
    "reproduce": "forerun.domains.reproductions",
    "reproduce_all": "forerun.domains.reproductions",
    "room": "forerun.domains",
    "rooms": "forerun.domains",
    "run_study": "forerun.domains.studying",
    "schema": "forerun.domains.listing",
    "simulate": "forerun.domains",
    "write_page": "forerun.report",
    "write_pictures": "forerun.report",
}


def __getattr__(name: str) -> Any:
    # Public names are imported on first use: `import forerun` stays fast.
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'forerun' has no attribute {name!r}")
    home, _, there = _HOME[name].partition(":")
    return getattr(importlib.import_module(home), there or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
