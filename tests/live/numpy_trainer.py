"""The numpy job with a small model, for tests. `unscaled` averages gradients by rank instead of by sample."""

import sys

import numpy as np

from forerun.live import job
from forerun.live.programs.numpy_job import train

with job.attach(torch=False) as me:
    uniform = (1 / me.world_size) if "unscaled" in sys.argv else None

    def by_rank(*gradients):
        return me.average(*(gradient * (uniform / (me._share / me._of)) for gradient in gradients))

    loss = train(me, 10, inputs=5, hidden=7, samples=33, average=None if uniform is None else by_rank)
    assert np.isfinite(loss)
