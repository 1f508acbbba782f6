"""The fleet generator of the simulation notebook of 2021, with each of its known bugs as a switch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from forerun.spot.scenario.batches import Burst, Marks
from forerun.spot.scenario.processes import LARGEST_FLEET, Rows, Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorBugs:
    """The known bugs of the notebook's generator; the defaults are `Tick`, which corrects only what stops a run.

    Parameters
    ----------
    sample_set : victims are sampled from a set, which Python refuses since 3.11: the first removal stops the run
        (default: off).
    over_ask : more victims are asked for than there are nodes, and the run stops; off, all nodes go (default: off).
    clamp_hole : the cap is not looked at when a size rounds to 0 and is made 1, so the population passes it
        (default: off).
    rate_over_12 : a rate a minute is used as a chance a minute, a twelfth of it in each tick; off, the chance in a tick
        is 1 - exp(-rate x tick) (default: on).
    marks : sizes are rounded normals; off, geometric with the same mean (default: on).
    big_share : large additions have chance .05 and sizes 11 ... 31; off, as the process says (default: off).
    """

    sample_set: bool = False
    over_ask: bool = False
    clamp_hole: bool = False
    rate_over_12: bool = True
    marks: bool = True
    big_share: bool = False


AS_THE_NOTEBOOK = GeneratorBugs(sample_set=True, over_ask=True, clamp_hole=True, big_share=True)


class GeneratorStopped(Exception):
    """The notebook's generator would have stopped here with an error of its own."""


def tick_rows(process: Tick, seed: int, horizon_s: float, bugs: GeneratorBugs | None = None) -> Rows:
    """The fleet that the notebook's generator draws, with the known bugs that are switched on.

    Parameters
    ----------
    process : rates, sizes, start population, cap and tick of the generator.
    seed : of Python's own generator.
    horizon_s : additions and removals happen before this instant [s].
    bugs : the known bugs (default: those of `GeneratorBugs()`).

    Returns
    -------
    Rows (time [s], whether it is an addition, node), in order of time. Within a tick removals precede additions.

    Raises
    ------
    GeneratorStopped : the notebook raises an error here.
    """
    off = bugs or GeneratorBugs()
    random = Random(seed)
    burst = Burst(probability=0.05, low=11, high=31) if off.big_share else process.add_burst
    chance_add, chance_remove = (
        rate * process.tick_s / 60 if off.rate_over_12 else -math.expm1(-rate * process.tick_s / 60)
        for rate in (process.adds_per_min, process.removals_per_min)
    )
    alive = [f"node{i}" for i in range(process.start)]
    rows: Rows = [(0.0, True, node) for node in alive]
    born, tick = process.start, 0
    while (t_s := tick * process.tick_s) < horizon_s:
        adds = removals = 0
        most = process.cap
        if random.random() < chance_add:
            if random.random() < burst.probability:
                adds = random.randrange(burst.low, burst.high + 1)
            elif (adds := _size(random, process.add_batch, off.marks)) == 0:
                adds, most = 1, LARGEST_FLEET if off.clamp_hole else process.cap
        if random.random() < chance_remove:
            removals = _size(random, process.removal_batch, off.marks) or 1
        if tick > 0:
            if off.sample_set and removals:
                raise GeneratorStopped("TypeError: a set cannot be sampled")
            if off.over_ask and removals > len(alive):
                raise GeneratorStopped(f"ValueError: {removals} victims of {len(alive)} nodes")
            for victim in random.sample(alive, min(len(alive), removals)):
                alive.remove(victim)
                rows.append((t_s, False, victim))
            fresh = [f"node{born + i}" for i in range(min(adds, most - len(alive)))]
            born += len(fresh)
            alive += fresh
            rows += [(t_s, True, node) for node in fresh]
        tick += 1
    return rows


def _size(random: Random, sizes: Marks, marks: bool) -> int:
    """The size of a batch of nodes.

    Parameters
    ----------
    random : the stream to draw from.
    sizes : mean and standard deviation [nodes].
    marks : draw as the notebook does, a normal that may round to 0; off, a geometric number with the same mean.
    """
    if marks:
        return abs(round(random.gauss(sizes.mean, sizes.std)))
    share = 1 / max(1.0, sizes.mean)
    return 1 if share == 1 else math.ceil(math.log(1 - random.random()) / math.log(1 - share)) or 1
