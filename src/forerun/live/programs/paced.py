"""A job at the pace of a profile: real processes, steps, averages over ranks and checkpoints, and time as the profile says.

It stands in for training that this machine cannot do. Its steps take as long as the throughput profile gives for its count
of slots, divided by the clock's factor; its starts and drains take at least as long as the table of costs says. With
`width: declared`, one process stands for all slots of the job. Started by itself, it goes as fast as it can.

    python -m forerun.live.programs.paced
"""

from __future__ import annotations

from typing import Final

from forerun.live import job
from forerun.live.programs.numpy_job import train

#: the work is small, so that many such jobs run on one core
_INPUTS: Final = 8
_HIDDEN: Final = 8
_SAMPLES: Final = 1024
_BATCH: Final = 64


def main() -> None:
    """Run from the command line, or as a job."""
    with job.attach(iterations=100, torch=False, paced=True) as me:
        # The batch of the profile names its row; what is done of it is what the ranks need to have some each.
        batch = me.batch or max(_BATCH, me.world_size)
        train(me, batch, inputs=_INPUTS, hidden=_HIDDEN, samples=_SAMPLES)


if __name__ == "__main__":
    main()
