"""Promises of every domain, checked on its demonstration; new domains are included automatically."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.catalog import demos
from forerun.core.domain import domain_names, get_domain
from forerun.core.scenario.schema import scenario_schema
from forerun.core.scenario.spec import to_data
from forerun.core.scenario.text import read_document
from forerun.core.scenarios import load
from forerun.core.testing import DomainContract, digest_of_run, laws_of

from ..conftest import cases

DEMOS = demos()
CONTRACTS = {name: type("Contract", (DomainContract,), {"name": name}) for name in domain_names()}
#: Of hash seeds here in one process for all domains; alone, as strangers call it, of the cheapest one.
HASH_SEED = DomainContract.test_the_same_bytes_under_any_hash_seed.__name__
LAWS = [
    (name, law.__name__, law)
    for name, contract in CONTRACTS.items()
    for law in laws_of(contract)
    if law.__name__ != HASH_SEED or name == "energy" or cases(0, 1)
]
SIMULATE_ALL = """
import sys
from pathlib import Path
import forerun
from forerun.core.catalog import demos
for demo in demos():
    forerun.simulate(forerun.load(demo.scenario)).save(Path(sys.argv[1]) / demo.domain)
"""
by_domain = pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.domain)


def test_every_domain_has_a_demonstration() -> None:
    assert {demo.domain for demo in DEMOS} == set(domain_names())


@pytest.mark.parametrize("law", [law for *_, law in LAWS], ids=[f"{name}-{law}" for name, law, _ in LAWS])
def test_what_every_domain_promises(law: Callable[[], None]) -> None:
    law()


@pytest.mark.parametrize("seed", ["31", "0"][: cases(1, 2)])
def test_the_same_bytes_under_any_hash_seed(seed: str, tmp_path: Path) -> None:
    """Every demonstration in one process with another seed than this one's."""
    command = [sys.executable, "-c", SIMULATE_ALL, str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
    for name, contract in CONTRACTS.items():
        own = contract.run().save(tmp_path / "own" / name)  # type: ignore[attr-defined]
        assert digest_of_run(tmp_path / name) == digest_of_run(own), name


@by_domain
def test_the_same_bytes_with_the_process_pool(demo: Any, tmp_path: Path) -> None:
    """Two cells of each domain's demonstration, here and in a pool (FORERUN_CASES: of two processes)."""
    from forerun.core.study.executors import Here
    from forerun.core.study.executors.processes import Processes
    from forerun.core.study.expand import load_study
    from forerun.core.study.run import run_study
    from forerun.core.study.store import Store

    (tmp_path / "study.yaml").write_text(json.dumps({"base": str(demo.scenario), "seeds": 2}))
    plan = load_study(tmp_path / "study.yaml")
    kept = []
    for name, executor in (("here", Here()), ("pool", Processes(cases(1, 2)))):
        run_study(plan, tmp_path / f"{name}.sqlite", executor)
        with Store(tmp_path / f"{name}.sqlite", plan) as store:
            kept.append(list(store.outcomes()))
    assert kept[0] == kept[1] and all(type(outcome).__name__ == "Done" for outcome in kept[0])


@by_domain
def test_the_schema_admits_the_demonstration(demo: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = scenario_schema(get_domain(demo.domain).scenario_type)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(to_data(load(demo.scenario)), schema)
    # Also as it is written: quantities with units, under names without.
    jsonschema.validate(read_document(demo.scenario).data, schema)


@by_domain
def test_its_intervals_are_around_figures_of_the_summary(demo: Any) -> None:
    """Built-in domains say how sure a figure is; others may have nothing to say."""
    result = CONTRACTS[demo.domain].run()  # type: ignore[attr-defined]
    assert result.intervals and len(get_domain(demo.domain).figures(result)) >= 2
