"""What must always hold: the loops against slow twins, closed forms, limits, bounds and cuts."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.core.errors import Infeasible
from forerun.loading.engine import laws
from forerun.loading.engine.kernels.deliver import Pool, deliver, deliver_pooled
from forerun.loading.engine.model import CacheModel, Reader, StoreModel, StreamRun, batches_of
from forerun.loading.engine.sharing import Shares
from forerun.loading.engine.threads import hits_of, open_caches, stream
from forerun.loading.policy import UNBOUNDED

from ..conftest import cases
from .reference import equal_batches_total_s, equal_jobs_rate, lru_hit_share, pinned_hit_share

#: cases of each property in a run of the suite; set FORERUN_CASES for more
EXAMPLES = cases(50)


# --- delivery by workers -----------------------------------------------------------------------------------------


def workers_by_events(
    worker: list[int], build_s: list[float], step_s: list[float], start_s: list[float], on_order: int
) -> tuple[list[float], float]:
    """The loader as processes and queues: a worker waits for orders, the loop for batches; loads and total."""
    env = simpy.Environment()
    orders = [simpy.Store(env) for _ in start_s]
    ready = [env.event() for _ in worker]
    loads: list[float] = []

    def works(w: int) -> Any:
        yield env.timeout(start_s[w])
        while True:
            j = yield orders[w].get()
            yield env.timeout(build_s[j])
            ready[j].succeed()

    def loop() -> Any:
        for j in range(min(on_order, len(worker))):
            orders[worker[j]].put(j)
        for j in range(len(worker)):
            asked = env.now
            yield ready[j]
            loads.append(env.now - asked)
            if j + on_order < len(worker):
                orders[worker[j + on_order]].put(j + on_order)
            yield env.timeout(step_s[j])

    for w in range(len(start_s)):
        env.process(works(w))
    done = env.process(loop())
    env.run(until=done)
    return loads, env.now


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32 - 1))
def test_recursion_equals_events(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers, batch, samples = int(rng.integers(1, 6)), int(rng.integers(1, 9)), int(rng.integers(1, 120))
    kind = "contiguous" if rng.random() < 0.5 else "round_robin"
    plan = batches_of(samples, batch, workers, kind, drop_last=bool(rng.random() < 0.3))  # type: ignore[arg-type]
    build = rng.exponential(1.0, len(plan))
    step = rng.exponential(0.3, len(plan))
    start = rng.exponential(0.2, workers)
    on_order = workers * int(rng.integers(1, 4))
    if not len(plan):
        return
    found = deliver(plan.worker, build, step, start, on_order)
    loads, total = workers_by_events(
        plan.worker.tolist(), build.tolist(), step.tolist(), start.tolist(), on_order
    )
    assert np.allclose(found.load_s, loads, rtol=1e-9, atol=1e-9)
    assert math.isclose(found.total_s, total, rel_tol=1e-9)


@settings(max_examples=EXAMPLES)
@given(
    batches=st.integers(1, 60), workers=st.integers(1, 9), prefetch=st.integers(1, 4),
    build_s=st.floats(0, 10), step_s=st.floats(0, 3),
)  # fmt: skip
def test_closed_form_of_equal_batches(
    batches: int, workers: int, prefetch: int, build_s: float, step_s: float
) -> None:
    worker = np.arange(batches) % workers
    found = deliver(
        worker, np.full(batches, build_s), np.array([step_s]), np.zeros(workers), workers * prefetch
    )
    law = equal_batches_total_s(batches, workers, build_s, step_s)
    assert math.isclose(found.total_s, law, rel_tol=1e-12, abs_tol=1e-12)
    slow_step = deliver(
        worker, np.full(batches, build_s), np.array([1e6]), np.zeros(workers), workers * prefetch
    )
    assert math.isclose(slow_step.total_s, build_s + batches * 1e6, rel_tol=1e-12)
    no_step = deliver(
        worker, np.full(batches, build_s), np.array([0.0]), np.zeros(workers), workers * prefetch
    )
    assert math.isclose(no_step.total_s, -(-batches // workers) * build_s, rel_tol=1e-12, abs_tol=1e-12)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32 - 1))
def test_one_pool_thread_and_no_merging_is_plain_delivery(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers, batch, samples = int(rng.integers(1, 5)), int(rng.integers(1, 9)), int(rng.integers(1, 90))
    plan = batches_of(samples, batch, workers, "contiguous", take_all=True)
    read, decode, collate = rng.exponential(0.01), rng.exponential(0.01), rng.exponential(0.05)
    pool = Pool(1, 1, read, 0.0, decode, collate, 0.0)
    step, start, on_order = np.array([rng.exponential(0.1)]), np.zeros(workers), workers * 2
    pooled = deliver_pooled(plan.worker, plan.samples, step, start, on_order, pool)
    plain = deliver(plan.worker, plan.samples * (read + decode) + collate, step, start, on_order)
    assert np.allclose(pooled.got_s, plain.got_s, rtol=1e-9)


# --- threads over a store ----------------------------------------------------------------------------------------


class Shared:
    """Work that all who are at it share: every rest is kept and worked off anew whenever somebody comes or goes."""

    def __init__(self, env: simpy.Environment, one: float, together: float) -> None:
        self.env, self.one, self.together = env, one, together
        self.rests: dict[simpy.Event, float] = {}
        self.since, self.turn = 0.0, 0

    def work(self, amount: float) -> simpy.Event:
        """An event that comes when so much has been done."""
        done = self.env.event()
        self._work_off()
        self.rests[done] = amount
        self._plan()
        return done

    def _rate(self) -> float:
        return min(self.one, self.together / len(self.rests))

    def _work_off(self) -> None:
        for done in self.rests:
            self.rests[done] -= self._rate() * (self.env.now - self.since)
        self.since = self.env.now

    def _plan(self) -> None:
        self.turn += 1
        if self.rests:
            self.env.process(self._end(min(self.rests, key=lambda done: self.rests[done]), self.turn))

    def _end(self, first: simpy.Event, turn: int) -> Any:
        yield self.env.timeout(max(0.0, self.rests[first] / self._rate()))
        if turn == self.turn:  # nobody came or went
            self._work_off()
            del self.rests[first]
            self._plan()
            first.succeed()


def threads_by_processes(
    reader: Reader, store: StoreModel, latency_s: np.ndarray
) -> tuple[list[float], float]:
    """The thread loader as simpy processes: loads and total."""
    env = simpy.Environment()
    slots = simpy.Resource(env, store.slots or 10**6)
    link = Shared(env, store.conn_bytes_per_s, store.shared_bytes_per_s)
    cores, interpreter = Shared(env, 1.0, store.cores), simpy.Resource(env, 1)
    buffer = simpy.Store(env, capacity=reader.buffer_samples)
    todo = iter(range(len(reader.blocks)))
    grants = iter(latency_s)
    tat = [0.0]
    loads: list[float] = []
    failures = np.zeros(len(reader.blocks), int) if reader.failures is None else reader.failures
    factors = [1.0, *(times for _, times in store.changes)]

    def token() -> Any:
        if math.isfinite(store.requests_per_s):
            granted = max(env.now, tat[0] - (store.burst - 1) / store.requests_per_s)
            tat[0] = max(tat[0], granted) + 1 / store.requests_per_s
            yield env.timeout(granted - env.now)

    def thread() -> Any:
        for block in todo:
            size = float(np.sum(reader.blocks[block]))
            for attempt in range(int(failures[block])):
                yield from token()
                with slots.request() as slot:
                    yield slot
                    next(grants)
                    yield env.timeout(store.timeout_s)
                yield env.timeout(store.backoff_s * 2**attempt)
            yield from token()
            with slots.request() as slot:
                yield slot
                passed = sum(at_s <= env.now for at_s, _ in store.changes)
                yield env.timeout(next(grants) * factors[passed])
                if math.isfinite(store.shared_bytes_per_s):
                    yield link.work(size)
                else:
                    yield env.timeout(size / store.conn_bytes_per_s)
            yield env.timeout(store.client_s + store.client_s_per_byte * size)
            for _ in reader.blocks[block]:
                yield env.timeout(float(np.asarray(reader.decode_s)))
                cpu_s = float(np.asarray(reader.decode_cpu_s))
                if cpu_s and store.one_core_python:
                    with interpreter.request() as turn:
                        yield turn
                        yield env.timeout(cpu_s)
                elif cpu_s:
                    yield cores.work(cpu_s)
                yield buffer.put(1)

    def consumer() -> Any:
        for size, new in zip(reader.batch_samples, reader.new_samples):
            asked = env.now
            for _ in range(new):
                yield buffer.get()
            assert size <= reader.batch
            loads.append(env.now - asked)
            yield env.timeout(float(np.asarray(reader.step_s)))

    for _ in range(reader.threads):
        env.process(thread())
    done = env.process(consumer())
    env.run(until=done)
    return loads, env.now


def random_case(seed: int, *, shared: bool) -> tuple[Reader, StoreModel, np.ndarray]:
    """A loader and a store; `shared` also gives a link, cores, failures and a shuffle buffer."""
    rng = np.random.default_rng(seed)
    blocks = [rng.uniform(1e4, 1e5, int(rng.integers(1, 7))) for _ in range(int(rng.integers(1, 25)))]
    reader = Reader(
        blocks,
        threads=int(rng.integers(1, 7)),
        batch=int(rng.integers(1, 6)),
        step_s=float(rng.choice([0.0, rng.exponential(0.01)])),
        decode_s=float(rng.exponential(0.002)),
        buffer_samples=int(rng.choice([1, 3, 10, UNBOUNDED])),
        drop_last=bool(rng.random() < 0.3),
    )
    store = StoreModel(
        conn_bytes_per_s=float(rng.uniform(1e7, 1e9)),
        shared_bytes_per_s=float(rng.uniform(1e7, 1e8)) if shared else math.inf,
        slots=int(rng.choice([0, 1, 2, 4])),
        requests_per_s=float(rng.choice([math.inf, rng.uniform(50, 500)])),
        burst=float(rng.integers(1, 5)),
        client_s=float(rng.choice([0.0, 0.0003])),
    )
    return reader, store, rng.exponential(0.01, len(blocks) + 1)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32 - 1))
def test_events_equal_processes(seed: int) -> None:
    """Also with a shared link, cores, one interpreter, failures, changes, a shuffle buffer and an early end."""
    reader, store, latency = random_case(seed, shared=bool(seed % 2))
    rng = np.random.default_rng(seed + 1)
    if seed % 4 > 1:
        failures = rng.integers(0, 3, len(reader.blocks)) * (rng.random(len(reader.blocks)) < 0.2)
        reader = replace(
            reader,
            decode_cpu_s=float(rng.exponential(0.003)),
            failures=failures.astype(np.int64),
            shuffle_samples=int(rng.integers(0, 12)),
            most_batches=int(rng.integers(0, 9)),
        )
        store = replace(
            store, cores=float(rng.choice([math.inf, 1.0, 1.5, 3.0])), one_core_python=bool(rng.random() < 0.3),
            timeout_s=0.02, backoff_s=0.003, retries=2, client_s_per_byte=float(rng.choice([0.0, 1e-9])),
        )  # fmt: skip
        latency = rng.exponential(0.01, 3 * len(reader.blocks) + 1)
    at = sorted(rng.uniform(0, 0.4, int(rng.integers(0, 3))).tolist())
    store = replace(store, changes=tuple((at_s, float(rng.uniform(0.2, 5))) for at_s in at))
    if not len(reader.batch_samples):
        return
    run = stream([reader], store, latency_s=latency)
    loads, total = threads_by_processes(reader, store, latency)
    assert np.allclose(run.jobs[0].load_s, loads, rtol=1e-9, atol=1e-9)
    assert math.isclose(run.jobs[0].total_s, total, rel_tol=1e-9)


def check_laws(run: StreamRun, readers: list[Reader], store: StoreModel) -> None:
    """What holds after every run."""
    seen = 0.0
    for job, reader in zip(run.jobs, readers):
        requests = job.requests
        done = np.isfinite(requests.done_s)
        seen += float(np.sum(requests.size_bytes[done & (requests.source < 0)]))
        for earlier, later in (
            (requests.taken_s, requests.grant_s),
            (requests.grant_s, requests.first_byte_s),
            (requests.first_byte_s, requests.done_s),
            (requests.done_s, requests.left_s),
        ):
            both = np.isfinite(later)
            assert np.all(earlier[both] <= later[both] + 1e-12)
        assert np.all(job.load_s >= 0) and job.most_buffered <= reader.buffer_samples
        assert math.isclose(job.load_s.sum() + job.step_s.sum(), job.total_s, rel_tol=1e-9, abs_tol=1e-12)
        full = reader.samples // reader.batch * reader.batch if reader.drop_last else reader.samples
        assert job.samples == full and len(job.put_block) >= full
        counts = np.bincount(job.put_block, minlength=len(reader.blocks))
        assert np.all(counts <= [len(block) for block in reader.blocks])
    assert math.isclose(run.bytes_requested, seen, rel_tol=1e-9)
    assert not store.slots or run.most_in_flight <= store.slots


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32 - 1))
def test_conservation_cuts_and_the_upper_bound(seed: int) -> None:
    reader, store, latency = random_case(seed, shared=True)
    if not len(reader.batch_samples):
        return
    run = stream([reader], store, latency_s=latency)
    check_laws(run, [reader], store)
    cut = stream([reader], store, latency_s=latency, cuts=[run.end_s * x for x in (0.1, 0.37, 0.9)])
    assert np.array_equal(cut.jobs[0].got_s, run.jobs[0].got_s)
    slower = stream(
        [Reader(**{**vars(reader), "step_s": 3 * np.asarray(reader.step_s), "decode_s": 3 * np.asarray(reader.decode_s)})],
        StoreModel(**{
            **vars(store), "conn_bytes_per_s": store.conn_bytes_per_s / 3, "client_s": 3 * store.client_s,
            "shared_bytes_per_s": store.shared_bytes_per_s / 3, "requests_per_s": store.requests_per_s / 3,
        }),
        latency_s=3 * latency,
    )  # fmt: skip
    assert math.isclose(slower.end_s, 3 * run.end_s, rel_tol=1e-9)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32 - 1))
def test_laws_bound_the_event_model(seed: int) -> None:
    reader, store, _ = random_case(seed, shared=True)
    n, count = 1 + seed % 5, 40
    reader = Reader(**{**vars(reader), "blocks": [np.full(n, 5e4)] * count, "drop_last": False, "batch": 2})
    store = StoreModel(**{**vars(store), "client_s": 0.0})
    run = stream([reader], store, latency_s=0.005)
    bound = laws.explain(
        laws.Setting(
            reader.threads, n, 5e4, 0.005, float(np.asarray(reader.decode_s)), float(np.asarray(reader.step_s)), 2,
            store.conn_bytes_per_s, store.shared_bytes_per_s, slots=store.slots, requests_per_s=store.requests_per_s,
        )
    ).samples_per_s  # fmt: skip
    delivered = run.jobs[0].samples
    assert run.jobs[0].samples_per_s <= bound * (1 + (reader.threads + store.burst + 1) * n / delivered) * (
        1 + 1e-9
    )


def least_block(setting: laws.Setting, most: int = 4000) -> int | None:
    """The smallest block at which the threads have samples as fast as the step takes them; None: none is large enough."""
    each_s = setting.sample_bytes / setting.conn_bytes_per_s + setting.decode_s
    for n in range(1, most):
        if setting.threads * n / (setting.latency_s + n * each_s) >= setting.batch / setting.step_s:
            return n
    return None


def test_the_block_that_hides_loading_is_the_smallest_that_does() -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(min(EXAMPLES, 100)):
        setting = laws.Setting(
            threads=int(rng.integers(1, 9)),
            block_samples=1,
            sample_bytes=float(rng.uniform(1e4, 1e6)),
            latency_s=float(10 ** rng.uniform(-3, -1)),
            decode_s=float(10 ** rng.uniform(-4, -2)),
            step_s=float(10 ** rng.uniform(-2, 0)),
            batch=int(rng.integers(1, 65)),
            conn_bytes_per_s=float(10 ** rng.uniform(7, 9)),
        )
        hiding = laws.hiding(setting)
        blocks_of = hiding.blocks_of
        found.append(blocks_of)
        assert least_block(setting) == (blocks_of if blocks_of is None or blocks_of < 4000 else None), setting
        # With so many threads, and no fewer, does some block hide it, however large.
        for more in (0, 1):
            threads = hiding.least_threads - more
            large = laws.hiding(replace(setting, threads=threads)) if threads else None
            assert (large is not None and large.blocks_of is not None) == (not more), (setting, threads)
    assert {None, 1} < {*found}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_block_has_a_home_and_the_others_are_asked_for_it(count: int) -> None:
    """The mean over homes: a node does not ask itself, and asks nobody where caches are not shared."""
    shares = Shares(0.2, 0.3 * (count > 1))
    setting = laws.Setting(2, 8, 1e5, 0.02, 0.001, 0.01, 16)
    nodes = laws.NodeTerms(count, shares, 1e-4, 1e9, 0.003, 1e8, asks_peers=True)
    asked_s = np.mean([nodes.peer_s * (home != 0) for home in range(count)])
    from_caches_s = shares.local * nodes.cache_s + shares.peers * (nodes.cache_s + nodes.peer_s)
    for asks, more_s in ((True, asked_s), (False, 0.0)):
        own = replace(setting, nodes=replace(nodes, asks_peers=asks))
        assert own.any_latency_s == pytest.approx(
            shares.store * (setting.latency_s + more_s) + from_caches_s, rel=1e-12
        )


def test_what_is_monotone_and_only_that() -> None:
    """More bandwidth, slots, rate or memory never takes longer, more latency or work never less: for one thread, and for
    any threads on a free store with an unbounded buffer that drops nothing."""
    rng = np.random.default_rng(12)
    up, down = (
        ("conn_bytes_per_s", "shared_bytes_per_s", "requests_per_s"),
        ("decode_s", "step_s", "latency_s"),
    )
    for case in range(EXAMPLES):
        reader, store, latency = random_case(int(rng.integers(2**32)), shared=bool(rng.random() < 0.5))
        if case % 2:
            reader = Reader(**{**vars(reader), "threads": 1, "drop_last": False})
        else:
            reader = Reader(**{**vars(reader), "buffer_samples": UNBOUNDED, "drop_last": False})
            store = StoreModel(conn_bytes_per_s=store.conn_bytes_per_s)
        base = stream([reader], store, latency_s=latency).end_s
        factor = float(rng.uniform(1, 3))
        name = str(rng.choice([*up, *down, "slots", "buffer_samples"]))
        changed, changed_store, changed_latency = reader, store, latency
        if name in up:
            changed_store = StoreModel(**{**vars(store), name: factor * getattr(store, name)})
        elif name == "slots":
            changed_store = StoreModel(**{**vars(store), "slots": store.slots + 1 if store.slots else 0})
        elif name == "buffer_samples":
            changed = Reader(**{**vars(reader), name: min(UNBOUNDED, reader.buffer_samples + 3)})
        elif name == "latency_s":
            changed_latency = factor * latency
        else:
            changed = Reader(**{**vars(reader), name: factor * np.asarray(getattr(reader, name))})
        total = stream([changed], changed_store, latency_s=changed_latency).end_s
        if name in down:
            assert total >= base * (1 - 1e-9), (case, name)
        else:
            assert total <= base * (1 + 1e-9), (case, name)


def test_one_more_slot_may_be_slower() -> None:
    """Not monotone in general: in lock-step one slot more can cost; no tuner may rely on it."""
    rng = np.random.default_rng(3)
    worse = 0.0
    for _ in range(300):
        threads, n = int(rng.integers(2, 9)), int(rng.integers(1, 9))
        reader = Reader(
            [np.full(n, 5e4)] * 60, threads, 4, 0.001, 0.002, buffer_samples=int(rng.integers(1, 9))
        )
        slots = int(rng.integers(1, threads))
        few, more = (
            stream([reader], StoreModel(1e8, slots=m), latency_s=0.01).end_s for m in (slots, slots + 1)
        )
        worse = max(worse, more / few - 1)
    assert worse > 0.01


@pytest.mark.parametrize(
    ("law", "changes", "threads"),
    [
        ("link", {"shared_bytes_per_s": 2e7}, 8),
        ("slots", {"slots": 2}, 16),
        ("iops", {"requests_per_s": 100.0}, 16),
        ("thread", {}, 2),
        ("cpu", {"cores": 1.5}, 16),
        ("compute", {}, 16),
    ],
)
def test_each_law_in_its_pure_regime(law: str, changes: dict[str, Any], threads: int) -> None:
    """Ten thousand samples in 2,500 blocks, every other law at least three times looser: within 2 %."""
    rng = np.random.default_rng(5)
    store = StoreModel(conn_bytes_per_s=1e8, **changes)
    cpu_s = 0.01 if law == "cpu" else 0.0
    step_s = 0.05 if law == "compute" else 0.0
    reader = Reader(
        [np.full(4, 5e4)] * 2500, threads=threads, batch=10, step_s=step_s, decode_s=1e-6, decode_cpu_s=cpu_s
    )
    latency = rng.exponential(0.02, 2501) if law != "link" else 0.001
    run = stream([reader], store, latency_s=latency)
    found = laws.explain(
        laws.Setting(
            threads, 4, 5e4, float(np.mean(latency)), 1e-6 + cpu_s, step_s, 10, 1e8, decode_cpu_s=cpu_s, **changes
        )
    )  # fmt: skip
    assert found.bottleneck == law and found.headroom >= 3
    assert run.jobs[0].samples_per_s == pytest.approx(found.samples_per_s, rel=0.02)
    little = run.jobs[0].requests
    in_flight = np.sum(little.done_s - little.grant_s) / run.end_s
    assert run.mean_in_flight == pytest.approx(in_flight, rel=1e-6)


def test_several_jobs_share_a_link() -> None:
    """J equal jobs: the step while the link is not full, then its share [measured: within 8 %]."""
    for jobs in (1, 2, 3, 4):
        reader = Reader([np.full(4, 53_428.0)] * 600, threads=4, batch=64, step_s=0.1, buffer_samples=256)
        run = stream(
            [reader] * jobs, StoreModel(conn_bytes_per_s=5e7, shared_bytes_per_s=5e7), latency_s=0.0005
        )
        law = equal_jobs_rate(64, 0.1, 5e7, 53_428.0, jobs)
        for job in run.jobs:
            assert job.samples_per_s == pytest.approx(law, rel=0.08)


def test_decoding_shares_the_cores() -> None:
    """Four threads on two cores decode at the pace of two; under one Python core, of one."""
    reader = Reader([np.full(1, 1.0)] * 400, threads=4, batch=1, step_s=0.0, decode_cpu_s=0.01)
    free = stream([reader], StoreModel(cores=8)).end_s
    two = stream([reader], StoreModel(cores=2)).end_s
    one = stream([reader], StoreModel(cores=8, one_core_python=True)).end_s
    assert (free, two, one) == pytest.approx((1.0, 2.0, 4.0))


def test_failures_are_retried_then_named() -> None:
    failures = np.array([0, 2, 0])
    reader = Reader([np.full(2, 1e4)] * 3, threads=1, batch=2, step_s=0.0, failures=failures)
    store = StoreModel(conn_bytes_per_s=1e6, timeout_s=1.0, backoff_s=0.5, retries=2)
    run = stream([reader], store, latency_s=0.1)
    # block 1: two attempts time out (1 s each), after which 0.5 s and 1 s are waited
    assert run.end_s == pytest.approx(3 * 0.12 + 2 * 1.0 + 0.5 + 1.0)
    assert run.attempts == 5
    with pytest.raises(Infeasible, match=r"job 0, block 1.*failed 2 times, 1 retries"):
        stream([reader], StoreModel(conn_bytes_per_s=1e6, timeout_s=1.0, retries=1), latency_s=0.1)


# --- caches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_hits_of_fresh_permutations(share: float) -> None:
    rng = np.random.default_rng(11)
    keys, epochs = 2000, 50
    for policy, law in (("pinned", pinned_hit_share), ("lru", lru_hit_share)):
        caches = open_caches([CacheModel(share * keys, policy)], keys)  # type: ignore[arg-type]
        hits_of(caches, 0, rng.permutation(keys), 1.0)
        hits = np.mean([hits_of(caches, 0, rng.permutation(keys), 1.0).mean() for _ in range(epochs)])
        assert hits == pytest.approx(float(law(share)), abs=0.01)


def test_a_node_cache_is_shared_by_jobs() -> None:
    """The second reader of the same blocks finds what the first has asked for."""
    blocks = [np.full(1, 1e5)] * 50
    first = Reader(blocks, threads=1, batch=1, step_s=0.0, caches=(0,))
    late = Reader(blocks, threads=1, batch=1, step_s=0.0, caches=(0,), start_s=100.0)
    caches = open_caches([CacheModel(1e9, "lru", 0.001, 1e9)], 50)
    run = stream([first, late], StoreModel(conn_bytes_per_s=1e7), latency_s=0.05, caches=caches)
    assert np.all(run.jobs[0].requests.source == -1) and np.all(run.jobs[1].requests.source == 0)
    assert run.jobs[1].total_s == pytest.approx(50 * (0.001 + 1e-4))
    assert run.bytes_requested == 50e5


def test_heap_order() -> None:
    """The heap gives entries by key, then by order of coming."""
    from forerun.loading.engine.kernels.heap import heap_pop, heap_push

    rng = np.random.default_rng(2)
    key, order, who = np.zeros(64), np.zeros(64, np.int64), np.zeros(64, np.int64)
    size, twin = 0, []
    for step in range(400):
        if size and (size == 64 or rng.random() < 0.45):
            assert (key[0], order[0], who[0]) == heapq.heappop(twin)
            size = heap_pop(key, order, who, 0, 0, 0, size)
        else:
            entry = (float(rng.integers(0, 9)), step, int(rng.integers(0, 99)))
            heapq.heappush(twin, entry)
            size = heap_push(key, order, who, 0, 0, 0, size, *entry)
