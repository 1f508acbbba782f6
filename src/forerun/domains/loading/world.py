"""A scenario as the loops see it: drawn sizes, latencies and steps, blocks in order, loaders and a store.

Every random quantity has a stream of its own, indexed by what it describes: one more consumer of randomness shifts
nobody.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forerun.domains.loading.laws import Setting
from forerun.domains.loading.model import F64, I64, UNBOUNDED, CacheModel, Load, Reader, StoreModel
from forerun.domains.loading.pacing import Pacer
from forerun.domains.loading.recorded import recorded
from forerun.domains.loading.scenario import RandomBytes, RandomSeconds, Scenario, mean_seconds, unlimited
from forerun.errors import TraceError
from forerun.rng import stream as random_stream
from forerun.scenario.spec import Input


def drawn(mean: float, shape: str, sigma: float, count: int, rng: np.random.Generator) -> F64:
    """Values of a distribution with this mean."""
    if shape == "constant":
        return np.full(count, mean)
    if shape == "exponential":
        return rng.exponential(mean, count)
    return mean * np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)


def seconds(value: float | RandomSeconds, count: int, seed: int, *purpose: str | int) -> F64:
    """Times: one if they are all the same, else `count`."""
    if not isinstance(value, RandomSeconds):
        return np.array([float(value)])
    return times_of(value, count, random_stream(seed, *purpose))


def times_of(value: RandomSeconds, count: int, rng: np.random.Generator) -> F64:
    """So many random times."""
    if value.empirical is None:
        return drawn(value.mean_s, value.shape, value.sigma, count, rng)
    known = recorded(value.empirical, "seconds", 0.0)
    return np.resize(known, count) if value.in_order else known[rng.integers(len(known), size=count)]


def sample_sizes(scenario: Scenario) -> F64:
    """Stored bytes of each sample, float64[samples]."""
    given, count = scenario.dataset.sample_bytes, scenario.dataset.samples
    if not isinstance(given, RandomBytes):
        return np.full(count, float(given))
    if given.empirical is not None:
        return _recorded_sizes(given.empirical, count)
    sizes = drawn(given.mean_bytes, given.shape, given.sigma, count, random_stream(scenario.seed, "sizes"))
    return np.clip(np.round(sizes), given.least_bytes, given.most_bytes or None)


def _recorded_sizes(given: Input, count: int) -> F64:
    found = recorded(given, "bytes", 1.0)
    if len(found) < count:
        raise TraceError.at(given.path, f"has {len(found)} sizes, the data set {count} samples")
    return found[:count]


@dataclass(frozen=True)
class Drawn:
    """What a scenario's streams gave: sizes, and where each block's samples lie."""

    scenario: Scenario
    sizes: F64

    @property
    def mean_bytes(self) -> float:
        """Mean stored size of a sample."""
        return float(self.sizes.mean())

    @property
    def decoded_bytes(self) -> float:
        """Mean size of a sample in memory."""
        return self.scenario.dataset.decoded_bytes or self.mean_bytes

    def at_block(self, block_samples: int) -> Drawn:
        """The same, merged into blocks of another size."""
        other = copy(self)
        scenario = self.scenario
        layout = scenario.layout.with_(block_samples=block_samples)
        object.__setattr__(other, "scenario", scenario.with_(layout=layout))
        return other

    def block_edges(self) -> list[int]:
        """First sample of each block, and the number of samples."""
        n, samples = self.scenario.layout.block_samples, self.scenario.dataset.samples
        return self._edges_by_size if self.scenario.layout.block_bytes else [*range(0, samples, n), samples]

    @functools.cached_property
    def _edges_by_size(self) -> list[int]:
        edges, held = [0], 0.0
        for at, size in enumerate(self.sizes.tolist()):
            if at > edges[-1] and held + size > self.scenario.layout.block_bytes:
                edges.append(at)
                held = 0.0
            held += size
        return [*edges, self.scenario.dataset.samples]

    @property
    def block_samples(self) -> int:
        """Samples a block, their mean where blocks are cut by size."""
        if not self.scenario.layout.block_bytes:
            return self.scenario.layout.block_samples
        return max(1, round(self.scenario.dataset.samples / (len(self.block_edges()) - 1)))

    @property
    def taken(self) -> int:
        """Samples that an epoch takes: all of them, or as many as its steps want."""
        run, samples = self.scenario.run, self.scenario.dataset.samples
        return min(samples, run.steps * run.batch) if run.steps else samples

    def order(self, epoch: int, job: int) -> I64:
        """The blocks in the order an epoch takes them."""
        count = len(self.block_edges()) - 1
        if self.scenario.dataset.shuffle == "none":
            return np.arange(count)
        return random_stream(self.scenario.seed, "shuffle", epoch, job).permutation(count).astype(np.int64)

    def reader(
        self, epoch: int, job: int, *, caches: tuple[int, ...] = (), pacer: Pacer | None = None
    ) -> Reader:
        """One job's loader in one epoch, steered by `pacer`, if there is one."""
        scenario, edges = self.scenario, self.block_edges()
        order = self.order(epoch, job)
        errors = scenario.store.errors
        failures = None
        if errors is not None:
            rng = random_stream(scenario.seed, "errors", epoch, job)
            failures = (rng.geometric(1 - errors.probability, len(order)) - 1).astype(np.int64)
        step = scenario.step
        return Reader(
            blocks=[self.sizes[edges[block] : edges[block + 1]] for block in order.tolist()],
            threads=pacer.most if pacer is not None else scenario.loader.threads,
            steering=pacer.steering() if pacer is not None else None,
            batch=scenario.run.batch,
            step_s=self.steps(epoch, job) + step.overhead_s,
            decode_s=self._in_order("decode", order),
            decode_cpu_s=self._in_order("decode cpu", order),
            buffer_samples=scenario.loader.buffer_samples or UNBOUNDED,
            shuffle_samples=scenario.dataset.shuffle_buffer_samples,
            most_batches=scenario.run.steps,
            drop_last=scenario.run.drop_last,
            start_s=job * scenario.stagger_s,
            keys=order,
            failures=failures,
            caches=caches,
        )

    def decodes(self, which: Literal["decode", "decode cpu"]) -> F64:
        """Seconds of decoding, without a core or (`decode cpu`) on one: one value if all are the same, else one a sample."""
        cpu = self.scenario.cpu
        value = cpu.decode_s if which == "decode" else cpu.decode_cpu_s
        return seconds(value, self.scenario.dataset.samples, self.scenario.seed, which)

    def _in_order(self, which: Literal["decode", "decode cpu"], order: I64) -> F64:
        """The same, of the samples in the order in which an epoch takes their blocks."""
        found, edges = self.decodes(which), self.block_edges()
        if len(found) == 1:
            return found
        return np.concatenate([found[edges[block] : edges[block + 1]] for block in order.tolist()])

    def steps(self, epoch: int, job: int) -> F64:
        """Step times: one if they are all the same, else one a batch."""
        batches = -(-self.scenario.dataset.samples // self.scenario.run.batch)
        return seconds(self.scenario.step.step_s, batches, self.scenario.seed, "step", epoch, job)

    def latencies(self, epoch: int) -> F64:
        """Latencies in the order of serving: enough for every attempt, or one if they are all the same."""
        return seconds(self.scenario.store.latency_s, self.requests(), self.scenario.seed, "latency", epoch)

    def requests(self) -> int:
        """As many requests as an epoch can make, and one."""
        errors = self.scenario.store.errors
        return 1 + self.scenario.jobs * (len(self.block_edges()) - 1) * (
            1 + (errors.retries if errors else 0)
        )

    def pacer(self, job: int) -> Pacer | None:
        """The scenario's pace policy with one job's loader, if there is one."""
        scenario, grid = self.scenario, self.scenario.grid
        if scenario.pace is None or grid is None:
            return None
        return Pacer(
            scenario.pace,
            scenario.loader.threads,
            scenario.layout.block_samples,
            grid.threads,
            tuple(block for block in grid.blocks if block <= scenario.dataset.samples),
            scenario.run.batch,
            self.taken,
            scenario.run.epochs,
            scenario.goal.memory_bytes or math.inf,
            scenario.layout.merge_s,
            job,
            scenario.seed,
        )

    def store(self, *, instantaneous: bool = False, since_s: float = 0.0) -> StoreModel:
        """The store's model, `since_s` into the run; `instantaneous` keeps the cores and nothing else."""
        given, cpu = self.scenario.store, self.scenario.cpu
        cores = {"cores": unlimited(cpu.cores), "one_core_python": cpu.one_core_python}
        if instantaneous:
            return StoreModel(**cores)  # type: ignore[arg-type]
        errors = given.errors
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
            cores=unlimited(cpu.cores),
            one_core_python=cpu.one_core_python,
            changes=tuple((c.at_s - since_s, c.latency_s / given.mean_latency_s) for c in given.changes),
        )

    def cache_models(self) -> tuple[list[CacheModel], list[tuple[int, ...]]]:
        """All caches (one a job where the scope is the loader), and which of them each job asks, in order."""
        models: list[CacheModel] = []
        of_job: list[tuple[int, ...]] = [()] * self.scenario.jobs
        for cache in self.scenario.caches:
            store = self.scenario.store
            model = CacheModel(
                cache.capacity_bytes, cache.policy, cache.latency_s, unlimited(cache.read_bytes_per_s),
                store.mean_latency_s + store.client_s, unlimited(store.conn_bytes_per_s),
            )  # fmt: skip
            for job in range(self.scenario.jobs):
                if cache.scope == "loader" or job == 0:
                    models.append(model)
                of_job[job] = (*of_job[job], len(models) - 1)
        return models, of_job

    def setting(self) -> Setting:
        """What the laws are asked about."""
        scenario = self.scenario
        store, cpu = scenario.store, scenario.cpu
        mean_step = mean_seconds(scenario.step.step_s)
        return Setting(
            threads=scenario.loader.threads,
            block_samples=self.block_samples,
            sample_bytes=self.mean_bytes,
            latency_s=store.mean_latency_s + store.client_s,
            decode_s=mean_seconds(cpu.decode_s) + mean_seconds(cpu.decode_cpu_s),
            step_s=mean_step + scenario.step.overhead_s,
            batch=scenario.run.batch,
            conn_bytes_per_s=unlimited(store.conn_bytes_per_s),
            shared_bytes_per_s=unlimited(store.shared_bytes_per_s) / scenario.jobs,
            decode_cpu_s=mean_seconds(cpu.decode_cpu_s),
            cores=1.0 if cpu.one_core_python else unlimited(cpu.cores),
            slots=store.slots,
            requests_per_s=unlimited(store.requests_per_s),
        )

    def load(self) -> Load:
        """What is asked of a loader, whatever its cell."""
        setting = self.setting()
        return Load(
            self.taken,
            self.mean_bytes,
            self.scenario.run.batch,
            setting.step_s,
            self.scenario.loader.buffer_samples or UNBOUNDED,
        )


def draw(scenario: Scenario) -> Drawn:
    """Draw what a scenario leaves to chance."""
    return Drawn(scenario, sample_sizes(scenario))


def through_buffer(put_block: I64, held: int, rng: np.random.Generator) -> I64:
    """The order of delivery through a shuffle buffer: what comes takes a random place among `held`, who was there goes."""
    if not held:
        return put_block
    waiting, out = put_block[:held].tolist(), []
    places = rng.integers(held, size=max(0, len(put_block) - held)).tolist()
    for block, place in zip(put_block[held:].tolist(), places):
        out.append(waiting[place])
        waiting[place] = block
    return np.array(out + [waiting[at] for at in rng.permutation(len(waiting)).tolist()], np.int64)


def neighbours(put_block: I64, batch_samples: Iterable[int], blocks: int) -> tuple[float, float]:
    """Shuffle quality of a delivery order: neighbour share, and mean batch spread.

    Neighbour share: samples that follow one of the same block. Spread: distinct blocks in a batch over
    min(batch, blocks).
    """
    if len(put_block) < 2:
        return 0.0, 1.0
    share = float(np.mean(put_block[1:] == put_block[:-1]))
    spread, at = [], 0
    for size in batch_samples:
        spread.append(len(np.unique(put_block[at : at + size])) / min(size, blocks))
        at += size
    return share, float(np.mean(spread))
