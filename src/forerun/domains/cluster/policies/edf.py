"""Earliest deadline first, as the ElasticFlow simulator has it."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import Rules
from forerun.domains.cluster.inputs.setting import Setting
from forerun.domains.cluster.policy import Schedule


class EarliestDeadlineFirst(Schedule, tag="edf", frozen=True, kw_only=True):
    """Jobs in deadline order, each at the largest count it may use; replanned at every event, nothing refused."""

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = "none"
    cost: ClassVar[str] = "O(jobs · keys) an event"

    def rules(self, setting: Setting, record: Record) -> Rules:
        """The schedule at work."""
        from forerun.domains.cluster.engine.deadline_first import EdfRules

        return EdfRules(setting, record)
