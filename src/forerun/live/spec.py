"""What a user submits: a program, the slots that it can run on, and what is promised to it."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from forerun.core.scenario.spec import Spec

# What is larger is a slip of the pen, and sums of it would leave the 64 bits that policies count in.
#: steps of a job, done or to be done
Steps = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
#: seconds that a job file says, at most three centuries
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e10)]
#: bytes of a command as JSON, which leaves room in a frame for the rest of the message to a node
MOST_BYTES: Final = 1 << 19


class Checkpoints(Spec, frozen=True, kw_only=True):
    """When a job saves its state.

    Parameters
    ----------
    every_s : wall seconds between periodic checkpoints (default: 60); a drained job saves one in any case.
    failures_s : mean wall seconds between failures of the job; given, checkpoints follow Young's interval for it and for
        the measured time of a checkpoint instead of `every_s` (default: not known).
    keep : how many of the last ones stay on disk (default: 2; a corrupt one falls back to the one before).
    """

    every_s: Seconds = 60.0
    failures_s: Seconds | None = None
    keep: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 2


class JobSpec(Spec, frozen=True, kw_only=True):
    """A job as its file describes it.

    Parameters
    ----------
    name : unique in a run.
    command : the program and its arguments; no shell reads it.
    iterations : steps of the global batch in all.
    slots : slots that it asks for, and runs on where the policy is rigid.
    model, batch : row of the throughput profile, and the global batch (default: none; the job runs on `slots` only).
    duration_s : seconds that it takes on `slots`, where no profile says it (default: not known).
    deadline_s : seconds from submission to its deadline (default: none, best effort).
    user : who submits it (default: nobody).
    environment : names of the variables that it inherits; all others are withheld (default: none).
    folder : the folder in which it runs (default: that of the job file).
    checkpoints : when it saves its state.
    retries : how often it starts again after a failure of its own (default: 3).
    elastic : whether the program uses `forerun.live.job`; a plain command is done when it ends with code 0 (default: yes).
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)")]
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    iterations: Annotated[int, msgspec.Meta(ge=1, le=10**15)]
    slots: Annotated[int, msgspec.Meta(ge=1, le=1 << 17)] = 1
    model: Annotated[str, msgspec.Meta(max_length=200)] = ""
    batch: Steps = 0
    duration_s: Seconds | None = None
    deadline_s: Seconds | None = None
    user: Annotated[str, msgspec.Meta(max_length=200)] = ""
    environment: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    folder: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    checkpoints: Checkpoints = Checkpoints()
    retries: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 3
    elastic: bool = True

    def __post_init__(self) -> None:
        if any("\0" in word for word in (*self.command, *self.environment, self.folder)):
            raise ValueError("a command cannot contain a NUL")
        if len(msgspec.json.encode((self.command, self.environment))) > MOST_BYTES:
            raise ValueError(f"the command and the names of its variables have more than {MOST_BYTES} bytes")
