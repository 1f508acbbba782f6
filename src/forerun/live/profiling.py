"""What a training program does on real slots: its throughput at each count and batch, and the seconds that changes take.

An engine starts the program on one count of slots after the other, as the scheduler would: it is drained, saves its state,
and goes on elsewhere. Its own reports say how many steps it does a second. The seconds of a change run from the command to
drain to the first step afterwards; a step under way when the command comes is part of them. What is measured so far is
there at any time, so a measurement that is interrupted keeps it.
"""

from __future__ import annotations

import csv
import io
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from forerun.core.errors import ForerunError
from forerun.core.scenario.numbers import Count, Positive
from forerun.core.scenario.spec import Spec
from forerun.live.engines.engine import Checkpoint, Drain, Engine, Heartbeat, Kill, Start, Term
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    Left,
    Observation,
    Progressed,
    Refused,
)
from forerun.live.spec import JobSpec

Clock = Callable[[], float]
#: how a program starts: forked from a process that has its libraries already, or from nothing
How = Literal["warm", "cold"]
#: wall seconds of a lease; the profiler answers heartbeats while it waits
_TERM_S: Final = 10.0
#: reports that make up a measured throughput at least, besides the first, in which caches are filled
_LEAST_REPORTS: Final = 4
#: guesses for the estimate, before anything is measured
_GUESSED_S: Final[Mapping[How, float]] = {"warm": 2.0, "cold": 6.0}


class ProgramFailed(ForerunError):
    """A program that is profiled failed, was not started, or did not get to its first step."""


# --------------------------------------------------------------------------------------------------------- the plan


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Start and end once, unmeasured, so that the process that others are forked from is there."""

    slots: int
    batch: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Start from nothing."""

    slots: int
    batch: int
    how: How


@dataclass(frozen=True, slots=True)
class Rate:
    """Measure throughput for so many wall seconds."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Resize:
    """Go on with another count of slots, or with the same on other slots."""

    before: int
    after: int
    how: How

    @property
    def name(self) -> str:
        """As a table of costs calls it."""
        return "migrate" if self.before == self.after else f"{self.before}->{self.after}"


@dataclass(frozen=True, slots=True)
class End:
    """Drain, and wait until the slots are free."""


Task = WarmUp | Begin | Rate | Resize | End


class ProfilingPlan(Spec, frozen=True, kw_only=True):
    """What is measured, in which order.

    slots: counts of them, ascending. batches: global batches; changes are measured with the first. throughput_s: wall
    seconds for each throughput. repeats: how often each change is measured. cold: whether changes are also measured
    without a warm process. costs: which of the repeats the table of costs gets.
    """

    slots: Annotated[tuple[Count, ...], Meta(min_length=1)] = (1, 2, 4, 8)
    batches: Annotated[tuple[Count, ...], Meta(min_length=1)]
    throughput_s: Positive = 15.0
    repeats: Count = 3
    cold: bool = True
    costs: Literal["median", "largest"] = "median"

    def problems(self) -> list[tuple[str, str]]:
        """Counts rise."""
        both = (("slots", self.slots), ("batches", self.batches))
        return [
            (name, f"{list(counts)} does not rise")
            for name, counts in both
            if list(counts) != sorted(set(counts))
        ]

    def tasks(self) -> Iterator[tuple[Task, ...]]:
        """The walks: up through the counts with every batch, then up, aside and down for the changes."""
        yield (WarmUp(self.slots[0], self.batches[0]),)
        for batch in self.batches:
            yield tuple(self._up(batch, "warm", rates=True))
        for how, repeats in (("warm", self.repeats - 1), ("cold", 1 if self.cold else 0)):
            for _ in range(repeats):
                yield tuple(self._up(self.batches[0], "warm" if how == "warm" else "cold", rates=False))

    def _up(self, batch: int, how: How, *, rates: bool) -> Iterator[Task]:
        yield Begin(self.slots[0], batch, how)
        if rates:
            yield Rate(self.throughput_s)
        for before, after in pairwise(self.slots):
            yield Resize(before, after, how)
            if rates:
                yield Rate(self.throughput_s)
        if batch == self.batches[0]:
            yield Resize(self.slots[-1], self.slots[-1], how)
            for before, after in pairwise(reversed(self.slots)):
                yield Resize(before, after, how)
        yield End()

    def expected_s(self, task: Task) -> float:
        """A guess at the wall seconds of a task."""
        match task:
            case Rate(for_s=for_s):
                return for_s
            case WarmUp():
                return _GUESSED_S["cold"]
            case Begin(how=how) | Resize(how=how):
                return _GUESSED_S[how]
            case End():
                return _GUESSED_S["warm"] / 2


def words(task: Task) -> str:
    """A task for people."""
    match task:
        case WarmUp():
            return "first start, not measured"
        case Begin(slots=slots, batch=batch, how=how):
            return f"start on {slots} with batch {batch}, {how}"
        case Rate():
            return "throughput"
        case Resize(how=how) as change:
            return f"{change.name}, {how}"
        case End():
            return "end"


# ------------------------------------------------------------------------------------------------- what is measured


@dataclass(slots=True)
class Measured:
    """What is known so far; it grows with each task.

    Parameters
    ----------
    model : name of the program in tables.
    rates : iterations a second, by batch and count of slots.
    seconds : of changes (`1->2`, `migrate`, `start` and `drain`), by name and by how the program started.
    profiling_s : wall seconds that the throughputs took, with starts.
    notes : what a reader must know.
    """

    model: str
    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    seconds: dict[tuple[str, How], list[float]] = field(default_factory=dict)
    profiling_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, how: How, seconds: float) -> None:
        """One more measurement of a change."""
        self.seconds.setdefault((name, how), []).append(seconds)

    def throughput_csv(self) -> str:
        """The throughput as a profile of `simulate`; a cell that was not measured is empty."""
        counts = sorted({slots for _, slots in self.rates})
        rows = [
            [batch, *(f"{rate:.6g}" if (rate := self.rates.get((batch, n))) else "" for n in counts)]
            for batch in sorted({batch for batch, _ in self.rates})
        ]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([["global_batch_size", *counts], *rows])
        return text.getvalue()

    def costs(
        self, how: How = "warm", of: Callable[[list[float]], float] = statistics.median
    ) -> dict[str, float]:
        """The seconds of changes, as a row of a table of costs of `simulate`.

        Parameters
        ----------
        how : of which starts (default: warm ones, which the local engine does).
        of : which of several measurements of a change (default: their median).
        """
        changes = {name: of(times) for (name, kind), times in self.seconds.items() if kind == how}
        # The simulator's restart is a start after a stop.
        return {"restart" if name == "start" else name: s for name, s in changes.items() if name != "drain"}

    @property
    def has_costs(self) -> bool:
        """Whether growing and shrinking were measured, without which a table of costs is none."""
        pairs = [name.split("->") for name, how in self.seconds if how == "warm" and "->" in name]
        return any(int(a) < int(b) for a, b in pairs) and any(int(a) > int(b) for a, b in pairs)

    def data(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "model": self.model,
            "throughput": [
                {"batch": batch, "slots": slots, "iterations_per_s": rate}
                for (batch, slots), rate in sorted(self.rates.items())
            ],
            "changes": [
                {
                    "change": name,
                    "start": how,
                    "median_s": statistics.median(times),
                    "least_s": min(times),
                    "most_s": max(times),
                    "times": len(times),
                }
                for (name, how), times in self.seconds.items()
            ],
            "profiling": [{"model": self.model, "seconds": self.profiling_s}] if self.rates else [],
            "notes": list(self.notes),
        }


# --------------------------------------------------------------------------------------------------------- measuring


def measure(
    engine: Engine,
    spec: JobSpec,
    plan: ProfilingPlan,
    measured: Measured,
    *,
    slots: int,
    begin: Callable[[str], None],
    at: Callable[[float, str], None],
    limit_s: float = 300.0,
    clock: Clock = time.monotonic,
) -> None:
    """Carry a plan out; what is measured is added to `measured` as it is known.

    A walk whose program fails ends there, with a note: a batch that is too small for a count of ranks leaves the cells of
    that count and of larger ones empty. Raises ProgramFailed if nothing at all could be measured.

    Parameters
    ----------
    engine : that has one node at least.
    spec : the program.
    plan : what to measure.
    measured : where it goes.
    slots : how many the node has.
    begin : is called with the words of each task.
    at : is called with the share of a task that is done, and with words.
    limit_s : wall seconds within which a first step, or a departure, is expected (default: 300).
    clock : monotonic seconds.
    """
    report_s = plan.throughput_s / (_LEAST_REPORTS + 2)
    bench = _Bench(engine, spec, slots, report_s, limit_s, clock)
    try:
        for walk in plan.tasks():
            left = list(walk)
            try:
                while left:
                    begin(words(left[0]))
                    _carry_out(bench, left[0], measured, at)
                    del left[0]
            except ProgramFailed as failure:
                where = f"{bench.count} slots, batch {bench.batch}"
                measured.notes.append(f"{words(left[0])} on {where}: {failure}")
                bench.clear()
                # What is left of this walk is not measured, but counts as done for whoever watches.
                for task in left[1:]:
                    begin(words(task))
        if not measured.rates and not measured.seconds:
            raise ProgramFailed.at(" ".join(spec.command), measured.notes[0] if measured.notes else "nothing")
    finally:
        bench.clear()


def _carry_out(bench: _Bench, task: Task, measured: Measured, at: Callable[[float, str], None]) -> None:
    begun_s = bench.now_s
    match task:
        case WarmUp(slots=slots, batch=batch):
            bench.begin(slots, batch, "warm")
            bench.drain()
        case Begin(slots=slots, batch=batch, how=how):
            measured.add("start", how, bench.begin(slots, batch, how))
        case Rate(for_s=for_s):
            measured.rates[bench.batch, bench.count] = bench.rate(for_s, at)
        case Resize(after=after, how=how) as change:
            drain_s, change_s = bench.change(after)
            measured.add("drain", how, drain_s)
            measured.add(change.name, how, change_s)
        case End():
            bench.drain()
    if isinstance(task, Begin | Rate):
        measured.profiling_s += bench.now_s - begun_s


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one epoch of the program has reported so far, with the instants at which it was received.

    Parameters
    ----------
    first_step_s : when its first step began; None: not yet.
    reports : steps done and seconds that they took, between two reports each; the first is left out.
    began : iterations at the last report or at the first step.
    left : why it left.
    """

    first_step_s: float | None = None
    began: int = 0
    reports: tuple[tuple[int, float], ...] = ()
    left: Left | None = None
    refused: str = ""
    gone: bool = False


class _Bench:
    """One program on one node, under one epoch after the other."""

    def __init__(
        self, engine: Engine, spec: JobSpec, slots: int, report_s: float, limit_s: float, clock: Clock
    ) -> None:
        self._engine, self._spec, self._slots, self._report_s = engine, spec, slots, report_s
        self._limit_s, self._clock = limit_s, clock
        #: the node's last heartbeat; leases end after its stamp
        self._beat: Heartbeat | None = None
        self._epoch, self._runs = 0, False
        self._seen = _Seen()
        self._saved: list[Checkpoint] = []
        self._offset = 0
        self.count, self.batch = 0, 0
        self.how: How = "warm"
        self._await(lambda: self._beat is not None, "a node")

    @property
    def now_s(self) -> float:
        """The instant."""
        return self._clock()

    def begin(self, count: int, batch: int, how: How) -> float:
        """Start from nothing; wall seconds from the command to the first step."""
        self._saved, self._offset = [], 0
        self.batch, self.how = batch, how
        return self._start(count)

    def rate(self, for_s: float, at: Callable[[float, str], None]) -> float:
        """Iterations a second over the next seconds, by the program's own reports."""
        begun_s = self.now_s
        self._seen = replace(self._seen, reports=())

        def enough() -> bool:
            reports, for_now_s = self._seen.reports, self.now_s - begun_s
            at(min(1.0, for_now_s / for_s, len(reports) / (_LEAST_REPORTS + 1)), f"{len(reports)} reports")
            return for_now_s >= for_s and len(reports) > _LEAST_REPORTS

        self._await(enough, "reports of progress", self._limit_s + for_s)
        reports = self._seen.reports[1:]
        return sum(steps for steps, _ in reports) / sum(seconds for _, seconds in reports)

    def change(self, count: int) -> tuple[float, float]:
        """Drain, and go on with `count` slots: wall seconds until the slots are free, and until the first step."""
        begun_s = self.now_s
        if count == self.count:
            # Other slots where there are so many, else the same ones by other processes.
            free = self._slots - (self._offset + count)
            self._offset = self._offset + count if free >= count else 0
        else:
            self._offset = 0
        self.drain()
        drain_s = self.now_s - begun_s
        self._start(count)
        assert self._seen.first_step_s is not None
        return drain_s, self._seen.first_step_s - begun_s

    def drain(self) -> None:
        """Have the program leave, and wait until its slots are free."""
        self._engine.send(Drain(self._spec.name, self._epoch, self._limit_s))
        self._await(lambda: self._seen.gone, "its departure")
        self._runs = False
        if self._seen.left is None or self._seen.left.why == "failed":
            raise ProgramFailed.at("", self._why())

    def clear(self) -> None:
        """End what still runs, at once."""
        if self._runs:
            self._runs = False
            self._engine.send(Kill(self._spec.name, self._epoch))
            self._await(lambda: self._seen.gone, "its end")

    def _start(self, count: int) -> float:
        begun_s, beat = self.now_s, self._beat
        assert beat is not None
        self._epoch += 1
        self._seen, self.count, self._runs = _Seen(), count, True
        spec = msgspec.structs.replace(self._spec, batch=self.batch, slots=count)
        if self.how == "cold":
            # Only Python programs start from a warm process; this one is started by another program.
            spec = msgspec.structs.replace(spec, command=(shutil.which("env") or "env", *spec.command))
        self._engine.send(
            Start(
                spec.name,
                self._epoch,
                {beat.node: tuple(range(self._offset, self._offset + count))},
                spec,
                self._saved[0] if self._saved else None,
                tuple(self._saved[1:2]),
                report_s=self._report_s,
                terms={beat.node: Term(beat.boot, beat.stamp_s + _TERM_S)},
            )
        )
        self._await(lambda: self._seen.first_step_s is not None, "its first step")
        assert self._seen.first_step_s is not None
        return self._seen.first_step_s - begun_s

    def _why(self) -> str:
        if self._seen.refused:
            return self._seen.refused
        left = self._seen.left
        return (left.detail or left.why) if left is not None else "it ended without a word"

    def _await(self, seen: Callable[[], bool], what: str, limit_s: float = 0.0) -> None:
        """Listen until something is so. Raises ProgramFailed if the program ends instead, or it takes too long."""
        until_s = self.now_s + (limit_s or self._limit_s)
        while not seen():
            if self.now_s > until_s:
                raise ProgramFailed.at("", f"{what} did not come within {limit_s or self._limit_s:g} s")
            for one in self._engine.poll(0.2):
                self._note(one)
            ended = self._seen.gone or self._seen.refused
            if self._runs and ended and not seen():
                self._runs = False
                raise ProgramFailed.at("", f"{self._why()} (instead of {what})")

    def _note(self, one: Observation | Heartbeat) -> None:
        match one:
            case Heartbeat() if self._beat is None or self._beat.node == one.node:
                self._beat = one
                self._engine.renew(one, _TERM_S, {self._spec.name: self._epoch} if self._runs else {})
            case FirstStep(epoch=epoch, step=step) if epoch == self._epoch:
                self._seen = replace(self._seen, first_step_s=self.now_s, began=step)
            case Progressed(epoch=epoch, step=step, rate=rate) if epoch == self._epoch:
                done = step - self._seen.began
                reports = self._seen.reports + (((done, done / rate),) if rate else ())
                self._seen = replace(self._seen, began=step, reports=reports)
            case Checkpointed(epoch=epoch, step=step, file=file, sha256=sha256) if epoch == self._epoch:
                self._saved.insert(0, Checkpoint(file, step, sha256))
            case Left(epoch=epoch) if epoch == self._epoch:
                self._seen = replace(self._seen, left=one)
            case Gone(epoch=epoch) if epoch == self._epoch:
                self._seen = replace(self._seen, gone=True)
            case Refused(epoch=epoch, why=why) if epoch == self._epoch:
                self._seen = replace(self._seen, refused=why)
            case _:
                pass
