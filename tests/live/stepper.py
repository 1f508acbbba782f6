"""A job that writes down each of its steps, for tests that break something while it runs.

Each rank appends a line a step to `steps.jsonl` in the folder of its program, so that a judge need not trust forerun's own
records. Files beside it change what it does: `slow` makes steps take three times as long, `deaf` lets it stand in a step.
"""

import json
import os
import time
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.processes import MARK_VARIABLE
from forerun.live import job
from forerun.live.processes import boot_s

#: steps a second by number of ranks
RATES: Final = {1: 2.0, 2: 3.6, 4: 6.0}


def node() -> str:
    """The node that this rank runs on, by the mark of its parent, which the node's process started."""
    variables = Path(f"/proc/{os.getppid()}/environ").read_text().split("\0")
    (mark,) = (text for text in variables if text.startswith(f"{MARK_VARIABLE}="))
    return mark.split("/@")[1].strip("/")


def main() -> None:
    """Run as a job."""
    here = Path.cwd()
    with job.attach(torch=False) as me:
        total = np.zeros(1)
        me.state(total=total)
        witness = os.open(here / "steps.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        name, epoch = os.environ[MARK_VARIABLE].split("/")[1:3]
        of = {"job": name, "epoch": int(epoch), "node": node(), "slots": me.slots, "rank": me.rank}
        for step in me.steps():
            begin_s = boot_s()
            while (here / "deaf").exists():
                time.sleep(0.1)
            time.sleep((3 if (here / "slow").exists() else 1) / RATES[me.world_size])
            total += me.average(np.ones(1))[0]
            line = json.dumps(of | {"step": step, "begin": begin_s, "end": boot_s()})
            os.write(witness, f"{line}\n".encode())
            me.step()
        assert total[0] == me.iterations, total


if __name__ == "__main__":
    main()
