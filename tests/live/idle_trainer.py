"""A job whose ranks average at every step, and sleep: for tests that wait for something else."""

import time

import numpy as np

from forerun.live import job

with job.attach(torch=False) as me:
    total = np.zeros(1)
    me.state(total=total)
    for _ in me.steps():
        total += me.average(np.ones(1))[0]
        time.sleep(0.02)
        me.step()
