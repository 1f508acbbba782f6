"""The controller: observations in, answers out. It does no I/O, reads no clock and draws nothing.

It is a function of its journal: the same observations in the same order give the same answers, so a controller that was
killed is what a new one becomes that receives the journal again. `live.session` gives it observations and carries its
answers out.

A decision says which GPUs each job has. Groups that have others, or none any more, are asked to leave; a job starts on
its GPUs once nobody has a lease on any of them. Slots are given away only when no process is left on them, or when the
lease and the grace after it are over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from forerun.cluster.engine import engine_of
from forerun.cluster.engine.rules import Progress
from forerun.cluster.engine.run import terms_of
from forerun.cluster.inputs.arrays import F64, NO_DEADLINE_S, Jobs
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.scenario import Live
from forerun.core.errors import ForerunError
from forerun.core.registry import member_name
from forerun.live.answers import Answer, Became, Decided, Freed, Sent
from forerun.live.engines.engine import Checkpoint, Command, Drain, Kill, Pace, Skip, Start
from forerun.live.job_state import (
    Cancelled,
    Draining,
    Ended,
    Failed,
    Finished,
    Group,
    Job,
    Lost,
    Refused,
    Running,
    Starting,
    State,
    Submitted,
    Waiting,
)
from forerun.live.observation import (
    Cancelled as CancelAsked,
)
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    Hung,
    LeaseExpired,
    Left,
    NodeDown,
    NodeDrained,
    NodeUp,
    OfGroup,
    Progressed,
    Restarted,
    Seen,
    Started,
    StopAsked,
    Timer,
    Unfit,
)
from forerun.live.observation import Refused as StartRefused
from forerun.live.observation import Submitted as SubmitAsked
from forerun.live.online import Decision, Online
from forerun.live.spec import JobSpec
from forerun.live.status import JobStatus, NodeStatus, RunStatus

#: a job restarts 1, 2, 4 ... run seconds after its failures, at most so many
MOST_BACK_OFF_S: Final = 60.0
#: starts refused in a row after which a job fails
MOST_REFUSALS: Final = 8
#: seconds of the run by which rounding may put the predicted end of a job behind an instant at which it ends
ROUNDING_S: Final = 1e-6
#: wall seconds that a checkpoint stays at least
HOLD_S: Final = 60.0
#: progress reports of a job before its measured speed counts
REPORTS_NEEDED: Final = 3
#: measured speeds within this share of the profile's count as the profile's
SPEED_SLIP: Final = 0.02


@dataclass(frozen=True, slots=True)
class Course:
    """How the time of a run goes.

    Parameters
    ----------
    factor : seconds of the run in a wall second (default: 1).
    jumps : whether time stands while anything starts or leaves, and jumps to the next instant otherwise (default: no).
    late_s : seconds of the run that a decision may be late and still counts as made at the instant that it was due.
    """

    factor: float = 1.0
    jumps: bool = False
    late_s: float = 1.0


@dataclass(slots=True)
class Lease:
    """Who has a slot.

    Parameters
    ----------
    job, epoch, node : which group, where.
    """

    job: str
    epoch: int
    node: str


@dataclass(slots=True)
class Node:
    """A node.

    Parameters
    ----------
    number : in the cluster's order.
    first, slots : number of its first slot through the cluster, and how many it has.
    boot : the life of its process; empty while it is not there.
    drained : whether a user wants it empty.
    """

    number: int
    first: int
    slots: int
    boot: str = ""
    drained: bool = False


class Controller:
    """A policy at work on real jobs.

    Parameters
    ----------
    inputs : the scenario, read.
    specs : what each job of the trace runs, in the trace's order.
    nodes : names of the cluster's nodes, in its order.
    course : how the time of the run goes.
    is_open : whether jobs are submitted while it runs (default: the trace is all there is).

    Attributes
    ----------
    jobs : all jobs, by name.
    leases : by slot, who has it.
    stale : observations of old epochs, which were ignored.
    stops : whether a user wants all processes ended.
    """

    def __init__(
        self,
        inputs: Inputs,
        specs: Sequence[JobSpec],
        nodes: Sequence[str],
        course: Course,
        *,
        is_open: bool = False,
    ) -> None:
        scenario, setting = inputs.scenario, inputs.setting
        self.inputs, self.course = inputs, course
        self.terms: Live = scenario.live or Live()
        self.online = Online(
            engine_of(scenario),
            scenario.policy,
            setting,
            terms_of(scenario, setting),
            scenario.seed,
            is_open=is_open,
        )
        sizes = setting.cluster.node_gpus().tolist()
        first = [0, *itertools.accumulate(sizes)]
        self.nodes = {name: Node(number, first[number], sizes[number]) for number, name in enumerate(nodes)}
        assert len(self.nodes) == len(sizes), (nodes, sizes)
        submit_s = setting.jobs.submit_s.tolist()
        self.jobs: dict[str, Job] = {}
        self.begin_s = float(min(submit_s, default=0))
        self.now_s = self.begin_s
        for row, spec in enumerate(specs):
            self.jobs[spec.name] = Job(row, spec, float(submit_s[row]), Submitted(self.begin_s))
        self.rows = list(self.jobs.values())
        count = len(self.rows)
        self.leases: dict[int, Lease] = {}
        self.targets: dict[int, tuple[int, ...]] = {}
        self.stale = 0
        self.stops = False
        self.decisions = 0
        self.number = 0
        self._answers: list[Answer] = []
        self._rate: F64 = np.zeros(count)
        self._first_by_s: F64 = np.zeros(count)
        self._cost_s: F64 = np.zeros(count)
        self._left: F64 = self.online.work.copy()
        self._ended_s: F64 = np.full(count, np.nan)
        self._expected_s: float | None = self.online.expected_s()

    # ------------------------------------------------------------------------------------------------- the interface

    def receive(self, seen: Seen) -> tuple[Answer, ...]:
        """The answers to an observation. Raises PolicyError for an impossible decision of the policy."""
        assert seen.number == self.number + 1, (seen, self.number)
        self.number = seen.number
        self.now_s = max(self.now_s, seen.at_s)
        self._answers = []
        match seen.what:
            case Timer():
                self._on_timer()
            case SubmitAsked(spec=spec):
                self._submit(spec)
            case CancelAsked(job=name):
                self._take_back(name, Cancelled(self.now_s))
            case Unfit(job=name, why=why):
                self._take_back(name, Refused(self.now_s, why))
            case NodeDrained(node=name):
                self._drain_node(name)
            case NodeUp() as up:
                self._node_up(up)
            case NodeDown(node=name, boot=boot):
                self._node_down(name, boot)
            case StopAsked():
                self.stops = True
                for job in self.rows:
                    if job.group is not None and not isinstance(job.state, Ended):
                        self._release(job, job.group)
            case Restarted():
                self.stops = False  # nodes say what they run when they connect again
            case what:
                self._of_group(what)
        if not isinstance(seen.what, Progressed | Checkpointed):
            self._start_what_can()
            self._expected_s = self.online.expected_s()
        return tuple(self._answers)

    def close(self) -> None:
        """Let the policy end what it has started."""
        self.online.rules.close()

    def due_s(self) -> float | None:
        """The next instant at which a `Timer` is wanted, None if everything waits for observations."""
        ahead = [] if self._expected_s is None else [float(self._expected_s)]
        for row in self.targets:
            state = self.rows[row].state
            if isinstance(state, Waiting) and state.not_before_s > self.now_s:
                ahead.append(state.not_before_s)
        if self.course.jumps:
            ahead += [end_s for _, end_s in self._predicted_ends()]
        return min(ahead, default=None)

    @property
    def is_settled(self) -> bool:
        """Whether no start and no departure is under way."""
        return all(
            job.group is None or (isinstance(job.state, Running) and not job.group.ending)
            for job in self.rows
        )

    @property
    def is_over(self) -> bool:
        """Whether every job has ended and no process is left."""
        return not self.leases and all(isinstance(job.state, Ended) for job in self.jobs.values())

    def groups_on(self, node: str) -> dict[str, int]:
        """Epochs by job of the groups that may run on a node."""
        return {
            job.name: group.epoch
            for job in self.rows
            if (group := job.group) is not None
            and node in group.present
            and not (group.killed or group.trouble)
        }

    def status(self, *, is_running: bool = True, clock: str = "wall", engine: str = "local") -> RunStatus:
        """What the run does now."""
        return RunStatus(
            state="running" if is_running else "stopped",
            now_s=self.now_s,
            policy=member_name(type(self.inputs.scenario.policy)),
            clock=clock,
            engine=engine,
            jobs=tuple(self.job_status(job) for job in self.jobs.values()),
            nodes=tuple(self._node_status(name, node) for name, node in self.nodes.items()),
            decisions=self.decisions,
            stale=self.stale,
        )

    def job_status(self, job: Job) -> JobStatus:
        """What a job does now."""
        group, state = job.group, job.state
        due_s = None
        if job.row is not None:
            deadline_s = int(self.online.setting.jobs.deadline_s[job.row])
            due_s = float(deadline_s) if deadline_s < NO_DEADLINE_S else None
        promise_s = None
        if job.row is not None and not isinstance(state, Ended):
            promise_s = self.online.planned_end_s(job.row)
        why = state.why if isinstance(state, Failed | Refused) else ""
        if isinstance(state, Waiting) and state.not_before_s > self.now_s:
            known = f": {state.failure}" if state.failure else ""
            why = f"starts again at {state.not_before_s:.0f} s after a failure{known}"
        return JobStatus(
            job=job.name,
            user=job.spec.user,
            state=state.name,
            slots=()
            if group is None
            else tuple(f"{node}:{at}" for node, all in group.nodes.items() for at in all),
            step=job.step
            if group is None
            else min(math.floor(group.done(self.now_s, job.slowness)), job.spec.iterations),
            iterations=job.spec.iterations,
            rate=0.0 if group is None or group.step_s is None else group.rate_per_s / job.slowness,
            submit_s=job.submit_s,
            deadline_s=due_s,
            promise_s=promise_s,
            end_s=job.end_s,
            epoch=job.epoch,
            failures=job.failures,
            lost_steps=job.lost_steps,
            why=why,
        )

    # ------------------------------------------------------------------------------------------------------- users

    def _submit(self, spec: JobSpec) -> None:
        """Take a job in. A name that is known is the same submission once more."""
        if spec.name in self.jobs:
            return
        job = Job(None, spec, self.now_s, Submitted(self.now_s))
        self.jobs[spec.name] = job
        try:
            row = self.online.submit(self._as_row(spec), self.now_s)
        except ForerunError as error:
            self._enter(job, Refused(self.now_s, "; ".join(problem.what for problem in error.problems)))
            return
        assert row == len(self.rows), (row, len(self.rows))
        job.row = row
        self.rows.append(job)
        self._rate, self._first_by_s, self._cost_s = (
            np.append(column, 0.0) for column in (self._rate, self._first_by_s, self._cost_s)
        )
        self._left = np.append(self._left, self.online.work[row])
        self._ended_s = np.append(self._ended_s, np.nan)

    def _as_row(self, spec: JobSpec) -> Jobs:
        """A job as the policy knows it."""
        profile = self.online.setting.profile
        kind = -1 if profile is None or not spec.model else profile.kind_of(spec.model, spec.batch)
        duration_s = spec.duration_s
        if duration_s is None:
            rates = profile.rate_at()[kind] if profile is not None and kind >= 0 else np.zeros(0)
            rate = rates[spec.slots] if spec.slots < len(rates) else 0.0
            duration_s = spec.iterations / rate if rate > 0 else float(spec.iterations)
        submit_s = math.ceil(self.now_s)
        return Jobs.of(
            [submit_s],
            [spec.slots],
            [max(1, round(duration_s))],
            id=(spec.name,),
            iterations=[spec.iterations],
            kind=[kind],
            model=(spec.model,),
            batch=[spec.batch],
            deadline_s=[
                NO_DEADLINE_S if spec.deadline_s is None else math.floor(self.now_s + spec.deadline_s)
            ],
            user=(spec.user,),
        )

    def _take_back(self, name: str, state: State) -> None:
        job = self.jobs.get(name)
        if job is not None and not isinstance(job.state, Ended):
            self._give_up(job, state)

    def _give_up(self, job: Job, state: State) -> None:
        """A job ends without having finished; its group is ended at once."""
        if job.row is not None:
            self.online.cancel(job.row, self.now_s)
            self.targets.pop(job.row, None)
            self._ended_s[job.row] = self.now_s
        if job.group is not None:
            self._kill(job, job.group)
        job.end_s = self.now_s
        self._enter(job, state)

    def _drain_node(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or node.drained:
            return
        node.drained = True
        if node.boot:
            self.online.node_down(node.number, self.now_s)

    # ------------------------------------------------------------------------------------------------------- nodes

    def _node_up(self, up: NodeUp) -> None:
        """A node is there, or is there again: what it runs is compared with what it should."""
        node = self.nodes.get(up.node)
        if node is None:
            return
        was, node.boot = node.boot, up.boot
        if not was and not node.drained and not self._offered(node):
            self.online.node_up(node.number, self.now_s)
        mine = self.groups_on(up.node)
        for name, (epoch, _) in up.holds.items():
            if mine.get(name) != epoch:
                self._send(Kill(name, epoch))
            elif (group := self.jobs[name].group) is not None and group.asked_s is not None:
                self._send(Drain(name, epoch, self.terms.drain_s))
        for job in self.rows:
            group = job.group
            if group is None or up.node not in group.present or job.name in up.holds:
                continue
            if group.boots[up.node] != up.boot:  # another life of the node: it ended what it ran before
                self._free(job, group, up.node, "revoked")
            elif up.node in group.started:  # its lease ended, or it did, while nobody listened
                group.trouble = group.trouble or "lost"
                self._free(job, group, up.node, "released")
            elif isinstance(job.state, Starting) and not group.killed and not group.trouble:
                self._send(self._start_of(job, group))
            # else the start may still be on its way: its lease decides

    def _offered(self, node: Node) -> bool:
        return bool(self.online.seats.up[node.number])

    def _node_down(self, name: str, boot: str) -> None:
        """A node is silent: its groups are lost, and their slots free once the leases are over."""
        node = self.nodes.get(name)
        if node is None or (boot and node.boot and node.boot != boot):
            return
        node.boot = ""
        if self._offered(node):
            self.online.node_down(node.number, self.now_s)
        for job in self.rows:
            group = job.group
            if group is None or name not in group.present:
                continue
            group.trouble = group.trouble or "lost"
            if any(other != name and self.nodes[other].boot for other in group.present):
                self._kill(job, group)
            if not isinstance(job.state, Ended | Lost):
                self._enter(job, Lost(self.now_s))

    # ------------------------------------------------------------------------------------------------------ groups

    def _of_group(
        self,
        what: OfGroup,
    ) -> None:
        """Something about a group; that of another epoch than the present one is stale."""
        job = self.jobs.get(what.job)
        group = None if job is None else job.group
        if job is None or group is None or group.epoch != what.epoch:
            if job is not None and isinstance(what, Checkpointed) and what.epoch == job.epoch:
                self._saved_late(job, what)
            self.stale += 1
            return
        match what:
            case Started(node=node) if node in group.present:
                group.started.add(node)
            case FirstStep(step=step, ago_s=ago_s) if group.step_s is None:
                group.first_step, group.first_s = step, self.now_s - ago_s * self.course.factor
                group.step = step + (job.part if step == job.step else 0.0)
                group.step_s = max(self.now_s, group.first_by_s) if self.course.jumps else group.first_s
                # whole checkpoints of later steps were not taken up: they are damaged
                job.saved = tuple(one for one in job.saved if one.step <= step)
                job.lost_steps += max(0, job.step - step)
                job.refusals = 0
                if isinstance(job.state, Starting):
                    self._enter(job, Running(self.now_s))
            case Progressed(step=step):
                self._progressed(job, group, step)
            case Checkpointed():
                self._keep(job, what)
            case Left() as left if group.left is None:
                self._left_by_itself(job, group, left)
            case Hung(silent_s=silent_s):
                group.trouble = "hung"
                group.detail = f"was silent for {silent_s:.0f} s"
                self._kill(job, group)
            case StartRefused(node=node, why=why):
                group.trouble, group.detail = "refused", why
                self._free(job, group, node, "released")
            case Gone(node=node, why=why, detail=detail):
                group.detail = group.detail or detail
                if why in ("asked", "lease"):  # unless it was this controller that asked, a node lost it
                    group.trouble = group.trouble or "lost"
                self._free(job, group, node, "released", orderly=why == "exited")
            case LeaseExpired(node=node):
                group.trouble = group.trouble or "lost"
                self._free(job, group, node, "expired")
            case _:
                pass

    def _keep(self, job: Job, saved: Checkpointed) -> None:
        """A checkpoint is there, unless a node that is back repeats it."""
        if saved.file not in {one.file for one in job.saved}:
            kept = (Checkpoint(saved.file, saved.step, saved.sha256), *job.saved)
            job.saved = kept[: job.spec.checkpoints.keep]

    def _saved_late(self, job: Job, saved: Checkpointed) -> None:
        """The last group of a job saved while nobody heard it, and its slots are free by now; the job goes on from there."""
        if job.group is None and isinstance(job.state, Waiting):
            self._keep(job, saved)
            job.lost_steps -= min(job.lost_steps, max(0, job.saved[0].step - job.step))
            job.step = job.saved[0].step
            self._note_left(job)

    def _progressed(self, job: Job, group: Group, step: int) -> None:
        """Iterations were reported: the speed counts once it is known from several reports."""
        if group.step_s is None or group.left is not None or step < group.step:
            return
        group.reports += 1
        worked_s = self.now_s - group.first_s
        if (
            not self.course.jumps
            and group.reports >= REPORTS_NEEDED
            and group.rate_per_s > 0
            and step > group.first_step
            and worked_s > 0
        ):
            slowness = group.rate_per_s * worked_s / (step - group.first_step)
            job.slowness = 1.0 if abs(slowness - 1.0) <= SPEED_SLIP else slowness
        if not self.course.jumps:
            group.step, group.step_s = step, self.now_s

    def _left_by_itself(self, job: Job, group: Group, left: Left) -> None:
        """Ranks say that they leave."""
        if left.why == "finished" and left.step < job.spec.iterations:
            early = f"ended after {left.step} of {job.spec.iterations} steps"
            left = msgspec.structs.replace(left, why="failed", detail=early)
        group.left = left
        group.step = max(group.step, left.step) if left.why == "failed" else left.step
        if isinstance(job.state, Ended):
            return
        if left.why == "finished":
            assert job.row is not None
            job.step, job.end_s = job.spec.iterations, self.now_s
            self._ended_s[job.row] = self.now_s
            self.online.ended(job.row, self.now_s)
            self.targets.pop(job.row, None)
            self._enter(job, Finished(self.now_s))
            return
        if left.why == "failed":
            group.trouble, group.detail = group.trouble or "failed", left.detail
            self._kill(job, group)
        if not isinstance(job.state, Draining | Lost):
            self._enter(job, Draining(self.now_s))

    def _free(self, job: Job, group: Group, node: str, how: str, *, orderly: bool = False) -> None:
        """Slots of a group on a node are free; the last of them end the group.

        orderly: its ranks there are done, and those elsewhere may still be saving the state.
        """
        if node not in group.present:
            return
        group.present.discard(node)
        if how != "released":  # nobody knows what became of it: that is no failure of its own
            group.trouble = group.trouble or "lost"
        slots = self._slots_on(group, node)
        for slot in slots:
            del self.leases[slot]
        self._answers.append(
            Freed(job=job.name, epoch=group.epoch, node=node, slots=slots, how=how)  # type: ignore[arg-type]
        )
        if not group.present:
            self._over(job, group)
        elif not orderly and group.left is None and group.asked_s is None and not group.killed:
            # A part of it ended by itself; the rest cannot go on.
            group.trouble = group.trouble or "failed"
            self._kill(job, group)
        if group.present and not isinstance(job.state, Ended | Draining | Lost):
            self._enter(job, Draining(self.now_s))

    def _over(self, job: Job, group: Group) -> None:
        """No process and no lease of a group is left."""
        job.group = None
        if isinstance(job.state, Ended):
            return
        reached = math.floor(group.step)
        job.step = job.saved[0].step if job.saved else 0
        job.lost_steps += max(0, reached - job.step)
        planned = group.asked_s is not None
        if not planned:
            job.part = 0.0
        own = not planned and group.trouble in ("failed", "hung", "")
        job.costs_again = not planned
        not_before_s = 0.0
        if own:
            job.failures += 1
            if job.failures > job.spec.retries:
                self._give_up(job, Failed(self.now_s, group.detail or "its processes ended"))
                return
            not_before_s = self.now_s + _back_off_s(job.failures)
        elif group.trouble == "refused":
            job.refusals += 1
            if job.refusals > MOST_REFUSALS:
                self._give_up(job, Failed(self.now_s, group.detail))
                return
            not_before_s = self.now_s + _back_off_s(job.refusals)
        self._enter(job, Waiting(self.now_s, not_before_s, group.detail))
        self._note_left(job)

    def _kill(self, job: Job, group: Group) -> None:
        """End what is left of a group, wherever a node is there to do it; leases do it elsewhere."""
        if not group.killed:
            group.killed = True
            self._send(Kill(job.name, group.epoch))

    def _release(self, job: Job, group: Group) -> None:
        """Ask a group to leave, because its GPUs are no longer its own."""
        if group.asked_s is not None or group.killed or group.left is not None:
            return
        done = group.done(self.now_s, job.slowness)
        group.step, group.asked_s = math.floor(done), self.now_s
        if self.course.jumps:  # ranks skip to whole steps, and time does not wait for the rest of one
            job.part = done - group.step
        if isinstance(job.state, Starting) or not job.spec.elastic:
            self._kill(job, group)
        else:
            if self.course.jumps:
                self._send(Skip(job.name, group.epoch, group.step))
            self._send(Drain(job.name, group.epoch, self.terms.drain_s))
        if not isinstance(job.state, Lost):
            self._enter(job, Draining(self.now_s))

    def _slots_on(self, group: Group, node: str) -> tuple[int, ...]:
        first = self.nodes[node].first
        return tuple(first + number for number in group.nodes[node])

    # --------------------------------------------------------------------------------------------------- decisions

    def _on_timer(self) -> None:
        """Decide, if the policy expects to by now; under a clock that jumps, after the ends that were predicted."""
        if self.course.jumps:
            ending = [job for job, end_s in self._predicted_ends() if end_s - self.now_s <= ROUNDING_S]
            for job in ending:
                assert job.group is not None
                job.group.ending = True
                self._send(Skip(job.name, job.group.epoch, job.spec.iterations))
            if ending:
                return
        due_s = self.online.expected_s()
        if due_s is None or due_s > self.now_s:
            return
        self._decide(
            float(due_s)
            if self.now_s - due_s <= self.course.late_s
            else self.online.rules.instant(self.now_s)
        )

    def _decide(self, instant_s: float) -> None:
        decision = self.online.decide(instant_s, self._progress(instant_s))
        self.decisions += 1
        self._plan_pace(decision)
        self.targets = {row: tuple(slots) for row, slots in decision.slots.items()}
        names = {
            row: self.rows[row].name
            for row in (*decision.admitted, *(decision.refused or {}), *decision.late)
        }
        refused = {names[row]: why for row, why in (decision.refused or {}).items()}
        self._answers.append(
            Decided(
                now_s=decision.now_s,
                slots={self.rows[row].name: slots for row, slots in self.targets.items()},
                admitted=tuple(names[row] for row in decision.admitted),
                refused=refused,
                late=tuple(names[row] for row in decision.late),
            )
        )
        for row, why in (decision.refused or {}).items():
            job = self.rows[row]
            if not isinstance(job.state, Ended):
                job.end_s = self.now_s
                self._enter(job, Refused(self.now_s, why))
        for row in decision.admitted:
            if isinstance(self.rows[row].state, Submitted):
                self._enter(self.rows[row], Waiting(self.now_s))
        for job in self.rows:
            if job.group is not None and not isinstance(job.state, Ended):
                assert job.row is not None
                if self.targets.get(job.row) != job.group.slots:
                    self._release(job, job.group)

    def _plan_pace(self, decision: Decision) -> None:
        """How fast jobs are expected to be on their GPUs, and when their first step on changed ones is."""
        gpus = np.zeros(len(self.online.setting.jobs), np.int64)
        for row, count in decision.gpus.items():
            gpus[row] = count
        work_per_s, owed_s = self.online.rules.pace(gpus, decision.now_s)
        for row, slots in decision.slots.items():
            job = self.rows[row]
            assert isinstance(row, int)
            self._rate[row] = work_per_s[row] * job.spec.iterations / self.online.work[row]
            if job.group is not None and job.group.slots == slots:
                job.group.rate_per_s = float(self._rate[row])
                continue
            if self.targets.get(row) != slots or owed_s[row] > 0:
                self._first_by_s[row] = decision.now_s + owed_s[row]
            if owed_s[row] > 0:
                self._cost_s[row] = owed_s[row]

    def _progress(self, now_s: float) -> Progress:
        """What has been observed of all jobs, carried on to an instant."""
        owed_s = np.zeros(len(self.rows))
        for job in self.rows:
            row, group = job.row, job.group
            assert row is not None
            if row in self.targets and (
                group is None or group.step_s is None or self.targets[row] != group.slots
            ):
                owed_s[row] = max(self._first_by_s[row] - now_s, 0.0)
            elif group is not None and group.step_s is not None:
                owed_s[row] = max(group.step_s - now_s, 0.0)
            if group is not None:
                self._left[row] = self._left_of(job, group.done(now_s, job.slowness))
        return Progress(self._left.copy(), owed_s, np.minimum(self._ended_s, now_s))

    def _left_of(self, job: Job, done: float) -> float:
        """Work left in the unit of the rules: at least a step, and a second's, of a job that has not ended."""
        work = float(self.online.work[job.row or 0])
        iterations = job.spec.iterations
        if isinstance(job.state, Finished):
            return 0.0
        left = iterations - done
        if left <= 0:
            left = max(1.0, float(self._rate[job.row or 0]))
        return work * left / iterations * job.slowness

    def _note_left(self, job: Job) -> None:
        assert job.row is not None
        self._left[job.row] = self._left_of(job, job.step + job.part)

    def _predicted_ends(self) -> Iterable[tuple[Job, float]]:
        """When jobs that work are done if they go on as they do."""
        for job in self.rows:
            group = job.group
            if (
                group is None
                or group.step_s is None
                or group.asked_s is not None
                or group.ending
                or group.left
            ):
                continue
            if group.rate_per_s > 0 and isinstance(job.state, Running):
                yield job, group.step_s + (job.spec.iterations - group.step) * job.slowness / group.rate_per_s

    # ------------------------------------------------------------------------------------------------------ starts

    def _start_what_can(self) -> None:
        """Start the jobs whose GPUs nobody has any more."""
        if self.stops:
            return
        for row, slots in self.targets.items():
            job = self.rows[row]
            state = job.state
            if job.group is not None or not isinstance(state, Waiting) or state.not_before_s > self.now_s:
                continue
            if not slots or any(slot in self.leases for slot in slots):
                continue
            by_node = self._by_node(slots)
            if all(self.nodes[name].boot and not self.nodes[name].drained for name in by_node):
                self._start(job, slots, by_node)

    def _by_node(self, slots: Sequence[int]) -> dict[str, tuple[int, ...]]:
        by_node: dict[str, tuple[int, ...]] = {}
        for name, node in self.nodes.items():
            here = tuple(slot - node.first for slot in slots if node.first <= slot < node.first + node.slots)
            if here:
                by_node[name] = here
        return by_node

    def _start(self, job: Job, slots: tuple[int, ...], by_node: dict[str, tuple[int, ...]]) -> None:
        assert job.row is not None
        job.epoch += 1
        first_by_s = float(self._first_by_s[job.row])
        if job.costs_again and first_by_s < self.now_s:
            first_by_s = self.now_s + float(self._cost_s[job.row])
            self._first_by_s[job.row] = first_by_s
        job.costs_again = False
        job.group = group = Group(
            epoch=job.epoch,
            slots=slots,
            nodes=by_node,
            step=job.step,
            rate_per_s=float(self._rate[job.row]),
            first_by_s=first_by_s,
            present=set(by_node),
            boots={name: self.nodes[name].boot for name in by_node},
        )
        for name in by_node:
            for slot in self._slots_on(group, name):
                assert slot not in self.leases, (slot, self.leases[slot])
                self.leases[slot] = Lease(job.name, job.epoch, name)
        self._enter(job, Starting(self.now_s))
        self._send(self._start_of(job, group))

    def _start_of(self, job: Job, group: Group) -> Start:
        """The command that starts a group."""
        factor = self.course.factor
        if self.course.jumps:
            pace = Pace(0.0)
        else:
            pace = Pace(group.rate_per_s * factor, max(0.0, group.first_by_s - self.now_s) / factor)
        return Start(
            job=job.name,
            epoch=group.epoch,
            slots=group.nodes,
            spec=job.spec,
            checkpoint=job.saved[0] if job.saved else None,
            older=job.saved[1:],
            pace=pace,
            one_process=self.terms.width == "declared",
            seed=self.inputs.scenario.seed,
            hold_s=max(HOLD_S, 2 * (self.terms.lease_s + self.terms.grace_s)),
        )

    # ------------------------------------------------------------------------------------------------------ answers

    def _send(self, command: Command) -> None:
        self._answers.append(Sent(command=command))

    def _enter(self, job: Job, state: State) -> None:
        job.enter(state)
        why = state.why if isinstance(state, Failed | Refused) else ""
        self._answers.append(Became(job=job.name, state=state.name, why=why))

    def _node_status(self, name: str, node: Node) -> NodeStatus:
        used = sum(node.first <= slot < node.first + node.slots for slot in self.leases)
        state = "draining" if node.drained else "up" if node.boot else "down"
        return NodeStatus(node=name, state=state, slots=node.slots, used=used)  # type: ignore[arg-type]


def _back_off_s(failures: int) -> float:
    """Seconds of the run from the last of some failures in a row to the next start."""
    return min(2.0 ** min(failures - 1, 10), MOST_BACK_OFF_S)  # a power of more would not fit a float
