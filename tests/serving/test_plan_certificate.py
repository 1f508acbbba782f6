"""Certificates: what holds is accepted, whatever is altered is rejected."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from forerun.serving.inputs.pipeline import Pipeline
from forerun.serving.inputs.routing import draws
from forerun.serving.plan.certify import certificate
from forerun.serving.plan.checker import Rejected, check
from forerun.serving.plan.exact import cheapest
from forerun.serving.plan.space import Space

from ..conftest import cases
from .conftest import golden, read_gaps, read_json
from .plan_spaces import arrivals_of, gamma_gaps, graph_space, notebook_space, small_space

PRICES = {"V100": 2.528, "TXP": 2.1, "cpu": 0.0665}


@pytest.mark.parametrize("name", ["l20_cv2_1.0_slo200", "l200_cv2_4.0_slo350"][: cases(1, 2)])
def test_certificates_made_elsewhere_are_accepted(name: str) -> None:
    trace = name.rsplit("_", 1)[0]
    arrivals = arrivals_of(read_gaps(golden("planner", "traces", f"{trace}.deltas.gz")))
    check(read_json(golden("planner", "certificates", f"{name}.json")), arrivals)


@cache
def proved(seed: int, scv: float, slo_ms: float) -> tuple[dict[str, Any], np.ndarray]:
    """A certificate of ours for the four models."""
    arrivals = arrivals_of(gamma_gaps(seed, 999, 100, scv))
    space = notebook_space(arrivals, PRICES, slo_ms, 10, max_replicas=8)
    found = cheapest(space)
    assert found.configuration is not None
    return certificate(space, found.configuration), arrivals


def first(c: dict[str, Any]) -> dict[str, Any]:
    return c["refuted"][0]  # type: ignore[no-any-return]


def later(c: dict[str, Any]) -> dict[str, Any]:
    return c["refuted"][-1]  # type: ignore[no-any-return]


def swap(c: dict[str, Any], stage: str, at: int, value: Any) -> None:
    c["plan"][stage][at] = value


def dearer(c: dict[str, Any]) -> None:
    """A plan with one replica more, its cost told rightly."""
    c["plan"]["KSVM"][2] += 1
    c["cost"] = sum(c["costs"][hardware] * replicas for hardware, _, replicas in c["plan"].values())


def cheaper(c: dict[str, Any]) -> None:
    """A refuted configuration as the plan."""
    c["plan"]["ResNet"] = ["TXP", 1, 1]
    c["cost"] = sum(c["costs"][hardware] * replicas for hardware, _, replicas in c["plan"].values())


MUTANTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another schema": lambda c: c.update(schema="forerun.serving.certificate/2"),
    "another digest": lambda c: c["trace"].update(arrival_ms_sha256="0" * 64),
    "one arrival fewer": lambda c: c["trace"].update(arrivals=c["trace"]["arrivals"] - 1),
    "a tighter objective": lambda c: c.update(slo_ms=c["slo_ms"] * 0.6),
    "a looser objective": lambda c: c.update(slo_ms=c["slo_ms"] * 1.5),
    "a larger allowance": lambda c: c.update(allowed_misses=c["allowed_misses"] + 500),
    "a smaller allowance": lambda c: c.update(allowed_misses=-1),
    "a price": lambda c: c["costs"].update(TXP=1.0),
    "the cost": lambda c: c.update(cost=c["cost"] - 0.01),
    "the misses": lambda c: c.update(misses=c["misses"] + 1),
    "a batch that is no option": lambda c: swap(c, "ResNet", 1, 3),
    "hardware that is no option": lambda c: swap(c, "ResNet", 0, "cpu"),
    "half a replica": lambda c: swap(c, "KSVM", 2, 1.5),
    "no replica": lambda c: swap(c, "KSVM", 2, 0),
    "a stage left out of the plan": lambda c: c["plan"].pop("KSVM"),
    "a refutation left out": lambda c: c["refuted"].pop(),
    "all refutations left out": lambda c: c["refuted"].clear(),
    "a refutation with one miss more": lambda c: first(c).update(
        misses_at_least=first(c)["misses_at_least"] + 1
    ),
    "a refutation with one miss less": lambda c: later(c).update(
        misses_at_least=later(c)["misses_at_least"] - 1
    ),
    "a refutation within the allowance": lambda c: first(c).update(misses_at_least=c["allowed_misses"]),
    "a refutation said twice": lambda c: c["refuted"].append(copy.deepcopy(first(c))),
    "a refutation without its ancestors": lambda c: c["refuted"].append(
        {"stages": {"KSVM": ["cpu", 1, 1]}, "misses_at_least": 999}
    ),
    "a part refuted that is not": lambda c: c["refuted"].append(
        {"stages": {"Inception": list(c["plan"]["Inception"])}, "misses_at_least": 999}
    ),
    "a dearer plan": dearer,
    "a cheaper plan": cheaper,
    "a service time": lambda c: c["stages"][0]["service_ms"]["TXP"].__setitem__(1, 5.0),
    "another parent": lambda c: next(s for s in c["stages"] if s["stage"] == "KSVM").update(
        parents=["Inception"]
    ),
    "no parents": lambda c: c["stages"][0].update(parents=[]),
    "a stage twice": lambda c: c["stages"].append(copy.deepcopy(c["stages"][0])),
    "more replicas allowed": lambda c: c.update(max_replicas="many"),
    "a number in words": lambda c: c.update(allowed_misses="few"),
    "a field missing": lambda c: c.pop("refuted"),
    "text for a number": lambda c: c.update(slo_ms="350"),
    "a routing that is not there": lambda c: c.update(routing_sha256="0" * 64),
    "a time that is no number": lambda c: c["stages"][0]["service_ms"]["TXP"].__setitem__(2, float("nan")),
}


@pytest.mark.parametrize("seed, scv, slo_ms", [(1, 1.0, 260.0), (2, 4.0, 320.0)])
def test_whatever_is_altered_is_rejected(seed: int, scv: float, slo_ms: float) -> None:
    whole, arrivals = proved(seed, scv, slo_ms)
    assert len(whole["refuted"]) >= 10
    check(whole, arrivals)
    accepted = []
    for name, alter in MUTANTS.items():
        mutant = copy.deepcopy(whole)
        alter(mutant)
        assert mutant != whole or name == "a time that is no number"
        try:
            check(mutant, arrivals)
            accepted.append(name)
        except Rejected as error:
            assert not re.search(r"[{\[(]'|Error|None|NoneType", str(error)), "that is Python, not English"
    assert accepted == [] and len(MUTANTS) >= 20


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        ("a batch that is no option", "stage ResNet on TXP, batch 3, 2 replicas: this is not in the space"),
        ("hardware that is no option", "stage ResNet on cpu, batch 8, 2 replicas: this is not in the space"),
        ("all refutations left out", "stage ResNet on V100, batch 1, 1 replica; stage Inception on V100, batch 1, "
            "1 replica; stage KSVM on cpu, batch 1, 1 replica; stage LogReg on cpu, batch 1, 1 replica: "
            "this is cheaper and not refuted"),
        ("a refutation with one miss more", "stage ResNet on V100, batch 1, 1 replica: this does not force 999 misses"),
        ("a refutation said twice", "stage ResNet on V100, batch 1, 1 replica: no refutation"),
        ("a field missing", "malformed: no key refuted"),
        ("text for a number", "malformed: a value is of the wrong kind"),
    ],
)  # fmt: skip
def test_a_rejection_says_in_words_what_is_wrong(alter: str, said: str) -> None:
    whole, arrivals = proved(1, 1.0, 260.0)
    mutant = copy.deepcopy(whole)
    MUTANTS[alter](mutant)
    with pytest.raises(Rejected) as refused:
        check(mutant, arrivals)
    assert str(refused.value) == said


def test_other_arrivals_are_rejected() -> None:
    whole, arrivals = proved(1, 1.0, 260.0)
    with pytest.raises(Rejected, match="arrivals"):
        check(whole, arrivals + 1.0)
    with pytest.raises(Rejected):
        check([], arrivals)
    with pytest.raises(Rejected):
        check(None, arrivals)


def raw_routing(space: Space, template: Pipeline) -> dict[tuple[str, str], np.ndarray]:
    found = []
    for stage in template.stages:
        for edge in stage.edges:
            if edge.share is not None:
                parent = "source" if edge.parent < 0 else space.names[edge.parent]
                column = draws(template.seed, edge.number, space.traffic.queries) < edge.share
                found.append((edge.number, (parent, stage.name), column))
    return {name: column for _, name, column in sorted(found, key=lambda item: item[0])}


@pytest.mark.parametrize("number", [2, 3, 4])
def test_joins_and_conditional_edges(number: int) -> None:
    case = read_json(golden("planner", "dags.json"))[number]
    space, template = graph_space({**case, "n_deltas": 799, "allowed_misses": 8, "max_replicas": 3})
    found = cheapest(space)
    assert found.configuration is not None
    routing = raw_routing(space, template)
    whole = certificate(space, found.configuration, routing)
    check(whole, space.traffic.arrivals_ms, routing)
    if routing:
        columns = b"".join(column.astype(np.uint8).tobytes() for column in routing.values())
        assert whole["routing_sha256"] == hashlib.sha256(columns).hexdigest()
        with pytest.raises(Rejected, match="routing"):
            check(whole, space.traffic.arrivals_ms)
        name = next(iter(routing))
        with pytest.raises(Rejected, match="routing"):
            check(whole, space.traffic.arrivals_ms, {**routing, name: ~routing[name]})


def test_the_checkers_simulation_agrees_on_random_spaces_with_ties() -> None:
    held = 0
    for seed in range(drawn := cases(30, 150)):
        space, template = small_space(seed, queries=50)
        found = cheapest(space)
        if found.configuration is None:
            continue
        routing = raw_routing(space, template)
        if not routing and any(column is not None for column in space.traffic.taken):
            continue
        check(certificate(space, found.configuration, routing), space.traffic.arrivals_ms, routing)
        held += 1
    assert held >= 0.4 * drawn


def test_the_checker_stands_alone() -> None:
    """It imports numpy and the standard library, nothing of the package, and fits on a few pages."""
    import ast
    from pathlib import Path

    import forerun.serving.plan.checker as checker

    source = Path(checker.__file__).read_text()
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert imported <= {"hashlib", "collections", "typing", "numpy"}
    assert len(source.splitlines()) <= 150
