"""Tuners at work: on recorded surfaces, on the simulator, or on a real store; judged by regret, probes and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.core.rng import stream as random_stream
from forerun.loading.policy import Ask, Cell, Load, Probe, Tuner, TunerSpec, TunerView

Evaluate = Callable[[Ask], Probe]


@dataclass(frozen=True)
class Tuned:
    """What a tuner did.

    Parameters
    ----------
    cell : its choice.
    probes : that it ran, in order.
    samples_read : in all of them.
    tuner : as it is at the end, with what it learned.
    """

    cell: Cell
    probes: tuple[Probe, ...]
    samples_read: int
    tuner: Tuner

    def regret(self, truth: Mapping[Cell, float]) -> float:
        """How much longer the choice takes than the best cell, as a share.

        Parameters
        ----------
        truth : seconds of every cell.
        """
        return truth[self.cell] / min(truth.values()) - 1


def tune(
    spec: TunerSpec,
    evaluate: Evaluate,
    cells: Iterable[Cell],
    load: Load,
    *,
    memory_bytes: float = math.inf,
    rng: np.random.Generator | None = None,
    most_probes: int = 100,
) -> Tuned:
    """Measure what a tuner asks for until it asks for nothing more.

    The tuner decides when it has seen enough; its choice may be a cell that was never run.

    Parameters
    ----------
    memory_bytes : that blocks may take (default: any).
    rng : of the tuner (default: one of seed 0).
    most_probes : after which the tuner must choose (default: 100).
    spec : the tuner.
    evaluate : answers a probe that is asked for.
    cells : to choose from.
    load : the work.
    """
    view = TunerView(tuple(cells), load, memory_bytes, rng if rng is not None else random_stream(0, "tuner"))
    tuner = spec.build(view)
    probes: list[Probe] = []
    while len(probes) < most_probes and (ask := tuner.ask()) is not None:
        probe = evaluate(ask)
        probes.append(probe)
        tuner.tell(probe)
    return Tuned(tuner.choice(), tuple(probes), sum(probe.samples for probe in probes), tuner)
