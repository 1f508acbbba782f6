"""What a controller answers to an observation, as it is stored in the journal."""

from __future__ import annotations

from typing import Literal

from forerun.live.engines.engine import Command
from forerun.live.message import Message


class Decided(Message, frozen=True, kw_only=True):
    """The policy's decision at one instant.

    Parameters
    ----------
    now_s : the instant by the policy's clock, in seconds of the run.
    slots : by job, the numbers of its GPUs through the cluster; jobs not named have none.
    admitted : jobs admitted since the last decision.
    refused : why, by job refused since the last decision.
    late : jobs so far behind their plans that no plan is in time any more.
    """

    now_s: float
    slots: dict[str, tuple[int, ...]]
    admitted: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    late: tuple[str, ...] = ()


class Sent(Message, frozen=True, kw_only=True):
    """A command for the nodes."""

    command: Command


class Freed(Message, frozen=True, kw_only=True):
    """Leases ended.

    Parameters
    ----------
    job, epoch : of which group.
    node : where.
    slots : numbers through the cluster.
    how : released (no process is left), expired (its time and the grace after it are over), or revoked (the node is new).
    """

    job: str
    epoch: int
    node: str
    slots: tuple[int, ...]
    how: Literal["released", "expired", "revoked"]


class Became(Message, frozen=True, kw_only=True):
    """A job entered a state.

    Parameters
    ----------
    job : which.
    state : which.
    why : for people (default: nothing to say).
    """

    job: str
    state: str
    why: str = ""


Answer = Decided | Sent | Freed | Became
