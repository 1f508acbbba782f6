"""A run before it begins: the simulation of its jobs, with intervals from how far earlier forecasts were off.

Earlier runs are all the evidence. An interval is as wide as the errors of their forecasts say (split conformal prediction,
a run being one observation): of n runs that are exchangeable with the next one, the interval by the k-th smallest error
contains the next with probability k / (n + 1). So 9 runs are needed for 90 %, and 19 for 95 %. Where runs are on a busier
machine than those before, or of other kinds of jobs, nothing is promised.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from forerun.cluster.inputs.arrays import Cluster
from forerun.cluster.inputs.prepare import Inputs
from forerun.core.errors import UsageError
from forerun.core.scenario.spec import content_id
from forerun.core.version import VERSION
from forerun.live.compare import Comparison, simulated_rows

#: what a run's forecast is judged by: the last end, the mean time from submission to end, and that of the worst job
FIGURES: Final = ("makespan", "mean_jct", "worst_jct")
#: sections besides the machines and the costs that forecasts follow from
_ALSO: Final = ("profile", "policy", "slowdown", "live")


def offs_of(comparison: Comparison) -> dict[str, float]:
    """How far the forecast of a run was off by figure, a share without sign.

    Infinite where the run took in other jobs than its forecast, or ended others: no time says how far off that is.
    """
    errors = comparison.forecast
    same_ends = all(math.isnan(job.end_s) == math.isnan(job.predicted_end_s) for job in comparison.jobs)
    if errors is None or not same_ends or not comparison.same_admissions:
        return dict.fromkeys(FIGURES, math.inf)
    return {name: abs(float(getattr(errors, name))) for name in FIGURES}


def unlike(ran: Inputs, next_one: Inputs) -> str:
    """Why the forecast of a run says nothing of the forecast of the next: other machines, or other costs; else empty.

    Parameters
    ----------
    ran : of the run that has ended.
    next_one : of the run that is forecast.
    """
    then, now = (_nodes(one.setting.cluster) for one in (ran, next_one))
    if then != now:
        return f"ran on other machines than the scenario's: {then}; the scenario has {now}"
    if "costs" in _differing(ran, next_one, ("costs",)):
        return "was forecast with other costs than the scenario's, and so were its errors"
    return ""


def noted(ran: Sequence[Inputs], next_one: Inputs) -> tuple[str, ...]:
    """What a reader must know of runs that are like the next one in machines and costs.

    Parameters
    ----------
    ran : of the runs that have ended.
    next_one : of the run that is forecast.
    """
    others = dict.fromkeys(name for one in ran for name in _differing(one, next_one, _ALSO))
    what = f"earlier runs had another {' and another '.join(others)} than the scenario: nothing is promised of this one"
    return (what,) if others else ()


def _differing(ran: Inputs, next_one: Inputs, sections: Sequence[str]) -> list[str]:
    """Those sections of two scenarios that differ; files count by what they contain."""
    scenario = next_one.scenario
    own = content_id(scenario, VERSION)
    return [
        name
        for name in sections
        if content_id(msgspec.structs.replace(scenario, **{name: getattr(ran.scenario, name)}), VERSION)
        != own
    ]


def _nodes(cluster: Cluster) -> str:
    """The nodes of a cluster in words, whatever their names."""
    counts: Counter[str] = Counter()
    for group in cluster.groups:
        counts[f"{group.gpus} {group.gpu_type or 'GPUs'}"] += group.count
    return ", ".join(f"{count} x {node}" for node, count in sorted(counts.items()))


def runs_needed(level: float) -> int:
    """Earlier runs below which there is no interval of a level, such as 0.9."""
    return math.ceil(level / (1.0 - level) - 1e-9)


def half_width(offs: Sequence[float], level: float) -> float:
    """The error that the next run exceeds with probability 1 - level at most; a share of the forecast.

    Parameters
    ----------
    offs : of earlier runs, one each.
    level : such as 0.9.

    Raises UsageError for fewer runs than the level needs.
    """
    rank = math.ceil((len(offs) + 1) * level - 1e-9)
    if rank > len(offs):
        what = f"has {len(offs)} runs; an interval of {100 * level:g} % needs {runs_needed(level)}"
        raise UsageError.at("--earlier", what)
    return sorted(offs)[rank - 1]


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """One job of a forecast, in seconds of the run; nan: it is not taken in, or has no end.

    Parameters
    ----------
    job, submit_s : as the trace has it.
    end_s : by the simulation.
    low_s, high_s : of the interval, which all jobs together are in with the level's probability.
    """

    job: str
    submit_s: float
    end_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of a run.

    Parameters
    ----------
    jobs : in order of submission.
    level : of the intervals.
    runs : earlier ones that they are of.
    figures : by name (`makespan_s`, `mean_jct_s`) the forecast and the ends of its interval [s]; none where no job ends.
    notes : what a reader must know.
    """

    jobs: tuple[ForecastJob, ...]
    level: float
    runs: int
    figures: Mapping[str, tuple[float, float, float]]
    notes: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """As plain data, for JSON: what is unknown or unbounded is None."""

        def finite(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        return {
            "level": self.level,
            "runs": self.runs,
            "figures": {name: [finite(one) for one in row] for name, row in self.figures.items()},
            "jobs": [{name: finite(value) for name, value in asdict(job).items()} for job in self.jobs],
            "notes": list(self.notes),
        }


def forecast(
    inputs: Inputs, offs: Sequence[Mapping[str, float]], level: float, notes: tuple[str, ...] = ()
) -> Forecast:
    """Simulate the jobs of a scenario, with intervals from the errors of earlier forecasts.

    Parameters
    ----------
    inputs : the scenario, read.
    offs : of each earlier run, as `offs_of` gives them.
    level : of the intervals, such as 0.9.
    notes : what else a reader must know (default: nothing).

    Raises UsageError for fewer runs than the level needs.
    """
    half = {name: half_width([one[name] for one in offs], level) for name in FIGURES}
    rows, simulated = simulated_rows(inputs)
    notes = (*simulated, *notes)
    jobs = []
    for row in rows:
        submit_s, end_s = float(row["submit_s"]), float(row["end_s"])
        low_s, high_s = (
            max(0.0, 1.0 + side * half["worst_jct"]) * (end_s - submit_s) + submit_s for side in (-1, 1)
        )
        jobs.append(ForecastJob(str(row["job"]), submit_s, end_s, low_s, high_s))
    ended = [job for job in jobs if not math.isnan(job.end_s)]
    figures: dict[str, tuple[float, float, float]] = {}
    if ended:
        whole_s = max(job.end_s for job in ended) - min(job.submit_s for job in ended)
        mean_s = math.fsum(job.end_s - job.submit_s for job in ended) / len(ended)
        for name, value_s in (("makespan", whole_s), ("mean_jct", mean_s)):
            low, high = max(0.0, 1.0 - half[name]), 1.0 + half[name]
            figures[f"{name}_s"] = (value_s, value_s * low, value_s * high)
    if any(math.isinf(width) for width in half.values()):
        notes = (
            *notes,
            "too many of the earlier runs took in or ended other jobs than forecast: no interval is wide enough",
        )
    return Forecast(tuple(jobs), level, len(offs), figures, notes)
