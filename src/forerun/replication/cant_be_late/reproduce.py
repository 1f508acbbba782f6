"""The costs of deadline rules in "Can't be late", with the published numbers beside ours."""

from __future__ import annotations

from statistics import fmean

from forerun.core.result.figures import Axis, Figure
from forerun.replication.cant_be_late import published
from forerun.replication.cant_be_late.bound import offline_bound
from forerun.replication.cant_be_late.traces import hourly_rate_trace, runs
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points
from forerun.spot.policy import DeadlineJob, deadline_rules


def cant_be_late(progress: Progress) -> Reproduced:
    """Deadline policies on the paper's traces: 48 hours of work within 52, and the best in hindsight.

    `spot_only` and `on_demand` run without a deadline that binds, as their published costs do.
    [Wu et al., Can't be late, NSDI'24.]

    Parameters
    ----------
    progress : called with the name of each policy.
    """
    job, patient = DeadlineJob(), DeadlineJob(deadline_s=1000 * 3600.0)
    rows: list[Row] = []
    points: list[tuple[str, float, float]] = []
    for policy, by_rate in published.DEADLINE_COSTS.items():
        progress(policy)
        for rate, (mean, count) in by_rate.items():
            late = 0
            if policy == "offline_bound":
                costs = [
                    offline_bound(job, hourly_rate_trace(rate, 314, job.tick_s, i)).cost_usd
                    for i in range(count)
                ]
            else:
                one = patient if policy in ("spot_only", "on_demand") else job
                rule = deadline_rules().get(policy)()
                done = list(runs(one, rule, rate, count, until_s=150 * 3600.0))
                costs = [run.cost_usd for run in done]
                late = sum(run.finish_s > job.deadline_s for run in done)
            mean_usd, name = fmean(costs), f"{policy} at {rate}/h mean cost usd"
            rows.append(Row(name, mean, mean_usd, None, 1e-6, f"{count} traces"))
            if policy in ("greedy", "uniform_progress"):
                name = f"{policy} at {rate}/h deadlines missed"
                rows.append(Row(name, 0.0, late, None, 1e-6, "by design none"))
            points.append((policy, rate, mean_usd))
    figure = Figure.of(
        "line",
        "deadline-costs",
        "What 48 hours of work within 52 cost",
        from_points(("policy", "rate", "cost_usd"), points),
        x=Axis("rate", "preemptions an hour, as a probability", "1/h"),
        y=Axis("cost_usd", "mean cost", "$"),
        series="policy",
        order=tuple(published.DEADLINE_COSTS),
        caption="spot_only has no deadline; offline_bound knows the trace. Means over the paper's traces.",
    )
    return Reproduced(tuple(rows), (figure,))


REPRODUCTIONS = (
    Reproduction(
        "cant-be-late",
        "Spot under a deadline: greedy, uniform progress, on-demand and the bound",
        "Wu et al., Can't be late, NSDI'24",
        cant_be_late,
        minutes=0.7,
    ),
)
