"""forerun: run it before you run it. A trace-driven simulator and planner for ML systems.

    import forerun
    scenario = forerun.load("pipeline.yaml")
    result = forerun.simulate(scenario)
    print(result.summary)
    result.save("runs/first")

The domains (serving, cluster, ...) are `forerun.domain_names()`; `forerun.get_domain("serving").about` is what one models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forerun.result import renderer as _renderer
from forerun.version import VERSION as _VERSION

__version__ = _VERSION

if TYPE_CHECKING:
    from forerun.catalog import demo, policies, schema
    from forerun.domain import domain_names, get_domain, profile_of, simulate
    from forerun.errors import ForerunError
    from forerun.planning import check, plan
    from forerun.replication.reproductions import reproduce, reproduce_all
    from forerun.report import chart, write_page, write_pictures
    from forerun.result.run import Result, load_result
    from forerun.scenarios import load, loads
    from forerun.study.compare import compare
    from forerun.study.explain import explain
    from forerun.study.explain_job import explain_job
    from forerun.study.stored import run_study

__all__ = [
    "ForerunError",
    "Result",
    "chart",
    "check",
    "compare",
    "demo",
    "domain_names",
    "explain",
    "explain_job",
    "get_domain",
    "load",
    "load_result",
    "loads",
    "plan",
    "policies",
    "profile_of",
    "reproduce",
    "reproduce_all",
    "run_study",
    "schema",
    "simulate",
    "write_page",
    "write_pictures",
]

#: where each public name lives, and two by which results are drawn
_HOME = {
    "ForerunError": "forerun.errors",
    "Result": "forerun.result.run",
    "chart": "forerun.report",
    "check": "forerun.planning",
    "compare": "forerun.study.compare",
    "demo": "forerun.catalog",
    "domain_names": "forerun.domain",
    "explain": "forerun.study.explain",
    "explain_job": "forerun.study.explain_job",
    "get_domain": "forerun.domain",
    "load": "forerun.scenarios",
    "load_result": "forerun.result.run",
    "named_figures": "forerun.report.contents",
    "loads": "forerun.scenarios",
    "plan": "forerun.planning",
    "policies": "forerun.catalog",
    "profile_of": "forerun.domain",
    "reproduce": "forerun.replication.reproductions",
    "reproduce_all": "forerun.replication.reproductions",
    "run_study": "forerun.study.stored",
    "schema": "forerun.catalog",
    "simulate": "forerun.domain",
    "svg": "forerun.report.images",
    "write_page": "forerun.report",
    "write_pictures": "forerun.report",
}


def __getattr__(name: str) -> Any:
    # Public names are imported on first use: `import forerun` stays fast.
    import importlib

    if name not in _HOME:
        from forerun.errors import suggestion

        hint = suggestion(name, __all__).strip()
        raise AttributeError(f"module 'forerun' has no attribute {name!r}{f'; {hint}' if hint else ''}")
    return getattr(importlib.import_module(_HOME[name]), name)


_renderer.find = __getattr__


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
