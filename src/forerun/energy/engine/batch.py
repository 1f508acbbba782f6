"""Many runs of one job: a run a seed, as columns.

The readable loops run any policy under any rules. A compiled engine, where one is registered for the mode, runs some
policies faster and gives the same attempts, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from forerun.core.registry import Registry
from forerun.energy.engine.loops import group, sequence
from forerun.energy.engine.simulation import History, Simulation
from forerun.energy.inputs.workload import Submission, Workload
from forerun.energy.policy import KnobSpec
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Floats, Ints
from forerun.energy.scenario import Drift


@dataclass(frozen=True)
class Attempts:
    """The attempts of one run as columns, in the order learned; energy and time without the ratio of a group.

    recurrence, attempt: which one, from 0. size: index into the workload's sizes. limit_w: [W]. epochs, energy_j, time_s,
    cost_j: what it took. ended: index into `ENDINGS`. profiled: whether it profiled limits. int64, float64 or
    bool[attempts].
    """

    recurrence: Ints
    attempt: Ints
    size: Ints
    limit_w: Floats
    epochs: Ints
    energy_j: Floats
    time_s: Floats
    cost_j: Floats
    ended: Ints
    profiled: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.size)

    def per_recurrence(self, values: Floats, recurrences: int) -> Floats:
        """Sums over the attempts of each recurrence, float64[recurrences]."""
        return np.bincount(self.recurrence, values, minlength=recurrences).astype(np.float64)


ENDINGS = ("reached", "bound", "max_epochs", "never_ran")


@dataclass(frozen=True)
class Work:
    """A job and how it is run, whatever the seed.

    workload: the job. spec: the policy. eta: weight of energy against time. beta: the bound, in lowest costs. rules: which
    known bugs are fixed. recurrences: submissions in sequence, unless there is a group. rows: the submissions of a group.
    drift: changes of the job.
    """

    workload: Workload
    spec: KnobSpec
    eta: float
    beta: float
    rules: Rules
    recurrences: int = 0
    rows: Sequence[Submission] = ()
    drift: Sequence[Drift] = ()

    def run(self, seed: int) -> tuple[Simulation, History]:
        """One run by the readable loops.

        seed: of paths and policy. Returns the simulation at its end, and its history. Raises what `loops.sequence` and
        `loops.group` raise.
        """
        simulation = Simulation(
            self.workload,
            self.spec,
            eta=self.eta,
            beta=self.beta,
            rules=self.rules,
            seed=seed,
            drift=self.drift,
        )
        if self.rows:
            return simulation, group(simulation, self.rows)
        return simulation, sequence(simulation, self.recurrences)


class CompiledLoops:
    """A faster engine for the runs of one mode. It gives the attempts of the readable loops, to the last bit.

    name: the mode that it is registered for. work: what it runs, laid out once for all seeds.
    """

    name: ClassVar[str] = ""

    def __init__(self, work: Work) -> None:
        self.work = work

    @classmethod
    def runs(cls, work: Work) -> bool:
        """Whether this engine knows the policy under these rules."""
        raise NotImplementedError

    def run(self, seed: int) -> Attempts:
        """The attempts of one seed. Raises what `Work.run` raises."""
        raise NotImplementedError


@cache
def compiled_loops() -> Registry[CompiledLoops]:
    """The compiled engines, by mode; packages announce them."""
    return Registry(
        "compiled engine",
        "forerun.energy.engine",
        base=CompiledLoops,
        group="forerun.energy.engine",
    )


def run_many(work: Work, seeds: Iterable[int], *, compile_above: int = 20_000) -> list[Attempts]:
    """One run a seed.

    compile_above: recurrences in all from which a compiled engine is used, since compiling takes seconds (default 20,000).
    Raises what `Work.run` raises.
    """
    seeds = list(seeds)
    engine = None
    if len(seeds) * (len(work.rows) or work.recurrences) > compile_above:
        engine = _compiled(work)
    if engine is not None:
        return [engine.run(seed) for seed in seeds]
    return [columns(work.run(seed)[1], work.workload) for seed in seeds]


def _compiled(work: Work) -> CompiledLoops | None:
    """The first registered engine that knows this work."""
    known = (compiled_loops().get(name) for name in compiled_loops())
    return next((engine(work) for engine in known if engine.runs(work)), None)


def columns(run: History, workload: Workload) -> Attempts:
    """The attempts of a run as columns. workload: whose sizes they refer to."""
    outcomes = [line.outcome for line in run.attempts]
    place = {size: at for at, size in enumerate(workload.sizes.tolist())}
    amounts = ("limit_w", "energy_j", "time_s", "cost_j")
    return Attempts(
        recurrence=np.array([line.recurrence for line in run.attempts], np.int64),
        attempt=np.array([line.attempt for line in run.attempts], np.int64),
        size=np.array([place[outcome.batch_size] for outcome in outcomes], np.int64),
        epochs=np.array([outcome.epochs for outcome in outcomes], np.int64),
        **{name: np.array([getattr(outcome, name) for outcome in outcomes]) for name in amounts},
        ended=np.array([ENDINGS.index(outcome.ended_by) for outcome in outcomes], np.int64),
        profiled=np.array([outcome.measured is not None for outcome in outcomes], bool),
    )
