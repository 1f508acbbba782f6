"""The records of a loading scenario file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from forerun.core.scenario.spec import Input, Spec, chosen_from
from forerun.loading.policy import Cell, TunerSpec, tuners

Shape = Literal["constant", "exponential", "lognormal"]
Partition = Literal["round_robin", "contiguous"]
CachePolicy = Literal["lru", "fifo", "clock", "pinned", "cost"]
NodeCachePolicy = Literal["pinned", "lru"]
Sharing = Literal["none", "partitioned", "replicated"]
Problems = list[tuple[str, str]]

#: samples of a data set at most: what is recorded of a run must fit the memory of a workstation
MOST_SAMPLES = 20_000_000
#: epochs, and jobs, threads, workers, batches ahead, retries at most: more is a slip, and would never end
MOST_EPOCHS = 1000
MOST_OF_ANYTHING = 4096
#: nodes that share a data set
MOST_NODES = 64
#: samples that all jobs read in all epochs
MOST_READ = 1_000_000_000
#: slots, and samples in a buffer, at most; seconds between the starts of jobs; spread of a logarithm
MOST_SLOTS = 10**12
MOST_STAGGER_S = 1e9
MOST_SIGMA = 20


def above_zero(record: Spec, *names: str) -> Problems:
    """The fields that are not above zero."""
    return [
        (name, f"{getattr(record, name)} is not above 0") for name in names if not getattr(record, name) > 0
    ]


def not_negative(record: Spec, *names: str) -> Problems:
    """The fields that are negative."""
    return [
        (name, f"{getattr(record, name)} is negative") for name in names if not getattr(record, name) >= 0
    ]


def not_above(record: Spec, most: float, *names: str) -> Problems:
    """The fields that are above what is simulated."""
    return [
        (name, f"{getattr(record, name)} is more than the {most:.12g} that are simulated")
        for name in names
        if getattr(record, name) > most
    ]


class RandomSeconds(Spec, frozen=True, kw_only=True):
    """A random time [s], or recorded times.

    mean_s: mean (default 0: that of the file). shape: `lognormal` (the default: mean * exp(sigma z - sigma^2 / 2)),
    `exponential` or `constant`. sigma: standard deviation of the logarithm (default 0.2). empirical: a CSV file with a
    column `seconds` to sample from (default: none). in_order: take its values in the recorded order instead, and again
    from the beginning where the file ends (default: no).
    """

    mean_s: float = 0.0
    shape: Shape = "lognormal"
    sigma: float = 0.2
    empirical: Input | None = None
    in_order: bool = False

    def problems(self) -> Problems:
        """Nothing is negative; a mean, or a file."""
        problems = not_negative(self, "mean_s", "sigma") + not_above(self, MOST_SIGMA, "sigma")
        if not self.mean_s and self.empirical is None:
            problems.append(("mean_s", "give a mean, or a file in `empirical`"))
        if self.in_order and self.empirical is None:
            problems.append(("in_order", "there is no file in `empirical` whose order could be preserved"))
        return problems


class RandomBytes(Spec, frozen=True, kw_only=True):
    """A random size [bytes], or recorded sizes.

    mean_bytes: mean (default 0: that of the file). shape: `lognormal` (the default), `exponential` or `constant`. sigma:
    standard deviation of the logarithm (default 0.5). least_bytes, most_bytes: sizes are clipped to them (defaults 1, and
    0: no upper limit). empirical: a CSV file with a column `bytes`, a row a sample; or a WebDataset
    tar, or the index.parquet of blocks, whose samples have these sizes (default: none).
    """

    mean_bytes: float = 0.0
    shape: Shape = "lognormal"
    sigma: float = 0.5
    least_bytes: float = 1.0
    most_bytes: float = 0.0
    empirical: Input | None = None

    def problems(self) -> Problems:
        """A mean, or a file."""
        problems = not_negative(self, "mean_bytes", "sigma", "most_bytes") + above_zero(self, "least_bytes")
        problems += not_above(self, MOST_SIGMA, "sigma")
        if not self.mean_bytes and self.empirical is None:
            problems.append(("mean_bytes", "give a mean, or a file in `empirical`"))
        if self.most_bytes and self.most_bytes < self.least_bytes:
            problems.append(("most_bytes", f"{self.most_bytes:g} is below least_bytes {self.least_bytes:g}"))
        return problems


class Dataset(Spec, frozen=True, kw_only=True):
    """The training data.

    samples: how many. sample_bytes: stored size of each. decoded_bytes: size of each in memory (default 0: as stored).
    shuffle: `none`; `block`, the order of blocks (the default); `block+buffer`, in which each sample also replaces a random
    one of a buffer; `global`, the order of single samples, which cannot be merged into blocks. shuffle_buffer_samples: size
    of that buffer (default 0: no buffer).
    """

    samples: int
    sample_bytes: float | RandomBytes
    decoded_bytes: float = 0.0
    shuffle: Literal["none", "block", "block+buffer", "global"] = "block"
    shuffle_buffer_samples: int = 0

    def problems(self) -> Problems:
        """Samples of some size."""
        problems = above_zero(self, "samples") + not_negative(self, "decoded_bytes", "shuffle_buffer_samples")
        if isinstance(self.sample_bytes, (int, float)):
            problems += above_zero(self, "sample_bytes")
        problems += not_above(self, MOST_SAMPLES, "samples") + not_above(
            self, MOST_SLOTS, "shuffle_buffer_samples"
        )
        if (self.shuffle == "block+buffer") != (self.shuffle_buffer_samples > 0):
            what = (
                f"{self.shuffle_buffer_samples} with shuffle {self.shuffle}: only block+buffer has a buffer"
            )
            problems.append(("shuffle_buffer_samples", what))
        return problems


class Layout(Spec, frozen=True, kw_only=True):
    """How samples are merged into blocks.

    block_samples: samples a block (default 1: single files). block_bytes: cut blocks by size instead, as
    `forerun pack --block-bytes` does; a block ends before the sample with which it would be larger (default 0: by samples).
    merge_s: seconds that merging takes, once (default 0).
    """

    block_samples: int = 1
    block_bytes: float = 0.0
    merge_s: float = 0.0

    def problems(self) -> Problems:
        """A sample at least; blocks are cut by samples or by bytes."""
        problems = above_zero(self, "block_samples") + not_negative(self, "block_bytes", "merge_s")
        if self.block_bytes and self.block_samples != 1:
            problems.append(("block_bytes", f"and block_samples {self.block_samples}: give one of them"))
        return problems


class Price(Spec, frozen=True, kw_only=True):
    """The prices of the store; none is built in.

    per_1k_get_usd: a thousand requests. egress_usd_per_gb: a GB read. month_usd_per_gb: storing a GB for a month. All
    default to 0.
    """

    per_1k_get_usd: float = 0.0
    egress_usd_per_gb: float = 0.0
    month_usd_per_gb: float = 0.0

    def problems(self) -> Problems:
        """Nothing is negative."""
        return not_negative(self, "per_1k_get_usd", "egress_usd_per_gb", "month_usd_per_gb")


class Errors(Spec, frozen=True, kw_only=True):
    """Requests that fail.

    probability: of each attempt, below 1. timeout_s: seconds until a failed attempt ends (default 1). backoff_s: pause
    before attempt i is repeated, times 2^i (default 0.1). retries: how often a request may be repeated (default 5).
    """

    probability: float
    timeout_s: float = 1.0
    backoff_s: float = 0.1
    retries: int = 5

    def problems(self) -> Problems:
        """A probability below one."""
        problems = not_negative(self, "timeout_s", "backoff_s", "retries") + not_above(self, 100, "retries")
        if not 0 <= self.probability < 1:
            problems.append(("probability", f"{self.probability:g} is not in [0, 1)"))
        return problems


class Change(Spec, frozen=True, kw_only=True):
    """A change of the store while it is read.

    at_s: when, in seconds of the run. latency_s: the mean latency from then on; its shape stays.
    """

    at_s: float
    latency_s: float

    def problems(self) -> Problems:
        """A time after the start, a latency."""
        return above_zero(self, "at_s") + not_negative(self, "latency_s")


class Store(Spec, frozen=True, kw_only=True):
    """What answers requests. Rates and slots of 0, their default, are no limit.

    latency_s: from the beginning of service to the first byte (default 0). conn_bytes_per_s: bandwidth of a connection.
    shared_bytes_per_s: bandwidth of the link that all share; it may be below that of a connection. slots: requests in
    service at a time. requests_per_s: rate at which requests are accepted. burst: requests that may be accepted at once
    (default 1). client_s, client_s_per_byte: the reader's own work after the last byte (default 0). errors: requests that
    fail (default: none do). price: of requests and bytes (default: free). changes: of the latency, in the order of time
    (default: none).
    """

    latency_s: float | RandomSeconds = 0.0
    conn_bytes_per_s: float = 0.0
    shared_bytes_per_s: float = 0.0
    slots: int = 0
    requests_per_s: float = 0.0
    burst: float = 1.0
    client_s: float = 0.0
    client_s_per_byte: float = 0.0
    errors: Errors | None = None
    price: Price = Price()
    changes: tuple[Change, ...] = ()

    def problems(self) -> Problems:
        """Nothing is negative; a burst is one request at least; changes are of some latency, one after another."""
        names = (
            "conn_bytes_per_s", "shared_bytes_per_s", "slots", "requests_per_s", "client_s", "client_s_per_byte"
        )  # fmt: skip
        problems = not_negative(self, *names) + not_above(self, MOST_SLOTS, "slots")
        if isinstance(self.latency_s, (int, float)):
            problems += not_negative(self, "latency_s")
        if not self.burst >= 1:
            problems.append(("burst", f"{self.burst:g} is below 1"))
        if self.changes and self.latency_s == 0:
            problems.append(
                ("changes", "a latency of 0 cannot become another: give latency_s a mean above 0")
            )
        problems += [
            (f"changes[{at + 1}].at_s", f"{b.at_s:g} s is not after {a.at_s:g} s")
            for at, (a, b) in enumerate(itertools.pairwise(self.changes))
            if b.at_s <= a.at_s
        ]
        return problems


class Cache(Spec, frozen=True, kw_only=True):
    """A cache of blocks before the store. A block is in it from the moment it is asked for.

    scope: of each `loader`, or shared by all jobs of the `node` (the default). capacity_bytes: its size. policy: `lru` (the
    default), `fifo`, `clock`, `pinned` (nothing leaves) or `cost` (GreedyDual-Size). latency_s: of a hit (default 0).
    read_bytes_per_s: bandwidth of a hit (default 0: no limit). prewarm_share: share of the blocks that are in it at the
    start, where they fit (default 0).
    """

    scope: Literal["loader", "node"] = "node"
    capacity_bytes: float
    policy: CachePolicy = "lru"
    latency_s: float = 0.0
    read_bytes_per_s: float = 0.0
    prewarm_share: float = 0.0

    def problems(self) -> Problems:
        """A capacity above 0; shares are in [0, 1]."""
        problems = above_zero(self, "capacity_bytes") + not_negative(self, "latency_s", "read_bytes_per_s")
        if not 0 <= self.prewarm_share <= 1:
            problems.append(("prewarm_share", f"{self.prewarm_share:g} is not in [0, 1]"))
        return problems


class Nodes(Spec, frozen=True, kw_only=True):
    """Machines that train one model together: every epoch's order is shared among them, and so may be their caches.

    Each node has a loader with threads, a buffer and cores as the scenario gives them, takes `run.batch` samples a step,
    and reads its part of the epoch: consecutive blocks of the shuffled order. All share the store. A block is in a cache
    from the moment it is asked for.

    count: nodes. cache_bytes: of the cache of each (default 0: none). policy: `pinned` (the default: what came first stays,
    nothing leaves; CoorDL calls it MinIO) or `lru`. sharing: `none`, each cache serves its own node (the default);
    `partitioned`, each block is cached by the node that reads it in the first epoch, and others read it from there;
    `replicated`, what one node reads from the store is given to all. cache_latency_s, cache_bytes_per_s: of a hit in the
    own cache (defaults 0, and no limit). link_latency_s, link_bytes_per_s: of asking another node, and bandwidth of the
    link over which a node reads from the others (defaults 0, and no limit). What is handed to other caches takes no time.
    """

    count: int
    cache_bytes: float = 0.0
    policy: NodeCachePolicy = "pinned"
    sharing: Sharing = "none"
    cache_latency_s: float = 0.0
    cache_bytes_per_s: float = 0.0
    link_latency_s: float = 0.0
    link_bytes_per_s: float = 0.0

    def problems(self) -> Problems:
        """A node at least; nothing is negative."""
        times = ("cache_latency_s", "cache_bytes_per_s", "link_latency_s", "link_bytes_per_s")
        problems = above_zero(self, "count") + not_above(self, MOST_NODES, "count")
        return problems + not_negative(self, "cache_bytes", *times)


class GpuDecode(Spec, frozen=True, kw_only=True):
    """Decoding on the GPU, one batch ahead of the step. It takes the place of `cpu.decode_s` and `cpu.decode_cpu_s`.

    samples_per_s: that the decoder makes. batch_samples: that it decodes at a time; what is fewer takes as long (default 0:
    any number, in proportion). gpu_share: of the GPU that decoding takes from training, whose steps are 1 / (1 - gpu_share)
    times as long (default 0: the decoder has units of its own). host_cpu_s: processor time of a sample that stays on the
    host (default 0).
    """

    samples_per_s: float
    batch_samples: int = 0
    gpu_share: float = 0.0
    host_cpu_s: float = 0.0

    def problems(self) -> Problems:
        """A rate; a share below one."""
        problems = above_zero(self, "samples_per_s") + not_negative(self, "batch_samples", "host_cpu_s")
        if not 0 <= self.gpu_share < 1:
            problems.append(("gpu_share", f"{self.gpu_share:g} is not in [0, 1)"))
        return problems


class Cpu(Spec, frozen=True, kw_only=True):
    """The work on a sample after it is read.

    cores: that all threads share (default 0: as many as needed). one_core_python: serve the CPU part of decoding on one
    core, first come first served (default: no). decode_s: decoding that needs no core [s a sample]. decode_cpu_s: decoding
    that needs one; a random time is sampled once for each sample. collate_s, collate_per_sample_s: assembling a batch, by
    workers. handoff_s, handoff_s_per_byte: handing a batch over, by its decoded bytes. pool_efficiency: a worker's pool
    decodes this many times as fast (default 1). Times default to 0.
    """

    cores: float = 0.0
    one_core_python: bool = False
    decode_s: float | RandomSeconds = 0.0
    decode_cpu_s: float | RandomSeconds = 0.0
    collate_s: float = 0.0
    collate_per_sample_s: float = 0.0
    handoff_s: float = 0.0
    handoff_s_per_byte: float = 0.0
    pool_efficiency: float = 1.0

    def problems(self) -> Problems:
        """Nothing is negative."""
        names = ["cores", "collate_s", "collate_per_sample_s", "handoff_s", "handoff_s_per_byte"]
        names += [n for n in ("decode_s", "decode_cpu_s") if not isinstance(getattr(self, n), RandomSeconds)]
        return not_negative(self, *names) + above_zero(self, "pool_efficiency")


class Loader(Spec, frozen=True, kw_only=True):
    """The loader.

    mode: `threads` that take blocks and fill one buffer (the default), `workers` as torch's loader has them, or
    `pooled_workers`, which read blocks and decode with `threads` threads each. threads: how many (default 1). workers:
    worker processes (default 1). prefetch: batches that each worker makes ahead (default 2). buffer_samples: size of the
    buffer (default 0: no limit). start_s: when each worker is ready (default: at once).
    """

    mode: Literal["threads", "workers", "pooled_workers"] = "threads"
    threads: int = 1
    workers: int = 1
    prefetch: int = 2
    buffer_samples: int = 0
    start_s: tuple[float, ...] = ()

    def problems(self) -> Problems:
        """One thread and worker at least; a start for each worker, or none."""
        problems = above_zero(self, "threads", "workers", "prefetch") + not_negative(self, "buffer_samples")
        problems += not_above(self, MOST_OF_ANYTHING, "threads", "workers", "prefetch")
        problems += not_above(self, MOST_SLOTS, "buffer_samples")
        if self.start_s and (len(self.start_s) != self.workers or min(self.start_s) < 0):
            problems.append(("start_s", f"{self.workers} times of 0 or more are expected, one a worker"))
        return problems


class Step(Spec, frozen=True, kw_only=True):
    """The training step.

    step_s: seconds of a step. overhead_s: of the training loop, a step (default 0). gpu_usd_per_h: price of the GPU, for
    the cost of stalled time (default 0).
    """

    step_s: float | RandomSeconds
    overhead_s: float = 0.0
    gpu_usd_per_h: float = 0.0

    def problems(self) -> Problems:
        """Nothing is negative."""
        problems = not_negative(self, "overhead_s", "gpu_usd_per_h")
        return problems + (not_negative(self, "step_s") if isinstance(self.step_s, (int, float)) else [])


class Run(Spec, frozen=True, kw_only=True):
    """The training run.

    batch: samples a batch. epochs: passes over the data (default 1). steps: batches after which an epoch ends (default 0:
    when the data end). warmup_steps: batches at the beginning whose waits are start-up, not steady stall (default 1).
    drop_last: leave out a short last batch (default: no). partition: of samples among workers, `round_robin` by batch (the
    default, as torch) or `contiguous` parts.
    """

    batch: int
    epochs: int = 1
    steps: int = 0
    warmup_steps: int = 1
    drop_last: bool = False
    partition: Partition = "round_robin"

    def problems(self) -> Problems:
        """Whole numbers above zero."""
        problems = above_zero(self, "batch", "epochs") + not_negative(self, "steps", "warmup_steps")
        return problems + not_above(self, MOST_EPOCHS, "epochs")


#: axes of a grid: the least value, and whether there must be some
_AXES = (("blocks", 1, True), ("threads", 1, True), ("workers", 1, False), ("cache_bytes", 0, False))


class Grid(Spec, frozen=True, kw_only=True):
    """Cells to predict, plan over and tune over: every combination of the values.

    blocks: samples a block. threads: of a loader, or of each worker's pool. workers: worker processes, for loaders of
    workers (default: none). cache_bytes: sizes of a warm cache before the store, for loaders of threads; as the scenario's
    first cache, or pinned (default: none; 0: without a cache). sharings, cache_policies: of the caches of nodes, of which
    `cache_bytes` are then the sizes (default: as in `nodes`). decoders: `cpu` and `gpu`, the latter as `gpu_decode`
    describes it (default: as the scenario has it).
    """

    added_later: ClassVar[tuple[str, ...]] = ("sharings", "cache_policies", "decoders")
    removed: ClassVar[Mapping[str, Any]] = {"placements": []}

    blocks: tuple[int, ...] = (1, 4, 16, 64)
    threads: tuple[int, ...] = (1, 2, 4, 8)
    workers: tuple[int, ...] = ()
    cache_bytes: tuple[float, ...] = ()
    sharings: tuple[Sharing, ...] | None = None
    cache_policies: tuple[NodeCachePolicy, ...] | None = None
    decoders: tuple[Literal["cpu", "gpu"], ...] | None = None

    def problems(self) -> Problems:
        """Some blocks and threads, none negative, none twice."""
        return (
            [
                (name, f"must be ascending numbers {'above 0' if least else 'of 0 or more'}")
                for name, least, needed in _AXES
                if (not (values := getattr(self, name)) and needed)
                or (values and values[0] < least)
                or any(b <= a for a, b in itertools.pairwise(values))
            ]
            + [
                (name, f"{getattr(self, name)[-1]} is more than the {MOST_OF_ANYTHING} that are simulated")
                for name in ("threads", "workers")
                if getattr(self, name) and getattr(self, name)[-1] > MOST_OF_ANYTHING
            ]
            + [
                (name, "must name some, each once")
                for name in self.added_later
                if (given := getattr(self, name)) is not None and not len(given) == len(set(given)) > 0
            ]
        )

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, nodes left aside."""
        return tuple(
            Cell(block, threads, workers, cache, decoder=decoder)
            for block in self.blocks
            for threads in self.threads
            for workers in self.workers or (0,)
            for cache in self.cache_bytes or (0.0,)
            for decoder in self.decoders or ("",)
        )

    def cells_of(self, nodes: Nodes | None) -> tuple[Cell, ...]:
        """Every cell, with the caches of nodes where there are any; a node without a cache shares nothing.

        Parameters
        ----------
        nodes : of the scenario, whose own caches are the default.
        """
        if nodes is None:
            return self.cells
        grid = self.with_(cache_bytes=self.cache_bytes or (nodes.cache_bytes,))
        cells = (
            replace(cell, sharing=sharing, cache_policy=policy)
            if cell.cache_bytes
            else replace(cell, sharing="none", cache_policy="pinned")
            for cell in grid.cells
            for sharing in self.sharings or (nodes.sharing,)
            for policy in self.cache_policies or (nodes.policy,)
        )
        return tuple(dict.fromkeys(cells))


class Goal(Spec, frozen=True, kw_only=True):
    """What a plan minimises, and its constraints.

    memory_bytes: of blocks in memory at a time (default 0: no bound). margin_share: of the best, within which the plan takes
    the least memory (default 0.01). minimise: `time` of an epoch (the default) or its `cost`.
    """

    memory_bytes: float = 0.0
    margin_share: float = 0.01
    minimise: Literal["time", "cost"] = "time"

    def problems(self) -> Problems:
        """Nothing is negative."""
        return not_negative(self, "memory_bytes", "margin_share")


class Scenario(Spec, frozen=True, kw_only=True):
    """A training job: its data, where they are stored, the loader, and the step that must hide the loading.

    dataset, layout, store, caches, cpu, loader, step, run: see these sections. jobs: equal jobs that share the store, each
    with a loader of its own (default 1). stagger_s: seconds between their starts (default 0). grid: cells to predict
    (default: none). goal: of a plan. tuner: chooses block size and threads from the grid by probes of the simulated store
    (default: none). nodes: that share the data set, in place of `jobs` that each read all of it (default: none).
    gpu_decode: decoding on the GPU (default: none; it is on the CPU). seed: of every random stream (default 0).
    """

    added_later: ClassVar[tuple[str, ...]] = ("nodes", "gpu_decode")
    removed: ClassVar[Mapping[str, Any]] = {"pace": None, "cluster": None, "policy": {"name": "csp"}}

    domain: Literal["loading"] = "loading"
    spec_version: int = 1
    title: str = ""
    dataset: Dataset
    layout: Layout = Layout()
    store: Store = Store()
    caches: tuple[Cache, ...] = ()
    cpu: Cpu = Cpu()
    loader: Loader = Loader()
    step: Step
    run: Run
    jobs: int = 1
    stagger_s: float = 0.0
    grid: Grid | None = None
    goal: Goal = Goal()
    tuner: Annotated[TunerSpec | None, chosen_from(tuners)] = None
    nodes: Nodes | None = None
    gpu_decode: GpuDecode | None = None
    seed: int = 0

    @property
    def readers(self) -> int:
        """Loaders that run together: one a node, else one a job."""
        return self.nodes.count if self.nodes is not None else self.jobs

    def problems(self) -> Problems:
        """A batch and a block fit the data; choices that exclude each other are not both made."""
        problems = above_zero(self, "jobs") + not_negative(self, "stagger_s", "seed")
        problems += not_above(self, MOST_OF_ANYTHING, "jobs") + not_above(self, MOST_STAGGER_S, "stagger_s")
        limit = self.run.steps * self.run.batch or self.dataset.samples
        read = self.jobs * self.run.epochs * min(limit, self.dataset.samples)
        if read > MOST_READ:
            what = f"{self.jobs} jobs read {read:,} samples in {self.run.epochs} epochs; at most {MOST_READ:,} are simulated"
            problems.append(("run.epochs", what))
        if self.run.batch > self.dataset.samples:
            problems.append(
                ("run.batch", f"{self.run.batch} is more than the {self.dataset.samples} samples")
            )
        if self.layout.block_samples > self.dataset.samples:
            problems.append(
                (
                    "layout.block_samples",
                    f"{self.layout.block_samples} is more than the {self.dataset.samples} samples",
                )
            )
        if self.dataset.shuffle == "global" and (self.layout.block_samples > 1 or self.layout.block_bytes):
            problems.append(
                ("dataset.shuffle", "global shuffling reads single samples; use block, or blocks of 1")
            )
        plain = self.loader.mode == "threads"
        if not plain and self.dataset.shuffle_buffer_samples:
            problems.append(
                ("dataset.shuffle", f"block+buffer needs loader.mode threads, not {self.loader.mode}")
            )
        if self.layout.block_bytes and self.tuner is not None:
            problems.append(("layout.block_bytes", "tuners count samples: give block_samples"))
        if not plain and self.jobs > 1:
            problems.append(("jobs", f"several jobs need loader.mode threads, not {self.loader.mode}"))
        if not plain and self.caches:
            problems.append(("caches", f"caches need loader.mode threads, not {self.loader.mode}"))
        if not plain and self.gpu_decode is not None:
            problems.append(("gpu_decode", f"needs loader.mode threads, not {self.loader.mode}"))
        if not plain and self.tuner is not None:
            problems.append(("tuner", f"tuners need loader.mode threads, not {self.loader.mode}"))
        if self.nodes is not None:
            problems += self._node_problems(self.nodes)
        if self.grid is not None:
            problems += self._grid_problems(self.grid)
        if self.tuner is not None and self.grid is None:
            problems.append(("grid", "a tuner needs a grid of cells to choose from"))
        if not plain and self.store.changes:
            what = f"needs loader.mode threads, not {self.loader.mode}: workers are known by a recursion"
            problems.append(("store.changes", what))
        if self.run.partition == "contiguous" and plain:
            problems.append(
                ("run.partition", "contiguous parts are for workers; threads take blocks in turn")
            )
        return problems

    def _node_problems(self, nodes: Nodes) -> Problems:
        """Nodes are one job's, with loaders of threads and caches of their own, and each has a batch at least."""
        mode, problems = self.loader.mode, []
        if mode != "threads":
            problems.append(("nodes", f"needs loader.mode threads, not {mode}"))
        if self.jobs > 1:
            problems.append(("nodes", f"are one job's machines: jobs 1 is required, not {self.jobs}"))
        for name in ("caches", "tuner"):
            if getattr(self, name):
                problems.append((name, "and nodes: give one of them"))
        if self.run.steps:
            problems.append(
                ("run.steps", "ends epochs early, and nodes' caches fill by whole epochs: leave it out")
            )
        if self.dataset.shuffle == "none":
            problems.append(("dataset.shuffle", "none: nodes share a shuffled order; use block or global"))
        if self.dataset.samples < nodes.count * max(self.run.batch, self.layout.block_samples):
            what = f"{nodes.count} nodes have no batch and block each of {self.dataset.samples} samples"
            problems.append(("nodes.count", what))
        blocks = self.dataset.samples // (self.layout.block_samples if not self.layout.block_bytes else 1)
        if nodes.count * blocks > MOST_SAMPLES:
            what = f"{nodes.count} nodes times {blocks:,} blocks are more than the {MOST_SAMPLES:,} that are simulated"
            problems.append(("nodes.count", what))
        return problems

    def _grid_problems(self, grid: Grid) -> Problems:
        """Workers and caches each go with a kind of loader; tuners choose blocks and threads only."""
        plain, problems = self.loader.mode == "threads", []
        if plain and grid.workers:
            problems.append(("grid.workers", "needs loader.mode workers or pooled_workers, not threads"))
        if not plain and not grid.workers:
            problems.append(
                ("grid.workers", f"numbers of workers are required for loader.mode {self.loader.mode}")
            )
        if not plain and grid.cache_bytes:
            problems.append(("grid.cache_bytes", f"caches need loader.mode threads, not {self.loader.mode}"))
        if self.loader.mode == "workers" and grid.threads != (1,):
            problems.append(("grid.threads", "workers without a pool have no threads: [1] is required"))
        if self.nodes is None and (grid.sharings or grid.cache_policies):
            problems.append(("grid.sharings", "and cache_policies are of the caches of `nodes`: give them"))
        if grid.decoders and "gpu" in grid.decoders and self.gpu_decode is None:
            problems.append(
                ("grid.decoders", "gpu needs a `gpu_decode` section, which describes the decoder")
            )
        for name in ("cache_bytes", "decoders"):
            if self.tuner is not None and getattr(grid, name):
                problems.append((f"grid.{name}", "tuners choose blocks and threads only"))
        return problems


def unlimited(rate: float) -> float:
    """A rate of a file, where 0 is no limit."""
    return rate if rate else math.inf
