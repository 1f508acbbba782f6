"""The tick machine of the simulation notebook of 2021, known bug by known bug.

It walks the clock in ticks, looks at the last row of its own log to know what the job is doing, and completes
at most one step a tick.  Every departure from the exact semantics is one field of `Switches`, so that each
can be turned off alone; with all of them off and a short tick the machine approaches the event loop of the spot domain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from forerun.replication.bamboo.published import ROUNDED, RUN86
from forerun.spot.engine.membership import Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The tick machine's known bugs; the defaults are the notebook's.

    `rounded` and `no_stall` choose a job where none is given.  The defects of the notebook's generator are
    `generator.GeneratorBugs`, those of its time stamps `reproduce.stamp_effects`.

    Parameters
    ----------
    strict : completions need time *after* their end, and topping up needs one node too many (default: on).
    extend : an event during a reconfiguration adds a whole reconfiguration to the old end (default: on).
    initial0 : a loss before the first durable checkpoint resumes at step 1 instead of 0 (default: on).
    missing_ws : a world size without step time stops the run (the notebook's KeyError); off, the job idles (default: on).
    row_ws : rows of reconfigurations carry the node count before the re-plan (default: on).
    rounded : whole seconds for the times of steps, pauses and writes; off, the means of the measured run (default: on).
    no_stall : a checkpoint does not block training; off, it does for as long as measured (default: on).
    tick_s : the clock's step [s] (default: 5).
    """

    strict: bool = True
    extend: bool = True
    initial0: bool = True
    missing_ws: bool = True
    row_ws: bool = True
    rounded: bool = True
    no_stall: bool = True
    tick_s: float = 5.0


AS_PUBLISHED = Switches()
CORRECTED = Switches(strict=False, extend=False, initial0=False, missing_ws=False, row_ws=False, tick_s=1.0)
"""The loop corrected; its job is still the notebook's, rounded and without stall."""
MEASURED = replace(CORRECTED, rounded=False, no_stall=False)
"""The loop corrected, and the job as it was measured."""


@dataclass(frozen=True, slots=True)
class TickRow:
    """One line of the machine's log.

    Parameters
    ----------
    world_size : nodes at that time; with the switch `row_ws`, before the re-plan.
    t_s : when [s].
    event : `step` for a step that begins, `reconfig` for a pause that begins or begins again.
    number : of the step or of the pause, from 0.
    """

    world_size: int
    t_s: float
    event: Literal["step", "reconfig"]
    number: int

    def __str__(self) -> str:
        """The row as the notebook writes it, separated by commas, the time to a millisecond."""
        return f"{self.world_size},{self.t_s:.3f},{self.event},{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRun:
    """What the tick machine did.

    Parameters
    ----------
    rows : the log, in the order written.
    error_world_size : the world size without a step time that stopped the run; None if nothing did.
    t_end_s : the time of the clock at the end [s].
    step_counter : the number of the step that runs at the end.
    last_saved : the step of the last durable checkpoint; before any, 0 with the switch `initial0` and -1 without.
    steps_executed : steps completed, lost ones included.
    """

    rows: Sequence[TickRow]
    error_world_size: int | None
    t_end_s: float
    step_counter: int
    last_saved: int
    steps_executed: int

    @property
    def final_step(self) -> int:
        """The step the job stands at: after a trailing reconfiguration, the one behind the last durable."""
        return self.last_saved + 1 if self.rows[-1].event == "reconfig" else self.step_counter

    @property
    def reconfig_rows(self) -> int:
        """How many rows say that a reconfiguration began or began again."""
        return sum(row.event == "reconfig" for row in self.rows)

    def digest(self) -> str:
        """SHA-256 of the rows, one line each."""
        return hashlib.sha256("".join(f"{row}\n" for row in self.rows).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TickJob:
    """The tick machine's constants; the defaults are the notebook's.

    Parameters
    ----------
    depth : nodes of a pipeline (default: 16).
    step_s : the time of a step by the number of nodes [s] (default: 18, 11, 9 and 8 at 16, 32, 48 and 64).
    reconfig_s : a pause [s] (default: 88).
    prep_s : from the addition of a node until it is ready [s] (default: 180).
    write_s : a checkpoint's write [s] (default: 89).
    stall_s : how long a checkpoint blocks training [s] (default: 0).
    """

    depth: int = 16
    step_s: Mapping[int, float] = field(default_factory=lambda: {16: 18.0, 32: 11.0, 48: 9.0, 64: 8.0})
    reconfig_s: float = 88.0
    prep_s: float = 180.0
    write_s: float = 89.0
    stall_s: float = 0.0


def job_of(switches: Switches) -> TickJob:
    """The job that the switches `rounded` and `no_stall` stand for.

    Parameters
    ----------
    switches : the known bugs; the other switches do not matter here.
    """
    profile = ROUNDED if switches.rounded else RUN86
    return TickJob(
        step_s=profile.step_s,
        reconfig_s=profile.reconfig_s,
        write_s=profile.write_s,
        stall_s=0.0 if switches.no_stall else RUN86.stall_s,
    )


@dataclass(slots=True)
class _Fleet:
    """Nodes by state, and what the events of one tick did to them.

    Parameters
    ----------
    events : (time [s], whether it is an addition, node), in order of time.
    active : nodes in pipelines.
    standby : nodes that are ready and wait (default: none).
    prepping : since when each node has been preparing [s] (default: none).
    next_event : index of the first event that has not happened (default: 0).
    """

    events: Sequence[tuple[float, bool, int]]
    active: set[int]
    standby: set[int] = field(default_factory=set)
    prepping: dict[int, float] = field(default_factory=dict)
    next_event: int = 0

    def apply_until(self, t_s: float, prep_s: float) -> bool:
        """Events up to and at `t_s`, then readiness, then this tick's additions; was an active node lost?

        Parameters
        ----------
        t_s : the clock [s].
        prep_s : from the addition of a node until it is ready [s].
        """
        lost, added = False, dict[int, None]()
        while self.next_event < len(self.events) and self.events[self.next_event][0] <= t_s:
            _, is_add, node = self.events[self.next_event]
            self.next_event += 1
            if is_add:
                added[node] = None
            elif node in self.active:
                self.active.remove(node)
                lost = True
            else:
                self.standby.discard(node)
                self.prepping.pop(node, None)
                added.pop(node, None)
        for node in [node for node, since_s in self.prepping.items() if t_s - since_s >= prep_s]:
            del self.prepping[node]
            self.standby.add(node)
        self.prepping.update(dict.fromkeys(added, t_s))
        return lost

    def call_up(self, nodes: int) -> None:
        """Move the lowest standby nodes into the pipelines."""
        moved = sorted(self.standby)[:nodes]
        self.standby.difference_update(moved)
        self.active.update(moved)

    def send_back(self, nodes: int) -> None:
        """Move the highest active nodes to standby."""
        moved = sorted(self.active, reverse=True)[:nodes]
        self.active.difference_update(moved)
        self.standby.update(moved)

    def replan(self, depth: int, lost: bool, new_pipeline: bool, strict: bool) -> None:
        """The notebook's three cases: a loss, a new pipeline's worth of standby nodes, or both.

        Parameters
        ----------
        depth : nodes of a pipeline.
        lost : whether an active node was lost in this tick.
        new_pipeline : whether the standby nodes fill a pipeline.
        strict : topping up an incomplete pipeline needs one node more than is missing.
        """
        surplus = len(self.active) % depth
        missing = depth - surplus
        if lost and new_pipeline:
            self.call_up(depth * (len(self.standby) // depth) - surplus)
            while len(self.standby) >= depth:
                self.call_up(depth)
        elif new_pipeline:
            self.call_up(depth * (len(self.standby) // depth))
        elif len(self.standby) > missing if strict else len(self.standby) >= missing:
            self.call_up(missing)
        else:
            self.send_back(surplus)


def run_ticks(
    fleet: Membership, horizon_s: float, switches: Switches = AS_PUBLISHED, job: TickJob | None = None
) -> TickRun:
    """Drive the tick machine by a membership trace; nodes added at 0 start active.

    Parameters
    ----------
    fleet : when nodes come and go.
    horizon_s : the clock stops here [s].
    switches : the known bugs (default: as published).
    job : what trains (default: the job of the switches, see `job_of`).
    """
    job = job or job_of(switches)
    listed = [
        (instant.t_s, is_add, node)
        for instant in fleet.instants
        for is_add, nodes in ((False, instant.removed), (True, instant.added))
        for node in nodes
    ]
    initial = {node for t_s, is_add, node in listed if t_s == 0 and is_add}
    nodes = _Fleet([row for row in listed if not (row[0] == 0 and row[1])], initial)
    rows = [TickRow(len(initial), 0.0, "step", 0)]
    step = executed = pauses = ticks = 0
    saved = 0 if switches.initial0 else -1
    pause_end_s: float | None = None
    write: tuple[float, int] | None = None
    blocked_s = 0.0  # of the step that runs now, by the checkpoint before it
    error: int | None = None

    def over(t_s: float, end_s: float) -> bool:
        return t_s > end_s if switches.strict else t_s >= end_s

    while (t_s := ticks * switches.tick_s) < horizon_s:
        lost = nodes.apply_until(t_s, job.prep_s)
        new_pipeline = len(nodes.standby) >= job.depth
        if write is not None and over(t_s, write[0] + job.write_s):
            saved, write = write[1], None
        last = rows[-1]
        if last.event == "step":
            if (step_s := job.step_s.get(last.world_size)) is None:
                if switches.missing_ws:
                    error = last.world_size
                    break
            elif over(t_s, end_s := last.t_s + blocked_s + step_s):
                blocked_s = job.stall_s if write is None else 0.0
                write = write or (end_s + blocked_s, step)
                step += 1
                executed += 1
                rows.append(TickRow(last.world_size, end_s, "step", step))
        elif pause_end_s is not None:
            if lost or new_pipeline:
                pause_end_s = (pause_end_s if switches.extend else t_s) + job.reconfig_s
            if over(t_s, pause_end_s):
                step, blocked_s = saved + 1, 0.0
                rows.append(TickRow(len(nodes.active), pause_end_s, "step", step))
                pause_end_s = None
        if lost or new_pipeline:
            before = len(nodes.active)
            nodes.replan(job.depth, lost, new_pipeline, switches.strict)
            shown = before if switches.row_ws else len(nodes.active)
            rows.append(TickRow(shown, t_s, "reconfig", pauses))
            pauses += 1
            pause_end_s = t_s + job.reconfig_s if pause_end_s is None else pause_end_s
            write = None
        ticks += 1
    return TickRun(
        rows=rows,
        error_world_size=error,
        t_end_s=t_s,
        step_counter=step,
        last_saved=saved,
        steps_executed=executed,
    )
