"""Contract tests for policies of your own: derive a class, get every law.

One module per domain. A contract is a class whose methods are tests; pytest collects what derives from it. Nothing here
needs pytest: each law is a plain method that raises AssertionError with what broke, in which random setting, and when.
"""

from __future__ import annotations

import msgspec

from forerun.core.scenario.spec import NamedSpec, to_data


def written_and_read(spec: NamedSpec) -> None:
    """Assert that a policy spec is data: a name and parameters, written and read without loss."""
    data = to_data(spec)
    kind = type(spec)
    assert data.get("name"), f"the class has no tag: class {kind.__name__}(..., tag='mine', frozen=True)"
    again = msgspec.convert(data, kind)
    assert again == spec, f"written and read, {spec} became {again}"
    hash(spec)
