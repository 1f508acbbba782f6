"""What a GPU's knobs give by themselves: limits chosen from measured windows, frequencies of a pipeline."""

from __future__ import annotations

from typing import Final

from forerun.core.data.fetch import fetch
from forerun.core.result.figures import Axis, Figure
from forerun.energy.plan.frontier import Program
from forerun.energy.policy.selectors import least_cost, least_energy, least_time, max_slowdown
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points
from forerun.replication.zeus.pipelines import synthetic
from forerun.replication.zeus.public import WINDOWS_SOURCE
from forerun.replication.zeus.published import published
from forerun.replication.zeus.windows import Windows, read_windows

PERSEUS: Final = "Chung et al.: Perseus, SOSP 2024"


def chosen_limits(measured: Windows) -> dict[str, float]:
    """The limit that each rule chooses from the windows [W]; a job's maximum power is that of all its GPUs.

    Parameters
    ----------
    measured : windows of one profile.

    Returns
    -------
    Limits by the name of the rule.
    """
    limits = [window.limit_w for window in measured.windows]
    times = [window.time_s for window in measured.windows]
    joules = [window.energy_j for window in measured.windows]
    top = max(limits) * measured.gpus

    def cost(eta: float) -> float:
        """The limit with the least cost at a weight of energy."""
        return least_cost(limits, times, joules, eta=eta, max_power_w=top)

    return {
        "least energy": least_energy(limits, joules),
        "least time": least_time(limits, times),
        "least cost, eta 0.5": cost(0.5),
        "at most 1.1 times the time": max_slowdown(limits, times, factor=1.1),
        "at most 1.2 times the time": max_slowdown(limits, times, factor=1.2),
    }


def _power_limit(progress: Progress) -> Reproduced:
    """zeus-power-limit: limits chosen from the published windows.

    Energy and time of each choice are quoted against the highest limit. Nothing is judged, since no chosen limits are
    published beside the windows.
    """
    rows = []
    marks: list[tuple[float, float, str, str]] = []
    profiles = faster_below = 0
    for path in fetch(WINDOWS_SOURCE):
        measured = read_windows(path)
        name = path.stem
        by_limit = {window.limit_w: window for window in measured.windows}
        top = by_limit[max(by_limit)]
        profiles += 1
        faster_below += min(window.time_s for window in measured.windows) < top.time_s
        for rule, limit in chosen_limits(measured).items():
            window = by_limit[limit]
            saved = 100 * (1 - window.energy_j / top.energy_j)
            slower = 100 * (window.time_s / top.time_s - 1)
            note = f"energy {-saved:+.1f} %, time {slower:+.1f} % against {top.limit_w:g} W"
            rows.append(Row.unpublished(f"{name}, {rule}: limit, W", limit, limit, note))
            marks.append((1 + slower / 100, 1 - saved / 100, rule, name))
    figure = Figure(
        id="zeus-power-limit",
        title="Limits chosen from twelve measured profiles, against the highest limit",
        kind="points",
        x=Axis("time", "time over the highest limit's"),
        y=Axis("energy", "energy over the highest limit's"),
        data=from_points(("time", "energy", "rule", "profile"), marks),
        series="rule",
        series_label="rule",
        caption=f"One point per profile and rule. {faster_below} of {profiles} profiles are fastest below their top limit.",
    )
    note = "the published files are windows of a profiler's tests; no chosen limits are published beside them"
    return Reproduced(tuple(rows), (figure,), (note,))


#: how much slower stages are than the first, and microbatches, of each synthetic pipeline
PIPELINES: Final[dict[str, tuple[tuple[float, ...], int]]] = {
    "4 stages, 8 microbatches": ((1.0, 1.05, 1.05, 1.25), 8),
    "4 equal stages, 8 microbatches": ((1.0, 1.0, 1.0, 1.0), 8),
    "8 stages, 16 microbatches": ((1.0, 1.05, 1.05, 1.1, 1.05, 1.05, 1.0, 1.25), 16),
}
FREQUENCIES_MHZ: Final = tuple(range(600, 1411, 30))


def _perseus(progress: Progress) -> Reproduced:
    """perseus-frontier: time against energy of synthetic pipelines.

    The frontier is compared with every pass at its highest frequency. The paper's bound is quoted and not judged: it is
    over models and clusters of its own. [Chung et al., Perseus, SOSP 2024.]
    """
    rows: list[Row] = []
    marks: list[tuple[float, float, str]] = []
    synthetic_note = "synthetic stages; the paper's profiles are of A100 and A40 clusters"
    best = 0.0
    for name, (slower, microbatches) in PIPELINES.items():
        progress(f"perseus-frontier: {name}")
        pipeline = synthetic(slower, microbatches, FREQUENCIES_MHZ)
        highest = pipeline.run(pipeline.all_highest)
        frontier = Program(pipeline).frontier(60)
        same = 100 * (1 - frontier[0].energy_j / highest.energy_j)
        most = 100 * (1 - frontier[-1].energy_j / highest.energy_j)
        slowdown = 100 * (frontier[-1].makespan_s / highest.makespan_s - 1)
        gap = max(100 * (point.energy_j / point.at_least_j - 1) for point in frontier)
        best = max(best, same)
        for what, value in (
            ("energy saved at equal time, percent", same),
            ("most energy saved, percent", most),
            ("time lost there, percent", slowdown),
            ("largest distance from the lower bound, percent", gap),
        ):
            rows.append(Row.unpublished(f"{name}: {what}", corrected=value, note=synthetic_note))
        marks += [
            (point.makespan_s / highest.makespan_s, point.energy_j / highest.energy_j, name)
            for point in frontier
        ]
    why = "the paper's bound is over its own models and clusters; ours are synthetic stages, not judged"
    stated = published("perseus-frontier", "energy")["most"]
    first = Row("most energy saved at equal time, percent", stated, None, best, None, why)
    figure = Figure.of(
        "line",
        "perseus-frontier",
        "Time and energy of an iteration against every pass at its highest frequency",
        from_points(("time", "energy", "pipeline"), marks),
        x=Axis("time", "time over that at the highest frequencies"),
        y=Axis("energy", "energy over that at the highest frequencies"),
        series="pipeline",
        series_label="pipeline",
        caption=f"At equal time up to {best:.3g} % of the energy is saved; the slowest plans take up to "
        f"{100 * (max(time for time, _, _ in marks) - 1):.3g} % more time.",
    )
    return Reproduced((first, *rows), (figure,), (synthetic_note,))


#: the Zeus paper measures limits while a job trains, in the first epoch of a batch size
REPRODUCTIONS: Final = (
    Reproduction(
        "zeus-power-limit",
        "Limits chosen from measured windows",
        "You, Chung, Chowdhury: Zeus, NSDI 2023, just-in-time profiling",
        _power_limit,
        (WINDOWS_SOURCE,),
        0.1,
    ),
    Reproduction(
        "perseus-frontier",
        "Frontier of time against energy of a pipeline's iteration",
        f"{PERSEUS}, abstract",
        _perseus,
        (),
        0.1,
    ),
)
