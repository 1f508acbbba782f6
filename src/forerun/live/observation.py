"""What a controller can observe: a small type each, as it is stored in the journal.

An engine reports observations about nodes and groups of ranks; users submit, cancel and drain; the controller itself
notes timers and leases that ran out. One thread numbers all of them on receipt, and the order of these numbers is the order
of the run. `Seen` is an observation with its number and the second of the run at which it was received.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from forerun.live.message import Message
from forerun.live.spec import JobSpec, Steps

#: why no process of a group is left on a node
GoneWhy = Literal["exited", "failed", "asked", "lease"]


class _OfGroup(Message, frozen=True, kw_only=True):
    """About the ranks of a job under one epoch; observations of other epochs than the present one are stale.

    Parameters
    ----------
    job : its name.
    epoch : number of the start, from 1.
    """

    job: str
    epoch: int


# ------------------------------------------------------------------------------------------------------------ users


class Submitted(Message, frozen=True, kw_only=True):
    """A job was submitted; the same name twice is the same submission."""

    spec: JobSpec


class Unfit(Message, frozen=True, kw_only=True):
    """The policy raises where this job is submitted, and not without it.

    Parameters
    ----------
    job : its name.
    why : a line for people.
    """

    job: str
    why: str


class Cancelled(Message, frozen=True, kw_only=True):
    """A user takes a job back."""

    job: str


class NodeDrained(Message, frozen=True, kw_only=True):
    """A user wants a node to be empty."""

    node: str


class StopAsked(Message, frozen=True, kw_only=True):
    """A user wants all jobs saved and all processes ended, until a controller takes the run up again."""


# ------------------------------------------------------------------------------------------------------------ nodes


class NodeUp(Message, frozen=True, kw_only=True):
    """A node is there.

    Parameters
    ----------
    node : its name.
    boot : of this life of the node process; another boot is a new, empty node.
    slots : how many slots it has, numbered from 0.
    holds : epochs by job of the groups that it runs now, with their slots; processes of any other group are gone.
    stamp_s : the node's own monotonic clock when it was sent, as in a heartbeat.
    """

    node: str
    boot: str
    slots: int
    holds: dict[str, tuple[int, tuple[int, ...]]] = {}
    stamp_s: float = 0.0


class NodeDown(Message, frozen=True, kw_only=True):
    """A node is silent or gone; its groups end by their leases."""

    node: str
    boot: str


# ----------------------------------------------------------------------------------------------------------- groups


class Started(_OfGroup, frozen=True, kw_only=True):
    """All ranks of a group on a node run.

    Parameters
    ----------
    node : which; a group on several nodes has started once each said so.
    """

    node: str


class FirstStep(_OfGroup, frozen=True, kw_only=True):
    """A group does its first step after its start.

    Parameters
    ----------
    step : iterations done when it began.
    ago_s : wall seconds since then (default: 0; a node that could not be heard reports it later).
    """

    step: Steps
    ago_s: float = 0.0


class Progressed(_OfGroup, frozen=True, kw_only=True):
    """Iterations done so far.

    Parameters
    ----------
    step : iterations.
    rate : iterations a second since the last report (0: not measured yet).
    """

    step: Steps
    rate: float = 0.0


class Checkpointed(_OfGroup, frozen=True, kw_only=True):
    """A checkpoint is on disk, whole.

    Parameters
    ----------
    step : iterations that it contains.
    file : its name in the job's checkpoint folder.
    sha256 : of its bytes.
    """

    step: Steps
    file: str
    sha256: str


class Left(_OfGroup, frozen=True, kw_only=True):
    """The ranks of a group say that they leave, or failed.

    Parameters
    ----------
    why : finished (all iterations are done), drained (at a step, with a checkpoint), or failed.
    step : iterations done.
    detail : exit code or signal, for people.
    """

    why: Literal["finished", "drained", "failed"]
    step: Steps
    detail: str = ""


class Gone(_OfGroup, frozen=True, kw_only=True):
    """No process of a group is left; its slots are free.

    Parameters
    ----------
    node : on which it ran; a group on several nodes is gone from each.
    why : exited (all its ranks on this node ended by themselves with exit code 0; those of other nodes then do so too,
        and may still be saving the state), failed (they ended otherwise; the default), asked (the node ended them,
        because it was asked to) or lease (they were ended with their lease or with their node; that is no failure of
        theirs).
    detail : exit codes, for people.
    """

    node: str
    why: GoneWhy = "failed"
    detail: str = ""


class Refused(_OfGroup, frozen=True, kw_only=True):
    """A node did not start a group.

    Parameters
    ----------
    node : which.
    why : a line for people.
    """

    node: str
    why: str


# ------------------------------------------------------------------------------------------------- the controller


class Timer(Message, frozen=True, kw_only=True):
    """The instant came that the policy, a drain or a back-off waited for."""


class LeaseExpired(_OfGroup, frozen=True, kw_only=True):
    """The lease of a group ended, and the grace after it: nobody of the group can still run on that node."""

    node: str


class Hung(_OfGroup, frozen=True, kw_only=True):
    """A group has not reported progress for longer than a job may be silent.

    Parameters
    ----------
    silent_s : wall seconds.
    """

    silent_s: float


class Restarted(Message, frozen=True, kw_only=True):
    """A controller took the journal up again."""


OfGroup = Started | FirstStep | Progressed | Checkpointed | Left | Gone | Refused | LeaseExpired | Hung
Observation = (
    Submitted | Unfit | Cancelled | NodeDrained | StopAsked | NodeUp | NodeDown | Timer | Restarted | OfGroup
)


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An observation as it was received.

    Parameters
    ----------
    number : its place in the order of the run, from 1.
    at_s : seconds of the run at which it was received.
    what : the observation.
    """

    number: int
    at_s: float
    what: Observation
