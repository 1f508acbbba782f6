"""Nodes that share caches, and decoding on the GPU: against slow simulations written differently, and closed forms."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

import forerun
from forerun.core.errors import ScenarioError
from forerun.core.scenario.spec import canonical_json, content_id, to_data
from forerun.core.scenarios import loads
from forerun.loading import plan as planning
from forerun.loading.engine.model import CacheModel, NodesModel, Reader, StoreModel
from forerun.loading.engine.setup import cache_that_frees_link
from forerun.loading.engine.sharing import hit_shares
from forerun.loading.engine.threads import open_caches, stream
from forerun.loading.explain import LoadingExplainer
from forerun.loading.figures import figures
from forerun.loading.inputs import prepare
from forerun.loading.policy import UNBOUNDED, Cell
from forerun.loading.scenario import Nodes

from ..conftest import cases
from .test_laws_hold import Shared

#: drawn worlds in a run of the suite; set FORERUN_CASES for more
CASES = cases(100)


class SlowCache:
    """Bytes by key: the oldest first; what is used moves to the end under lru, nothing leaves under pinned."""

    def __init__(self, capacity: float, policy: str) -> None:
        self.capacity, self.policy = capacity, policy
        self.sizes: OrderedDict[int, float] = OrderedDict()
        self.used = 0.0

    def has(self, key: int) -> bool:
        """Whether it is there, which counts as a use."""
        if key in self.sizes and self.policy == "lru":
            self.sizes.move_to_end(key)
        return key in self.sizes

    def take(self, key: int, size: float) -> None:
        """Keep it, if the policy does."""
        if key in self.sizes or size > self.capacity:
            return
        if self.policy == "pinned" and self.used + size > self.capacity:
            return
        while self.used + size > self.capacity:
            self.used -= self.sizes.popitem(last=False)[1]
        self.sizes[key] = size
        self.used += size


def nodes_by_processes(
    readers: list[Reader], store: StoreModel, latency_s: np.ndarray, nodes: NodesModel, caches: list[SlowCache],
    cache_s: float,
) -> tuple[list[list[float]], list[float], list[dict[int, int]]]:  # fmt: skip
    """Loads, totals and where each key came from (-1: the store), a node each, as simpy processes."""
    env = simpy.Environment()
    slots = simpy.Resource(env, store.slots or 10**6)
    link = Shared(env, store.conn_bytes_per_s, store.shared_bytes_per_s)
    grants = iter(latency_s)
    loads: list[list[float]] = [[] for _ in readers]
    ends, sources = [0.0] * len(readers), [dict[int, int]() for _ in readers]

    def node(me: int, reader: Reader) -> tuple[list[Any], Any]:
        cores, network = Shared(env, 1.0, store.cores), Shared(env, math.inf, nodes.bytes_per_s)
        buffer = simpy.Store(env, capacity=reader.buffer_samples)
        assert reader.keys is not None
        todo = iter(zip(reader.keys.tolist(), reader.blocks))

        def from_store(size: float) -> Any:
            with slots.request() as slot:
                yield slot
                yield env.timeout(next(grants))
                yield link.work(size)

        def thread() -> Any:
            for key, block in todo:
                size = float(np.sum(block))
                home = int(nodes.owner[key]) if nodes.sharing == "partitioned" else me
                if caches[home].has(key):
                    sources[me][key] = home
                    yield env.timeout(cache_s if home == me else nodes.latency_s + cache_s)
                    if home != me:
                        yield network.work(size)
                else:
                    sources[me][key] = -1
                    for other, cache in enumerate(caches):
                        if other == home or nodes.sharing == "replicated":
                            cache.take(key, size)
                    if home != me:
                        yield env.timeout(nodes.latency_s)
                    yield from from_store(size)
                for _ in block:
                    yield env.timeout(float(np.asarray(reader.decode_s)))
                    if cpu_s := float(np.asarray(reader.decode_cpu_s)):
                        yield cores.work(cpu_s)
                    yield buffer.put(1)

        offered, taken = simpy.Store(env), simpy.Store(env)

        def decoder() -> Any:
            for number, new in enumerate(reader.new_samples):
                for _ in range(new):
                    yield buffer.get()
                if reader.gpu_s is not None:
                    yield env.timeout(float(reader.gpu_s[number]))
                    yield offered.put(1)
                    yield taken.get()
                else:
                    yield offered.put(1)
                    yield taken.get()

        def loop() -> Any:
            for _ in reader.batch_samples:
                asked = env.now
                yield offered.get()
                loads[me].append(env.now - asked)
                if reader.gpu_s is not None:
                    yield taken.put(1)  # the decoder goes on while the step lasts
                yield env.timeout(float(np.asarray(reader.step_s)))
                if reader.gpu_s is None:
                    yield taken.put(1)
            ends[me] = env.now

        for _ in range(reader.threads):
            env.process(thread())
        env.process(decoder())
        return [], env.process(loop())

    env.run(until=env.all_of([node(me, reader)[1] for me, reader in enumerate(readers)]))
    return loads, ends, sources


def drawn(rng: np.random.Generator) -> tuple[list[np.ndarray], Reader, StoreModel, NodesModel, CacheModel]:
    """Blocks, a node's loader without blocks, the store, the nodes and a cache of each."""
    count = int(rng.integers(1, 5))
    blocks = [rng.uniform(1e4, 1e5, int(rng.integers(1, 4))) for _ in range(count * int(rng.integers(1, 8)))]
    loader = Reader(
        [],
        threads=int(rng.integers(1, 4)),
        batch=int(rng.integers(1, 5)),
        step_s=float(rng.exponential(0.01)),
        decode_s=float(rng.exponential(0.002)),
        decode_cpu_s=float(rng.choice([0.0, rng.exponential(0.002)])),
        buffer_samples=int(rng.choice([1, 5, UNBOUNDED])),
    )
    store = StoreModel(
        conn_bytes_per_s=float(rng.uniform(1e7, 1e9)),
        shared_bytes_per_s=float(rng.uniform(1e7, 1e8)),
        slots=int(rng.choice([0, 1, 3])),
        cores=float(rng.choice([1.0, 1.5, math.inf])),
    )
    whole = sum(float(block.sum()) for block in blocks)
    nodes = NodesModel(
        ("none", "partitioned", "replicated")[int(rng.integers(3))],  # type: ignore[arg-type]
        np.empty(0, np.int64),
        latency_s=float(rng.exponential(0.003)),
        bytes_per_s=float(rng.uniform(1e7, 1e8)),
    )
    policy = "pinned" if rng.random() < 0.5 else "lru"
    capacity = float(rng.uniform(0, 1.2)) * whole / float(rng.choice([1, count]))
    cache = CacheModel(capacity, policy, float(rng.exponential(0.002)))  # type: ignore[arg-type]
    return blocks, loader, store, nodes, cache


@pytest.mark.parametrize("part", range(10))
def test_nodes_equal_processes(part: int) -> None:
    """Waits, totals and sources of two epochs; the bytes needed are those of hits and of the store, and no more."""
    for case in range(part, CASES, 10):
        rng = np.random.default_rng((case, 71))
        blocks, loader, store, nodes, cache = drawn(rng)
        count = int(rng.integers(1, 1 + min(4, len(blocks))))
        parts = [np.array_split(rng.permutation(len(blocks)), count) for _ in range(2)]
        owner = np.empty(len(blocks), np.int64)
        for number, keys in enumerate(parts[0]):
            owner[keys] = number
        nodes = replace(nodes, owner=owner)
        caches = open_caches([cache] * count, len(blocks))
        slow = [SlowCache(cache.capacity_bytes, cache.policy) for _ in range(count)]
        for part_of_node in parts:
            readers = [
                replace(loader, blocks=[blocks[key] for key in keys], keys=keys, caches=(number,))
                for number, keys in enumerate(part_of_node)
            ]
            if rng.random() < 0.3:
                readers = [
                    replace(one, gpu_s=rng.exponential(0.01, len(one.batch_samples))) for one in readers
                ]
            latency = rng.exponential(0.01, len(blocks) + 1)
            before = type(caches)(*map(np.copy, caches))
            fast = stream(readers, store, latency_s=latency, caches=caches, nodes=nodes)
            loads, ends, sources = nodes_by_processes(readers, store, latency, nodes, slow, cache.latency_s)
            for number, (job, reader) in enumerate(zip(fast.jobs, readers)):
                assert job.load_s == pytest.approx(loads[number], rel=1e-9, abs=1e-9), case
                assert job.end_s == pytest.approx(ends[number], rel=1e-9), case
                asked = np.isfinite(job.requests.taken_s)
                assert reader.keys is not None
                for key, source in zip(reader.keys[asked].tolist(), job.requests.source[asked].tolist()):
                    assert sources[number][key] == source, case
            needed = sum(float(blocks[key].sum()) for keys in part_of_node for key in keys)
            requests = [job.requests for job in fast.jobs]
            hits = sum(float(one.size_bytes[one.source >= 0].sum()) for one in requests)
            assert hits + fast.bytes_requested == pytest.approx(needed)
            cuts = [fast.end_s * share for share in (0.2, 0.7)]
            again = stream(readers, store, latency_s=latency, caches=before, nodes=nodes, cuts=cuts)
            assert np.array_equal(again.jobs[0].got_s, fast.jobs[0].got_s), case
            for number, one in enumerate(slow):
                kept = {int(key) for key in np.flatnonzero(caches.size_bytes[number] >= 0)}
                assert kept == set(one.sizes), case


def hits_by_hand(
    count: int, share: float, policy: str, sharing: str, epochs: int, blocks: int
) -> list[float]:
    """Hit shares of each epoch: nodes read one block each in turn; caches are plain ordered dictionaries."""
    rng = np.random.default_rng((count, epochs, blocks))
    caches = [SlowCache(round(share * blocks), policy) for _ in range(count)]
    owner: dict[int, int] = {}
    found = []
    for _ in range(epochs):
        parts = np.array_split(rng.permutation(blocks), count)
        hits = 0
        for turn in range(max(map(len, parts))):
            for me, part in enumerate(parts):
                if turn >= len(part):
                    continue
                key = int(part[turn])
                home = owner.setdefault(key, me) if sharing == "partitioned" else me
                if caches[home].has(key):
                    hits += 1
                    continue
                for other, cache in enumerate(caches):
                    if other == home or sharing == "replicated":
                        cache.take(key, 1)
        found.append(hits / blocks)
    return found


@pytest.mark.parametrize("sharing", ["none", "partitioned", "replicated"])
@pytest.mark.parametrize("policy", ["pinned", "lru"])
@pytest.mark.parametrize(("count", "share"), [(1, 0.4), (4, 0.15), (4, 0.6), (3, 1.0)])
def test_closed_forms_of_hits(sharing: str, policy: str, count: int, share: float) -> None:
    """Epoch by epoch within two points of slow caches; what nothing leaves is exact where caches are one set of blocks."""
    blocks, epochs = 8000, 7
    nodes = Nodes(count=count, cache_bytes=share * blocks, policy=policy, sharing=sharing)  # type: ignore[arg-type]
    for epoch, by_hand in enumerate(hits_by_hand(count, share, policy, sharing, epochs, blocks)):
        law = hit_shares(nodes, blocks, epoch)
        if law is None:
            assert (policy, sharing) == ("lru", "replicated") and share < 1
            continue
        exact = policy == "pinned" and (sharing == "partitioned" or count == 1)
        assert 1 - law.store == pytest.approx(by_hand, abs=1e-12 if exact else 0.02), epoch
    last = hit_shares(nodes, blocks)
    assert last is None or epoch_limit(last.store, nodes, blocks)


def epoch_limit(store: float, nodes: Nodes, blocks: int) -> bool:
    """Whether the law of an epoch long after the first is the limit of those of later and later epochs."""
    far = hit_shares(nodes, blocks, 400)
    return far is not None and math.isclose(store, far.store, abs_tol=1e-9)


BASE = """
domain: loading
dataset: {samples: 4000, sample_bytes: 100000}
store: {latency_s: {mean_s: 2ms}, conn_bytes_per_s: 200MB/s, shared_bytes_per_s: 100MB/s}
cpu: {decode_s: 1ms}
loader: {threads: 8, buffer_samples: 256}
step: {step_s: 40ms}
run: {batch: 20, epochs: 2}
"""
NODES = (
    "nodes.count=4", "nodes.cache_bytes=40MB", "nodes.sharing=partitioned", "nodes.link_latency_s=200us",
    "nodes.link_bytes_per_s=500MB/s",
)  # fmt: skip


def test_nodes_of_a_scenario() -> None:
    """Bytes of each epoch are those of the law; the link binds as it says, and stops where it says."""
    result = forerun.simulate(loads(BASE, NODES)).check()
    cold, warm = result.tables["nodes"].records()
    assert cold["store_bytes"] == 400e6 and cold["hit_share"] == cold["law_hit_share"] == 0
    assert warm["store_bytes"] == pytest.approx(240e6)
    assert warm["hit_share"] == pytest.approx(warm["law_hit_share"]) == pytest.approx(0.4)
    assert warm["peer_bytes"] / 160e6 == pytest.approx(0.75, abs=0.02)
    assert warm["store_bytes"] + warm["local_bytes"] + warm["peer_bytes"] == 400e6
    assert result.summary["bottleneck"] == "link"
    assert warm["samples_per_s"] == pytest.approx(4 * result.summary["law_samples_per_s"], rel=0.06)
    free = cache_that_frees_link(prepare(loads(BASE, NODES)))
    # The step takes 500 samples/s a node, 2,000 in all; the link gives 1,000: half must come from caches, 200 MB of 4.
    assert free == pytest.approx(50e6, rel=1e-6)
    assert "stops binding with 5e+07 bytes" in result.why
    enough = forerun.simulate(loads(BASE, [*NODES, "nodes.cache_bytes=60MB"])).summary
    assert enough["bottleneck"] == "compute"
    (shown,) = (figure for figure in figures(result) if figure.id == "nodes")
    assert "caches had 40.0% of the bytes; by the closed form 40.0%" in shown.caption
    what_ifs = LoadingExplainer().what_ifs(loads(BASE, NODES), result)
    assert any(one.path == "nodes.cache_bytes" and one.values[-1] == 400e6 for one in what_ifs)
    alone = loads(BASE, [*NODES, "nodes.sharing=none", "store.shared_bytes_per_s=10MB/s", "nodes.count=1"])
    assert cache_that_frees_link(prepare(alone)) == pytest.approx(400e6 * (1 - 100 / 500))


def slow_gpu(got: np.ndarray, gpu_s: np.ndarray, step_s: float) -> float:
    """When the last step ends where each batch can be had from `got` on, decoded one batch ahead, by hand."""
    decoder, trained = 0.0, 0.0
    for ready, decode_s in zip(got, gpu_s):
        decoded = max(decoder, ready) + decode_s
        decoder = max(decoded, trained)  # until the step takes the batch, the decoder keeps it
        trained = decoder + step_s
    return trained


@pytest.mark.parametrize("seed", range(40))
def test_decoding_on_the_gpu_by_hand(seed: int) -> None:
    """A store that takes no time: the longer of decoding and step counts, and the first of both is added."""
    rng = np.random.default_rng(seed)
    batches, step_s = int(rng.integers(1, 30)), float(rng.exponential(0.01))
    gpu_s = rng.exponential(0.01, batches)
    reader = Reader([np.ones(4)] * batches, threads=1, batch=4, step_s=step_s, gpu_s=gpu_s)
    run = stream([reader], StoreModel())
    assert run.end_s == pytest.approx(slow_gpu(np.zeros(batches), gpu_s, step_s))
    same = replace(reader, gpu_s=np.full(batches, 0.02))
    longer, shorter = max(0.02, step_s), min(0.02, step_s)
    assert stream([same], StoreModel()).end_s == pytest.approx(longer * batches + shorter)


GPU = ("gpu_decode.samples_per_s=400", "gpu_decode.gpu_share=0.2", "store.shared_bytes_per_s=0")


@pytest.mark.parametrize(
    ("law", "changes", "rate"),
    [
        ("gpu decode", (), 400.0),
        ("compute", ("gpu_decode.samples_per_s=4000",), 0.8 * 20 / 0.04),
        ("link", ("store.shared_bytes_per_s=20MB/s",), 200.0),
        ("cpu", ("gpu_decode.host_cpu_s=10ms", "cpu.cores=2"), 200.0),
        ("gpu decode", ("gpu_decode.batch_samples=32",), 400.0 * 20 / 32),
    ],
)
def test_the_slowest_of_store_cpu_decoder_and_compute_binds(
    law: str, changes: tuple[str, ...], rate: float
) -> None:
    """With decoding on the GPU the least of four rates is what a run reaches, and its law is named."""
    result = forerun.simulate(loads(BASE, [*GPU, *changes])).check()
    assert (result.summary["bottleneck"], result.summary["law_samples_per_s"]) == (law, pytest.approx(rate))
    assert result.summary["samples_per_s"] == pytest.approx(rate, rel=0.03)


def test_a_plan_chooses_caches_and_the_decoder() -> None:
    """Every kind of sharing is predicted, with the bytes of the law; the decoder that slows the step is passed over."""
    grid = (
        "grid.blocks=[1]", "grid.threads=[8]", "grid.cache_bytes=[0, 50MB, 60MB]", "grid.decoders=[cpu, gpu]",
        "grid.sharings=[none, partitioned, replicated]", "grid.cache_policies=[pinned, lru]",
    )  # fmt: skip
    scenario = loads(BASE, [*NODES, *GPU[:2], *grid])
    plan = planning.plan(scenario)
    rows = plan.tables["cells"].records()
    assert len(rows) == 2 * (1 + 2 * 3 * 2) and plan.summary["cells"] == len(rows)
    for row in rows:
        nodes = Nodes(
            count=4, cache_bytes=row["cache_bytes"], policy=row["cache_policy"], sharing=row["sharing"]
        )
        law = hit_shares(nodes, 400e6)
        if law is not None:
            assert row["store_bytes"] == pytest.approx(400e6 * law.store, abs=400e6 * 0.03)
        if not row["cache_bytes"]:
            assert row["saved_s"] == 0
    assert (plan.summary["decoder"], plan.summary["sharing"], plan.summary["cache_bytes"]) == (
        "cpu", "partitioned", 60e6
    )  # fmt: skip
    assert plan.summary["saved_s"] > 0.9 and plan.bottleneck == "compute"
    assert "stops binding with 5e+07 bytes" in plan.notes[-1]


def test_runs_without_nodes_keep_their_id() -> None:
    """Fields that were added later do not count while they are not used; those that are gone count as none."""
    scenario = loads(BASE, ["grid.blocks=[1]"])
    before = to_data(scenario)
    for spec, data in ((scenario, before), (scenario.grid, before["grid"])):
        for name in spec.added_later:
            assert data.pop(name) is None
        data |= spec.removed
    digest = hashlib.sha256(b"1\0" + canonical_json(before)).hexdigest()[:16]
    assert content_id(scenario, "1") == digest
    assert content_id(loads(BASE, ["grid.blocks=[1]", *NODES]), "1") != digest


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (("nodes.count=0",), "nodes.count"),
        (("nodes.count=65",), "nodes.count"),
        (("nodes.count=300",), "nodes.count"),
        (("nodes.count=2", "jobs=2"), "nodes"),
        (("nodes.count=2", "dataset.shuffle=none"), "dataset.shuffle"),
        (("nodes.count=2", "loader.mode=workers"), "nodes"),
        (("nodes.count=2", "run.steps=3"), "run.steps"),
        (("nodes.count=2", "caches=[{capacity_bytes: 1}]"), "caches"),
        (("nodes.count=2", "nodes.sharing=some"), "nodes.sharing"),
        (("nodes.count=2", "nodes.cache_bytes=-1"), "nodes.cache_bytes"),
        (("grid.sharings=[none]",), "grid.sharings"),
        (("nodes.count=2", "grid.sharings=[none, none]"), "grid.sharings"),
        (("grid.decoders=[gpu]",), "grid.decoders"),
        (("gpu_decode.samples_per_s=0",), "gpu_decode.samples_per_s"),
        (("gpu_decode.samples_per_s=1", "gpu_decode.gpu_share=1"), "gpu_decode.gpu_share"),
        (("gpu_decode.samples_per_s=1", "loader.mode=workers"), "gpu_decode"),
    ],
)
def test_what_is_refused(changes: tuple[str, ...], where: str) -> None:
    with pytest.raises(ScenarioError, match=where):
        loads(BASE, changes)


def test_the_lines_of_a_plan_have_its_cache() -> None:
    """A node's own pinned cache is in the code to paste; what the reader does not do is said to be left out."""
    scenario = loads(BASE, NODES)
    cell = Cell(1, 8, cache_bytes=4e7, sharing="none", cache_policy="pinned")
    code = planning.code_of(scenario, cell)
    assert 'cache=BlockCache("CACHE", 40000000)' in code and "rank=RANK, world=4" in " ".join(code.split())
    compile(code, "code", "exec")
    for other in (replace(cell, sharing="partitioned"), replace(cell, cache_policy="lru")):
        code = planning.code_of(scenario, other)
        assert "BlockCache" not in code and "not in this code" in code
