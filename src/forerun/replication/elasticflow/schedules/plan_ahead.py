"""ElasticFlow and EDF, each with and without admission control [Gu et al., ASPLOS'23].

They plan the future of every job at each event, from its throughput and the work it has left.
"""

from __future__ import annotations

from typing import ClassVar, Final

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.schedule import PublishedSchedule

#: the switches that must all be corrected for ElasticFlow's plans to be promises
NEEDED: Final = frozenset(
    {
        "promises_kept",
        "admission",
        "late_incumbent",
        "admission_overhead",
        "late_test",
        "grid_anchor",
        "overhead_when_unchanged",
        "rank_cache",
    }
)


class _PlanAhead(PublishedSchedule, frozen=True, kw_only=True):
    """What the schedules need of a trace."""

    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    plans_slots: ClassVar[bool] = True


class PublishedElasticFlow(_PlanAhead, tag="ef-accessctrl", frozen=True, kw_only=True):
    """Deadline guarantees by elastic scaling: least shares first, spare GPUs by marginal return.

    Gu et al., ElasticFlow, ASPLOS'23, sections 4.2 (admission, minimum satisfactory share) and 4.3 (elastic scaling).
    """

    paper: ClassVar[str] = "Gu et al., ElasticFlow, ASPLOS'23"
    guarantees: ClassVar[str] = (
        "every admitted job has a plan that meets its deadline; corrected, it ends by it"
    )
    cost: ClassVar[str] = "O(jobs² · keys) an event, nearly all in trials of one more level"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work; where every known bug that touches promises is corrected, plans are such."""
        if corrected.switches >= NEEDED:
            from forerun.replication.elasticflow.planning.promises import PromisingRules

            return PromisingRules(setting, record, corrected)
        from forerun.replication.elasticflow.planning.elastic import AdmittingRules

        return AdmittingRules(setting, record, corrected)


class ElasticScaling(_PlanAhead, tag="ef", frozen=True, kw_only=True):
    """ElasticFlow's planner and elastic scaling for every job submitted; nothing is refused.

    Gu et al., ElasticFlow, ASPLOS'23: the "EDF + elastic scaling" bar of figure 9.
    """

    paper: ClassVar[str] = "Gu et al., ElasticFlow, ASPLOS'23"
    guarantees: ClassVar[str] = "none: a late job takes what it can"
    cost: ClassVar[str] = "O(jobs² · keys) an event"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work."""
        from forerun.replication.elasticflow.planning.elastic import OpenRules

        return OpenRules(setting, record, corrected)


class EarliestDeadlineFirst(_PlanAhead, tag="edf", frozen=True, kw_only=True):
    """Jobs in deadline order, each at the largest count it may use; replanned at every event, nothing refused."""

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23"
    guarantees: ClassVar[str] = "none"
    cost: ClassVar[str] = "O(jobs · keys) an event"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work."""
        from forerun.replication.elasticflow.planning.deadline_first import EdfRules

        return EdfRules(setting, record, corrected)


class AdmittingEdf(_PlanAhead, tag="edf-accessctrl", frozen=True, kw_only=True):
    """EDF that refuses a newcomer if with it any job would be late by the plan."""

    paper: ClassVar[str] = "baseline of Gu et al., ElasticFlow, ASPLOS'23 (figure 9)"
    guarantees: ClassVar[str] = "every admitted job has a plan that meets its deadline"
    cost: ClassVar[str] = "O(arrivals · jobs · keys) an event"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work."""
        from forerun.replication.elasticflow.planning.deadline_first import AdmittingEdfRules

        return AdmittingEdfRules(setting, record, corrected)
