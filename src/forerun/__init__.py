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
    from forerun.domains.offering import profile_of
    from forerun.domains.plans import plan
    from forerun.errors import ForerunError
    from forerun.result.run import Result, load_result
    from forerun.scenario.load import load, loads

__all__ = [
    "ForerunError",
    "Result",
    "load",
    "load_result",
    "loads",
    "plan",
    "profile_of",
    "room",
    "rooms",
    "simulate",
]

_HOME = {
    "ForerunError": "forerun.errors",
    "Result": "forerun.result.run",
    "load": "forerun.scenario.load",
    "load_result": "forerun.result.run",
    "loads": "forerun.scenario.load",
    "plan": "forerun.domains.plans",
    "profile_of": "forerun.domains.offering",
    "room": "forerun.domains",
    "rooms": "forerun.domains",
    "simulate": "forerun.domains",
}


def __getattr__(name: str) -> Any:
    # Public names are imported on first use: `import forerun` stays fast.
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'forerun' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
