"""Batches as worker processes deliver them: the scenario's quantities in the recursions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from forerun.core.errors import Infeasible
from forerun.loading.engine.kernels.deliver import Delivery, Pool, deliver, deliver_pooled
from forerun.loading.engine.model import Batches, batches_of
from forerun.loading.engine.setup import law_setting
from forerun.loading.engine.threads import LONGEST_S
from forerun.loading.inputs import Inputs
from forerun.loading.policy import F64
from forerun.loading.scenario import Scenario


def bisect(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a non-decreasing function reaches a value, to the last bits.

    Parameters
    ----------
    rising : the function.
    target : the value.
    low, high : ends of the interval that is searched; the answer is `high` if the value is not reached in it.
    """
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return high


def planned_batches(scenario: Scenario, workers: int) -> Batches:
    """The batches of an epoch by a number of workers, as many as the scenario's steps want.

    Parameters
    ----------
    scenario : data, batch, partition and steps.
    workers : how many.
    """
    run = scenario.run
    plan = batches_of(scenario.dataset.samples, run.batch, workers, run.partition, drop_last=run.drop_last)
    return Batches(plan.worker[: run.steps], plan.samples[: run.steps]) if run.steps else plan


def delivered_steps(inputs: Inputs, epoch: int) -> F64:
    """Steps of an epoch with the loop's overhead: one value, or one a batch.

    Parameters
    ----------
    epoch : from 0, whose random steps these are.
    """
    return np.asarray(inputs.steps(epoch, 0) + inputs.scenario.step.overhead_s)


def delivery(inputs: Inputs, plan: Batches, epoch: int, *, store: bool, decode: bool) -> Delivery:
    """The batches of an epoch as workers deliver them.

    Parameters
    ----------
    plan : the batches.
    store, decode : whether reading, and decoding, takes time.

    Raises Infeasible if it takes for ever.
    """
    scenario = inputs.scenario
    loader, cpu, setting = scenario.loader, scenario.cpu, law_setting(inputs)
    n = inputs.block_samples
    # The workers of one loader read at the same time and share the link.
    together = replace(
        setting, conn_bytes_per_s=min(setting.conn_bytes_per_s, setting.shared_bytes_per_s / loader.workers)
    )
    read_s = together.read_s if store else 0.0
    # As many as decode at once share the cores; the recursion takes all of them to be busy.
    at_once = loader.workers * (loader.threads if loader.mode == "pooled_workers" else 1)
    crowd = max(1.0, at_once / cpu.cores) if cpu.cores else 1.0
    collate_s, collate_each_s = cpu.collate_s + cpu.handoff_s, cpu.collate_per_sample_s
    collate_each_s += cpu.handoff_s_per_byte * inputs.decoded_bytes
    start = np.array(loader.start_s or (0.0,) * loader.workers)
    on_order = loader.workers * loader.prefetch
    steps = delivered_steps(inputs, epoch)
    if loader.mode == "pooled_workers":
        fixed = setting.latency_s if store else 0.0
        each_s = inputs.mean_s(cpu.decode_s) + crowd * inputs.mean_s(cpu.decode_cpu_s)
        decode_s = each_s / cpu.pool_efficiency if decode else 0.0
        pool = Pool(loader.threads, n, fixed, (read_s - fixed) / n, decode_s, collate_s, collate_each_s)
        return _finite(deliver_pooled(plan.worker, plan.samples, steps, start, on_order, pool))
    build = plan.samples * (read_s / n + collate_each_s) + collate_s
    if decode:
        with np.errstate(over="ignore"):  # an infinite time is an error of its own below
            build = build + _decoded_s(inputs, plan, crowd) / cpu.pool_efficiency
    return _finite(deliver(plan.worker, np.asarray(build, np.float64), steps, start, on_order))


def _finite(delivery: Delivery) -> Delivery:
    """The same. Raises Infeasible for one that takes for ever."""
    if not delivery.total_s <= LONGEST_S:
        raise Infeasible.at(
            f"after {delivery.total_s:.6g} s",
            "something takes for ever: a rate is too small, or a time too large",
        )
    return delivery


def _decoded_s(inputs: Inputs, plan: Batches, crowd: float) -> F64:
    """Seconds that decoding each batch takes; its samples are the next ones of the data, whatever their order in it."""
    each_s = inputs.decodes("decode") + crowd * inputs.decodes("decode cpu")
    if len(each_s) == 1 or not len(plan):
        return np.asarray(plan.samples * each_s[0], np.float64)
    first = np.concatenate([[0], np.cumsum(plan.samples)[:-1]])
    return np.add.reduceat(each_s[: int(plan.samples.sum())], first)
