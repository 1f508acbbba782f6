"""Training-data loading: is it hidden behind the training step, what is the bottleneck, and what removes it?

A data set of samples lies in a store, as single files or merged into blocks. A loader reads blocks, decodes samples and
gives batches to a training loop, which waits for a batch and then takes a step. The store answers requests after a
latency; its slots, request rate and bandwidth are limited, and requests may fail. Caches may answer in its place, also those
of other nodes that train together. The GPU may decode beside its steps.
Loaders are threads with a buffer, worker processes like torch's, or workers that decode with a pool of threads.
Compiled code simulates threads event by event; a recursion gives the batches of workers exactly; closed-form laws bound
the throughput. Differential runs split the time of an epoch into compute, preparation and fetch.
Tuners choose block size and threads from a few probes.
`blocks` is the domain's own file format, for users of the library too.
Not modelled: the kernel's page cache, network file system clients, and the effect of shuffling on accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.core.domain import Domain
from forerun.core.registry import Registry
from forerun.core.result.objective import Objective
from forerun.loading.observer import Observer
from forerun.loading.policy import tuners
from forerun.loading.scenario import Scenario

if TYPE_CHECKING:
    from forerun.core.result.figures import Figure
    from forerun.core.result.run import Result, SavedRun
    from forerun.core.scenario.spec import Spec
    from forerun.core.trace.domain_traces import DomainTraces
    from forerun.loading.engine.run import Outcome
    from forerun.loading.explain import LoadingExplainer
    from forerun.loading.inputs import Inputs
    from forerun.loading.plan import LoadingPlanner


class Loading(Domain[Scenario, "Inputs", "Outcome"]):
    """Training-data loading; the module's docstring describes what is modelled."""

    name = "loading"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {"tuner": tuners()}
    objectives = (
        Objective("samples_per_s", "higher", "samples a second"),
        Objective("stall_share", "lower", "share of the time that the loop waits", 0.0, 1.0),
        Objective("peak_memory_bytes", "lower", "memory in bytes"),
        Objective("cost_usd", "lower", "cost in $"),
    )
    environment = ("dataset", "store")

    def prepare(self, scenario: Scenario) -> Inputs:
        """Read the scenario's files. Raises TraceError for one that cannot be used."""
        from forerun.loading.inputs import prepare

        return prepare(scenario)

    def run(self, inputs: Inputs, *, observers: Sequence[Observer] = ()) -> Outcome:
        """Simulate every epoch; observers see each when it is over."""
        from forerun.loading.engine.run import run

        return run(inputs, observers)

    def summarize(self, outcome: Outcome) -> Result:
        """Make the result of a run."""
        from forerun.loading.summary import summarize

        return summarize(outcome)

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        from forerun.loading.figures import figures

        return figures(run)

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan file."""
        from forerun.loading.figures.saved import plan_figures

        return plan_figures(plan, scenario)

    def measured_figures(self, measured: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a measurement file."""
        from forerun.loading.figures.saved import measured_figures

        return measured_figures(measured)

    def check_measurement(self, measured: Mapping[str, Any], name: str) -> str:
        """Compare predictions with measurements."""
        from forerun.loading.summary.measured import check_measured

        return check_measured(measured, name)

    @property
    def planner(self) -> LoadingPlanner:
        """What finds the best configuration."""
        from forerun.loading.plan import LoadingPlanner

        return LoadingPlanner()

    @property
    def explainer(self) -> LoadingExplainer:
        """What explains a run."""
        from forerun.loading.explain import LoadingExplainer

        return LoadingExplainer()

    @property
    def exporter(self) -> Callable[[Scenario, Sequence[int]], Spec]:
        """Makes the profile that other domains read."""
        from forerun.loading.export import export

        return export

    @property
    def traces(self) -> DomainTraces:
        """What generates, fits and describes traces."""
        from forerun.loading.traces import TRACES

        return TRACES


DOMAIN = Loading()
