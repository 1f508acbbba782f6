"""ElasticFlow without admission control."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import Rules
from forerun.domains.cluster.inputs.setting import Setting
from forerun.domains.cluster.policy import Schedule


class ElasticScaling(Schedule, tag="ef", frozen=True, kw_only=True):
    """ElasticFlow's planner and elastic scaling for every job submitted; nothing is refused.

    Gu et al., ElasticFlow, ASPLOS'23: the "EDF + elastic scaling" bar of figure 9.
    """

    paper: ClassVar[str] = "Gu et al., ElasticFlow, ASPLOS'23"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = "none: a late job takes what it can"
    cost: ClassVar[str] = "O(jobs² · keys) an event"

    def rules(self, setting: Setting, record: Record) -> Rules:
        """The schedule at work."""
        from forerun.domains.cluster.engine.elastic import OpenRules

        return OpenRules(setting, record)
