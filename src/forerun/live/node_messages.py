"""What a node says to its engine, and a shim to its node, beyond observations and commands; frames of `live.wire`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from forerun.live.engines.engine import Drain, Heartbeat, Kill, Skip, Start
from forerun.live.message import Message
from forerun.live.observation import GoneWhy, Observation
from forerun.live.rank_messages import Assignment, FirstStep, Progress, Saved
from forerun.live.spec import Steps

# ------------------------------------------------------------------------------------------------ engine and node


class Renewal(Message, frozen=True, kw_only=True):
    """The answer to a heartbeat.

    Parameters
    ----------
    boot : the life of the node that it is for.
    stamp_s : of the heartbeat.
    term_s : leases end so many seconds after the stamp, by the node's clock.
    groups : epochs by job that may go on; the node ends all others.
    """

    boot: str
    stamp_s: float
    term_s: float
    groups: dict[str, int]


class Rendezvous(Message, frozen=True, kw_only=True):
    """Where rank 0 of a group on several nodes listens; the engine passes it on to the group's other nodes.

    Parameters
    ----------
    job, epoch : the group.
    address, port : of a TCP socket.
    """

    job: str
    epoch: int
    address: str
    port: int


class Shutdown(Message, frozen=True, kw_only=True):
    """End all groups, and then the node process."""


ToNode = Start | Drain | Kill | Skip | Renewal | Rendezvous | Shutdown
FromNode = Observation | Heartbeat | Rendezvous


# -------------------------------------------------------------------------------------------------- node and shim


class RankOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rank that a shim starts.

    Parameters
    ----------
    assignment : what it is to do.
    log : path of the file that receives what it prints.
    device : for CUDA_VISIBLE_DEVICES; empty: the variable is not set.
    """

    assignment: Assignment
    log: str
    device: str = ""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group's ranks on one node, as its shim starts and watches them.

    Parameters
    ----------
    job, epoch, node : the group, and where it runs.
    ranks : those of this node.
    command : the program and its arguments; the first is an absolute path.
    is_python : whether it is a script or a module of this interpreter, which a fork runs without starting Python anew.
    folder : in which it runs.
    environment : all variables, by name.
    iterations : steps in all.
    elastic : whether the program says what it has done; a plain command has done all steps when it ends with code 0.
    end_s : CLOCK_BOOTTIME at which the lease ends.
    occupancy : file that notes who is on which slot.
    log_bytes : bytes of a rank's output that are kept, at most.
    """

    job: str
    epoch: int
    node: str
    ranks: tuple[RankOrder, ...]
    command: tuple[str, ...]
    is_python: bool
    folder: str
    environment: Mapping[str, str]
    iterations: int
    elastic: bool
    end_s: float
    occupancy: str
    log_bytes: int


class LeaseEnd(Message, frozen=True, kw_only=True):
    """The lease goes on.

    Parameters
    ----------
    end_s : CLOCK_BOOTTIME at which it ends now.
    """

    end_s: float


class DrainRanks(Message, frozen=True, kw_only=True):
    """Let the ranks save and leave.

    Parameters
    ----------
    by_s : CLOCK_BOOTTIME at which those that are left are killed.
    """

    by_s: float


class KillRanks(Message, frozen=True, kw_only=True):
    """End the group at once."""


class SkipTo(Message, frozen=True, kw_only=True):
    """Tell rank 0 to go on at a later step."""

    step: Steps


class Meet(Message, frozen=True, kw_only=True):
    """Where rank 0 listens: from its shim to the node, and from a node to the shims of other ranks."""

    address: str
    port: int


class Running(Message, frozen=True, kw_only=True):
    """All ranks of this node have been started.

    Parameters
    ----------
    pid : of the shim, which leads the session of all of them.
    """

    pid: int


class Reported(Message, frozen=True, kw_only=True):
    """Rank 0 reports something."""

    what: FirstStep | Progress | Saved


class GroupLeft(Message, frozen=True, kw_only=True):
    """The ranks leave, or one of them failed; as in `observation.Left`."""

    why: Literal["finished", "drained", "failed"]
    step: Steps
    detail: str = ""


class Over(Message, frozen=True, kw_only=True):
    """No process of the group is left on this node.

    Parameters
    ----------
    why : as in `observation.Gone`.
    detail : exit codes, for people.
    """

    why: GoneWhy
    detail: str


ToShim = LeaseEnd | DrainRanks | KillRanks | SkipTo | Meet
FromShim = Running | Reported | Meet | GroupLeft | Over
