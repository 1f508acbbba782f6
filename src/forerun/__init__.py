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

from forerun.core.result import renderer as _renderer
from forerun.core.version import VERSION as _VERSION

__version__ = _VERSION

if TYPE_CHECKING:
    from forerun.cluster.explain.explained_job import explain_job
    from forerun.core import testing
    from forerun.core.catalog import demo, policies, schema
    from forerun.core.domain import domain_names, get_domain, profile_of, simulate
    from forerun.core.errors import ForerunError
    from forerun.core.planning import check, plan
    from forerun.core.report import chart, write_page, write_pictures
    from forerun.core.result.run import Result, load_result
    from forerun.core.scenarios import load, loads
    from forerun.core.study.compare import compare
    from forerun.core.study.explain import explain
    from forerun.core.study.stored import run_study
    from forerun.replication.reproductions import reproduce, reproduce_all

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
    "testing",
    "write_page",
    "write_pictures",
]

#: where each public name lives, and two by which results are drawn
_HOME = {
    "ForerunError": "forerun.core.errors",
    "Result": "forerun.core.result.run",
    "chart": "forerun.core.report",
    "check": "forerun.core.planning",
    "compare": "forerun.core.study.compare",
    "demo": "forerun.core.catalog",
    "domain_names": "forerun.core.domain",
    "explain": "forerun.core.study.explain",
    "explain_job": "forerun.cluster.explain.explained_job",
    "get_domain": "forerun.core.domain",
    "load": "forerun.core.scenarios",
    "load_result": "forerun.core.result.run",
    "named_figures": "forerun.core.report.contents",
    "loads": "forerun.core.scenarios",
    "plan": "forerun.core.planning",
    "policies": "forerun.core.catalog",
    "profile_of": "forerun.core.domain",
    "reproduce": "forerun.replication.reproductions",
    "reproduce_all": "forerun.replication.reproductions",
    "run_study": "forerun.core.study.stored",
    "schema": "forerun.core.catalog",
    "simulate": "forerun.core.domain",
    "svg": "forerun.core.report.images",
    "testing": "forerun.core.testing",
    "write_page": "forerun.core.report",
    "write_pictures": "forerun.core.report",
}


def __getattr__(name: str) -> Any:
    # Public names are imported on first use: `import forerun` stays fast.
    import importlib

    if name not in _HOME:
        from forerun.core.errors import suggestion

        hint = suggestion(name, __all__).strip()
        raise AttributeError(f"module 'forerun' has no attribute {name!r}{f'; {hint}' if hint else ''}")
    home = importlib.import_module(_HOME[name])
    return getattr(home, name, home)


_renderer.find = __getattr__


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
