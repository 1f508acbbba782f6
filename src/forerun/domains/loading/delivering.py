"""A scenario's batches by workers: its numbers put into the recursions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.domains.loading.kernels.deliver import Delivery, Pool, deliver, deliver_pooled
from forerun.domains.loading.model import F64, Batches
from forerun.domains.loading.world import Drawn


def delivered_steps(drawn: Drawn, epoch: int) -> F64:
    """Steps of an epoch with the loop's overhead: one value, or one a batch."""
    return np.asarray(drawn.steps(epoch, 0) + drawn.scenario.step.overhead_s)


def delivery(drawn: Drawn, plan: Batches, epoch: int, *, store: bool, decode: bool) -> Delivery:
    """Batches of an epoch as workers deliver them; without the store, or without decoding, where these take no time."""
    scenario = drawn.scenario
    loader, cpu, setting = scenario.loader, scenario.cpu, drawn.setting()
    n = scenario.layout.block_samples
    # The workers of one loader read at the same time and share the link.
    together = replace(
        setting, conn_bytes_per_s=min(setting.conn_bytes_per_s, setting.shared_bytes_per_s / loader.workers)
    )
    read_s = together.read_s if store else 0.0
    # As many as decode at once share the cores; the recursion takes all of them to be busy.
    at_once = loader.workers * (loader.threads if loader.mode == "pooled_workers" else 1)
    crowd = max(1.0, at_once / cpu.cores) if cpu.cores else 1.0
    decode_s = (cpu.decode_s + cpu.decode_cpu_s * crowd) / cpu.pool_efficiency if decode else 0.0
    collate_s = cpu.collate_s + cpu.handoff_s
    start = np.array(loader.start_s or (0.0,) * loader.workers)
    on_order = loader.workers * loader.prefetch
    steps = delivered_steps(drawn, epoch)
    if loader.mode == "pooled_workers":
        fixed = setting.latency_s if store else 0.0
        pool = Pool(
            loader.threads, n, fixed, (read_s - fixed) / n, decode_s, collate_s, cpu.collate_per_sample_s
        )
        return deliver_pooled(plan.worker, plan.samples, steps, start, on_order, pool)
    build = np.asarray(
        plan.samples * (read_s / n + decode_s + cpu.collate_per_sample_s) + collate_s, np.float64
    )
    return deliver(plan.worker, build, steps, start, on_order)
