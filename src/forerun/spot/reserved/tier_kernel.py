"""Checkpoints of several tiers: how far each is durable in a stretch of training, and what a failure leaves of them.

Fast tiers, such as the memory of a neighbour, come first; the last tier is the job's own store, which survives everything.
Each fast tier has one copy, the latest; the store keeps all. Steps that are kept since a tier's copy are at risk: if a
failure destroys the faster copies, they are lost after all, which may be many segments later.

Arrays of copies have a row more than there are tiers: the last clean checkpoint of the store, to which the check for a
silent corruption goes back. It means something only while the job is corrupted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.spot.engine.kernels import ROUNDING_S

NO_COPY = -2


@kernel
def walk(
    u: Any,
    most: Any,
    s: Any,
    first_steps: Any,
    every_steps: Any,
    stall_s: Any,
    write_s: Any,
    clean_steps: Any,
    durable: Any,
    stalls: Any,
) -> Any:
    """Follow a stretch of training for `u` seconds, or to the end of its step `most`, from checkpoint to checkpoint.

    first_steps, every_steps: steps to the first checkpoint of each tier, and between them; one that meets the tier's own
    running write is skipped. Checkpoints of one step block together, and their writes begin after it. clean_steps: later
    ones are corrupted.

    Returns (steps complete, stall until then, seconds); writes to `durable` and `stalls`, for each tier, the steps of its
    last durable checkpoint and the stall up to it, and in the last row those of the store's last clean one.
    """
    tiers = stall_s.size
    store = tiers - 1
    due, writing_until = first_steps.copy(), np.full(tiers, -1.0)
    writing_steps, writing_stall = np.zeros(tiers), np.zeros(tiers)
    durable[:] = 0.0
    stalls[:] = 0.0
    now, steps, stall = 0.0, 0.0, 0.0
    while True:
        at = due.min()
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
        for t in range(tiers):
            if due[t] == at and writing_until[t] <= end + ROUNDING_S:
                block_s += stall_s[t]
        steps, now = at, end + block_s
        stall += max(0.0, min(block_s, u - end))
        for t in range(tiers):
            if due[t] != at:
                continue
            due[t] += every_steps[t]
            if writing_until[t] > end + ROUNDING_S:
                continue
            if writing_until[t] >= 0.0:
                durable[t], stalls[t] = writing_steps[t], writing_stall[t]
                if t == store and writing_steps[t] <= clean_steps:
                    durable[tiers], stalls[tiers] = writing_steps[t], writing_stall[t]
            writing_until[t], writing_steps[t], writing_stall[t] = now + write_s[t], at, stall
        if now >= u:
            now = u
            break
    for t in range(tiers):
        if 0.0 <= writing_until[t] <= u + ROUNDING_S:
            durable[t], stalls[t] = writing_steps[t], writing_stall[t]
            if t == store and writing_steps[t] <= clean_steps:
                durable[tiers], stalls[tiers] = writing_steps[t], writing_stall[t]
    return steps, stall, now


@kernel
def drop_corrupted(
    clean_steps: Any, durable: Any, stalls: Any, copy_at: Any, risk: Any, corrupted: Any
) -> Any:
    """What a check leaves to load from: clean copies of the fast tiers, and the last clean checkpoint of the store.

    clean_steps: steps of the segment whose checkpoints are clean. The other parameters are those of `keep`.
    """
    tiers = copy_at.size - 1
    store = tiers - 1
    for t in range(store):
        # A tier has one copy: a corrupted one has replaced the clean one before it.
        if durable[t] > clean_steps or (durable[t] == 0.0 and corrupted[t]):
            copy_at[t], durable[t] = NO_COPY, 0.0
    copy_at[store], durable[store], stalls[store] = copy_at[tiers], durable[tiers], stalls[tiers]
    risk[store] = risk[tiers]
    corrupted[store] = False


@kernel
def keep(
    saved: Any,
    rank: Any,
    survives: Any,
    is_training: Any,
    world: Any,
    s: Any,
    clean_steps: Any,
    durable: Any,
    stalls: Any,
    copy_at: Any,
    risk: Any,
    corrupted: Any,
    moved: Any,
) -> Any:
    """What a failure of a rank leaves: the tier to load from, and steps and stall that are kept of the segment.

    saved: step at which the segment began. survives: rank that each tier survives. clean_steps, durable, stalls: as `walk`
    says. copy_at: the last step in each tier's copy, NO_COPY for none. risk: float64[tiers + 1, 4], useful and stall seconds
    since that copy, then node seconds of both. corrupted: whether the copy is. moved: float64[4], what was kept until now
    and is lost by this failure.
    """
    tiers = survives.size
    moved[:] = 0.0
    for t in range(tiers):
        if survives[t] < rank:
            copy_at[t] = NO_COPY
            durable[t] = 0.0
    best = np.argmax(durable[:tiers])
    if is_training and durable[best] > 0.0:
        steps, stall = durable[best], stalls[best]
        for t in range(tiers + 1):
            if durable[t] > 0.0:
                copy_at[t] = saved + np.int64(durable[t])
                corrupted[t] = durable[t] > clean_steps
                risk[t, :] = 0.0
            kept_s = (steps - durable[t]) * s
            kept_stall_s = stall - (stalls[t] if durable[t] > 0.0 else 0.0)
            risk[t, 0] += kept_s
            risk[t, 1] += kept_stall_s
            risk[t, 2] += kept_s * world
            risk[t, 3] += kept_stall_s * world
        return best, steps, stall
    best = np.argmax(copy_at[:tiers])
    moved[:] = risk[best]
    for t in range(tiers + 1):
        risk[t] -= moved
    return best, 0.0, 0.0
