"""ElasticFlow's promises, with what switches change in them."""

from __future__ import annotations

from forerun.cluster.engine.promises import PromisingRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import I64, ThroughputTable
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.published import Switched, by_fixed_limit


class SwitchedPromises(Switched, PromisingRules):
    """Promises, with what the other switches change in them."""

    needs = frozenset({"overrun"})

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        super().__init__(setting, record, corrected)
        self.replans = "overrun" in corrected
        self.least_first = "marginal_order" in corrected

    def levels(self, profile: ThroughputTable) -> I64:
        """Up to the count of greatest throughput, or to a limit fixed by hand."""
        return (
            by_fixed_limit(self.setting, profile)
            if "max_gpus_rule" not in self.corrected
            else super().levels(profile)
        )
