"""The list of faults that `benchmarks/mutants.py` puts back fits the tree: each text stands once, each test exists."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.mutants import FIRST, Fault, faults

ROOT = Path(__file__).parents[2]
FAULTS = faults()


def test_there_are_enough_and_no_two_are_one() -> None:
    assert len(FAULTS) >= FIRST + 20 and sum(one.must for one in FAULTS) >= 5
    for what in ("name", "what"):
        most, times = Counter(getattr(one, what) for one in FAULTS).most_common(1)[0]
        assert times == 1, most
    assert len({(one.file, one.was, one.fault) for one in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("one", FAULTS, ids=lambda one: one.name)
def test_a_fault_can_be_put_back(one: Fault) -> None:
    """Where code has moved, its text in `benchmarks/mutants.toml` moves along."""
    content = (ROOT / one.file).read_text(encoding="utf-8")
    assert content.count(one.was) == 1, f"{one.file} has {one.was!r} {content.count(one.was)} times"
    ast.parse(content.replace(one.was, one.fault))
    assert one.was != one.fault and one.tests
    for test in one.tests:
        name, *inside = test.split("::")
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        known = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert known.issuperset(inside), test
