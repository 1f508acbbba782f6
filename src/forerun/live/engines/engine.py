"""What an engine offers, and the commands that a controller gives it.

An engine knows nodes, slots and groups of processes, and nothing of policies. Commands name a job and an epoch and are
idempotent: the same start twice starts once, and commands of an old epoch do nothing. Leases keep two jobs off one slot even
where nobody can talk: a node ends a group when its lease ends, by the node's own clock, unless a heartbeat was answered
in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from forerun.live.message import Message
from forerun.live.observation import Observation
from forerun.live.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint: a file in the job's folder, the iterations in it, and the digest of its bytes."""

    file: str
    step: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a paced job goes, in wall seconds; other programs ignore it.

    Parameters
    ----------
    rate_per_s : iterations a second, as the profile says for the count of slots, times the clock's factor; 0: only as
        the controller skips, under a fast-forward clock.
    start_s : from the start command to the first step at least (default: as fast as it goes).
    drain_s : from the drain command to the departure at least (default: as fast as it goes).
    """

    rate_per_s: float
    start_s: float = 0.0
    drain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Term:
    """Until when a node may run a group.

    Parameters
    ----------
    boot : the life of the node process that it is for; another one refuses.
    end_s : by the node's own monotonic clock: its stamp in the last heartbeat before the command, and the lease's term. A
        start that is received later is refused, and a group that is not renewed ends then.
    """

    boot: str
    end_s: float


class Start(Message, frozen=True):
    """Start the ranks of a job, one a slot.

    Parameters
    ----------
    job, epoch : the job's name, and the number of this start; a node refuses an epoch below one that it has seen.
    slots : by node, the numbers of its slots; ranks are numbered in this order.
    spec : what to run.
    checkpoint : from which to go on; None: from the beginning.
    older : checkpoints before it, newest first; taken up where it is not what it was (default: none).
    pace : for paced programs (default: none).
    one_process : whether one process stands for all slots (`width: declared`; default: a rank each). It runs on
        the first node; the others hold the lease only.
    report_s : wall seconds between two reports of progress at least (default: 5).
    seed : of the job's random numbers (default: 0).
    hold_s : wall seconds that a checkpoint stays at least: as long as the group may run unheard (default: 60).
    terms : by node, until when the lease goes. The journal omits them: they are added when the command is sent.
    """

    job: str
    epoch: int
    slots: Mapping[str, tuple[int, ...]]
    spec: JobSpec
    checkpoint: Checkpoint | None = None
    older: tuple[Checkpoint, ...] = ()
    pace: Pace | None = None
    one_process: bool = False
    report_s: float = 5.0
    seed: int = 0
    hold_s: float = 60.0
    terms: Mapping[str, Term] = {}


class Drain(Message, frozen=True):
    """Ask a group to save its state at the next step and to leave; it is killed after `within_s` wall seconds."""

    job: str
    epoch: int
    within_s: float


class Kill(Message, frozen=True):
    """End a group at once."""

    job: str
    epoch: int


class Skip(Message, frozen=True):
    """Tell a paced job under a fast-forward clock to go on at a later step, as if those before it had been done."""

    job: str
    epoch: int
    step: int


Command = Start | Drain | Kill | Skip


class Heartbeat(Message, frozen=True):
    """A node's sign of life. It is answered by `Engine.renew`, and not journalled.

    Parameters
    ----------
    node, boot : which node, in which life.
    stamp_s : the node's own monotonic clock when it was sent.
    holds : epochs by job of the groups that it runs.
    """

    node: str
    boot: str
    stamp_s: float
    holds: Mapping[str, int]


class Engine(Protocol):
    """Carries commands out on nodes, and reports what it observes."""

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        """Everything received since the last call, in order; waits at most `timeout_s` wall seconds for the first."""

    def wake(self) -> None:
        """Let a poll that waits return now, or the next one if none does; called by any thread."""

    def send(self, command: Command) -> None:
        """Send a command to the nodes concerned, without waiting for its effect."""

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        """Answer a heartbeat: the leases of these epochs, by job, end `term_s` after the heartbeat's stamp.

        Groups of the node that are not named here are ended by it. Of groups that are named here but have ended there, the
        node reports once more that they left and are gone, in case the first report was lost.
        """

    def close(self) -> None:
        """End every group and every process of the run."""
