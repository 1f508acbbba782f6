"""What `forerun trace stats loading` shows of run directories in the published experiment's layout.

The tables are as the published notebook computes them; `corrected` adds what the delivery law explains of them and where
the notebook's arithmetic misleads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal

from forerun.core.trace.domain_traces import ReportTable, TraceReport
from forerun.loading.policies.fixed_blocks import stopped
from forerun.loading.traces.layouts import RunLayout
from forerun.replication.cndlsys.law import Explained, explain_pooled, explain_unmerged
from forerun.replication.cndlsys.runs import (
    UNNUMBERED,
    Flag,
    flags,
    improvements,
    read_experiment,
    table,
)


class NotebookRuns(RunLayout, frozen=True, kw_only=True):
    """Run directories as the experiment of CNDLSys wrote them.

    dataset, place: which runs, where the folder contains several (default: there is only one of each). mode: `compat` as the
    notebook computes them, `corrected` with the law and the known bugs beside (the default).
    """

    name: ClassVar[str] = "cndlsys"

    dataset: str = ""
    place: Literal["", "remote", "local"] = ""
    mode: Literal["compat", "corrected"] = "corrected"

    def stats(self, folder: Path) -> TraceReport:
        """The published tables of the runs below a folder.

        Parameters
        ----------
        folder : with directories `{approach}/{dataset}/{run}/{place}/...`.

        Raises
        ------
        TraceError : a directory cannot be read, or the folder has runs of several data sets or places and none is named.
        """
        return _experiment(folder, self)


def _experiment(path: Path, chosen: NotebookRuns) -> TraceReport:
    """The report on the runs below a folder: tables, gains, the early stop and, in `corrected`, the law and known bugs.

    Parameters
    ----------
    path : the folder.
    chosen : which runs, and in which mode.
    """
    runs = read_experiment(path, dataset=chosen.dataset, place=chosen.place)
    data: dict[str, Any] = {"runs": len(runs), "mode": chosen.mode}
    shown = []
    for approach in dict.fromkeys(run.approach for run in runs):
        rows = table(runs, approach)
        data[approach] = [asdict(row) for row in rows]
        columns = tuple(asdict(rows[0]))
        about = "a row: means over runs of one step length; names carry the unit (_s: seconds)"
        shown.append(
            ReportTable(approach, columns, tuple(tuple(asdict(row).values()) for row in rows), about)
        )
    if {"baseline1", "ours"} <= {run.approach for run in runs}:
        gains = improvements(runs)
        data["improvement"] = [asdict(gain) for gain in gains]
        rows_of = tuple(
            (
                g.sleep_s,
                g.percent,
                g.error_points,
                g.welch_p,
                f"{g.merged_runs} of {g.runs}",
                "yes" if g.significant else "no",
            )
            for g in gains
        )
        shown.append(
            ReportTable(
                "gain of merging",
                ("step s", "percent", "standard error", "Welch p", "merged", "significant"),
                rows_of,
                "percent: gain in throughput by merging; standard error: of that, in points; merged: runs that merged; "
                "significant: twice its standard error, all runs merged, and Welch p below .05",
            )
        )
    fixed = sorted((run.block, run.throughput) for run in runs if run.approach == UNNUMBERED)
    if len(fixed) > 1:
        trials, chosen_block = early_stop([block for block, _ in fixed], [rate for _, rate in fixed])
        data["early_stop"] = {"trials": trials, "block_samples": chosen_block}
    notes: tuple[str, ...] = ()
    if chosen.mode == "corrected":
        published = [run for run in runs if run.published]  # the laws are of the experiment's loader
        for name, title, explained in (
            ("law_unmerged", "the delivery law, fitted on one row", explain_unmerged(published)),
            (
                "law_merged",
                "workers with pools that share 8 cores, fitted on one row",
                explain_pooled(published),
            ),
        ):
            if explained:
                data[name] = [{**asdict(row), "error": row.error} for row in explained]
                shown.append(_explained(title, explained))
        raised = flags(runs)
        notes = _grouped(raised)
        data["flags"] = [str(flag) for flag in raised]
    return TraceReport(data=data, tables=tuple(shown), notes=notes)


def _explained(title: str, rows: Sequence[Explained]) -> ReportTable:
    """A table of measured completions beside the law's."""
    columns = ("approach", "step s", "threads", "block", "completion s", "law s", "error %", "")
    return ReportTable(
        title,
        columns,
        tuple(
            (
                row.approach, row.sleep_s, row.threads, row.block, row.completion_s, row.law_s,
                round(100 * row.error, 2) + 0.0, "fitted" if row.fitted else "",
            )
            for row in rows
        ),
        "completion: measured; law: as the fitted law has it; error: of the law, in per cent of the measured",
    )  # fmt: skip


def _grouped(raised: Sequence[Flag]) -> tuple[str, ...]:
    """A line for each known bug: the first place where it is, with its numbers, and how many more there are."""
    places: dict[str, list[Flag]] = {}
    for flag in raised:
        places.setdefault(flag.id, []).append(flag)
    return tuple(
        f"{same[0]}" + (f" (and {len(same) - 1} more; all of them with --json)" if len(same) > 1 else "")
        for _, same in sorted(places.items())
    )


def early_stop(
    sizes: Sequence[int], rates: Sequence[float], gain: float = 0.05, running: int = 3
) -> tuple[int, int]:
    """How many sizes the rule of fixed blocks tries, and the one chosen.

    Parameters
    ----------
    sizes : samples a block, in growing order.
    rates : samples a second with each.
    gain : a gain over the size before counts as small up to this share (default: 0.05).
    running : small gains in a row that end the search (default: 3).
    """
    trials = next(
        (count for count in range(1, len(rates) + 1) if stopped(rates[:count], gain, running)), len(rates)
    )
    best = max(range(trials), key=lambda at: rates[at])
    return trials, sizes[best]
