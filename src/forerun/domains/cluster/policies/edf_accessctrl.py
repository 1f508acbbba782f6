"""Earliest deadline first with admission control."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.model import World
from forerun.domains.cluster.policy import Rules, Schedule
from forerun.domains.cluster.record import Record


class AdmittingEdf(Schedule, tag="edf-accessctrl", frozen=True, kw_only=True):
    """EDF that refuses a newcomer if with it any job would be late by the plan."""

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23 (figure 9)"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = "every admitted job has a plan that meets its deadline"
    cost: ClassVar[str] = "O(arrivals · jobs · keys) an event"

    def rules(self, world: World, record: Record) -> Rules:
        """The schedule at work."""
        from forerun.domains.cluster.deadline_first import AdmittingEdfRules

        return AdmittingEdfRules(world, record)
