"""ElasticFlow with admission control."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.model import World
from forerun.domains.cluster.policy import Rules, Schedule
from forerun.domains.cluster.record import Record


class ElasticFlow(Schedule, tag="ef-accessctrl", frozen=True, kw_only=True):
    """Deadline guarantees by elastic scaling: least shares first, spare GPUs by marginal return.

    Gu et al., ElasticFlow, ASPLOS'23, sections 4.2 (admission, minimum satisfactory share) and 4.3 (elastic scaling).
    """

    paper: ClassVar[str] = "Gu et al., ElasticFlow, ASPLOS'23"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    guarantees: ClassVar[str] = (
        "every admitted job has a plan that meets its deadline; corrected, it ends by it"
    )
    cost: ClassVar[str] = "O(jobs² · keys) an event, nearly all in trials of one more level"

    def rules(self, world: World, record: Record) -> Rules:
        """The schedule at work; with every accident put right that touches them, plans are promises."""
        from forerun.domains.cluster.promises import NEEDED

        if world.corrected >= NEEDED:
            from forerun.domains.cluster.promises import PromisingRules

            return PromisingRules(world, record)
        from forerun.domains.cluster.elastic import AdmittingRules

        return AdmittingRules(world, record)
