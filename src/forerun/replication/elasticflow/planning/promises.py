"""ElasticFlow's promises, with what switches change in them."""

from __future__ import annotations

from forerun.cluster.engine.promises import PromisingRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.published import Switched


class SwitchedPromises(Switched, PromisingRules):
    """Promises, with what the other switches change in them."""

    needs = frozenset({"overrun"})

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        super().__init__(setting, record, corrected)
        self.replans = "overrun" in corrected
        self.least_first = "marginal_order" in corrected
