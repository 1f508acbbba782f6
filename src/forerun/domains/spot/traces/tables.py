"""What `forerun trace stats` and `fit` show of a fleet, as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from statistics import fmean

from forerun.domains.spot.traces import fit as fitting
from forerun.domains.spot.traces.measured_run import START_DELAY_S, model_run, read_run
from forerun.domains.spot.traces.statistics import CountTraces, FleetStatistics, as_the_notebook, corrected
from forerun.trace.domain_traces import Recorded, ReportTable, TraceReport


def figures_table(seen: FleetStatistics) -> ReportTable:
    rows = [(name, value, _unit(name)) for name, value in seen.data().items() if value is not None]
    return ReportTable(
        "the fleet", ("figure", "value", "unit"), tuple(rows), "one figure a row, in the unit beside it"
    )


def _unit(name: str) -> str:
    if name.endswith("per_node_hour"):
        return "1/h"
    return "h" if name.endswith(("_h", "_hours")) else "nodes" if name.endswith("nodes") else ""


def batches_table(seen: FleetStatistics) -> ReportTable:
    sizes = sorted({*seen.removal_batches, *seen.add_batches})
    rows = tuple((n, seen.removal_batches.count(n), seen.add_batches.count(n)) for n in sizes)
    return ReportTable(
        "nodes at one instant",
        ("nodes", "removals", "additions"),
        rows,
        "removals, additions: instants at which so many nodes left, or came",
    )


def tests_table(tests: Iterable[fitting.Test]) -> ReportTable:
    rows = tuple((t.question, t.statistic, t.p_value, "possible" if t.ok else "NO") for t in tests)
    return ReportTable(
        "what the recording says by itself",
        ("question", "statistic", "p-value", "answer"),
        rows,
        "answer: NO where the p-value is below 5 %, else possible",
    )


def notebook_table(pair: CountTraces) -> ReportTable:
    rows = tuple((name, repr(value), repr(better), why) for name, value, better, why in beside(pair))
    return ReportTable(
        "as the notebook prints them",
        ("value", "notebook", "corrected", ""),
        rows,
        "notebook: with its definition; corrected: what was meant; last: the difference between the two",
    )


def beside(pair: CountTraces) -> tuple[tuple[str, float, float | None, str], ...]:
    """The notebook's twelve values in all their digits, what they were meant to be, and why they are not."""
    meant = corrected(pair)
    minutes = meant.hours * 60
    adds = [size for size, times in meant.add_batches.items() for _ in range(times)]
    big = [size for size in adds if size > 10]
    small = [size for size in adds if size <= 10]
    twelve = as_the_notebook(pair)
    better: dict[str, tuple[float | None, str]] = {
        "mttp_s": (meant.mean_gap_s, "gaps of terminations only, the date after midnight repaired"),
        "ttp_std_s": (meant.std_gap_s, "gaps of terminations only"),
        "preemptions_per_min": (meant.per_node_hour, "the corrected value is per node-hour"),
        "additions_per_min": (sum(adds) / minutes, "without the ramp-up; a lower bound, swaps are invisible"),
        "chance_preempt_this_minute": (len(pair.terminated) / minutes, "a rate a minute, not a probability"),
        "chance_add_this_minute": (len(adds) / minutes, "a rate a minute, without the ramp-up"),
        "probability_big_add": (len(big) / len(adds) if adds else None, "without the ramp-up"),
        "probability_regular_add": (len(small) / len(adds) if adds else None, "without the ramp-up"),
        "regular_add_mean": (fmean(small) if small else None, ""),
        "regular_add_std": (twelve["regular_add_std"], ""),
        "preempt_count_mean": (twelve["preempt_count_mean"], f"geometric with p = {meant.geometric_p:.4f}"),
        "preempt_count_std": (twelve["preempt_count_std"], "a rounded normal does not fit, a geometric does"),
    }
    return tuple((name, value, *better[name]) for name, value in twelve.items())


def yes(ok: bool) -> str:
    return "yes" if ok else "NO"


def measured_run_shown(recorded: Recorded) -> TraceReport:
    """A measured run, in the layout of Bamboo's run 86, beside the model with its own times and segments."""
    run = read_run(recorded.only(), recorded.log)
    model = model_run(run, run.profile, delay_s=START_DELAY_S)
    measured, whole = run.ledger(), run.total_s
    lines = tuple(
        (line, seconds, model.ledger_s[line], (model.ledger_s[line] - seconds) / whole)
        for line, seconds in measured.items()
    )
    totals = (
        ("steps executed", run.executed, model.total_executed, model.total_executed / run.executed - 1),
        (
            "steps kept through the last reconfiguration",
            run.retained,
            model.total_retained,
            model.total_retained / run.retained - 1 if run.retained else None,
        ),
    )
    segments = tuple(
        (
            i,
            one.world_size,
            one.train_start_s,
            one.end_s,
            one.executed,
            model.executed[i],
            len(one.kept),
            model.retained[i],
        )
        for i, one in enumerate(run.segments)
    )
    profile = run.profile
    times = (
        *((f"step at {size} nodes", seconds) for size, seconds in profile.step_s.items()),
        ("pause to rebuild", profile.reconfig_s),
        ("load, in the pause", profile.load_s),
        ("write", profile.write_s),
        ("stall", profile.stall_s),
    )
    heads = ("segment", "nodes", "start_s", "end_s", "executed", "model", "kept", "model's")
    note = (
        "the model has the run's own segments, the mean times of its logs, back-to-back checkpoints, and "
        f"{START_DELAY_S:g} s from a pause to the first step; differences of lines are shares of the run"
    )
    return TraceReport(
        data={
            "total_s": whole,
            "profile": asdict(profile),
            "ledger": {
                line: {"measured_s": was, "model_s": made, "difference_share": gap}
                for line, was, made, gap in lines
            },
            "steps": {name: {"measured": was, "model": made} for name, was, made, _ in totals},
            "segments": [
                dict(zip((*heads[:5], "model_executed", "kept", "model_kept"), row)) for row in segments
            ],
            "repairs": recorded.log.rows(),
            "notes": [note],
        },
        tables=(
            ReportTable(
                "mean times of the logs", ("what", "seconds"), times, "seconds: mean over the logs' rows"
            ),
            ReportTable(
                "where the time went",
                ("line", "measured_s", "model_s", "difference"),
                lines,
                "seconds of the logs, and of the model driven by the same segments; difference: as a share of the run",
            ),
            ReportTable(
                "steps",
                ("what", "measured", "model", "difference"),
                totals,
                "numbers of steps; difference: of the model to the logs, as a share",
            ),
            ReportTable("segment by segment", heads, segments, "a row: from one reconfiguration to the next"),
        ),
        notes=(note,),
        repairs=recorded.log.repairs,
    )
