"""Gittins' index of attained service from a sample of job sizes."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import F64
from forerun.core.kernels.jit import kernel


@kernel
def gittins_index(sample: F64, attained: F64, least: F64) -> F64:
    """For each attained service a: the best ratio of the chance to finish within some more service to its expected
    amount, max over D of P(X <= a + D | X > a) / E[min(X - a, D) | X > a], where X has the distribution of `sample`
    (ascending).

    D is at least `least`, what a job is given before anybody decides again; without that bound a finite sample sees
    a spike at every size. Beyond it only D that reach a size can be best, so each is tried, with running sums:
    O(sample) a job. Beyond the largest size the index is 0.

    Parameters
    ----------
    sample : sizes seen, ascending.
    attained : service that each job has had.
    least : the least service that each job is given before the next decision.
    """
    sizes = len(sample)
    sums = np.zeros(sizes + 1)
    for i in range(sizes):
        sums[i + 1] = sums[i] + sample[i]
    index = np.zeros(len(attained))
    for j in range(len(attained)):
        a = attained[j]
        first = np.searchsorted(sample, a, side="right")
        for i in range(first, sizes):
            more = max(sample[i] - a, least[j])
            if i + 1 < sizes and sample[i + 1] - a <= more:
                continue
            done = i - first + 1
            spent = sums[i + 1] - sums[first] - done * a + (sizes - 1 - i) * more
            index[j] = max(index[j], done / spent)
    return index
