"""Nightly evaluations of models on a pool of identical GPUs: are they done by the morning?

A list of evaluations, each with a measured duration, is run on `gpus` identical GPUs. Whenever a GPU is idle, a policy
chooses which of the remaining evaluations starts on it. An evaluation runs on one GPU, is not interrupted, and takes its
measured duration times a factor drawn from the seed. The result says when the last one ends, whether that is before the
deadline, and how the GPU-hours divide into work and idle time. Not modelled: failures, evaluations on several GPUs, and
the time to load a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.core.domain import Domain
from forerun.core.registry import Registry
from forerun.core.result.objective import Objective
from forerun_evaluation.engine import Outcome, run
from forerun_evaluation.inputs import Inputs, prepare
from forerun_evaluation.observer import Observer
from forerun_evaluation.policy import View, orders
from forerun_evaluation.scenario import Scenario
from forerun_evaluation.summary import summarize

if TYPE_CHECKING:
    from forerun.core.result.figures import Figure
    from forerun.core.result.run import Result, SavedRun
    from forerun_evaluation.explain import EvaluationExplainer

__all__ = ["DOMAIN", "Inputs", "Observer", "Outcome", "Scenario", "View"]


class Evaluation(Domain[Scenario, Inputs, Outcome]):
    """Nightly evaluations on a pool of GPUs (see the package's docstring)."""

    name = "evaluation"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {"policy": orders()}
    objectives = (
        Objective("makespan_s", "lower", "end of the last evaluation in s"),
        Objective("idle_gpu_s", "lower", "idle GPU time in s"),
    )
    environment = ("evaluations",)

    def prepare(self, scenario: Scenario) -> Inputs:
        """Read the list of evaluations."""
        return prepare(scenario)

    def run(self, inputs: Inputs, *, observers: Sequence[Any] = ()) -> Outcome:
        """Start evaluations until none is left."""
        return run(inputs, observers)

    def summarize(self, outcome: Outcome) -> Result:
        """The makespan, and where the GPU time went."""
        return summarize(outcome)

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """GPUs over time."""
        from forerun_evaluation.figures import figures

        return figures(run)

    @property
    def explainer(self) -> EvaluationExplainer:
        """What explains a run."""
        from forerun_evaluation.explain import EvaluationExplainer

        return EvaluationExplainer()


DOMAIN = Evaluation()
