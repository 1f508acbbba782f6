"""Synthetic profiles of pipelines, for benchmarks and for questions before anything is measured."""

from __future__ import annotations

import numpy as np

from forerun.energy.inputs.pipeline import KINDS, Choices, Pipeline


def synthetic(slower: tuple[float, ...], microbatches: int, frequencies_mhz: tuple[int, ...]) -> Pipeline:
    """A pipeline of synthetic stages; a waiting stage draws 70 W.

    A pass takes base * (0.75 * 1410 / f + 0.25) seconds, base 0.060 forward and 0.120 backward, and draws
    90 + 230 (f / 1410)^2.6 watts: a memory-bound quarter that no clock speeds up, and a GPU of 320 W.

    Parameters
    ----------
    slower : a factor a stage, by which its passes take longer than the base.
    microbatches : of one iteration.
    frequencies_mhz : at which passes may run [MHz].
    """
    f = np.array(sorted(frequencies_mhz, reverse=True), dtype=np.float64)
    stages = []
    for factor in slower:
        stage = {}
        for kind, base in zip(KINDS, (0.060, 0.120)):
            seconds = base * factor * (0.75 * 1410 / f + 0.25)
            stage[kind] = Choices(f, seconds, seconds * (90 + 230 * (f / 1410) ** 2.6))
        stages.append(stage)
    return Pipeline(tuple(stages), microbatches, 70.0)
