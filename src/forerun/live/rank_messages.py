"""What a rank and the process above it (its shim) say to each other: one JSON object a line, over an inherited socket.

The shim starts a rank with two variables in its environment: `FORERUN_LIVE_FD`, the number of the inherited socket, and
`FORERUN_LIVE_ASSIGNMENT`, an `Assignment` as JSON. A rank first says `Hello`. Rank 0 of several then says `Rendezvous`; the
shim forwards it to the shims of the other ranks, which hand it to them as the same message, each once it arrives. Every rank
is asked to `Drain`; the ranks agree among themselves at which step they leave. Only rank 0 says `FirstStep`, `Progress` and
`Saved`; every rank says `Leaving`, and then exits with code 0 if it finished or drained.

A rank whose socket closes has lost its shim and exits at once. Lines are at most `MOST_BYTES` long; a reader closes the
connection after a line that it cannot read.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from forerun.live.engines.engine import Checkpoint, Pace
from forerun.live.message import Message
from forerun.live.spec import Steps

#: names of the variables that a rank is started with
FD_VARIABLE: Final = "FORERUN_LIVE_FD"
ASSIGNMENT_VARIABLE: Final = "FORERUN_LIVE_ASSIGNMENT"
#: no line is longer
MOST_BYTES: Final = 64 * 1024


class Assignment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rank is to do.

    Parameters
    ----------
    epoch : the number of this start.
    rank, world_size : which rank of how many.
    local_rank : which of the ranks on its node.
    node_slots : slots of the node; a rank on one of them takes that part of the node's cores (default: 1).
    slots : the node's slots that this rank occupies: one, or all of the job's where one process stands for them.
    job_slots : slots of the whole job.
    iterations : steps of the global batch in all.
    batch : global batch of the job file (0: the program's own).
    folder : of the job in the run folder; checkpoints lie in `checkpoints` below it.
    secret : the same for all ranks of a group and known to them alone; they prove it to each other.
    address : on which rank 0 listens for the other ranks (default: loopback, for groups on one machine).
    started_s : the node's CLOCK_BOOTTIME when it received the start.
    checkpoint : from which to go on; None: from the beginning.
    older : checkpoints before that, newest first; taken up where `checkpoint` is not what it was.
    every_s : wall seconds between periodic checkpoints.
    failures_s : mean wall seconds between failures of the job; given, checkpoints follow Young's interval instead
        (default: not known).
    keep : how many checkpoints stay on disk.
    hold_s : wall seconds that a checkpoint stays at least, so that one which the journal names is still there when a
        group has lost its controller; more than the term of a lease and the grace (default: 60).
    report_s : wall seconds between two `Progress` at least (default: 5).
    seed : of the job's random numbers (default: 0).
    pace : for paced programs (default: none).
    """

    epoch: int
    rank: int
    world_size: int
    local_rank: int
    slots: tuple[int, ...]
    job_slots: int
    iterations: int
    folder: str
    secret: str
    batch: int = 0
    address: str = "127.0.0.1"
    started_s: float = 0.0
    checkpoint: Checkpoint | None = None
    older: tuple[Checkpoint, ...] = ()
    every_s: float = 60.0
    node_slots: int = 1
    failures_s: float | None = None
    keep: int = 2
    hold_s: float = 60.0
    report_s: float = 5.0
    seed: int = 0
    pace: Pace | None = None


# ---------------------------------------------------------------------------------------------------- rank to shim


class Hello(Message, frozen=True, kw_only=True):
    """The rank's program has attached."""


class FirstStep(Message, frozen=True, kw_only=True):
    """Rank 0 begins its first step after the start.

    Parameters
    ----------
    step : iterations done until then.
    """

    step: Steps


class Progress(Message, frozen=True, kw_only=True):
    """Iterations done so far.

    Parameters
    ----------
    step : iterations.
    rate : iterations a second since the last report (0: not measured yet).
    """

    step: Steps
    rate: float = 0.0


class Saved(Message, frozen=True, kw_only=True):
    """A checkpoint is on disk, whole.

    Parameters
    ----------
    step : iterations that it contains.
    file : its name in the folder of checkpoints.
    sha256 : of its bytes.
    """

    step: Steps
    file: str
    sha256: str


class Leaving(Message, frozen=True, kw_only=True):
    """A rank exits.

    Parameters
    ----------
    why : finished (all iterations are done), drained (at a step, with a checkpoint), or failed.
    step : iterations done.
    detail : what failed, for people.
    """

    why: Literal["finished", "drained", "failed"]
    step: Steps
    detail: Annotated[str, msgspec.Meta(max_length=1000)] = ""


# -------------------------------------------------------------------------------------------------- both directions


class Rendezvous(Message, frozen=True, kw_only=True):
    """Where rank 0 listens: it says so, and the shims of the other ranks tell them.

    Parameters
    ----------
    address, port : of a TCP socket that rank 0 has bound.
    """

    address: str
    port: int


# ---------------------------------------------------------------------------------------------------- shim to rank


class Drain(Message, frozen=True, kw_only=True):
    """Save the state at the next step that all ranks agree on, and leave."""


class Skip(Message, frozen=True, kw_only=True):
    """Go on at a later step, as if those before it had been done; for paced jobs under a fast-forward clock, to rank 0.

    Parameters
    ----------
    step : iterations done from then on; not beyond the last.
    """

    step: Steps


FromRank = Hello | Rendezvous | FirstStep | Progress | Saved | Leaving
ToRank = Rendezvous | Drain | Skip

_FROM_RANK: Final = msgspec.json.Decoder(FromRank)
_TO_RANK: Final = msgspec.json.Decoder(ToRank)


def line(message: FromRank | ToRank) -> bytes:
    """A message as it is sent."""
    return msgspec.json.encode(message) + b"\n"


def from_rank(text: bytes) -> FromRank:
    """The message of a line that a rank wrote. Raises ValueError or RecursionError if it is none."""
    message: FromRank = _FROM_RANK.decode(text)
    return message


def to_rank(text: bytes) -> ToRank:
    """The message of a line that a shim wrote. Raises ValueError if it is none."""
    message: ToRank = _TO_RANK.decode(text)
    return message


class Lines:
    """Lines from the bytes of a stream, however it is cut into segments."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes. Raises ValueError once a line exceeds `MOST_BYTES`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if any(len(text) > MOST_BYTES for text in (*lines, self._rest)):
            raise ValueError(f"a line has more than {MOST_BYTES} bytes")
        return lines
