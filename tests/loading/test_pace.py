"""Threads and blocks while a loader runs: the steered loop against a reference implementation, policies, a real store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from click.testing import CliRunner

import forerun
from forerun.blocks.container.pack import PackSpec, pack
from forerun.core.cli.main import run as command_line
from forerun.core.errors import PolicyError, ScenarioError
from forerun.core.scenarios import loads
from forerun.loading.engine.model import Reader, Steering, StoreModel
from forerun.loading.engine.pacing import Pacer
from forerun.loading.engine.run import run_epochs
from forerun.loading.engine.threads import stream
from forerun.loading.figures import figures
from forerun.loading.inputs import prepare
from forerun.loading.measure.corpus import make_corpus
from forerun.loading.measure.store import StoreSpec
from forerun.loading.policies.pace import ByInterval
from forerun.loading.policy import UNBOUNDED, Look, Pace, PaceSpec, PaceView, paces

CASES = 200


def steered(reader: Reader, first: int, every: int, decide: Any) -> tuple[Reader, list[Look]]:
    """A reader whose threads `decide` chooses from each look, and the list in which the looks are kept."""
    looks: list[Look] = []

    def look(seen: Look) -> int:
        looks.append(seen)
        return int(decide(seen))

    return replace(reader, steering=Steering(first, every, look, looks.append)), looks


def drawn_case(
    rng: np.random.Generator, *, buffer: int | None = None
) -> tuple[Reader, StoreModel, np.ndarray]:
    blocks = [rng.uniform(1e4, 1e5, int(rng.integers(1, 7))) for _ in range(int(rng.integers(4, 40)))]
    reader = Reader(
        blocks,
        threads=int(rng.integers(1, 7)),
        batch=int(rng.integers(1, 6)),
        step_s=float(rng.exponential(0.01)),
        decode_s=float(rng.exponential(0.002)),
        buffer_samples=buffer or int(rng.choice([1, 3, 10, UNBOUNDED])),
    )
    changes = sorted(rng.uniform(0, 0.4, int(rng.integers(0, 3))).tolist())
    store = StoreModel(
        conn_bytes_per_s=float(rng.uniform(1e7, 1e9)),
        slots=int(rng.choice([0, 1, 2, 4])),
        client_s=float(rng.choice([0.0, 0.0003])),
        changes=tuple((at_s, float(rng.uniform(0.2, 5))) for at_s in changes),
    )
    return reader, store, rng.exponential(0.01, len(blocks) + 1)


# --- the steered loop --------------------------------------------------------------------------------------------


def threads_by_processes(
    reader: Reader, store: StoreModel, latency_s: np.ndarray, schedule: dict[int, int], first: int
) -> tuple[list[float], float]:
    """The loader as simpy processes: a thread above the number admitted waits for its bell; waits of batches and total."""
    env = simpy.Environment()
    slots = simpy.Resource(env, store.slots or 10**6)
    buffer = simpy.Store(env)
    todo, grants = iter(range(len(reader.blocks))), iter(latency_s)
    admitted, bells = [first], {number: env.event() for number in range(reader.threads)}
    loads: list[float] = []

    def thread(number: int) -> Any:
        while True:
            while number >= admitted[0]:
                yield bells[number]
            block = next(todo, None)
            if block is None:
                return
            with slots.request() as slot:
                yield slot
                factor = 1.0
                for at_s, times in store.changes:
                    factor = times if at_s <= env.now else factor
                yield env.timeout(next(grants) * factor)
                yield env.timeout(float(np.sum(reader.blocks[block])) / store.conn_bytes_per_s)
            yield env.timeout(store.client_s)
            for _ in reader.blocks[block]:
                yield env.timeout(float(np.asarray(reader.decode_s)))
                yield buffer.put(1)

    def consumer() -> Any:
        for number, size in enumerate(reader.batch_samples):
            if number in schedule:
                admitted[0] = schedule[number]
                for bell in range(admitted[0]):  # the lower numbers first
                    rung, bells[bell] = bells[bell], env.event()
                    rung.succeed()
            asked = env.now
            for _ in range(size):
                yield buffer.get()
            loads.append(env.now - asked)
            yield env.timeout(float(np.asarray(reader.step_s)))

    for number in range(reader.threads):
        env.process(thread(number))
    done = env.process(consumer())
    env.run(until=done)
    return loads, env.now


def test_the_steered_loop_equals_its_processes() -> None:
    """Threads that come and go, and a store whose latency changes: to 1e-9, over drawn schedules."""
    rng = np.random.default_rng(21)
    changes = 0
    for case in range(CASES):
        # Where the buffer is never full, nothing else happens at the instant at which threads change.
        reader, store, latency = drawn_case(rng, buffer=UNBOUNDED)
        every, first = int(rng.integers(1, 9)), int(rng.integers(1, reader.threads + 1))
        batches = len(reader.batch_samples)
        schedule = {at: int(rng.integers(1, reader.threads + 1)) for at in range(every, batches, every)}
        changed, looks = steered(reader, first, every, lambda seen, schedule=schedule: schedule[seen.batch])
        run = stream([changed], store, latency_s=latency)
        loads, total = threads_by_processes(reader, store, latency, schedule, first)
        assert np.allclose(run.jobs[0].load_s, loads, rtol=1e-9, atol=1e-9), case
        assert run.jobs[0].total_s == pytest.approx(total, rel=1e-9), case
        assert [look.batch for look in looks] == [*schedule, batches]
        changes += len(set(schedule.values())) > 1
    assert changes > CASES / 4


def test_what_is_looked_at_and_what_threads_may_do() -> None:
    """Looks cut an epoch into stretches that lose nothing; no thread above the admitted number takes a block."""
    rng = np.random.default_rng(22)
    for case in range(CASES):
        reader, store, latency = drawn_case(rng)
        every = int(rng.integers(1, 9))
        plain = stream([reader], store, latency_s=latency)
        kept, looks = steered(reader, reader.threads, every, lambda seen: seen.threads)
        unchanged = stream([kept], store, latency_s=latency)
        for name in ("got_s", "ask_s", "put_block", "queue"):
            assert np.array_equal(getattr(unchanged.jobs[0], name), getattr(plain.jobs[0], name)), case
        few = int(rng.integers(1, reader.threads + 1))
        unchanged, _ = steered(reader, few, every, lambda seen: seen.threads)
        alone = stream([replace(reader, threads=few)], store, latency_s=latency)
        assert np.array_equal(
            stream([unchanged], store, latency_s=latency).jobs[0].got_s, alone.jobs[0].got_s
        )

        decided: list[tuple[float, int]] = []

        def at_random(seen: Look, decided: Any = decided, most: int = reader.threads) -> int:
            decided.append((seen.now_s, int(rng.integers(1, most + 1))))
            return decided[-1][1]

        moving, looks = steered(reader, few, every, at_random)
        cuts = rng.uniform(0, plain.end_s, 3).tolist() if case % 3 == 0 else []
        run = stream([moving], store, latency_s=latency, cuts=cuts)
        job, requests = run.jobs[0], run.jobs[0].requests
        assert np.concatenate([look.load_s for look in looks]).tolist() == job.load_s.tolist()
        assert sum(look.elapsed_s for look in looks) == pytest.approx(job.total_s)
        seen = np.concatenate([look.request_s for look in looks])
        left = np.isfinite(requests.left_s)
        assert len(seen) == left.sum()
        assert seen.sum() == pytest.approx((requests.done_s - requests.taken_s)[left].sum())
        decode = np.concatenate([look.decode_s for look in looks]).sum()
        samples = np.concatenate([look.samples for look in looks]).sum()
        assert decode == pytest.approx(samples * float(np.asarray(reader.decode_s)), abs=1e-9)
        admitted = np.array([few, *(threads for _, threads in decided)])
        since = np.array([0.0, *(now for now, _ in decided)])
        taken = requests.taken_s[np.isfinite(requests.taken_s)]
        thread = requests.thread[np.isfinite(requests.taken_s)]
        # At the instant of a change either number may hold.
        before = admitted[np.searchsorted(since, taken, side="left").clip(1) - 1]
        after = admitted[np.searchsorted(since, taken, side="right") - 1]
        assert np.all(thread < np.maximum(before, after)), case
        assert np.bincount(job.put_block, minlength=len(reader.blocks)).tolist() == [
            len(block) for block in reader.blocks
        ]


def test_a_latency_that_changes_is_the_same_store_before() -> None:
    rng = np.random.default_rng(23)
    blocks = [rng.uniform(1e4, 1e5, 3) for _ in range(60)]
    reader, latency = Reader(blocks, 3, 5, 0.004), rng.exponential(0.01, 61)
    calm = stream([reader], StoreModel(conn_bytes_per_s=1e8), latency_s=latency)
    half = calm.end_s / 2
    doubled = stream([reader], StoreModel(conn_bytes_per_s=1e8, changes=((half, 2.0),)), latency_s=latency)
    granted = calm.jobs[0].requests.grant_s
    same = granted < half
    assert same.any() and not same.all()
    wait = [run.jobs[0].requests.first_byte_s - run.jobs[0].requests.grant_s for run in (calm, doubled)]
    assert np.allclose(wait[1][same], wait[0][same]) and doubled.end_s > calm.end_s
    late = doubled.jobs[0].requests.grant_s >= half
    assert np.allclose(wait[1][late], 2 * wait[0][late])


# --- scenarios ---------------------------------------------------------------------------------------------------

BASE = """
domain: loading
seed: 3
dataset: {samples: 25600, sample_bytes: {mean_bytes: 50000, sigma: 0.5}}
layout: {block_samples: 4}
store: {latency_s: {mean_s: 5ms}, conn_bytes_per_s: 600MB/s}
cpu: {decode_s: 1ms}
loader: {threads: 1, buffer_samples: 256}
step: {step_s: 100ms}
run: {batch: 64}
grid: {blocks: [4], threads: [1, 2, 4, 8, 16, 32]}
pace: by_interval
"""


def run(*overrides: str) -> Any:
    return forerun.simulate(loads(BASE, overrides)).check()


def changes(result: Any) -> list[tuple[int, int, int]]:
    """Epoch, threads before and after, where they differ."""
    table = result.table("pace")
    rows = zip(table["epoch"].tolist(), table["threads_before"].tolist(), table["threads"].tolist())
    return [row for row in rows if row[1] != row[2]]


def test_a_latency_of_5_ms_becomes_40() -> None:
    """From one thread to enough, stays; when the store slows down, to enough again; hidden but for the looks between."""
    result = run("store.changes=[{at_s: 20, latency_s: 40ms}]")
    table = result.table("pace")
    assert table["batch"][-1] == 400
    assert [(before, after) for _, before, after in changes(result)] == [(1, 2), (2, 8), (8, 16)]
    calm = (table["at_s"] > 12) & (table["at_s"] < 20)
    assert calm.any() and table["waited_share"][calm].max() < 0.01
    assert table["waited_share"][-3:].max() < 0.01 and table["threads"][-1] == 16
    assert result.summary["threads_at_end"] == 16 and result.summary["pace_changes"] == 3
    fixed = run("store.changes=[{at_s: 20, latency_s: 40ms}]", "pace=null", "loader.threads=2")
    assert result.summary["total_s"] < 0.6 * fixed.summary["total_s"]
    assert "the pace went 1 to 2 to 8 to 16 threads" in result.why
    assert {"pace"} <= {figure.id for figure in figures(result)}
    climbed = run("store.changes=[{at_s: 20, latency_s: 40ms}]", "pace=hill_climb")
    assert climbed.summary["total_s"] > result.summary["total_s"]
    assert [(before, after) for _, before, after in changes(climbed)] == [
        (1, 2), (2, 1), (1, 2), (2, 4), (4, 8), (8, 4)
    ]  # fmt: skip
    shown = [round(entry.summary["total_s"], 1) for entry in (result, climbed, fixed)]
    assert shown == [48.0, 78.3, 90.1]  # as the reference page has it
    again = run("store.changes=[{at_s: 20, latency_s: 40ms}]")
    assert again.summary == result.summary and again.table("pace")["why"].tolist() == table["why"].tolist()


def first_epoch_s(*overrides: str) -> float:
    return run_epochs(prepare(loads(BASE, overrides))).epochs[0].total_s


def test_on_steady_stores_it_settles_near_the_best() -> None:
    """Drawn stores: few changes, none after the first looks, and as quick as the best fixed number, or nearly."""
    rng = np.random.default_rng(5)
    regrets = []
    for _ in range(12):
        store = [
            f"store.latency_s={{mean_s: {rng.uniform(0.002, 0.04):.4f}, sigma: {rng.uniform(0, 0.5):.2f}}}",
            f"store.slots={rng.choice([0, 0, 3, 6])}", f"cpu.decode_s={rng.uniform(2e-4, 3e-3):.5f}",
            f"store.shared_bytes_per_s={rng.choice([0, 20e6, 80e6])}", "pace.every_batches=20",
            f"loader.threads={rng.choice([1, 2, 8, 32])}", f"seed={rng.integers(99)}",
        ]  # fmt: skip
        outcome = run_epochs(prepare(loads(BASE, store)))
        threads = [row.threads for row in outcome.pacers[0].record]
        assert len(threads) == 20 and len(set(threads[5:])) == 1, (store, threads)
        fixed = {n: first_epoch_s(*store, "pace=null", f"loader.threads={n}") for n in (1, 2, 4, 8, 16, 32)}
        regrets.append(fixed[threads[-1]] / min(fixed.values()) - 1)
    assert max(regrets) <= 0.08 and np.mean(regrets) <= 0.02, regrets


def test_threads_that_bring_nothing_are_given_back() -> None:
    """Two slots, or a thin link, or two cores: more threads are tried, found useless, and not tried again."""
    for limit in (
        "store={latency_s: {mean_s: 30ms}, slots: 2}",
        "store.shared_bytes_per_s=8MB/s",
        "cpu={decode_cpu_s: 4ms, cores: 2}",
    ):
        result = run(limit, "pace.every_batches=20", "dataset.samples=12800")
        assert "what they share binds" in " ".join(result.table("pace")["why"].tolist()), limit
        assert len(changes(result)) <= 4 and result.summary["threads_at_end"] <= 8, (limit, changes(result))


def test_blocks_change_when_an_epoch_ends_and_that_pays() -> None:
    """Four threads cannot hide 40 ms with blocks of 4: the next epoch has larger ones, if merging pays in time."""
    slow = (
        "store.latency_s={mean_s: 40ms}",
        "grid={blocks: [4, 8, 16, 64], threads: [1, 2, 4]}",
        "run.epochs=3",
    )
    result = run(*slow, "layout.merge_s=5s", "pace.every_batches=20")
    epochs = result.table("epochs")
    assert result.summary["merges"] == 1 and result.summary["block_samples_at_end"] in (16, 64)
    assert epochs["samples_per_s"][1] > 1.5 * epochs["samples_per_s"][0]
    assert epochs["steady_stall_share"][2] < 0.01
    shown = [why for why in result.table("pace")["why"].tolist() if "save at least" in why]
    assert len(shown) == 1 and "epochs left" in shown[0]
    assert epochs["gets"][0] > 2 * epochs["gets"][1]
    for forbids in ("layout.merge_s=500s", "run.epochs=1", "goal.memory_bytes=1MB"):
        kept = run(*slow, "layout.merge_s=5s", "pace.every_batches=20", forbids)
        assert kept.summary["merges"] == 0, forbids
    cached = run(*slow, "caches=[{capacity_bytes: 10GB}]", "pace.every_batches=20").table("epochs")
    # Other blocks are other objects: the epoch after merging begins with an empty cache.
    assert cached["hit_share"].tolist() == [0, 0, 1]


def test_jobs_have_a_pace_each() -> None:
    result = run(
        "jobs=2", "dataset.samples=6400", "store.shared_bytes_per_s=200MB/s", "pace.every_batches=20"
    )
    table = result.table("pace")
    assert {*table["job"].tolist()} == {0, 1} and min(result.table("epochs")["samples_per_s"]) > 400
    assert min(result.ledgers[0].parts.values()) >= 0


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("grid=null", "a pace needs a grid"),
        ("pace.every_batches=0", "pace.every_batches"),
        ("pace.headroom=0.5", "pace.headroom"),
        ("pace.conn_bytes_per_s=-1", "pace.conn_bytes_per_s"),
        ("pace={name: hill_climb, idle: 0.5}", "pace.stalled"),
        ("pace=by_intervall", "did you mean 'by_interval'"),
        ("grid.cache_bytes=[0, 1GB]", "grid.cache_bytes"),
        ("store.changes=[{at_s: 0, latency_s: 1ms}]", "store.changes[0].at_s"),
        ("store.changes=[{at_s: 5, latency_s: 1ms}, {at_s: 5, latency_s: 2ms}]", "store.changes[1].at_s"),
        ("store.changes=[{at_s: 5, latency_s: -1ms}]", "store.changes[0].latency_s"),
        ("store={latency_s: 0, changes: [{at_s: 5, latency_s: 1ms}]}", "store.changes"),
    ],
)
def test_bad_paces_name_the_place(override: str, where: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(BASE, [override])
    assert where in str(caught.value)


def test_paces_and_loaders_that_do_not_go_together() -> None:
    workers = ["loader.mode=workers", "grid={blocks: [4], threads: [1], workers: [1, 2]}"]
    with pytest.raises(ScenarioError, match=r"pace: needs loader\.mode threads"):
        loads(BASE, workers)
    with pytest.raises(ScenarioError, match=r"store\.changes: needs loader.mode threads"):
        loads(BASE, [*workers, "pace=null", "store.changes=[{at_s: 5, latency_s: 1ms}]"])
    with pytest.raises(ScenarioError, match=r"grid\.blocks: \[4\] is required: 2 jobs share one layout"):
        loads(BASE, ["jobs=2", "grid.blocks=[4, 8]"])
    with pytest.raises(ScenarioError, match=r"grid\.blocks: global shuffling"):
        loads(BASE, ["dataset.shuffle=global", "layout.block_samples=1", "grid.blocks=[1, 8]"])


# --- policies ----------------------------------------------------------------------------------------------------


@dataclass
class Recorded:
    """Makes the decisions of a list in turn, then changes nothing."""

    paces: list[Pace]
    views: list[PaceView] = field(default_factory=list)

    def adjust(self, view: PaceView) -> Pace:
        self.views.append(view)
        return self.paces.pop(0) if self.paces else Pace(view.threads)


class Scripted(PaceSpec, frozen=True, kw_only=True, tag="scripted"):
    """The spec of a recorded policy."""

    paces: tuple[tuple[int, int], ...]

    def build(self, rng: np.random.Generator) -> Any:
        return Recorded([Pace(threads, block or None) for threads, block in self.paces])


def a_look(batch: int = 10) -> Look:
    times = np.full(10, 0.1)
    return Look(1.0, 1.0, batch, 2, times, times, times * 1e6, np.full(10, 4.0), times, times, times)


def test_impossible_paces_are_stopped_by_name() -> None:
    def pacer(*paces: tuple[int, int]) -> Pacer:
        return Pacer(Scripted(paces=paces), 2, 4, (1, 2, 4), (4, 8), 64, 640, job=1)

    with pytest.raises(
        PolicyError, match=r"job 1, epoch 0, batch 10.*: a pace of 5 threads; 1 to 4 are on offer"
    ):
        pacer((5, 0)).look(a_look())
    with pytest.raises(PolicyError, match="a pace of 0 threads"):
        pacer((0, 0)).look(a_look())
    with pytest.raises(PolicyError, match="blocks of 8 while an epoch runs"):
        pacer((2, 8)).look(a_look())
    with pytest.raises(PolicyError, match="blocks of 5; on offer are 4, 8"):
        pacer((2, 5)).ended(a_look())
    good = pacer((4, 0), (4, 8))
    assert good.look(a_look()) == 4
    good.ended(a_look(20))
    assert (good.threads, good.block_samples, good.epoch) == (4, 8, 1)
    assert [(row.batch, row.threads_before, row.threads) for row in good.record] == [(10, 2, 4), (20, 4, 4)]
    assert good.replay(0).look(a_look()) == 4
    with pytest.raises(PolicyError, match="9 threads were admitted; there are 1 to 2"):
        reader = Reader([np.full(4, 1e4)] * 9, 2, 4, 0.01)
        stream([steered(reader, 1, 2, lambda seen: 9)[0]], StoreModel())


@pytest.mark.parametrize("name", paces().names())
def test_every_pace_policy_keeps_to_what_is_on_offer(name: str) -> None:
    """Drawn views, whatever they hold: threads on offer or in use, blocks on offer, the same answer from the same views."""
    rng = np.random.default_rng(8)
    for _ in range(60):
        offered = tuple(sorted({int(n) for n in rng.integers(1, 33, 4)}))
        blocks = tuple(sorted({int(n) for n in rng.integers(1, 65, 3)}))
        start, views = int(rng.choice(offered)), []
        for turn in range(6):
            count, seen = int(rng.integers(0, 40)), int(rng.choice([0, 1, 30, 300]))
            times = rng.exponential(1.0, (4, seen))
            views.append(
                {
                    "epoch": turn // 3, "batch": count, "offered_threads": offered, "offered_blocks": blocks,
                    "batch_samples": 64, "now_s": 1.0, "elapsed_s": float(rng.exponential(2)),
                    "step_s": np.full(count, rng.choice([0, 0.1])),
                    "load_s": rng.choice([0, 1]) * rng.exponential(0.1, count), "block_bytes": 1e5 * times[0],
                    "samples": np.full(seen, 4.0), "asked_s": times[1] - 1,
                    "request_s": times[2] * rng.choice([0, 0.02, 0.2]),
                    "decode_s": 0.004 * times[3], "memory_bytes": float(rng.choice([1e4, np.inf])),
                    "epoch_ends": turn % 3 == 2, "epochs_left": 3 - turn // 3, "epoch_samples": 6400, "merge_s": 1.0,
                }
            )  # fmt: skip
        answers = []
        for _ in range(2):
            policy = paces().get(name)().build(np.random.default_rng(0))
            threads, block, said = start, blocks[0], []
            for view in views:
                pace = policy.adjust(PaceView(threads=threads, block_samples=block, **view))  # type: ignore[arg-type]
                assert pace.threads in offered and (
                    pace.block_samples is None or pace.block_samples in blocks
                )
                assert view["epoch_ends"] or pace.block_samples is None
                threads, block = pace.threads, pace.block_samples or block
                said.append(pace)
            answers.append(said)
        assert answers[0] == answers[1]


def test_it_acts_only_beyond_the_interval() -> None:
    """Estimates near a whole number of threads, drawn again and again: few looks change anything."""
    rng = np.random.default_rng(2)
    policy = ByInterval().build(rng)
    threads, moved = 4, 0
    for _ in range(200):
        request = rng.exponential(
            0.02, 100
        )  # 4 threads for 20 + 4 ms a block of 4, with headroom: 4.4 wanted
        waited = np.full(20, 0.004) if threads < 5 else np.zeros(20)
        pace = policy.adjust(
            PaceView(
                epoch=0,
                batch=20,
                threads=threads,
                block_samples=4,
                offered_threads=(1, 2, 3, 4, 5, 6, 8),
                offered_blocks=(4,),
                batch_samples=64,
                now_s=2.1,
                elapsed_s=2.1,
                load_s=waited,
                step_s=np.full(20, 0.1),
                block_bytes=np.full(100, 2e5),
                samples=np.full(100, 4.0),
                asked_s=np.ones(100),
                request_s=request,
                decode_s=np.full(100, 0.004),
            )
        )
        moved += pace.threads != threads
        threads = pace.threads
    assert threads in (4, 5) and moved <= 3


# --- a real store -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pace")
    make_corpus(folder / "files", 512, mean_bytes=4000)
    return pack(folder / "files", folder / "blocks", PackSpec(64)).folder


def test_a_store_whose_latency_changes_at_an_instant(blocks: Path) -> None:
    from forerun.loading.verbs.store import command

    assert StoreSpec(latency_s=1.0, changes=((5.0, 2.0), (9.0, 3.0))).latency_at(6.0) == 2.0
    done = CliRunner().invoke(
        command, [str(blocks), "--for", "0.1s", "--latency", "1ms", "--then", "30s=40ms"]
    )
    assert done.exit_code == 0 and done.output.startswith("http://127.0.0.1:")
    for bad, message in (
        (["--then", "30s"], "such as 30s=40ms"),
        (["--then", "5s=1ms", "--then", "5s=2ms"], "ascending"),
    ):
        assert command_line(["store", str(blocks), "--for", "0.1s", *bad]) == 2, message
