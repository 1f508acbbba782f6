"""Where every GPU-second of the cluster and every second of the mean job went."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.summary.causes import CAUSES
from forerun.cluster.summary.spans import Stretches
from forerun.cluster.summary.waits import Waits, horizon_of, useful_gpu_s
from forerun.core.result.ledger import Ledger

#: the parts of a job's time beside the causes of its waiting: the column of `Waits`, and what it means
WORK_PARTS: Final = {
    "running": ("running", "it worked"),
    "restarting": ("reconfiguration", "it held GPUs and did not work yet"),
    "waiting for admission": ("admission", "the policy had not taken it in"),
}


def part_of(cause: str) -> str:
    """The part of a job's time in which it waited for a cause."""
    return f"waiting: {CAUSES[cause][0]}"


def ledger_of(record: Record, stretches: Stretches, waits: Waits) -> Ledger:
    """Where every GPU-second from the first submission to the last event went.

    The parts are useful, lost (work that is done again, where there is any), overhead (held without working), fragmented
    (free, needed by a waiting job, but too spread for it), and idle with and without a queue; they sum to all GPUs over
    that time.
    """
    setting = record.setting
    start, last = horizon_of(record)
    whole = setting.cluster.gpus * (last - start)
    gpu_s = stretches.gpu_s(len(setting.jobs))
    useful_each = useful_gpu_s(record, stretches, waits)
    held_gpu_s, useful = math.fsum(gpu_s), math.fsum(useful_each)
    times, pending, _, free, _ = record.events()
    spans = np.diff(np.append(times, last)) if len(times) else np.zeros(0)
    queued = math.fsum(free * spans * (pending > 0)) if len(times) else 0.0
    fragmented = min(waits.causes.fragmented_gpu_s, queued)
    idle_queue = queued - fragmented
    lost = math.fsum(waits.lost_gpu_s)
    parts = {
        "useful": useful - lost,
        **({"lost": lost} if lost else {}),
        "overhead": held_gpu_s - useful,
        "fragmented": fragmented,
        "idle with queue": idle_queue,
        "idle, nobody waits": whole - held_gpu_s - fragmented - idle_queue,
    }
    meanings = {
        "useful": "work was done",
        "lost": "work was done that a failure or preemption undid",
        "overhead": "held by a job that was restarting, or to the end of its slot",
        "fragmented": "free, needed by a waiting job, but too spread for it",
        "idle with queue": "free while somebody waited",
        "idle, nobody waits": "free while nobody waited",
    }
    meanings = {name: meanings[name] for name in parts}
    return Ledger("GPU time", "GPU-s", whole, {name: float(part) for name, part in parts.items()}, meanings)


def time_ledger(record: Record, waits: Waits) -> tuple[Ledger, ...]:
    """Where the time of the mean ended job went, from its submission to its end; none if no job ended."""
    ended = record.end_s >= 0
    if not ended.any():
        return ()
    parts = {part: float(getattr(waits, field)[ended].mean()) for part, (field, _) in WORK_PARTS.items()}
    means = {cause: float(seconds[ended].mean()) for cause, seconds in waits.causes.columns().items()}
    parts |= {part_of(cause): mean_s for cause, mean_s in means.items()}
    meanings = {part: meaning for part, (_, meaning) in WORK_PARTS.items()}
    meanings |= {part_of(cause): meaning for cause, (_, meaning) in CAUSES.items()}
    return (Ledger("time of a job", "s", math.fsum(parts.values()), parts, meanings),)
