"""The records of a loading scenario file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from forerun.core.scenario.checks import Checks, failing
from forerun.core.scenario.numbers import Count, NotNegative, Positive, Share, Whole
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


#: how many of something
Several: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MOST_OF_ANYTHING)]
Slots: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_SLOTS)]
Sigma: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MOST_SIGMA)]
#: a probability, or a share of a thing of which some must be left
Below1: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class RandomSeconds(Spec, frozen=True, kw_only=True):
    """A random time [s], or recorded times.

    mean_s: mean (default 0: that of the file). shape: `lognormal` (the default: mean * exp(sigma z - sigma^2 / 2)),
    `exponential` or `constant`. sigma: standard deviation of the logarithm (default 0.2). empirical: a CSV file with a
    column `seconds` to sample from (default: none). in_order: take its values in the recorded order instead, and again
    from the beginning where the file ends (default: no).
    """

    mean_s: NotNegative = 0.0
    shape: Shape = "lognormal"
    sigma: Sigma = 0.2
    empirical: Input | None = None
    in_order: bool = False

    def problems(self) -> Problems:
        """A mean, or a file."""
        problems = []
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

    mean_bytes: NotNegative = 0.0
    shape: Shape = "lognormal"
    sigma: Sigma = 0.5
    least_bytes: Positive = 1.0
    most_bytes: NotNegative = 0.0
    empirical: Input | None = None

    def problems(self) -> Problems:
        """A mean, or a file."""
        problems = []
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

    samples: Annotated[int, msgspec.Meta(ge=1, le=MOST_SAMPLES)]
    sample_bytes: Positive | RandomBytes
    decoded_bytes: NotNegative = 0.0
    shuffle: Literal["none", "block", "block+buffer", "global"] = "block"
    shuffle_buffer_samples: Slots = 0

    def problems(self) -> Problems:
        """A buffer goes with the shuffle that has one."""
        if (self.shuffle == "block+buffer") == (self.shuffle_buffer_samples > 0):
            return []
        what = f"{self.shuffle_buffer_samples} with shuffle {self.shuffle}: only block+buffer has a buffer"
        return [("shuffle_buffer_samples", what)]


class Layout(Spec, frozen=True, kw_only=True):
    """How samples are merged into blocks.

    block_samples: samples a block (default 1: single files). block_bytes: cut blocks by size instead, as
    `forerun pack --block-bytes` does; a block ends before the sample with which it would be larger (default 0: by samples).
    merge_s: seconds that merging takes, once (default 0).
    """

    block_samples: Count = 1
    block_bytes: NotNegative = 0.0
    merge_s: NotNegative = 0.0

    def problems(self) -> Problems:
        """Blocks are cut by samples or by bytes."""
        if self.block_bytes and self.block_samples != 1:
            return [("block_bytes", f"and block_samples {self.block_samples}: give one of them")]
        return []


class Price(Spec, frozen=True, kw_only=True):
    """The prices of the store; none is built in.

    per_1k_get_usd: a thousand requests. egress_usd_per_gb: a GB read. month_usd_per_gb: storing a GB for a month. All
    default to 0.
    """

    per_1k_get_usd: NotNegative = 0.0
    egress_usd_per_gb: NotNegative = 0.0
    month_usd_per_gb: NotNegative = 0.0


class Errors(Spec, frozen=True, kw_only=True):
    """Requests that fail.

    probability: of each attempt, below 1. timeout_s: seconds until a failed attempt ends (default 1). backoff_s: pause
    before attempt i is repeated, times 2^i (default 0.1). retries: how often a request may be repeated (default 5).
    """

    probability: Below1
    timeout_s: NotNegative = 1.0
    backoff_s: NotNegative = 0.1
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5


class Change(Spec, frozen=True, kw_only=True):
    """A change of the store while it is read.

    at_s: when, in seconds of the run. latency_s: the mean latency from then on; its shape stays.
    """

    at_s: Positive
    latency_s: NotNegative


class Store(Spec, frozen=True, kw_only=True):
    """What answers requests. Rates and slots of 0, their default, are no limit.

    latency_s: from the beginning of service to the first byte (default 0). conn_bytes_per_s: bandwidth of a connection.
    shared_bytes_per_s: bandwidth of the link that all share; it may be below that of a connection. slots: requests in
    service at a time. requests_per_s: rate at which requests are accepted. burst: requests that may be accepted at once
    (default 1). client_s, client_s_per_byte: the reader's own work after the last byte (default 0). errors: requests that
    fail (default: none do). price: of requests and bytes (default: free). changes: of the latency, in the order of time
    (default: none).
    """

    latency_s: NotNegative | RandomSeconds = 0.0
    conn_bytes_per_s: NotNegative = 0.0
    shared_bytes_per_s: NotNegative = 0.0
    slots: Slots = 0
    requests_per_s: NotNegative = 0.0
    burst: Annotated[float, msgspec.Meta(ge=1)] = 1.0
    client_s: NotNegative = 0.0
    client_s_per_byte: NotNegative = 0.0
    errors: Errors | None = None
    price: Price = Price()
    changes: tuple[Change, ...] = ()

    def problems(self) -> Problems:
        """Changes are of some latency, one after another."""
        problems = [
            (f"changes[{at + 1}].at_s", f"{b.at_s:g} s is not after {a.at_s:g} s")
            for at, (a, b) in enumerate(itertools.pairwise(self.changes))
            if b.at_s <= a.at_s
        ]
        if self.changes and self.latency_s == 0:
            what = "a latency of 0 cannot become another: give latency_s a mean above 0"
            problems.append(("changes", what))
        return problems


class Cache(Spec, frozen=True, kw_only=True):
    """A cache of blocks before the store. A block is in it from the moment it is asked for.

    scope: of each `loader`, or shared by all jobs of the `node` (the default). capacity_bytes: its size. policy: `lru` (the
    default), `fifo`, `clock`, `pinned` (nothing leaves) or `cost` (GreedyDual-Size). latency_s: of a hit (default 0).
    read_bytes_per_s: bandwidth of a hit (default 0: no limit). prewarm_share: share of the blocks that are in it at the
    start, where they fit (default 0).
    """

    scope: Literal["loader", "node"] = "node"
    capacity_bytes: Positive
    policy: CachePolicy = "lru"
    latency_s: NotNegative = 0.0
    read_bytes_per_s: NotNegative = 0.0
    prewarm_share: Share = 0.0


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

    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_NODES)]
    cache_bytes: NotNegative = 0.0
    policy: NodeCachePolicy = "pinned"
    sharing: Sharing = "none"
    cache_latency_s: NotNegative = 0.0
    cache_bytes_per_s: NotNegative = 0.0
    link_latency_s: NotNegative = 0.0
    link_bytes_per_s: NotNegative = 0.0


class GpuDecode(Spec, frozen=True, kw_only=True):
    """Decoding on the GPU, one batch ahead of the step. It takes the place of `cpu.decode_s` and `cpu.decode_cpu_s`.

    samples_per_s: that the decoder makes. batch_samples: that it decodes at a time; what is fewer takes as long (default 0:
    any number, in proportion). gpu_share: of the GPU that decoding takes from training, whose steps are 1 / (1 - gpu_share)
    times as long (default 0: the decoder has units of its own). host_cpu_s: processor time of a sample that stays on the
    host (default 0).
    """

    samples_per_s: Positive
    batch_samples: Whole = 0
    gpu_share: Below1 = 0.0
    host_cpu_s: NotNegative = 0.0


class Cpu(Spec, frozen=True, kw_only=True):
    """The work on a sample after it is read.

    cores: that all threads share (default 0: as many as needed). one_core_python: serve the CPU part of decoding on one
    core, first come first served (default: no). decode_s: decoding that needs no core [s a sample]. decode_cpu_s: decoding
    that needs one; a random time is sampled once for each sample. collate_s, collate_per_sample_s: assembling a batch, by
    workers. handoff_s, handoff_s_per_byte: handing a batch over, by its decoded bytes. pool_efficiency: a worker's pool
    decodes this many times as fast (default 1). Times default to 0.
    """

    cores: NotNegative = 0.0
    one_core_python: bool = False
    decode_s: NotNegative | RandomSeconds = 0.0
    decode_cpu_s: NotNegative | RandomSeconds = 0.0
    collate_s: NotNegative = 0.0
    collate_per_sample_s: NotNegative = 0.0
    handoff_s: NotNegative = 0.0
    handoff_s_per_byte: NotNegative = 0.0
    pool_efficiency: Positive = 1.0


class Loader(Spec, frozen=True, kw_only=True):
    """The loader.

    mode: `threads` that take blocks and fill one buffer (the default), `workers` as torch's loader has them, or
    `pooled_workers`, which read blocks and decode with `threads` threads each. threads: how many (default 1). workers:
    worker processes (default 1). prefetch: batches that each worker makes ahead (default 2). buffer_samples: size of the
    buffer (default 0: no limit). start_s: when each worker is ready (default: at once).
    """

    mode: Literal["threads", "workers", "pooled_workers"] = "threads"
    threads: Several = 1
    workers: Several = 1
    prefetch: Several = 2
    buffer_samples: Slots = 0
    start_s: tuple[float, ...] = ()

    def problems(self) -> Problems:
        """A start for each worker, or none."""
        if self.start_s and (len(self.start_s) != self.workers or min(self.start_s) < 0):
            return [("start_s", f"{self.workers} times of 0 or more are expected, one a worker")]
        return []


class Step(Spec, frozen=True, kw_only=True):
    """The training step.

    step_s: seconds of a step. overhead_s: of the training loop, a step (default 0). gpu_usd_per_h: price of the GPU, for
    the cost of stalled time (default 0).
    """

    step_s: NotNegative | RandomSeconds
    overhead_s: NotNegative = 0.0
    gpu_usd_per_h: NotNegative = 0.0


class Run(Spec, frozen=True, kw_only=True):
    """The training run.

    batch: samples a batch. epochs: passes over the data (default 1). steps: batches after which an epoch ends (default 0:
    when the data end). warmup_steps: batches at the beginning whose waits are start-up, not steady stall (default 1).
    drop_last: leave out a short last batch (default: no). partition: of samples among workers, `round_robin` by batch (the
    default, as torch) or `contiguous` parts.
    """

    batch: Count
    epochs: Annotated[int, msgspec.Meta(ge=1, le=MOST_EPOCHS)] = 1
    steps: Whole = 0
    warmup_steps: Whole = 1
    drop_last: bool = False
    partition: Partition = "round_robin"


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

    memory_bytes: NotNegative = 0.0
    margin_share: NotNegative = 0.01
    minimise: Literal["time", "cost"] = "time"


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
    jobs: Several = 1
    stagger_s: Annotated[float, msgspec.Meta(ge=0, le=MOST_STAGGER_S)] = 0.0
    grid: Grid | None = None
    goal: Goal = Goal()
    tuner: Annotated[TunerSpec | None, chosen_from(tuners)] = None
    nodes: Nodes | None = None
    gpu_decode: GpuDecode | None = None
    seed: Whole = 0

    @property
    def readers(self) -> int:
        """Loaders that run together: one a node, else one a job."""
        return self.nodes.count if self.nodes is not None else self.jobs

    def problems(self) -> Problems:
        """A batch and a block fit the data; choices that exclude each other are not both made."""
        return [
            *failing(self._size_checks()),
            *self._thread_problems(),
            *failing(self._choice_checks()),
            *(failing(self._node_checks(self.nodes)) if self.nodes is not None else ()),
            *(failing(self._grid_checks(self.grid)) if self.grid is not None else ()),
        ]

    def _size_checks(self) -> Checks:
        """A batch and a block fit the data; all that is read can be simulated."""
        samples, batch, block = self.dataset.samples, self.run.batch, self.layout.block_samples
        epoch = min(self.run.steps * batch or samples, samples)
        read = self.jobs * self.run.epochs * epoch
        reads = f"{self.jobs} jobs read {read:,} samples in {self.run.epochs} epochs"
        return [
            (read > MOST_READ, "run.epochs", f"{reads}; at most {MOST_READ:,} are simulated"),
            (batch > samples, "run.batch", f"{batch} is more than the {samples} samples"),
            (block > samples, "layout.block_samples", f"{block} is more than the {samples} samples"),
        ]

    def _thread_problems(self) -> Problems:
        """What only loaders of threads have."""
        if self.loader.mode == "threads":
            return []
        given = {
            "dataset.shuffle": ("block+buffer needs", self.dataset.shuffle_buffer_samples > 0),
            "jobs": ("several jobs need", self.jobs > 1),
            "caches": ("caches need", bool(self.caches)),
            "gpu_decode": ("needs", self.gpu_decode is not None),
            "tuner": ("tuners need", self.tuner is not None),
            "nodes": ("needs", self.nodes is not None),
            "store.changes": ("needs", bool(self.store.changes)),
            "grid.cache_bytes": ("caches need", self.grid is not None and bool(self.grid.cache_bytes)),
        }
        mode = f"loader.mode threads, not {self.loader.mode}"
        return [(where, f"{what} {mode}") for where, (what, is_given) in given.items() if is_given]

    def _choice_checks(self) -> Checks:
        """Orders, blocks, tuners and parts that go together."""
        single = self.dataset.shuffle == "global"
        blocks = self.layout.block_samples > 1 or self.layout.block_bytes > 0
        tuned, parts = self.tuner is not None, self.run.partition == "contiguous"
        contiguous = "contiguous parts are for workers; threads take blocks in turn"
        whole = "global shuffling reads single samples; use block, or blocks of 1"
        return [
            (single and blocks, "dataset.shuffle", whole),
            (
                tuned and self.layout.block_bytes > 0,
                "layout.block_bytes",
                "tuners count samples: give block_samples",
            ),
            (tuned and self.grid is None, "grid", "a tuner needs a grid of cells to choose from"),
            (parts and self.loader.mode == "threads", "run.partition", contiguous),
        ]

    def _node_checks(self, nodes: Nodes) -> Checks:
        """Nodes are one job's, with caches of their own, and each has a batch at least."""
        samples, block = self.dataset.samples, self.layout.block_samples
        blocks = samples if self.layout.block_bytes else samples // block
        jobs = f"are one job's machines: jobs 1 is required, not {self.jobs}"
        early = "ends epochs early, and nodes' caches fill by whole epochs: leave it out"
        order = "none: nodes share a shuffled order; use block or global"
        few = f"{nodes.count} nodes have no batch and block each of {samples} samples"
        times = f"{nodes.count} nodes times {blocks:,} blocks"
        many = f"{times} are more than the {MOST_SAMPLES:,} that are simulated"
        return [
            (self.jobs > 1, "nodes", jobs),
            (bool(self.caches), "caches", "and nodes: give one of them"),
            (self.tuner is not None, "tuner", "and nodes: give one of them"),
            (self.run.steps > 0, "run.steps", early),
            (self.dataset.shuffle == "none", "dataset.shuffle", order),
            (samples < nodes.count * max(self.run.batch, block), "nodes.count", few),
            (nodes.count * blocks > MOST_SAMPLES, "nodes.count", many),
        ]

    def _grid_checks(self, grid: Grid) -> Checks:
        """Workers go with a kind of loader; tuners choose blocks and threads only."""
        mode, tuned = self.loader.mode, self.tuner is not None
        plain, caches = mode == "threads", bool(grid.sharings or grid.cache_policies)
        lacking = "gpu" in (grid.decoders or ()) and self.gpu_decode is None
        kind = "needs loader.mode workers or pooled_workers, not threads"
        pool = "workers without a pool have no threads: [1] is required"
        theirs = "and cache_policies are of the caches of `nodes`: give them"
        decoder = "gpu needs a `gpu_decode` section, which describes the decoder"
        only = "tuners choose blocks and threads only"
        required = f"numbers of workers are required for loader.mode {mode}"
        return [
            (plain and bool(grid.workers), "grid.workers", kind),
            (not plain and not grid.workers, "grid.workers", required),
            (mode == "workers" and grid.threads != (1,), "grid.threads", pool),
            (caches and self.nodes is None, "grid.sharings", theirs),
            (lacking, "grid.decoders", decoder),
            (tuned and bool(grid.cache_bytes), "grid.cache_bytes", only),
            (tuned and bool(grid.decoders), "grid.decoders", only),
        ]


def unlimited(rate: float) -> float:
    """A rate of a file, where 0 is no limit."""
    return rate if rate else math.inf
