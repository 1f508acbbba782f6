"""Checkpoints of several tiers: how far each is durable in a stretch of training, and what a failure leaves of them.

Fast tiers, such as the memory of a neighbour, come first; the last tier is the job's own store, which survives everything.
Each fast tier has one copy, the latest; the store keeps all. Steps that are kept since a tier's copy are at risk: if a
failure destroys the faster copies, they are lost after all, which may be many segments later.

There is a row more than there are tiers: the last clean checkpoint of the store, to which the check for a silent corruption
goes back. It means something only while the job is corrupted.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import record_type
from forerun.spot.engine.kernels import ROUNDING_S

NO_COPY = -2

TIER: Final = record_type(
    "copy_at corrupted",
    "durable stall_s kept_s kept_stall_s kept_node_s kept_stall_node_s due writing_until writing_steps writing_stall_s",
)
"""A tier.

copy_at: the last step in its copy, NO_COPY for none. corrupted: 1 if that copy is. durable, stall_s: of this segment, the
steps of its last durable checkpoint, 0 for none, and the stall up to it. kept_*: useful and stall seconds kept since the
copy, then node seconds of both: at risk. due ... writing_stall_s: scratch of `walk`.
"""


@kernel(allocates=False)
def walk(
    u: Any,
    most: Any,
    s: Any,
    first_steps: Any,
    every_steps: Any,
    stall_s: Any,
    write_s: Any,
    clean_steps: Any,
    tiers: Any,
) -> Any:
    """Follow a stretch of training for `u` seconds, or to the end of its step `most`, from checkpoint to checkpoint.

    first_steps, every_steps: steps to the first checkpoint of each tier, and between them; one that meets the tier's own
    running write is skipped. Checkpoints of one step block together, and their writes begin after it. clean_steps: later
    ones are corrupted.

    Returns (steps complete, stall until then, seconds); writes what is durable to `tiers`.
    """
    count = stall_s.size
    for i in range(count + 1):
        tiers[i].durable = tiers[i].stall_s = 0.0
    for i in range(count):
        tiers[i].due, tiers[i].writing_until = first_steps[i], -1.0
    now, steps, stall = 0.0, 0.0, 0.0
    while True:
        at = np.inf
        for i in range(count):
            at = min(at, tiers[i].due)
        if at >= most:
            end = now + (most - steps) * s
            if end <= u + ROUNDING_S:
                now, steps = end, most
                break
        end = now + (at - steps) * s
        if end > u + ROUNDING_S:
            more = np.floor((u - now + ROUNDING_S) / s)
            steps += max(0.0, more)
            now = u
            break
        block_s = 0.0
        for i in range(count):
            if tiers[i].due == at and tiers[i].writing_until <= end + ROUNDING_S:
                block_s += stall_s[i]
        steps, now = at, end + block_s
        stall += max(0.0, min(block_s, u - end))
        for i in range(count):
            tier = tiers[i]
            if tier.due != at:
                continue
            tier.due += every_steps[i]
            if tier.writing_until > end + ROUNDING_S:
                continue
            if tier.writing_until >= 0.0:
                _written(tiers, i, clean_steps)
            tier.writing_until, tier.writing_steps, tier.writing_stall_s = now + write_s[i], at, stall
        if now >= u:
            now = u
            break
    for i in range(count):
        if 0.0 <= tiers[i].writing_until <= u + ROUNDING_S:
            _written(tiers, i, clean_steps)
    return steps, stall, now


@kernel(inline=True)
def _written(tiers: Any, i: Any, clean_steps: Any) -> None:
    """The running write of a tier is durable."""
    tier, clean = tiers[i], tiers.size - 1
    tier.durable, tier.stall_s = tier.writing_steps, tier.writing_stall_s
    if i == clean - 1 and tier.writing_steps <= clean_steps:
        tiers[clean].durable, tiers[clean].stall_s = tier.writing_steps, tier.writing_stall_s


@kernel(inline=True)
def copy_from(tiers: Any, to: Any, i: Any) -> None:
    """A row has the copy of another one, and what is at risk since."""
    tiers[to].copy_at = tiers[i].copy_at
    tiers[to].kept_s, tiers[to].kept_stall_s = tiers[i].kept_s, tiers[i].kept_stall_s
    tiers[to].kept_node_s, tiers[to].kept_stall_node_s = tiers[i].kept_node_s, tiers[i].kept_stall_node_s


@kernel(inline=True)
def hold(tiers: Any, i: Any, at: Any) -> None:
    """A row has a copy of all that is kept until now, up to a step."""
    tiers[i].copy_at = at
    tiers[i].kept_s = tiers[i].kept_stall_s = 0.0
    tiers[i].kept_node_s = tiers[i].kept_stall_node_s = 0.0


@kernel(inline=True)
def risk(tiers: Any, i: Any, kept_s: Any, kept_stall_s: Any, world: Any) -> None:
    """What is kept on so many nodes, and is not in the copy of a row."""
    tiers[i].kept_s += kept_s
    tiers[i].kept_stall_s += kept_stall_s
    tiers[i].kept_node_s += kept_s * world
    tiers[i].kept_stall_node_s += kept_stall_s * world


@kernel(allocates=False)
def drop_corrupted(clean_steps: Any, tiers: Any) -> None:
    """What a check leaves to load from: clean copies of the fast tiers, and the last clean checkpoint of the store.

    clean_steps: steps of the segment whose checkpoints are clean.
    """
    clean = tiers.size - 1
    store = clean - 1
    for i in range(store):
        # A tier has one copy: a corrupted one has replaced the clean one before it.
        if tiers[i].durable > clean_steps or (tiers[i].durable == 0.0 and tiers[i].corrupted):
            tiers[i].copy_at, tiers[i].durable = NO_COPY, 0.0
    copy_from(tiers, store, clean)
    tiers[store].durable, tiers[store].stall_s = tiers[clean].durable, tiers[clean].stall_s
    tiers[store].corrupted = 0


@kernel(allocates=False)
def keep(
    saved: Any, rank: Any, survives: Any, world: Any, s: Any, clean_steps: Any, tiers: Any, moved: Any
) -> Any:
    """What a failure of a rank leaves: the tier to load from, and steps and stall that are kept of the segment.

    saved: step at which the segment began. survives: rank that each tier survives. world: nodes that train, 0 if the job
    does not. moved: float64[4], as `kept_*` of a tier: what was kept until now and is lost by this failure.
    """
    moved[:] = 0.0
    best = 0
    for i in range(survives.size):
        if survives[i] < rank:
            tiers[i].copy_at, tiers[i].durable = NO_COPY, 0.0
        if tiers[i].durable > tiers[best].durable:
            best = i
    if world > 0 and tiers[best].durable > 0.0:
        steps, stall = tiers[best].durable, tiers[best].stall_s
        for i in range(tiers.size):
            has = tiers[i].durable > 0.0
            if has:
                hold(tiers, i, saved + np.int64(tiers[i].durable))
                tiers[i].corrupted = tiers[i].durable > clean_steps
            kept_stall_s = stall - (tiers[i].stall_s if has else 0.0)
            risk(tiers, i, (steps - tiers[i].durable) * s, kept_stall_s, world)
        return best, steps, stall
    best = 0
    for i in range(1, survives.size):
        if tiers[i].copy_at > tiers[best].copy_at:
            best = i
    lost = tiers[best]
    moved[0], moved[1], moved[2], moved[3] = (
        lost.kept_s,
        lost.kept_stall_s,
        lost.kept_node_s,
        lost.kept_stall_node_s,
    )
    for i in range(tiers.size):
        tiers[i].kept_s -= moved[0]
        tiers[i].kept_stall_s -= moved[1]
        tiers[i].kept_node_s -= moved[2]
        tiers[i].kept_stall_node_s -= moved[3]
    return best, 0.0, 0.0
