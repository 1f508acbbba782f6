"""Training-data loading: does it hide behind the step, what binds if not, and what would cure it.

A data set of samples lies in a store as single files or merged into blocks. A loader reads blocks, decodes samples and
hands batches to a training loop that alternates between waiting and stepping. The store answers a request after a
latency, through slots, a request rate, a connection's and a shared link's bandwidth; it may fail and be asked again;
caches may answer in its place. Loaders are threads with a buffer, workers like torch's, or workers that decode with a
pool of threads; cores are shared. Threads are simulated event by event in compiled code, workers by an exact
recursion, and closed-form laws bound both from above. Every epoch's time is split into compute, preparation and fetch
by differential runs. Tuners choose block size and threads from a few probes, pace policies change them while a loader
runs; placement policies put jobs and their
data on nodes. Packing, a latency store and a runner make the same quantities measurable on a real machine. Not
modelled: the kernel's page cache, network file system clients, and what shuffling does to accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.domain import Domain
from forerun.domains.loading.observer import Observer
from forerun.domains.loading.policy import paces, placements, tuners
from forerun.domains.loading.scenario import Scenario
from forerun.registry import Registry
from forerun.result.objective import Objective

if TYPE_CHECKING:
    from forerun.domains.loading.explain import LoadingExplainer
    from forerun.domains.loading.plan import LoadingPlanner
    from forerun.result.figures import Figure
    from forerun.result.run import Result, SavedRun
    from forerun.scenario.spec import Spec
    from forerun.trace.domain_traces import DomainTraces

__all__ = ["DOMAIN", "Observer", "Scenario"]


class Loading(Domain[Scenario, Scenario, "Result"]):
    """See the package's docstring."""

    name = "loading"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {
        "placement": placements(),
        "tuner": tuners(),
        "pace": paces(),
    }
    objectives = (
        Objective("samples_per_s", "higher", "samples a second"),
        Objective("stall_share", "lower", "share of the time that the loop waits", 0.0, 1.0),
        Objective("peak_memory_bytes", "lower", "memory in bytes"),
        Objective("cost_usd", "lower", "cost in $"),
    )
    environment = ("dataset", "store")

    def prepare(self, scenario: Scenario) -> Scenario:
        """Read the scenario's files."""
        from forerun.domains.loading.files import read

        read(scenario)
        return scenario

    def run(self, inputs: Scenario, *, observers: Sequence[Any] = ()) -> Result:
        """Simulate."""
        from forerun.domains.loading.runs import run_scenario

        return run_scenario(inputs, watch=observers)

    def summarize(self, outcome: Result) -> Result:
        """The result."""
        return outcome

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        from forerun.domains.loading.figures import figures

        return figures(run)

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan file."""
        from forerun.domains.loading.drawings import plan_figures

        return plan_figures(plan, scenario)

    def measured_figures(self, measured: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a measurement file."""
        from forerun.domains.loading.drawings import measured_figures

        return measured_figures(measured)

    def check_measurement(self, measured: Mapping[str, Any], name: str) -> str:
        """Compare predictions with measurements."""
        from forerun.domains.loading.measured import check_measured

        return check_measured(measured, name)

    @property
    def planner(self) -> LoadingPlanner:
        """What finds the best configuration."""
        from forerun.domains.loading.plan import LoadingPlanner

        return LoadingPlanner()

    @property
    def explainer(self) -> LoadingExplainer:
        """What explains a run."""
        from forerun.domains.loading.explain import LoadingExplainer

        return LoadingExplainer()

    @property
    def exporter(self) -> Callable[[Scenario, Sequence[int]], Spec]:
        """Makes the profile that other domains read."""
        from forerun.domains.loading.export import export

        return export

    @property
    def traces(self) -> DomainTraces:
        """What generates, fits and describes traces."""
        from forerun.domains.loading.traces import TRACES

        return TRACES


DOMAIN = Loading()
