"""The engine: from inputs to what happened, before words.

A job is simulated; a pipeline is planned, since nothing in one iteration is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.core.errors import ScenarioError
from forerun.energy.engine.batch import Work
from forerun.energy.engine.simulation import History
from forerun.energy.inputs import Inputs, JobInputs, PipelineInputs
from forerun.energy.observer import Observer
from forerun.energy.plan.pipeline import PipelinePlan, plan_pipeline
from forerun.energy.policy import Belief, Believes, KeepsLimits, KnobPolicy, PairedPolicy
from forerun.energy.policy.view import MeasuredLimits

#: workloads drawn for the interval that also counts the recorded paths as a sample
RESAMPLED_WORKLOADS: Final = 20
#: recurrences of one run, whose records take about a kilobyte each, and of all runs behind the intervals
MOST_RECURRENCES: Final = 1_000_000
MOST_IN_ALL: Final = 20_000_000
#: least CPU time of a recurrence in the readable loops [s]; a policy may take several times as long
RECURRENCE_S: Final = 65e-6


@dataclass(frozen=True)
class JobOutcome:
    """What happened to a recurring job.

    inputs: of the run. history: its attempts and known bugs. beliefs: the policy's final beliefs a batch size, if it has
    some. limits: what its profiles measured, with the limit that it chose [W].
    """

    inputs: JobInputs
    history: History
    beliefs: tuple[Belief, ...]
    limits: tuple[tuple[MeasuredLimits, float | None], ...]


@dataclass(frozen=True)
class PipelineOutcome:
    """The planned iteration of a pipeline."""

    inputs: PipelineInputs
    plan: PipelinePlan


Outcome = JobOutcome | PipelineOutcome


def run(inputs: Inputs, *, observers: Sequence[Observer] = ()) -> Outcome:
    """Simulate a job, or plan a pipeline.

    Raises ScenarioError for more recurrences than are simulated, Infeasible for a pipeline whose bounds cannot be met,
    the named failures of `policy.failures`, and PolicyError for an impossible decision.
    """
    if isinstance(inputs, PipelineInputs):
        return PipelineOutcome(inputs, plan_pipeline(inputs))
    check_size(inputs)
    simulation, history = work_of(inputs).run(inputs.scenario.first_seed)
    for observer in observers:
        for attempt in history.attempts:
            observer.attempt(attempt)
    return JobOutcome(inputs, history, _beliefs(simulation.policy), _limits(simulation.policy))


def work_of(inputs: JobInputs) -> Work:
    """The job and its policy as the scenario has them, to run at any seed."""
    scenario = inputs.scenario
    return Work(
        inputs.workload,
        scenario.knob_policy,
        eta=scenario.eta,
        beta=scenario.bound_factor,
        rules=scenario.switches,
        recurrences=inputs.recurrences,
        rows=inputs.submissions,
        drift=scenario.drift,
    )


def check_size(inputs: JobInputs) -> None:
    """Raise ScenarioError, with the cost, if a run and those behind its intervals take more than is simulated."""
    each, trials = inputs.recurrences, inputs.scenario.trials
    if each > MOST_RECURRENCES:
        where = "group" if inputs.submissions else "recurrences"
        what = f"{each:,} recurrences in one run take about {_hours(each)}; at most {MOST_RECURRENCES:,} are simulated"
        raise ScenarioError.at(f"$.{where}", what)
    runs = trials + min(RESAMPLED_WORKLOADS, trials)
    if runs * each > MOST_IN_ALL:
        most = max(1, MOST_IN_ALL // each - RESAMPLED_WORKLOADS)
        raise ScenarioError.at(
            "$.trials",
            f"{trials:,} trials of {each:,} recurrences take about {_hours(runs * each)} or more; at most "
            f"{MOST_IN_ALL:,} recurrences are simulated in all, {most:,} trials here",
        )


def _hours(recurrences: int) -> str:
    """Hours that `recurrences` take, in words."""
    return f"{recurrences * RECURRENCE_S / 3600:,.1f} hours"


def _beliefs(policy: KnobPolicy) -> tuple[Belief, ...]:
    """The final beliefs of a policy, empty if it has none."""
    believer = policy.batch_size if isinstance(policy, PairedPolicy) else policy
    return tuple(believer.beliefs()) if isinstance(believer, Believes) else ()


def _limits(policy: KnobPolicy) -> tuple[tuple[MeasuredLimits, float | None], ...]:
    """The profiles of a policy with the limits that it chose, empty if it does not profile."""
    keeper = policy.limit if isinstance(policy, PairedPolicy) else policy
    if not isinstance(keeper, KeepsLimits):
        return ()
    return tuple((measured, keeper.best.get(size)) for size, measured in keeper.measured.items())
