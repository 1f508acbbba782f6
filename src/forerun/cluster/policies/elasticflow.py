"""ElasticFlow [Gu et al., ASPLOS'23]: it plans the future of every job, from its throughput and the work it has left."""

from __future__ import annotations

from typing import ClassVar

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Schedule


class ElasticFlow(Schedule, tag="ef-accessctrl", frozen=True, kw_only=True):
    """Deadline guarantees by elastic scaling: least shares first, spare GPUs by marginal return.

    Gu et al., ElasticFlow, ASPLOS'23, sections 4.2 (admission, minimum satisfactory share) and 4.3 (elastic scaling).
    """

    paper: ClassVar[str] = "Gu et al., ElasticFlow, ASPLOS'23"
    needs: ClassVar[tuple[str, ...]] = ("profile", "iterations", "deadline")
    plans_slots: ClassVar[bool] = True
    guarantees: ClassVar[str] = (
        "every admitted job has a plan that meets its deadline; corrected, it ends by it"
    )
    cost: ClassVar[str] = "O(jobs² · keys) an event, nearly all in trials of one more level"

    def rules(self, setting: Setting, record: Record) -> AnyRules:
        """The schedule at work: plans are promises."""
        from forerun.cluster.engine.promises import PromisingRules  # here: it brings compiled code

        return PromisingRules(setting, record)
