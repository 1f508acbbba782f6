"""A measured elastic run, read from its own logs: run 86 of Bamboo's authors, 64 nodes, 2.66 hours.

Five comma-separated files without headers: reconfigurations (world size, start and end in epoch seconds,
elapsed), steps (world size, step, start, end, train time, time blocked by the checkpoint, total), loads
(world size, step loaded, elapsed), background writes (elapsed), and the instant at which the run ended.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from forerun.core.errors import TraceError
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field
from forerun.core.trace.source import Source
from forerun.core.trace.tabular import Rows
from forerun.spot.engine.job import whole_steps

CHECKPOINT_ABOVE_S = 1.0
"""A step blocked for longer than this took a checkpoint; others only looked whether one is running."""
START_DELAY_S = 0.8
"""From the end of a reconfiguration to the start of the first step, in round terms."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One executed step.

    Parameters
    ----------
    step : its index.
    world_size : nodes training.
    start_s : since the start of the run.
    train_s, blocked_s : seconds of training, and blocked by a checkpoint.
    """

    step: int
    world_size: int
    start_s: float
    train_s: float
    blocked_s: float

    @property
    def end_s(self) -> float:
        """End of the step, the time blocked included."""
        return self.start_s + self.train_s + self.blocked_s


@dataclass(frozen=True, slots=True)
class Segment:
    """Training between two reconfigurations; times from the start of the first one.

    Parameters
    ----------
    reconfig_start_s, train_start_s, end_s : start of the pause, of training, and of what follows.
    loaded_step : that it began with.
    steps : executed in it.
    last_durable_step : that the next segment loads; None in the last, which nothing follows.
    """

    world_size: int
    reconfig_start_s: float
    train_start_s: float
    end_s: float
    loaded_step: int
    steps: tuple[MeasuredStep, ...]
    last_durable_step: int | None

    @property
    def executed(self) -> int:
        """Steps executed."""
        return len(self.steps)

    @property
    def retained(self) -> tuple[MeasuredStep, ...]:
        """Steps that were not rolled back."""
        if self.last_durable_step is None:
            return self.steps
        return tuple(step for step in self.steps if step.step <= self.last_durable_step)


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """Mean times of the run, the parameters of a model of it, in seconds.

    Parameters
    ----------
    step_s : of a step, by number of nodes.
    reconfig_s : of a pause, the first one left out, which is the start.
    write_s : of a checkpoint, as the logs count it.
    load_s : of a checkpoint.
    stall_s : that a checkpoint blocks training.
    """

    step_s: Mapping[int, float]
    reconfig_s: float
    write_s: float
    load_s: float
    stall_s: float


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measured run.

    Parameters
    ----------
    segments : in order.
    profile : its mean times.
    total_s : from the first pause to the end.
    """

    segments: tuple[Segment, ...]
    profile: MeasuredProfile
    total_s: float

    @property
    def executed(self) -> int:
        """Steps executed."""
        return sum(segment.executed for segment in self.segments)

    @property
    def retained(self) -> int:
        """Steps that survive the last reconfiguration."""
        return self.segments[-1].loaded_step - self.segments[0].loaded_step

    def ledger(self) -> dict[str, float]:
        """Seconds useful, in stalls, lost, reconfiguring and between steps; they sum to the whole run."""
        parts = dict.fromkeys(("useful", "stall", "lost", "reconfig", "other"), 0.0)
        for segment in self.segments:
            parts["reconfig"] += segment.train_start_s - segment.reconfig_start_s
            retained = segment.retained
            useful = math.fsum(step.train_s for step in retained)
            stall = math.fsum(step.blocked_s for step in retained if step.blocked_s > CHECKPOINT_ABOVE_S)
            upto_s = retained[-1].end_s if retained else segment.train_start_s
            parts["useful"] += useful
            parts["stall"] += stall
            parts["other"] += upto_s - segment.train_start_s - useful - stall
            parts["lost" if segment.last_durable_step is not None else "other"] += segment.end_s - upto_s
        return parts


def read_run(folder: str | Path, repairs: RepairLog | None = None) -> MeasuredRun:
    """The run in a folder of logs. Raises TraceError naming file, line and field."""
    base, log = Path(folder), repairs or RepairLog()
    pauses = _columns(base / "reconfig.csv", ("world_size", "start_s", "end_s", "elapsed_s"), log)
    loops = _columns(
        base / "loop_times_0.csv",
        ("world_size", "step", "start_s", "end_s", "train_s", "blocked_s", "total_s"),
        log,
    )
    loads = _columns(base / "load_times_0.csv", ("world_size", "step", "elapsed_s"), log)
    writes = _columns(base / "async-checkpoint_0.csv", ("elapsed_s",), log)["elapsed_s"]
    crash = _columns(base / "crash-time.txt", ("end_s",), log)["end_s"][0]
    if len(loads["step"]) != len(pauses["start_s"]):
        what = f"{len(loads['step'])} loads for {len(pauses['start_s'])} reconfigurations"
        raise TraceError.at(base / "load_times_0.csv", what)
    if len(pauses["start_s"]) < 2:
        raise TraceError.at(base / "reconfig.csv", "has the start only; no reconfiguration was measured")
    origin_s = pauses["start_s"][0]
    steps = [
        MeasuredStep(int(step), int(size), start_s - origin_s, train_s, blocked_s)
        for size, step, start_s, train_s, blocked_s in zip(
            *(loops[name] for name in ("world_size", "step", "start_s", "train_s", "blocked_s")), strict=True
        )
    ]
    segments = _segments(pauses, loads["step"], steps, crash, origin_s)
    stalls_s = [step.blocked_s for step in steps if step.blocked_s > CHECKPOINT_ABOVE_S]
    if not stalls_s:
        what = f"no step was blocked for more than {CHECKPOINT_ABOVE_S:g} s, so no checkpoint was measured"
        raise TraceError.at(base / "loop_times_0.csv", what)
    profile = MeasuredProfile(
        step_s={
            size: fmean(step.train_s for step in steps if step.world_size == size)
            for size in sorted({step.world_size for step in steps})
        },
        reconfig_s=fmean(pauses["elapsed_s"][1:]),
        write_s=fmean(writes),
        load_s=fmean(loads["elapsed_s"]),
        stall_s=fmean(stalls_s),
    )
    return MeasuredRun(segments, profile, crash - origin_s)


def _columns(path: Path, names: Sequence[str], log: RepairLog) -> dict[str, list[float]]:
    """The columns of a file without a header. Raises TraceError naming every bad line."""
    fields = [Field(name=name, minimum=0) for name in names]
    rows = Rows.read(Source(path, repairs=log), fields, header=False)
    return {name: rows[name].tolist() for name in names}


def _segments(
    pauses: Mapping[str, Sequence[float]],
    loaded: Sequence[float],
    steps: Sequence[MeasuredStep],
    crash_s: float,
    origin_s: float,
) -> tuple[Segment, ...]:
    """The steps, by the reconfigurations between which they ran.

    Parameters
    ----------
    pauses : columns of the file of pauses, in epoch seconds.
    loaded : step loaded by each.
    steps : all that were executed, since the start of the run.
    crash_s : end of the run, in epoch seconds.
    origin_s : start of the first pause, in epoch seconds.
    """
    starts = [start_s - origin_s for start_s in pauses["start_s"]]
    ends = [end_s - origin_s for end_s in pauses["end_s"]]
    by_segment: list[list[MeasuredStep]] = [[] for _ in starts]
    for step in steps:
        by_segment[max(0, bisect_right(starts, step.start_s) - 1)].append(step)
    return tuple(
        Segment(
            world_size=int(size),
            reconfig_start_s=starts[i],
            train_start_s=ends[i],
            end_s=starts[i + 1] if i + 1 < len(starts) else crash_s - origin_s,
            loaded_step=int(loaded[i]),
            steps=tuple(by_segment[i]),
            last_durable_step=int(loaded[i + 1]) if i + 1 < len(starts) else None,
        )
        for i, size in enumerate(pauses["world_size"])
    )


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the model predicts for the segments of a measured run.

    Parameters
    ----------
    executed, retained : steps of each segment, and those of them that survive.
    ledger_s : seconds by line.
    """

    executed: tuple[int, ...]
    retained: tuple[int, ...]
    ledger_s: Mapping[str, float]

    @property
    def total_executed(self) -> int:
        """Steps executed in all segments."""
        return sum(self.executed)

    @property
    def total_retained(self) -> int:
        """Steps that survive the last reconfiguration."""
        return sum(self.retained[:-1])


def model_run(
    run: MeasuredRun, profile: MeasuredProfile, *, delay_s: float = 0.0, write_from_stall_start: bool = False
) -> Modelled:
    """The closed form of training between two disruptions, on the measured segments: back-to-back checkpoints, constant
    times.

    Parameters
    ----------
    profile : the times.
    delay_s : from the end of a pause to the first step (default: 0).
    write_from_stall_start : whether the write's time counts from the start of the stall (default: from its end).
    """
    from forerun.spot.engine.kernels import durable_by, executed_by

    d = profile.stall_s
    hidden = profile.write_s - d if write_from_stall_start else profile.write_s
    executed, retained = [], []
    parts = dict.fromkeys(("useful", "stall", "lost", "reconfig", "other"), 0.0)
    for segment in run.segments:
        s = profile.step_s[segment.world_size]
        n = whole_steps(hidden, s)
        span_s = segment.end_s - segment.train_start_s - delay_s
        done, stalled = executed_by(max(0.0, span_s), s, 1, n, d)
        steps, wall_s, stall_s = durable_by(max(0.0, span_s), s, 1, n, d, hidden)
        executed.append(int(done))
        retained.append(int(steps))
        parts["reconfig"] += segment.train_start_s - segment.reconfig_start_s
        parts["other"] += delay_s
        if segment.last_durable_step is None:  # nothing rolls the last segment back
            steps, stall_s = done, stalled
            parts["other"] += span_s - steps * s - stall_s
        else:
            parts["lost"] += span_s - wall_s
        parts["useful"] += steps * s
        parts["stall"] += stall_s
    return Modelled(tuple(executed), tuple(retained), parts)
