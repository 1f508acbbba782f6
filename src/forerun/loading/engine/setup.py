"""What the engines take, made of a scenario's inputs: loaders, a store, caches, the quantities of the laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from forerun.core.rng import stream as random_stream
from forerun.loading.engine.laws import NodeTerms, Setting, terms
from forerun.loading.engine.model import CacheModel, NodesModel, Reader, StoreModel
from forerun.loading.engine.sharing import hit_shares
from forerun.loading.inputs import Inputs
from forerun.loading.policy import F64, I64, UNBOUNDED, Load
from forerun.loading.scenario import Nodes, unlimited


def make_reader(inputs: Inputs, epoch: int, job: int, *, caches: tuple[int, ...] = ()) -> Reader:
    """One job's loader in one epoch.

    Parameters
    ----------
    inputs : sizes and times, with the scenario.
    epoch, job : from 0; they name the random streams of order, steps and failures.
    caches : numbers of the caches that it asks, in order (default: none).
    """
    scenario, edges = inputs.scenario, inputs.block_edges()
    order = inputs.order(epoch, job)
    errors = scenario.store.errors
    failures = None
    if errors is not None:
        rng = random_stream(scenario.seed, "errors", epoch, job)
        failures = (rng.geometric(1 - errors.probability, len(order)) - 1).astype(np.int64)
    reader = Reader(
        blocks=[inputs.sizes[edges[block] : edges[block + 1]] for block in order.tolist()],
        threads=scenario.loader.threads,
        batch=scenario.run.batch,
        step_s=inputs.steps(epoch, job) + scenario.step.overhead_s,
        decode_s=_in_order(inputs, "decode", order),
        decode_cpu_s=_in_order(inputs, "decode cpu", order),
        buffer_samples=scenario.loader.buffer_samples or UNBOUNDED,
        shuffle_samples=scenario.dataset.shuffle_buffer_samples,
        most_batches=scenario.run.steps,
        drop_last=scenario.run.drop_last,
        start_s=job * scenario.stagger_s,
        keys=order,
        failures=failures,
        caches=caches,
    )
    if scenario.gpu_decode is None:
        return reader
    return replace(reader, gpu_s=inputs.gpu_decode_s(reader.batch_samples))


def _in_order(inputs: Inputs, which: Literal["decode", "decode cpu"], order: I64) -> F64:
    """Seconds of decoding, of the samples in the order in which an epoch takes their blocks."""
    each_s, edges = inputs.decodes(which), inputs.block_edges()
    if len(each_s) == 1:
        return each_s
    return np.concatenate([each_s[edges[block] : edges[block + 1]] for block in order.tolist()])


def make_store(inputs: Inputs, *, instantaneous: bool = False, since_s: float = 0.0) -> StoreModel:
    """The store of the scenario.

    Parameters
    ----------
    instantaneous : answers take no time, only the cores stay as they are (default: no).
    since_s : seconds of the run that are over, which changes of the store are counted from (default: 0).
    """
    given, cpu = inputs.scenario.store, inputs.scenario.cpu
    cores = unlimited(cpu.cores)
    if instantaneous:
        return StoreModel(cores=cores, one_core_python=cpu.one_core_python)
    errors = given.errors
    mean_s = inputs.mean_s(given.latency_s)
    return StoreModel(
        conn_bytes_per_s=unlimited(given.conn_bytes_per_s),
        shared_bytes_per_s=unlimited(given.shared_bytes_per_s),
        slots=given.slots,
        requests_per_s=unlimited(given.requests_per_s),
        burst=given.burst,
        client_s=given.client_s,
        client_s_per_byte=given.client_s_per_byte,
        timeout_s=errors.timeout_s if errors else 0.0,
        backoff_s=errors.backoff_s if errors else 0.0,
        retries=errors.retries if errors else 0,
        cores=cores,
        one_core_python=cpu.one_core_python,
        changes=tuple((change.at_s - since_s, change.latency_s / mean_s) for change in given.changes),
    )


def make_caches(inputs: Inputs) -> tuple[list[CacheModel], list[tuple[int, ...]]]:
    """All caches (one a job where the scope is the loader), and which of them each job asks, in order.

    A cache is one of `loader` scope (one a job) or one of `node` scope (all jobs share it). The numbers are places in
    the list. Nodes have one each.
    """
    models: list[CacheModel] = []
    store, jobs, nodes = inputs.scenario.store, inputs.scenario.jobs, inputs.scenario.nodes
    if nodes is not None:
        own = CacheModel(
            nodes.cache_bytes, nodes.policy, nodes.cache_latency_s, unlimited(nodes.cache_bytes_per_s)
        )
        return [own] * nodes.count, [(number,) for number in range(nodes.count)]
    of_job: list[tuple[int, ...]] = [()] * jobs
    for cache in inputs.scenario.caches:
        model = CacheModel(
            capacity_bytes=cache.capacity_bytes,
            policy=cache.policy,
            latency_s=cache.latency_s,
            bytes_per_s=unlimited(cache.read_bytes_per_s),
            fetch_s=inputs.mean_s(store.latency_s) + store.client_s,
            fetch_bytes_per_s=unlimited(store.conn_bytes_per_s),
        )
        for job in range(jobs):
            if cache.scope == "loader" or job == 0:
                models.append(model)
            of_job[job] = (*of_job[job], len(models) - 1)
    return models, of_job


def make_nodes(inputs: Inputs) -> NodesModel | None:
    """How the scenario's nodes share their caches; None for a single machine."""
    nodes = inputs.scenario.nodes
    if nodes is None:
        return None
    owner = np.empty(len(inputs.block_edges()) - 1, np.int64)
    for number in range(nodes.count):
        owner[inputs.order(0, number)] = number
    return NodesModel(nodes.sharing, owner, nodes.link_latency_s, unlimited(nodes.link_bytes_per_s))


def law_setting(inputs: Inputs) -> Setting:
    """The quantities that the laws are about.

    Random times count by their means; what the store shares counts by the share of one job or node. Nodes count by their
    caches long after the first epoch.
    """
    scenario = inputs.scenario
    store, cpu, nodes = scenario.store, scenario.cpu, scenario.nodes
    waiting_s, cpu_s = inputs.mean_decode_s
    step_s = inputs.mean_s(scenario.step.step_s)
    batch_s = inputs.gpu_decode_s(np.array([scenario.run.batch]))
    return Setting(
        threads=scenario.loader.threads,
        block_samples=inputs.block_samples,
        sample_bytes=inputs.mean_bytes,
        latency_s=inputs.mean_s(store.latency_s) + store.client_s,
        decode_s=waiting_s + cpu_s,
        step_s=step_s * inputs.step_factor + scenario.step.overhead_s,
        batch=scenario.run.batch,
        conn_bytes_per_s=unlimited(store.conn_bytes_per_s),
        shared_bytes_per_s=unlimited(store.shared_bytes_per_s) / scenario.readers,
        decode_cpu_s=cpu_s,
        cores=1.0 if cpu.one_core_python else unlimited(cpu.cores),
        slots=store.slots,
        requests_per_s=unlimited(store.requests_per_s),
        gpu_batch_s=None if batch_s is None else float(batch_s[0]),
        nodes=None if nodes is None else law_nodes(nodes, float(inputs.sizes.sum())),
    )


def law_nodes(nodes: Nodes, data_bytes: float) -> NodeTerms:
    """What the laws need of nodes, their caches long after the first epoch.

    Where no closed form of the hits is known, pinned caches count, which have no less: laws are upper bounds.

    Parameters
    ----------
    data_bytes : of the data set.
    """
    shares = hit_shares(nodes, data_bytes) or hit_shares(nodes.with_(policy="pinned"), data_bytes)
    assert shares is not None
    return NodeTerms(
        count=nodes.count,
        shares=shares,
        cache_s=nodes.cache_latency_s,
        cache_bytes_per_s=unlimited(nodes.cache_bytes_per_s),
        peer_s=nodes.link_latency_s,
        peer_bytes_per_s=unlimited(nodes.link_bytes_per_s),
        asks_peers=nodes.sharing == "partitioned",
    )


def cache_that_frees_link(inputs: Inputs) -> float | None:
    """The least bytes of cache a node with which the store's link does not bind: another law admits no more.

    Caches count as full as they get. 0 where the link binds with no caches; None where it does with any.

    Parameters
    ----------
    inputs : of several nodes.
    """
    nodes, setting = inputs.scenario.nodes, law_setting(inputs)
    assert nodes is not None
    whole = float(inputs.sizes.sum())

    def binds(cache_bytes: float) -> bool:
        found = terms(replace(setting, nodes=law_nodes(nodes.with_(cache_bytes=cache_bytes), whole)))
        return found.pop("link") < min(found.values())

    if not binds(0.0):
        return 0.0
    low, high = 0.0, whole
    if binds(high):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binds(middle) else (low, middle)
    return high


def load_of(inputs: Inputs) -> Load:
    """What is asked of a loader, whatever its cell."""
    scenario = inputs.scenario
    return Load(
        samples=inputs.taken,
        sample_bytes=inputs.mean_bytes,
        batch=scenario.run.batch,
        step_s=law_setting(inputs).step_s,
        buffer_samples=scenario.loader.buffer_samples or UNBOUNDED,
    )
