"""What one training costs in seconds on this machine: steps, stalls, writes, loads, restarts, preparation.

All are taken from the processes that the testbed runs, in calm: no node is lost, re-plans are asked for.  Write times are
those besides training, as the spot domain defines them; a restart is a complete one (interpreter, imports, model, load).
"""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal

from msgspec import Meta

from forerun.core.measure.progress import StepProgress
from forerun.core.scenario.numbers import Count, NotNegative
from forerun.core.scenario.spec import Spec
from forerun.core.study.executors.interrupts import terminable
from forerun.spot.measure.fleet import Fleet, FleetLog, Work


class Settings(Spec, frozen=True, kw_only=True):
    """What `forerun measure checkpoint` trains, and how often it restarts.

    model: `torch` or `numpy`. parameters: about how many weights it has. batch: samples of a step, all processes together.
    depth: processes of a pipeline. pipelines: that train at most. steps: timed between two restarts, at least. restarts: on
    each number of pipelines. write_rate_bytes_per_s: slows the writes of checkpoints (default 0: as fast as it goes).
    """

    model: Literal["torch", "numpy"] = "torch"
    parameters: Annotated[int, Meta(ge=100)] = 1_000_000
    batch: Count = 32
    depth: Annotated[int, Meta(ge=1, le=8)] = 1
    pipelines: Annotated[int, Meta(ge=1, le=16)] = 2
    steps: Annotated[int, Meta(ge=5)] = 40
    restarts: Count = 4
    write_rate_bytes_per_s: NotNegative = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Every process has a sample."""
        if self.batch < (processes := self.depth * self.pipelines):
            return [("batch", f"{self.batch} samples cannot be shared by {processes} processes")]
        return []

    def work(self) -> Work:
        """What is trained."""
        return Work(
            kind=self.model,
            parameters=self.parameters,
            batch=self.batch,
            depth=self.depth,
            max_pipelines=self.pipelines,
            bytes_per_s=self.write_rate_bytes_per_s,
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one kind of thing.

    Parameters
    ----------
    count : how often it was timed.
    mean_s, std_s : mean and standard deviation.
    """

    count: int
    mean_s: float
    std_s: float

    @classmethod
    def of(cls, values: list[float]) -> Timing:
        """From the single times; NaN if there are none."""
        if not values:
            return cls(0, math.nan, math.nan)
        return cls(len(values), fmean(values), stdev(values) if len(values) > 1 else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The times of a training on this machine.

    Parameters
    ----------
    work : what was trained.
    step : by number of processes.
    stall : while a checkpoint is copied, which blocks training.
    write : from the end of the stall until the checkpoint is on disk.
    load : of a checkpoint, at the slowest node of each restart.
    restart : from asking for a new shape until it trains, loading included.
    prep : from starting a node's process until it is ready.
    load_average : of the machine over the last minute, when everything was measured.
    stopped : what there is of it, where it was interrupted (default: empty: it was not).
    """

    work: Work
    step: dict[int, Timing]
    stall: Timing
    write: Timing
    load: Timing
    restart: Timing
    prep: Timing
    load_average: float
    stopped: str = ""

    def job(self) -> dict[str, Any]:
        """The `job:` section of a scenario."""
        return {
            "depth": self.work.depth,
            "max_pipelines": max(self.step) // self.work.depth,
            "step_s": {size: _rounded(timing.mean_s) for size, timing in self.step.items()},
            "samples_per_step": self.work.batch,
            "reconfig_s": _rounded(self.restart.mean_s),
            "load_s": _rounded(min(self.load.mean_s, self.restart.mean_s)),
            "prep_s": _rounded(self.prep.mean_s),
            "write_s": _rounded(self.write.mean_s),
            "stall_s": _rounded(self.stall.mean_s),
        }

    def rows(self) -> list[tuple[str, Timing]]:
        """All timings by name."""
        steps = [(f"step on {size}", timing) for size, timing in self.step.items()]
        return [
            *steps,
            ("stall", self.stall),
            ("write", self.write),
            ("load", self.load),
            ("restart", self.restart),
            ("prep", self.prep),
        ]

    @property
    def quiet(self) -> bool:
        """Whether the machine was quiet enough for the times to mean something: a load of at most two a core."""
        return self.load_average <= 2.0 * (os.cpu_count() or 1)

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return ({"stopped": self.stopped} if self.stopped else {}) | {
            "job": self.job(),
            "timings": {
                name: {"count": t.count, "mean_s": t.mean_s, "std_s": t.std_s} for name, t in self.rows()
            },
            "model": {"kind": self.work.kind, "parameters": self.work.parameters},
            "host": {
                "system": platform.platform(terse=True),
                "cores": os.cpu_count(),
                "load_average": self.load_average,
                "quiet": self.quiet,
            },
        }


def _rounded(seconds: float) -> float:
    """To four significant digits, for files."""
    return float(f"{seconds:.4g}")


def measure(
    work: Work, *, steps: int = 40, restarts: int = 4, progress: Callable[[str], None] = lambda _: None
) -> Profile:
    """Train on every number of pipelines in turn, restarting as often as asked; the first steps of each do not count.

    Interrupted once a number of pipelines is through, it gives what was measured, with `stopped` in words.

    Parameters
    ----------
    work : what is trained, and on how many pipelines at most.
    steps : between two restarts, at least (default: 40).
    restarts : on each number of pipelines (default: 4).
    progress : called with a line at each (default: no progress is reported).

    Raises KeyboardInterrupt if no number of pipelines was through.
    """
    sizes = [work.depth * pipelines for pipelines in range(1, work.max_pipelines + 1)]
    logs: list[FleetLog] = []
    with tempfile.TemporaryDirectory(prefix="forerun-measure-") as folder:
        stages = StepProgress(progress, [0.0] * len(sizes))
        try:
            with terminable():
                for size in sizes:
                    stages.begin(f"training on {size} of {sizes[-1]} processes")
                    logs.append(calm(work, Path(folder) / str(size), size, steps, restarts))
        except KeyboardInterrupt:
            if not logs:
                raise
    whole = len(logs) == len(sizes)
    stopped = "" if whole else f"stopped: trained on {len(logs)} of {len(sizes)} numbers of processes"
    step = {}
    for size, log in zip(sizes, logs):
        spans = [s.end_s - s.start_s for segment in log.segments for s in segment.steps[WARM_STEPS:]]
        step[size] = Timing.of(spans)
    segments = [segment for log in logs for segment in log.segments]
    checkpoints = [one for segment in segments for one in segment.checkpoints]
    durable = [one for one in checkpoints if one.durable_s < math.inf]
    again = [segment for segment in segments if segment.ready_s > 0]
    return Profile(
        work=work,
        step=step,
        stall=Timing.of([one.copied_s - one.start_s for one in checkpoints]),
        write=Timing.of([one.durable_s - one.copied_s for one in durable]),
        load=Timing.of([segment.load_s for segment in again]),
        restart=Timing.of([segment.ready_s - segment.replan_s for segment in again]),
        prep=Timing.of([seconds for log in logs for seconds in log.prep_s]),
        load_average=os.getloadavg()[0],
        stopped=stopped,
    )


WARM_STEPS = 2


def calm(work: Work, folder: Path, size: int, steps: int, restarts: int) -> FleetLog:
    """Train with no node lost, asking for restarts once a checkpoint is durable.

    Restarts are asked for while a step is running, as losses come.

    Parameters
    ----------
    work : what is trained.
    folder : a new one, for the checkpoints.
    size : how many processes train, a multiple of the depth.
    steps : between two restarts, at least.
    restarts : how many.
    """
    folder.mkdir(parents=True)
    with Fleet(work, folder) as fleet:
        for i in range(size):
            fleet.add(f"node{i}")
        fleet.await_ready()
        fleet.start()
        for _ in range(restarts):
            train(fleet, steps, until_saved=True)
            fleet.settle(lost=True)
        train(fleet, steps, until_saved=False)
        return fleet.finish(fleet.now_s)


def train(fleet: Fleet, steps: int, *, until_saved: bool) -> None:
    """Train for a number of steps of one segment.

    Parameters
    ----------
    steps : how many.
    until_saved : whether to continue until a checkpoint of them is durable.
    """
    before, at = fleet.saved, len(fleet.segments)
    while True:
        segment = fleet.segment if fleet.state == "training" else None
        enough = segment is not None and len(fleet.segments) == at and len(segment.steps) >= steps
        if enough and (fleet.saved > before or not until_saved):
            return
        fleet.listen(fleet.now_s + 0.2)
