"""WFP3: long waits against short requests, and large jobs."""

from __future__ import annotations

from typing import ClassVar

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.policy import Order, View


class Wfp3(Order, tag="wfp3", frozen=True, kw_only=True):
    """By (wait / requested time)^3 x GPUs, the largest first, as of now.

    Tang, Lan, Desai and Buettner, Fault-aware, utility-based job scheduling on Blue Gene/P systems, IEEE Cluster 2009,
    whose utility function WFP has the exponent 3.
    """

    paper: ClassVar[str] = "Tang et al., IEEE Cluster 2009"
    number: ClassVar[int] = 2

    def keys(self, view: View) -> F64:
        """The utility, with the sign turned."""
        waits = (view.now_s - view.submit_s + view.waited_s) / view.requested_s
        keys: F64 = -(waits * waits * waits * view.gpus)
        return keys
