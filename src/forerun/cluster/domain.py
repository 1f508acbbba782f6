"""GPU-cluster schedulers on real job logs.

Jobs are submitted to a cluster of nodes with GPUs. Each asks for a number of GPUs, or can run on several; it has work to
do, and perhaps a deadline. A policy decides which job has how many GPUs, and when that changes. Throughput at each number
of GPUs comes from measurements or from a stated model. A job works while it has GPUs, unless it is restarting, and ends
when its work is done. With admission control a job may be refused at submission. Published schedules run with their own
clocks and rules: `mode: compat` repeats the known bugs of their simulators, `mode: corrected` does what their papers say,
and each difference is a switch; `mode: default` has none of them. Policies of your own see waiting and running jobs and
answer with GPUs; the domain adds nodes, restart costs, GPU types and quotas. The result says which jobs met their
deadlines, what each waited for, why any was refused, and where every GPU-second went. Not modelled: failures, networks
between nodes beyond a speed factor; CPUs and memory of nodes, which a note names where they would have bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from forerun.cluster.observer import Observer
from forerun.cluster.policy import (
    Order,
    orders,
    schedulers,
)
from forerun.cluster.scenario import Scenario
from forerun.core.domain import Domain, JobExplainer, Units
from forerun.core.errors import PolicyError, UsageError
from forerun.core.registry import Registry
from forerun.core.result.objective import Objective

if TYPE_CHECKING:
    from forerun.cluster.bound import ClusterBounder
    from forerun.cluster.decider import Decider
    from forerun.cluster.engine.run import Outcome
    from forerun.cluster.explain import ClusterExplainer
    from forerun.cluster.inputs.prepare import Inputs
    from forerun.cluster.plan import ClusterPlanner
    from forerun.core.domain import Program
    from forerun.core.result.figures import Figure
    from forerun.core.result.run import Result, SavedRun
    from forerun.core.trace.domain_traces import DomainTraces


class ClusterDomain(Domain[Scenario, "Inputs", "Outcome"]):
    """See the module's docstring."""

    name = "cluster"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {"policy": schedulers(), "order": orders()}
    objectives = (
        Objective("deadline_ratio", "higher", "deadlines met", 0.0, 1.0),
        Objective("jct_mean_s", "lower", "mean completion time in s"),
        Objective("wait_mean_s", "lower", "mean wait in s"),
        Objective("jct_p99_s", "lower", "99th percentile of completion time in s"),
        Objective("makespan_s", "lower", "makespan in s"),
        Objective("refused_jobs", "lower", "jobs refused"),
    )
    environment = ("trace",)
    counts = ("jobs", "refused_jobs", "unfinished_jobs")
    fitted = ("trace.generate",)

    def with_policy(self, scenario: Scenario, policy: object) -> Scenario:
        """The scenario under another policy; an order of jobs goes to the policy that it has, which must take one."""
        if not isinstance(policy, Order):
            return super().with_policy(scenario, policy)
        if "order" not in scenario.policy.__struct_fields__:
            raise UsageError.at("policy", f"{type(scenario.policy).__name__} takes no order of jobs")
        return scenario.with_(policy=scenario.policy.with_(order=policy))

    def decider(self, scenario: Scenario, program: Program) -> Decider:
        """A policy whose decisions another program makes, on the inputs and at the instants of the scenario's."""
        from forerun.cluster.decider import Decider

        return Decider.of(program.argv, scenario.policy, oracle=program.oracle, answer_s=program.answer_s)

    def decided_again(self, run: SavedRun, program: Program) -> SavedRun:
        """A run that another program decided, ready to be simulated again."""
        from forerun.cluster.decider import decided_again

        return decided_again(run, program)

    def laws(self, policy: object) -> Sequence[Callable[[], None]]:
        """Those of schedulers; orders of jobs have none."""
        from forerun.cluster.policy import Policy
        from forerun.cluster.testing import SchedulerContract
        from forerun.core.testing import laws_of

        return tuple(laws_of(SchedulerContract, policy=policy)) if isinstance(policy, Policy) else ()

    def prepare(self, scenario: Scenario) -> Inputs:
        """Read the scenario's files, and check that its policy can run on them."""
        from forerun.cluster.decider import Decider
        from forerun.cluster.engine import engine_of
        from forerun.cluster.engine.record import Record
        from forerun.cluster.engine.run import terms_of
        from forerun.cluster.inputs.prepare import prepare

        inputs = prepare(scenario)
        if isinstance(inputs.policy, Decider):
            inputs = replace(inputs, notes=(*inputs.policy.notes(), *inputs.notes))
        setting = inputs.setting
        if len(setting.jobs):
            terms = terms_of(scenario, setting)
            engine_of(scenario).rules(inputs.policy, setting, Record(setting), terms, scenario.seed)
        return inputs

    def run(self, inputs: Inputs, *, observers: Sequence[Observer] = ()) -> Outcome:
        """Simulate.

        An observer's `instant(now_s, record)` is called at every instant at which the policy acts. Every row of the events
        table is one, except where a policy acts in rounds (`round_s`) and a job ends between two of them, which the next
        round shows. A PolicyError carries the result of the run up to then as `so_far`.
        """
        from forerun.cluster.engine.record import Record
        from forerun.cluster.engine.run import Outcome, run

        record = Record(inputs.setting)
        try:
            run(inputs, record, observers)
        except PolicyError as error:
            error.so_far = self.summarize(Outcome(inputs, record, str(error)))
            raise
        return Outcome(inputs, record)

    def summarize(self, outcome: Outcome) -> Result:
        """Make the result."""
        from forerun.cluster.summary.summarize import summarize

        return summarize(outcome)

    def left_out(self, figure: str, summary: Mapping[str, Any]) -> tuple[float, str]:
        """The jobs that do not finish: completion times and waits are of the others, which end earlier without them."""
        if not figure.startswith(("jct_", "makespan_", "wait_")):
            return 0.0, ""
        jobs = float(summary.get("refused_jobs", 0) + summary.get("unfinished_jobs", 0))
        return jobs, f"{jobs:,.4g} of {summary.get('jobs', 0):,.4g} jobs refused or unfinished"

    def units(self, result: Result) -> Units | None:
        """The jobs that the figures of a run are made of, for intervals over blocks of its log."""
        import numpy as np

        jobs = result.tables["jobs"]
        jct_s = jobs["end_s"] - jobs["submit_s"]
        wait_s, has_deadline = jobs["wait_s"], np.isfinite(jobs["deadline_s"])
        return Units(
            "jobs",
            np.asarray(jobs["submit_s"], np.float64),
            means={
                "jct_mean_s": jct_s,
                "wait_mean_s": wait_s,
                "deadline_ratio": np.where(has_deadline, jobs["met"], np.nan),
            },
            quantiles={"jct_p50_s": (jct_s, 0.5), "jct_p99_s": (jct_s, 0.99), "wait_p90_s": (wait_s, 0.9)},
            totals={"refused_jobs": 1.0 - jobs["admitted"]},
        )

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        from forerun.cluster.figures import figures

        return figures(run)

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan of nodes."""
        from forerun.cluster.figures import plan_figures

        return plan_figures(plan)

    @property
    def bounder(self) -> ClusterBounder:
        """What proves how good any scheduler can be at most."""
        from forerun.cluster.bound import ClusterBounder

        return ClusterBounder()

    @property
    def planner(self) -> ClusterPlanner:
        """What finds how many nodes are needed."""
        from forerun.cluster.plan import ClusterPlanner

        return ClusterPlanner()

    @property
    def explainer(self) -> ClusterExplainer:
        """What explains a run."""
        from forerun.cluster.explain import ClusterExplainer

        return ClusterExplainer(self)

    @property
    def job_explainer(self) -> JobExplainer:
        """Explains one job of a run."""
        from forerun.cluster.explain.explained_job import explained_job

        return explained_job

    @property
    def traces(self) -> DomainTraces:
        """What generates, fits and describes traces."""
        from forerun.cluster.traces.traces import TRACES

        return TRACES


DOMAIN: Final = ClusterDomain()
