"""What a user submits: a program, the slots that it can run on, and what is promised to it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forerun.scenario.spec import Spec

#: a count of at least one
Count = Annotated[int, msgspec.Meta(ge=1)]


class Checkpoints(Spec, frozen=True, kw_only=True):
    """When a job saves its state.

    Parameters
    ----------
    every_s : wall seconds between periodic checkpoints (default: 60); a drained job saves one in any case.
    failures_s : mean wall seconds between failures of the job; given, checkpoints follow Young's interval for it and for
        the measured time of a checkpoint instead of `every_s` (default: not known).
    keep : how many of the last ones stay on disk (default: 2; a corrupt one falls back to the one before).
    """

    every_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    failures_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    keep: Annotated[int, msgspec.Meta(ge=2)] = 2


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

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    iterations: Count
    slots: Count = 1
    model: str = ""
    batch: Annotated[int, msgspec.Meta(ge=0)] = 0
    duration_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    user: str = ""
    environment: tuple[str, ...] = ()
    folder: str = ""
    checkpoints: Checkpoints = Checkpoints()
    retries: Annotated[int, msgspec.Meta(ge=0)] = 3
    elastic: bool = True
