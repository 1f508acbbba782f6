"""The pipeline for real: one process a replica, one queue a stage, the simulator's own batching policies, real time.

One loop in this process owns the queues, sends queries at absolute instants, asks the policies, hands batches to idle
replicas through pipes and takes their answers; every stamp comes from the machine's monotonic clock. The order within an
instant is the simulator's: completions, arrivals, takes that are due, starts. It returns the simulator's tables.
Queries carry no payload: what crosses a pipe is the size of a batch.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.domains.serving.engine.outcome import Batches, Run, Visits
from forerun.domains.serving.inputs.pipeline import SOURCE, Floats, Pipeline, Stage
from forerun.domains.serving.inputs.routing import incoming_edges
from forerun.domains.serving.policy.batching import QueueView, Start, Wait, Wake
from forerun.errors import StoreError, UsageError
from forerun.measure.serving.worker import READY, REQUEST
from forerun.rng import stream

#: threads that numerical libraries may start in a replica
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

#: a replica that says nothing for so long has died or hangs
PATIENCE_S = 60.0


@dataclass
class Replica:
    """A process that serves one stage.

    Parameters
    ----------
    stage : its number.
    name : the stage's name.
    number : of the replica within the stage.
    process : of the operating system.
    began_s : when its batch was handed over.
    batch : the queries in it.
    """

    stage: int
    name: str
    number: int
    process: subprocess.Popen[bytes] = field(repr=False)
    began_s: float = 0.0
    batch: list[int] = field(default_factory=list)

    @property
    def answers(self) -> int:
        """The file to read answers from."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def hand(self, size: int, until_s: float) -> None:
        """Give it a batch.

        Parameters
        ----------
        size : queries in it.
        until_s : instant of the monotonic clock up to which it sleeps; NaN: it computes instead.
        """
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), REQUEST.pack(size, until_s))

    def answer(self) -> None:
        """Take the word that its batch has ended. Raises StoreError if it has died."""
        if not os.read(self.answers, 1):
            raise StoreError.at("measure serving", f"a replica of stage {self.name} died")


#: what a stage has served: (batch size, ms from handing over to the answer)
Served = list[tuple[int, float]]


@dataclass(frozen=True)
class Observed:
    """A run for real: the simulator's tables, instants in ms from the first query's; arrivals are when they were sent.

    Parameters
    ----------
    run : what happened.
    lag_ms : float64[queries], sent later than due.
    served : by stage float64[batches, 2]: batch size, and ms from handing over to the answer.
    """

    run: Run
    lag_ms: Floats
    served: tuple[Floats, ...]


class Testbed:
    """The replicas of a pipeline, running. Use it in a `with` statement.

    Parameters
    ----------
    pipeline : stages that keep their number of replicas.
    models : by stage the name of what it computes, or empty: then a batch of n sleeps until n's time in the stage's
        table is over.
    """

    __test__ = False  # not a test, whatever pytest thinks of the name

    def __init__(self, pipeline: Pipeline, models: Sequence[str]) -> None:
        for stage in pipeline.stages:
            if stage.capacity:
                raise UsageError.at(f"stage {stage.name!r}", "changes its replicas; a real run keeps them")
        self.pipeline, self.models = pipeline, tuple(models)
        self.replicas: list[list[Replica]] = []

    def __enter__(self) -> Testbed:
        try:
            numbers = iter(range(10**6))
            for s, stage in enumerate(self.pipeline.stages):
                self.replicas.append([self._started(s, n, next(numbers)) for n in range(stage.replicas)])
            for replica in self._every():
                self._await_ready(replica)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let every replica end; those that do not are killed."""
        for replica in self._every():
            for file in (replica.process.stdin, replica.process.stdout):
                if file is not None:
                    with contextlib.suppress(OSError):
                        file.close()
        for replica in self._every():
            try:
                replica.process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                replica.process.kill()
                replica.process.wait()
        self.replicas = []

    def _every(self) -> Iterator[Replica]:
        for stage in self.replicas:
            yield from stage

    def _started(self, stage: int, number: int, count: int) -> Replica:
        processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        # Replicas that sleep may run anywhere; those that compute stay where they are put.
        place = processors[count % len(processors)] if processors and self.models[stage] else -1
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        command = [sys.executable, "-m", "forerun.measure.serving.worker", self.models[stage], str(place)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        return Replica(stage, self.pipeline.stages[stage].name, number, process)

    def _await_ready(self, replica: Replica) -> None:
        ready, _, _ = select.select([replica.answers], [], [], PATIENCE_S)
        if not ready or os.read(replica.answers, 1) != READY:
            name = self.pipeline.stages[replica.stage].name
            model = self.models[replica.stage] or "sleeping"
            raise UsageError.at(f"stage {name!r}", f"its model {model} did not start; see above what it says")

    def run(self, due_ms: Floats) -> Observed:
        """Send a query at each instant (ascending, the first is the clock's zero) and serve them all.

        Raises StoreError if a replica dies.
        """
        with _undisturbed():
            return _Loop(self, due_ms).run()

    def exercise(
        self,
        sizes: Sequence[Sequence[int]],
        loads: Sequence[float],
        stages: Sequence[int] | None = None,
        *,
        served: list[Served] | None = None,
        watch: Callable[[], None] = lambda: None,
    ) -> list[Served]:
        """Have replicas serve given batches without queues: by stage, (size, ms from handing over to the answer).

        Parameters
        ----------
        sizes : by stage, in this order, dealt to whichever of its replicas is next; a stage that is through begins
            again until all are, so that nobody ever works alone.
        loads : by stage, the share of time a replica is busy; it rests in between.
        stages : those that take part, at once (default: all).
        served : lists, one a stage, that answers are added to as they come, so that they are there if this is
            interrupted.
        watch : called after answers.
        """
        answers = [[] for _ in self.replicas] if served is None else served
        with _undisturbed():
            _exercised(
                self, sizes, loads, range(len(self.replicas)) if stages is None else stages, answers, watch
            )
        return answers


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """No collection of garbage in between."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Station:
    """One stage's queue and replicas during a run; instants in s of the run's clock.

    Parameters
    ----------
    stage : its batch limit, batching policy and times.
    replicas : their processes.
    rng : the batching policy's own random stream.
    paced : whether replicas sleep as long as the table says, not compute.

    Attributes
    ----------
    idle : numbers of idle replicas, ascending.
    queue : (query, entered s), oldest first.
    woken : (due s, replica).
    alarm_s : when the policy is asked again, if nothing happens before.
    batches : (start s, end s, size, replica) of those that ended.
    served : (size, ms from handing over to the answer) of the same.
    """

    def __init__(
        self, stage: Stage, replicas: list[Replica], rng: np.random.Generator, *, paced: bool
    ) -> None:
        self.stage, self.replicas, self.paced = stage, replicas, paced
        self.policy = stage.batching.build(rng)
        self.idle = list(range(len(replicas)))
        self.queue: deque[tuple[int, float]] = deque()
        self.woken: deque[tuple[float, int]] = deque()
        self.alarm_s = math.inf
        self.batches: list[tuple[float, float, int, int]] = []
        self.served: list[tuple[float, float]] = []


class _Loop:
    def __init__(self, testbed: Testbed, due_ms: Floats) -> None:
        pipeline, queries = testbed.pipeline, len(due_ms)
        self.pipeline, self.due_s = pipeline, (due_ms / 1e3).tolist()
        self.stations = [
            _Station(stage, replicas, stream(pipeline.seed, "batching", stage.name), paced=not model)
            for stage, replicas, model in zip(pipeline.stages, testbed.replicas, testbed.models)
        ]
        self.edges_out: dict[int, list[tuple[int, list[bool]]]] = {
            s: [] for s in range(SOURCE, len(pipeline.stages))
        }
        self.missing: list[list[int]] = []
        visits = np.zeros(queries, dtype=np.int64)
        for s, edges in enumerate(incoming_edges(pipeline, queries)):
            for parent, takes in edges:
                self.edges_out[parent].append((s, takes.tolist()))
            parents = np.sum([takes for _, takes in edges], axis=0)
            self.missing.append(parents.tolist())
            visits += parents > 0
        self.left = visits.tolist()
        self.files = {replica.answers: replica for replica in testbed._every()}
        self.by_file = list(self.files)
        shape = (len(pipeline.stages), queries)
        self.enter_s, self.start_s, self.end_s = (np.full(shape, np.nan) for _ in range(3))
        self.size, self.number = np.zeros(shape, dtype=np.int32), np.full(shape, -1, dtype=np.int32)
        self.sent_s, self.finish_s = np.zeros(queries), np.zeros(queries)

    def run(self) -> Observed:
        queries = len(self.due_s)
        # A little ahead, so that the first query is not late already.
        self.zero_s = time.monotonic() + 0.05 - self.due_s[0]
        sent, ended = 0, 0
        while ended < queries:
            now_s = time.monotonic() - self.zero_s
            wake_s = min(
                self.due_s[sent] if sent < queries else math.inf,
                min(station.alarm_s for station in self.stations),
            )
            patience_s = min(max(0.0, wake_s - now_s), PATIENCE_S)
            ready, _, _ = select.select(self.by_file, [], [], patience_s)
            if not ready and patience_s == PATIENCE_S and wake_s > now_s + PATIENCE_S and sent == queries:
                raise StoreError.at("measure serving", f"no replica answered for {PATIENCE_S:g} s")
            answered = [self.files[file] for file in ready]
            for replica in answered:
                replica.answer()
            now_s = time.monotonic() - self.zero_s
            touched: set[int] = set()
            for replica in sorted(answered, key=lambda one: (one.stage, one.began_s)):
                ended += self._complete(replica, now_s, touched)
            while sent < queries and self.due_s[sent] <= now_s:
                self.sent_s[sent] = now_s
                self.finish_s[sent] = now_s
                ended += self.left[sent] == 0
                self._enter(SOURCE, [sent], now_s, touched)
                sent += 1
            for s, station in enumerate(self.stations):
                if s in touched or station.alarm_s <= now_s:
                    self._start(station, s, now_s)
        return self._observed()

    def _complete(self, replica: Replica, now_s: float, touched: set[int]) -> int:
        """A batch has ended; how many queries have ended with it."""
        station, s = self.stations[replica.stage], replica.stage
        queries, ended = replica.batch, 0
        station.batches.append((replica.began_s, now_s, len(queries), replica.number))
        station.served.append((float(len(queries)), (now_s - replica.began_s) * 1e3))
        station.idle.append(replica.number)
        station.idle.sort()
        self.end_s[s, queries] = now_s
        self.finish_s[queries] = now_s
        for query in queries:
            self.left[query] -= 1
            ended += self.left[query] == 0
        touched.add(s)
        self._enter(s, queries, now_s, touched)
        return ended

    def _enter(self, parent: int, queries: list[int], now_s: float, touched: set[int]) -> None:
        """Queries go on along the edges they take, and join a queue when the last parent they wait for has ended.

        Parameters
        ----------
        parent : the stage that they leave, or SOURCE.
        queries : their numbers, in order.
        now_s : on the run's clock.
        touched : added to: the stages that somebody enters, whose policies are asked next.
        """
        for s, taken in self.edges_out[parent]:
            for query in queries:
                if taken[query]:
                    self.missing[s][query] -= 1
                    if not self.missing[s][query]:
                        self.stations[s].queue.append((query, now_s))
                        self.enter_s[s, query] = now_s
                        touched.add(s)

    def _start(self, station: _Station, s: int, now_s: float) -> None:
        """Takes that are due, then what the batching policy decides."""
        station.alarm_s = math.inf
        while station.woken and station.woken[0][0] <= now_s:
            _, number = station.woken.popleft()
            if station.queue:
                self._begin(station, s, number, now_s)
            else:
                station.idle.append(number)
                station.idle.sort()
        while station.idle:
            oldest_ms = station.queue[0][1] * 1e3 if station.queue else math.inf
            view = QueueView(
                now_s * 1e3,
                len(station.queue),
                oldest_ms,
                station.stage.max_batch,
                len(station.idle),
                len(station.woken),
            )
            decision = station.policy.decide(view)
            if isinstance(decision, Start) and station.queue:
                self._begin(station, s, station.idle.pop(0), now_s)
            elif isinstance(decision, Wake):
                station.woken.append((now_s + decision.after_ms / 1e3, station.idle.pop(0)))
            else:
                if isinstance(decision, Wait) and decision.until_ms < math.inf:
                    station.alarm_s = max(decision.until_ms / 1e3, now_s + 1e-6)
                break
        if station.woken:
            station.alarm_s = min(station.alarm_s, station.woken[0][0])

    def _begin(self, station: _Station, s: int, number: int, now_s: float) -> None:
        size = min(station.stage.max_batch, len(station.queue))
        replica = station.replicas[number]
        replica.batch = [station.queue.popleft()[0] for _ in range(size)]
        replica.began_s = now_s
        service_ms = station.stage.service.table_ms[size] if station.paced else math.nan
        replica.hand(size, now_s + self.zero_s + service_ms / 1e3)
        self.start_s[s, replica.batch] = now_s
        self.size[s, replica.batch] = size
        self.number[s, replica.batch] = number

    def _observed(self) -> Observed:
        first_s = float(self.sent_s[0])

        def ms(instants_s: Floats) -> Floats:
            """Instants of the run's clock, from the first query on."""
            return (instants_s - first_s) * 1e3

        batches = []
        for station in self.stations:
            start_s, end_s, size, number = np.array(sorted(station.batches), float).reshape(-1, 4).T
            batches.append(Batches(ms(start_s), ms(end_s), size.astype(np.int32), number.astype(np.int32)))
        columns = zip(self.enter_s, self.start_s, self.end_s, self.size, self.number)
        visits = tuple(
            Visits(ms(enter_s), ms(start_s), ms(end_s), size, number)
            for enter_s, start_s, end_s, size, number in columns
        )
        run = Run(ms(self.sent_s), ms(self.finish_s), 0, 0, visits, tuple(batches))
        lag_ms = (self.sent_s - np.array(self.due_s)) * 1e3
        served = tuple(np.array(station.served).reshape(-1, 2) for station in self.stations)
        return Observed(run, lag_ms, served)


def _exercised(
    testbed: Testbed,
    sizes: Sequence[Sequence[int]],
    loads: Sequence[float],
    stages: Sequence[int],
    answers: list[Served],
    watch: Callable[[], None],
) -> None:
    """See `Testbed.exercise`; every batch of the lists is handed over once at least.

    Parameters
    ----------
    testbed : its replicas, running.
    sizes, loads : by stage, the batches and the share of time that a replica is busy.
    stages : those that take part.
    answers : by stage, added to as answers come.
    watch : called after answers.

    Raises StoreError if no replica answers for a minute.
    """
    handed = dict.fromkeys(stages, 0)
    replicas = [replica for s in stages for replica in testbed.replicas[s]]
    files = {replica.answers: replica for replica in replicas}
    rests: dict[int, float] = dict.fromkeys(files, 0.0)
    under_way: dict[int, tuple[int, float]] = {}
    going_on = True
    while going_on or under_way:
        now_s = time.monotonic()
        idle = [file for file in files if file not in under_way] if going_on else []
        for file in idle:
            if rests[file] <= now_s:
                replica = files[file]
                size = sizes[replica.stage][handed[replica.stage] % len(sizes[replica.stage])]
                handed[replica.stage] += 1
                table = testbed.pipeline.stages[replica.stage].service.table_ms
                until_s = math.nan if testbed.models[replica.stage] else now_s + table[size] / 1e3
                replica.hand(size, until_s)
                under_way[file] = (size, now_s)
        resting = [rests[file] for file in idle if file not in under_way]
        timeout_s = max(0.0, min(resting) - time.monotonic()) if resting else PATIENCE_S
        ready, _, _ = select.select(list(under_way), [], [], timeout_s)
        for file in ready:
            files[file].answer()
            ended_s = time.monotonic()
            size, began_s = under_way.pop(file)
            stage = files[file].stage
            answers[stage].append((size, (ended_s - began_s) * 1e3))
            rests[file] = ended_s + (ended_s - began_s) * (1 / loads[stage] - 1)
        going_on = any(len(answers[s]) < len(sizes[s]) for s in stages)
        if ready:
            watch()
        if not ready and not resting:
            raise StoreError.at("measure serving", f"no replica answered for {PATIENCE_S:g} s")
