"""A live run at work: it numbers what is observed, writes it down with the controller's answers, and sends the commands.

One thread does all of that, so the numbers are the order of the run. Nothing is sent before it is in the journal. If the
journal cannot be written, nothing is sent and no lease is renewed, so that nodes end their groups by themselves.

No request of a user ends a run. One that raises changes nothing: the controller becomes again what the journal makes of
it, and the request is refused.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import Final

import msgspec

from forerun.core.errors import ForerunError, StoreError
from forerun.live import desk
from forerun.live.answers import Answer, Freed, Sent
from forerun.live.clock import Clock, origin_at, passed_s
from forerun.live.engines.engine import Command, Engine, Heartbeat, Start
from forerun.live.folder import RunFolder
from forerun.live.inbox import Asked, Inbox
from forerun.live.job_state import Submitted
from forerun.live.journal import Journal
from forerun.live.lease import LeaseKeeper
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Hung,
    LeaseExpired,
    NodeDown,
    NodeUp,
    Observation,
    Progressed,
    Restarted,
    Seen,
    Timer,
    Unfit,
)
from forerun.live.run_files import replayed
from forerun.live.service import GetDecision, GetStatus, Reply
from forerun.live.status import RunStatus

_LOG: Final = logging.getLogger("forerun.live")

#: a job's progress is taken note of at most so often, in wall seconds
REPORT_EVERY_S: Final = 5.0
#: observations that need no answer are committed at least so often, in wall seconds
COMMIT_EVERY_S: Final = 1.0
#: wall seconds after which a journal that cannot be written ends the controller
MOST_BLOCKED_S: Final = 600.0
#: wall seconds that a new run waits for its nodes
GATHER_S: Final = 60.0
#: wall seconds that a user waits for the policy's decision on a job
DECISION_S: Final = 5.0
#: letters of an error that say why a request is refused
_WHY: Final = 300
#: steps that a job may miss before it counts as hung, if that is longer than the limit
STEPS_MISSED: Final = 10


class Session:
    """A live run, new or taken up again.

    Parameters
    ----------
    folder : of the run; this session is the only one that writes there.
    engine : carries commands out.
    clock : of the run.
    inbox : requests of other threads (default: nobody else asks anything).
    poll_s : wall seconds after which the time is looked at again.

    Attributes
    ----------
    controller : what was observed and decided so far.
    resumed : whether the run had begun before.
    refused : requests that raised, and jobs that the policy could not decide on.
    fault : why the journal cannot be written now; empty where it can.
    """

    def __init__(
        self,
        folder: RunFolder,
        engine: Engine,
        clock: Clock,
        inbox: Inbox | None = None,
        *,
        poll_s: float = 1.0,
    ) -> None:
        self.folder, self.engine, self.clock, self.poll_s = folder, engine, clock, poll_s
        self.inbox = inbox or Inbox()
        self.journal = Journal(folder.journal)
        self.controller = controller = replayed(folder, self.journal)
        self.keeper = LeaseKeeper(controller.terms)
        self._batch: list[tuple[Seen, tuple[Answer, ...]]] = []
        #: written, and lost again if what follows cannot be committed
        self._written: list[tuple[Seen, tuple[Answer, ...]]] = []
        self._pending: list[tuple[Asked, str]] = []
        self._undecided: list[tuple[Asked, float]] = []
        self._backlog: deque[Observation] = deque()
        self._signs_s: dict[tuple[str, int], float] = {}
        self._limits_s: dict[tuple[str, int], float] = {}
        self._noted_s: dict[tuple[str, int], float] = {}
        self._committed_s = self._opened_s = clock.wall_s()
        self._blocked_s: float | None = None
        self.refused, self.fault = 0, ""
        self.inbox.wake = engine.wake
        self.resumed = controller.number > 0
        self._gathers = not self.resumed
        self._begin()

    def _begin(self) -> None:
        """Let the time of the run begin, or go on from where it was and would be by now."""
        controller, wall_s = self.controller, self.clock.wall_s()
        now_s = controller.now_s
        origin = self.journal.origin()
        if self.resumed and origin is not None and not controller.course.jumps:
            now_s = max(now_s, origin.now_s + passed_s(origin) * controller.course.factor)
        self.clock.begin(now_s)
        if not self.resumed:
            return
        self.journal.begin(origin_at(now_s))
        groups = [(job, job.group) for job in controller.rows if job.group is not None]
        self.keeper.resume(
            ((job.name, group.epoch, node) for job, group in groups for node in group.present), wall_s
        )
        for job, group in groups:
            self._signs_s[job.name, group.epoch] = wall_s
        for name, node in controller.nodes.items():
            if node.boot:
                self.keeper.expects(name, wall_s)
        self._see(Restarted())
        self._flush()

    # --------------------------------------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Until every job has ended, or a user stops the run. Raises PolicyError and StoreError."""
        while not self.is_over:
            self.step()
        self._flush(all=True)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do: all jobs of a trace have ended, or the run was stopped and no process is left."""
        controller = self.controller
        if self._batch:
            return False
        if controller.stops:
            return not controller.leases
        return not self.journal.run.is_open and controller.is_over

    def step(self) -> None:
        """Wait for something to happen, and act on it."""
        if self._blocked_s is not None:
            self._wait_for_the_journal()
            return
        received: list[Observation | Heartbeat] = [*self._backlog, *self.engine.poll(self._wait_s())]
        self._backlog.clear()
        requests = self.inbox.take()
        beats = []
        for item in received:
            if isinstance(item, Heartbeat):
                beats.append(item)
            else:
                self._see(item)
        for asked in requests:
            self._take(asked)
        self._look_at_the_wall()
        if self._gathers:
            self._gather()
        elif not received and not requests:
            self._look_at_the_clock()
        self._flush()
        if self._blocked_s is None:
            for beat in beats:
                self._answer(beat)
        self._say_what_was_decided()

    def _wait_s(self) -> float:
        """Wall seconds that nothing needs to be done, unless something is received."""
        wall_s = self.clock.wall_s()
        wait_s = min(self.poll_s, max(0.0, self.keeper.next_s() - wall_s))
        due_s = self.controller.due_s()
        if due_s is None or self._gathers:
            return wait_s
        if self.clock.course.jumps and self.controller.is_settled:
            return 0.0
        return min(wait_s, self.clock.wait_s(due_s))

    def _gather(self) -> None:
        """A new run begins once its nodes are there, or have had the time.

        Raises StoreError where this machine has started none; machines of a cluster may join at any time.
        """
        missing = [name for name, node in self.controller.nodes.items() if not node.boot]
        late = self.clock.wall_s() - self._opened_s > GATHER_S
        if missing and not late:
            return
        if len(missing) == len(self.controller.nodes) and self.journal.run.engine == "local":
            logs = ", ".join(f"{name}.log" for name in missing[:3])
            raise StoreError.at(self.folder.path, f"no node came within {GATHER_S:.0f} s; {logs} may say why")
        self._gathers = False
        self.clock.begin(self.controller.begin_s)
        self.journal.begin(origin_at(self.controller.begin_s))
        for name in missing:
            self._see(NodeDown(node=name, boot=""))

    def _look_at_the_clock(self) -> None:
        """Note that the instant came which the controller waits for."""
        due_s = self.controller.due_s()
        if due_s is None:
            return
        if self.clock.course.jumps and self.controller.is_settled:
            self.clock.jump(due_s)
        if due_s <= self.clock.now_s():
            self._decide()

    def _decide(self) -> None:
        """Let the policy decide; where it raises, without the jobs that came since it last did, the newest first."""
        while True:
            try:
                self._see(Timer())
            except Exception as error:
                fresh = [job for job in self.controller.rows if isinstance(job.state, Submitted)]
                if not fresh or not self.journal.run.is_open:
                    raise
                why = self._count(f"job {fresh[-1].name}", error)
                why = f"the policy raised before it decided on this job: {why}"
                self._see(Unfit(job=fresh[-1].name, why=why))
            else:
                return

    def _look_at_the_wall(self) -> None:
        """Note leases that are over, nodes that are silent and jobs that hang."""
        wall_s = self.clock.wall_s()
        for expired, epoch, node in self.keeper.expired(wall_s):
            self.keeper.freed(expired, epoch, node)
            self._see(LeaseExpired(job=expired, epoch=epoch, node=node))
        for node in self.keeper.silent(wall_s):
            self.keeper.lost(node)
            self._see(NodeDown(node=node, boot=self.controller.nodes[node].boot))
        for (name, epoch), since_s in list(self._signs_s.items()):
            if wall_s - since_s <= self._limits_s.get((name, epoch), self.controller.terms.hang_s):
                continue
            self._signs_s.pop((name, epoch))
            job = self.controller.jobs[name]
            group = job.group
            if group is not None and group.epoch == epoch and group.asked_s is None and not group.killed:
                self._see(Hung(job=name, epoch=epoch, silent_s=wall_s - since_s))

    # ---------------------------------------------------------------------------------------------- observations

    def _see(self, what: Observation) -> None:
        """Number an observation and let the controller answer it; both are written at the next flush."""
        wall_s = self.clock.wall_s()
        if isinstance(what, Progressed) and not self._is_worth_noting(what, wall_s):
            return
        if isinstance(what, NodeUp):
            self.keeper.heard(what.node, what.boot, what.stamp_s, wall_s)
        elif isinstance(what, NodeDown):
            self.keeper.lost(what.node)
        elif isinstance(what, FirstStep | Checkpointed):
            self._gave_a_sign(what.job, what.epoch, wall_s)
        at_s = self.controller.begin_s if self._gathers else self.clock.now_s()
        seen = Seen(self.controller.number + 1, max(at_s, self.controller.now_s), what)
        try:
            answers = self.controller.receive(seen)
        except Exception:
            self._undo()
            raise
        self._batch.append((seen, answers))

    def _undo(self) -> None:
        """The controller is again what it was before an observation at which it raised."""
        self.controller.close()
        self.controller = replayed(self.folder, self.journal, (seen for seen, _ in self._batch))

    def _is_worth_noting(self, what: Progressed, wall_s: float) -> bool:
        key = what.job, what.epoch
        self._gave_a_sign(*key, wall_s)
        if wall_s - self._noted_s.get(key, -math.inf) < REPORT_EVERY_S:
            return False
        self._noted_s[key] = wall_s
        return True

    def _gave_a_sign(self, job: str, epoch: int, wall_s: float) -> None:
        if (job, epoch) in self._signs_s:
            self._signs_s[job, epoch] = wall_s

    def _answer(self, beat: Heartbeat) -> None:
        """Renew the leases of a node's groups."""
        wall_s = self.clock.wall_s()
        node = self.controller.nodes.get(beat.node)
        if node is None or node.boot != beat.boot:
            return  # it will say that it is there
        self.keeper.heard(beat.node, beat.boot, beat.stamp_s, wall_s)
        groups = self.controller.groups_on(beat.node)
        self.keeper.answer(beat, groups, wall_s)
        self.engine.renew(beat, self.controller.terms.lease_s, groups)

    # ---------------------------------------------------------------------------------------------------- requests

    def _take(self, asked: Asked) -> None:
        """Do what a user asks; it is answered once that is in the journal, or at once if it cannot be done."""
        request, wall_s = asked.request, self.clock.wall_s()
        try:
            if isinstance(request, GetStatus):
                asked.answer(Reply(status=self.status()))
            elif isinstance(request, GetDecision):
                desk.job_of(self.controller, request.job)
                self._undecided.append((asked, wall_s + DECISION_S))
            else:
                what, said = desk.observed(self.controller, request)
                if what is not None and self.fault:
                    asked.answer(Reply(problems=(self.fault,)))
                    return
                if what is not None:
                    self._see(what)
                self._pending.append((asked, said))
        except ForerunError as error:
            asked.answer(Reply(problems=tuple(map(str, error.problems))))
        except Exception as error:
            said = self._count(type(request).__name__.lower(), error)
            asked.answer(Reply(problems=(f"the controller cannot do this: {said}",)))

    def _count(self, what: str, error: Exception) -> str:
        """Note that something is refused; why, in a line."""
        self.refused += 1
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_WHY]
        _LOG.warning("refused: %s: %s", what, why)
        return why

    def _say_what_was_decided(self) -> None:
        """Answer who wait for the policy's decision on a job, if it is there or has taken too long."""
        waiting, self._undecided = self._undecided, []
        for asked, until_s in waiting:
            assert isinstance(asked.request, GetDecision)
            job = self.controller.jobs[asked.request.job]
            if isinstance(job.state, Submitted) and self.clock.wall_s() < until_s:
                self._undecided.append((asked, until_s))
            else:
                asked.answer(Reply(said=desk.decision_on(self.controller, job)))

    def status(self) -> RunStatus:
        """What the run does now."""
        run = self.journal.run
        now = self.controller.status(clock=run.clock, engine=run.engine)
        return msgspec.structs.replace(now, refused_requests=self.refused, fault=self.fault)

    # ------------------------------------------------------------------------------------------------- the journal

    def _flush(self, *, all: bool = False) -> None:
        """Write down what was observed and answered, then send the commands and answer the users.

        Progress alone may wait for the next commit. all: it may not.
        """
        wall_s = self.clock.wall_s()
        batch, self._batch = self._batch, []
        matters = any(answers or not isinstance(seen.what, Progressed) for seen, answers in batch)
        try:
            slots = {name: node.first for name, node in self.controller.nodes.items()}
            for seen, answers in batch:
                self.journal.write(seen, answers, slots)
            if all or matters or wall_s - self._committed_s >= COMMIT_EVERY_S:
                self.journal.commit()
                self._committed_s, self._written = wall_s, []
            else:
                self._written += batch
        except StoreError as error:
            self._batch, self._written = [*self._written, *batch], []
            self._block(wall_s, error)
            return
        for _, answers in batch:
            for answer in answers:
                self._carry_out(answer)
        if self.fault:
            _LOG.warning("the journal can be written again")
        self._blocked_s, self.fault = None, ""
        pending, self._pending = self._pending, []
        for asked, said in pending:
            asked.answer(Reply(said=said))

    def _block(self, wall_s: float, error: StoreError) -> None:
        """The journal cannot be written: nothing happens until it can. Raises the error if that takes too long."""
        if self._blocked_s is None:
            self._blocked_s = wall_s
            self.fault = f"{error}; nothing is started and no lease renewed until it can be"
            _LOG.warning("%s", self.fault)
        if wall_s - self._blocked_s > MOST_BLOCKED_S:
            raise error
        pending, self._pending = self._pending, []
        for (
            asked,
            _,
        ) in pending:  # what they want was observed, and will be done if the controller lives until then
            asked.answer(Reply(problems=(self.fault,)))

    def _wait_for_the_journal(self) -> None:
        """Nothing is sent and no lease is renewed until the journal can be written again."""
        self._backlog += [item for item in self.engine.poll(1.0) if not isinstance(item, Heartbeat)]
        self._flush()
        for asked in self.inbox.take() if self.fault else ():
            self._take(asked)
        self._say_what_was_decided()

    def _carry_out(self, answer: Answer) -> None:
        if isinstance(answer, Freed):
            self.keeper.freed(answer.job, answer.epoch, answer.node)
            self._signs_s.pop((answer.job, answer.epoch), None)
            self._noted_s.pop((answer.job, answer.epoch), None)
        elif isinstance(answer, Sent):
            self._send(answer.command)

    def _send(self, command: Command) -> None:
        wall_s = self.clock.wall_s()
        if isinstance(command, Start):
            terms = self.keeper.start(command.job, command.epoch, command.slots, wall_s)
            self._watch(command, wall_s)
            command = msgspec.structs.replace(command, terms=terms)
        self.engine.send(command)

    def _watch(self, start: Start, wall_s: float) -> None:
        """Watch for the silence of jobs that report."""
        if not start.spec.elastic or self.clock.course.jumps:
            return
        key, pace = (start.job, start.epoch), start.pace
        rate = pace.rate_per_s if pace is not None else 0.0
        step_s = STEPS_MISSED / rate if rate > 0 else 0.0
        self._signs_s[key] = wall_s
        self._limits_s[key] = max(self.controller.terms.hang_s, step_s) + (
            pace.start_s if pace is not None else 0.0
        )

    def close(self) -> None:
        """Close the journal; the run can be taken up again."""
        self.controller.close()
        self.journal.close()
