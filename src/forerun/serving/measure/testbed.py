"""The replicas of a pipeline for real: one process each, which is handed batches through a pipe and times them.

Every stamp comes from the machine's monotonic clock. Queries carry no payload: what crosses a pipe is the size of a batch.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from forerun.core.errors import StoreError, UsageError
from forerun.serving.inputs.pipeline import Pipeline
from forerun.serving.measure.worker import READY, REQUEST

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
    """

    stage: int
    name: str
    number: int
    process: subprocess.Popen[bytes] = field(repr=False)

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
            for replica in self.every():
                self._await_ready(replica)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let every replica end; those that do not are killed."""
        for replica in self.every():
            for file in (replica.process.stdin, replica.process.stdout):
                if file is not None:
                    with contextlib.suppress(OSError):
                        file.close()
        for replica in self.every():
            try:
                replica.process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                replica.process.kill()
                replica.process.wait()
        self.replicas = []

    def every(self) -> Iterator[Replica]:
        """All replicas, stage by stage."""
        for stage in self.replicas:
            yield from stage

    def _started(self, stage: int, number: int, count: int) -> Replica:
        processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        # Replicas that sleep may run anywhere; those that compute stay where they are put.
        place = processors[count % len(processors)] if processors and self.models[stage] else -1
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        command = [sys.executable, "-m", "forerun.serving.measure.worker", self.models[stage], str(place)]
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
        with undisturbed():
            _exercised(
                self, sizes, loads, range(len(self.replicas)) if stages is None else stages, answers, watch
            )
        return answers


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No collection of garbage in between."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
