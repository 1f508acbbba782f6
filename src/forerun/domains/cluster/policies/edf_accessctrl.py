"""Earliest deadline first with admission control."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import Rules
from forerun.domains.cluster.inputs.setting import Setting
from forerun.domains.cluster.policy import Schedule


class AdmittingEdf(Schedule, tag="edf-accessctrl", frozen=True, kw_only=True):
    """EDF that refuses a newcomer if with it any job would be late by the plan."""

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23 (figure 9)"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = "every admitted job has a plan that meets its deadline"
    cost: ClassVar[str] = "O(arrivals · jobs · keys) an event"

    def rules(self, setting: Setting, record: Record) -> Rules:
        """The schedule at work."""
        from forerun.domains.cluster.engine.deadline_first import AdmittingEdfRules

        return AdmittingEdfRules(setting, record)
