"""ElasticFlow with admission control."""

from __future__ import annotations

from typing import ClassVar

from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import Rules
from forerun.domains.cluster.inputs.setting import Setting
from forerun.domains.cluster.policy import Schedule


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

    def rules(self, setting: Setting, record: Record) -> Rules:
        """The schedule at work; where every known bug that touches them is fixed, plans are promises."""
        from forerun.domains.cluster.engine.promises import NEEDED

        if setting.corrected >= NEEDED:
            from forerun.domains.cluster.engine.promises import PromisingRules

            return PromisingRules(setting, record)
        from forerun.domains.cluster.engine.elastic import AdmittingRules

        return AdmittingRules(setting, record)
