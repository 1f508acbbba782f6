"""Backfilling by requested times in a compiled queue, where nodes, quotas, costs and GPU types do not matter.

Elsewhere the same policies decide at every event through a view (`policies.backfilling`), with the same outcome.
"""

from __future__ import annotations

import numpy as np

from forerun.domains.cluster.engine.allocator import require_room, work_on_request_s
from forerun.domains.cluster.engine.kernels import backfill as bk
from forerun.domains.cluster.engine.kernels import free_profile as fp
from forerun.domains.cluster.engine.kernels import linked_profile as lp
from forerun.domains.cluster.engine.kernels import priority as qk
from forerun.domains.cluster.engine.priority import QueueRules
from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.inputs.setting import Setting
from forerun.domains.cluster.policies.backfilling.base import BackfillPolicy


class BackfillRules(QueueRules):
    """A whole run of a backfilling policy.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    policy : the order of the queue, and which jobs are promised a start.
    """

    def __init__(self, setting: Setting, record: Record, policy: BackfillPolicy) -> None:
        require_room(setting.jobs, setting.cluster.gpus, f"the cluster has {setting.cluster.gpus}")
        self.policy = policy
        self.queue = build_backfill(setting, 1 << 16)
        super().__init__(setting, record, self.queue, self.queue.work)

    def advance_to(self, until_s: float) -> float:
        """Play on by the policy's order and promises."""
        policy = self.policy
        return float(
            bk.advance(
                self.queue,
                policy.order.number,
                policy.keeps_promises,
                policy.promises,
                policy.examined or len(self.setting.jobs),
                policy.window_s or np.inf,
                policy.grace_s,
                until_s,
            )
        )


def build_backfill(setting: Setting, capacity: int) -> bk.Backfill:
    """The compiled queue at the start of a run. `capacity`: entries of its log."""
    jobs, total = setting.jobs, setting.cluster.gpus
    count = len(jobs)
    running = min(count, total) + 1
    windows = sorted(setting.maintenance, key=lambda window: window.announced_s)
    # each running job ends once, each promise and window begins and ends
    steps = running + 2 * count + 2 * len(windows) + 16
    marks = {at_s for window in windows for at_s in (window.announced_s, window.from_s, window.to_s)}
    capacity = max(capacity, 8 * running + 256)
    meta = np.zeros(bk.PLACES, np.int64)
    meta[qk.FREE] = total
    # of the counts that jobs ask for, some between which equally many jobs are
    gpus = np.unique(np.quantile(jobs.gpus, np.linspace(0, 1, lp.MOST_LEVELS), method="lower"))
    linked = lp.Linked(
        time=np.zeros(steps),
        steps=np.zeros((steps, 4), np.int64),
        jobs=np.zeros((count, 3), np.int64),
        levels=np.zeros((len(gpus), 3), np.int64),
        holes=np.zeros((len(gpus), 2, lp.MOST_HOLES)),
        meta=np.zeros(lp.PLACES, np.int64),
    )
    linked.jobs[:, lp.LEVEL] = np.searchsorted(gpus, jobs.gpus, "right") - 1
    linked.levels[:, lp.GPUS] = gpus
    queue = bk.Backfill(
        submit=jobs.submit_s.astype(np.float64),
        gpus=jobs.gpus.copy(),
        work=work_on_request_s(setting),
        request=np.maximum(jobs.request_s, 1.0),
        first_start=np.full(count, -1.0),
        end=np.full(count, -1.0),
        promise=np.full(count, bk.NO_PROMISE),
        first_promise=np.full(count, bk.NO_PROMISE),
        belief=np.full(count, -1.0),
        queue=np.zeros(count, np.int64),
        key=np.zeros(count),
        chosen=np.zeros(count, np.int64),
        ending=np.zeros(running, np.int64),
        end_key=np.zeros(running),
        believed=np.zeros(running, np.int64),
        believed_key=np.zeros(running),
        late=np.zeros(running, np.int64),
        time=np.zeros(steps),
        free=np.zeros(steps, np.int64),
        down_s=np.zeros(steps),
        down_to=np.zeros(steps, np.int64),
        window_from=np.array([window.from_s for window in windows], np.float64),
        window_to=np.array([window.to_s for window in windows], np.float64),
        window_gpus=np.array([window.gpus for window in windows], np.int64),
        window_announced=np.array([window.announced_s for window in windows], np.float64),
        marks=np.array(sorted(marks), np.float64),
        linked=linked,
        wake=np.full(1, np.inf),
        meta=meta,
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
        event_time=np.zeros(capacity),
        event_pending=np.zeros(capacity, np.int64),
        event_first=np.zeros(capacity + 1, np.int64),
    )
    begin_s = float(jobs.submit_s[0]) if count else 0.0
    fp.start_over(queue.time, queue.free, meta, begin_s, total)
    lp.start_over(linked.time, linked.steps, linked.levels, linked.meta, begin_s, total)
    return queue
