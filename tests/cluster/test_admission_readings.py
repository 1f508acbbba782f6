"""Corrected admission one by one in other readings: what a batch's order and the end of a slot change, as the page tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.domains.cluster.elastic import AdmittingRules
from forerun.domains.cluster.kernels import machine as mk
from forerun.domains.cluster.loop import run
from forerun.domains.cluster.model import World
from forerun.domains.cluster.record import Record

from .conftest import world

SCENES = (("195job.csv", "n16g8", 240, "A100"), ("elasticVpollux_e.csv", "n16g4", 60, "T4"))


class ByTheSlot(AdmittingRules):
    """A job is late that is planned beyond its deadline after rounding to slots."""

    def plan(self, rows: Any, now_s: int, *, record: bool = True) -> Any:
        super().plan(rows, now_s, record=record)
        return (self.m.j[mk.SLO, rows] == 1) & (self.m.j[mk.END, rows] > self.m.j[mk.DEADLINE, rows])


class InTurn(AdmittingRules):
    """A batch is asked in the order of submission."""

    def arrive(self, now_s: int) -> None:
        newcomers = np.array(self.arrivals, np.int64)
        rows = self.runnable()
        self.m.j[mk.OLD_END, rows] = self.m.j[mk.END, rows]
        for newcomer in newcomers[:, None]:
            self._admit_batch(newcomer, now_s)
        self.plan(self.m.lists[mk.RUNNABLE, : self.runnable_count], now_s, record=not len(newcomers))


def accepted(rules: type[AdmittingRules], made: World) -> int:
    record = Record(made)
    run(rules(made, record))
    return record.accepted


@pytest.mark.parametrize(
    ("rules", "switches", "expected"),
    [
        (AdmittingRules, ["admission"], (173, 153)),
        (AdmittingRules, ["admission", "late_incumbent"], (176, 164)),
        (AdmittingRules, ["admission", "late_test"], (152, 136)),
        (ByTheSlot, ["admission"], (121, 132)),
        (InTurn, ["admission"], (176, 153)),
        (InTurn, ["admission", "late_incumbent"], (177, 164)),
    ],
)
def test_what_a_reading_accepts(
    rules: type[AdmittingRules], switches: Sequence[str], expected: tuple[int, int]
) -> None:
    """On the 195 jobs of the testbed and on their twin."""
    made = [world(*scene, corrected=frozenset(switches)) for scene in SCENES]
    assert tuple(accepted(rules, one) for one in made) == expected


def test_the_first_25_jobs() -> None:
    """On 4 nodes of 8, as the paper's smallest test: one by one 22 are taken, and as published 18."""
    made = world("195job.csv", "n4g8", 240, "A100")
    small = replace(made, jobs=made.jobs.take(range(25)))
    assert accepted(AdmittingRules, small) == 18
    assert accepted(AdmittingRules, replace(small, corrected=frozenset({"admission"}))) == 22
