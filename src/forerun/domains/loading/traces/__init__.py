"""What the verbs of `forerun trace` do for this room: look at measured runs and workloads, and make scenarios of them.

`stats`: run directories of the published experiment's layout (also those that `forerun measure loading --compat notebook`
writes), as the notebook computes them or corrected, with what is wrong in them; DLIO workloads and their demands. `fit`: a
scenario from a training log (waits and steps of each batch), or from a DLIO workload. `generate`: files of drawn sizes, as
many and as large as a scenario's data set says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from forerun.domains.loading.blocks.corpus import write_files
from forerun.domains.loading.engine.kernels.deliver import deliver
from forerun.domains.loading.inputs import sample_sizes
from forerun.domains.loading.policies.fixed_blocks import early_stop
from forerun.domains.loading.policy import F64
from forerun.domains.loading.scenario import Dataset, Run, Scenario, Step
from forerun.domains.loading.traces.delivery_law import Explained, explain_pooled, explain_unmerged
from forerun.domains.loading.traces.experiment import (
    BATCH,
    UNNUMBERED,
    Flag,
    flags,
    improvements,
    read_experiment,
    stall_lag,
    table,
)
from forerun.domains.loading.traces.workloads import Workload, read_demands, read_workload
from forerun.errors import TraceError, UsageError
from forerun.rng import stream
from forerun.scenario.spec import Spec, to_data
from forerun.trace.domain_traces import DomainTraces, Fitted, Made, Recorded, Shown, Told, decoded
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Field, gathered, read_rows
from forerun.trace.source import Source

#: what files are made of where nothing else is said: 53 KB in the mean
START: Final[dict[str, Any]] = {
    "samples": 1000,
    "sample_bytes": {"mean_bytes": 53_428, "sigma": 0.55},
}
#: a log that waits less than this share of its time says nothing of the workers behind it
LEAST_STALL: Final = 0.17


class _StatsSettings(Spec, frozen=True, kw_only=True):
    """Which runs of a folder (where it holds several), and how: `compat` as the notebook does, `corrected` with its
    defects named.

    link_bytes_per_s: a store's bandwidth, to say how many accelerators of a workload it feeds.
    """

    dataset: str = ""
    place: Literal["", "remote", "local"] = ""
    mode: Literal["compat", "corrected"] = "corrected"
    link_bytes_per_s: float = 0.0


class _FitSettings(Spec, frozen=True, kw_only=True):
    """What a log does not tell: samples a batch, prefetch; for a DLIO workload the store's latency and bandwidth."""

    batch: int = 512
    prefetch: int = 2
    latency_s: float = 0.0
    link_bytes_per_s: float = 0.0
    accelerators: int = 1


@dataclass(frozen=True)
class FittedLog:
    """What a log of waits and steps says: workers by the waves' period, a batch's build by their height, start-up.

    total_s and predicted_s: of the log, and of the recursion with these numbers.
    """

    workers: int
    build_s: float
    start_s: float
    step_s: float
    batches: int
    total_s: float
    predicted_s: float


def fit_log(load_s: F64, step_s: F64, prefetch: int = 2) -> FittedLog:
    """Fit the delivery recursion to a log nobody made for it.

    Where the loop waits, it takes as many batches in a build as there are workers. Raises TraceError for a log whose
    loop hardly waits: nothing then tells how long a build takes.
    """
    n = len(load_s)
    steps = step_s if len(step_s) == n else np.append(step_s, step_s.mean())
    total = float(load_s.sum() + steps.sum())
    stalled = float(load_s[1:].sum()) / total if total else 0.0
    if n < 16 or stalled < LEAST_STALL:
        raise TraceError.at(
            "log",
            f"{n} batches that wait {stalled:.0%} of their time; at least 16 and {LEAST_STALL:.0%} are wanted",
        )
    workers = stall_lag(load_s)
    steady = (load_s + steps)[workers:]
    whole = len(steady) - len(steady) % workers
    build = (
        float(steady[:whole].reshape(-1, workers).sum(axis=1).mean())
        if whole
        else float(steady.mean()) * workers
    )
    start = max(0.0, float(load_s[0]) - build)
    found = deliver(
        np.arange(n) % workers,
        np.full(n, build),
        steps.astype(np.float64),
        np.full(workers, start),
        workers * prefetch,
    )
    return FittedLog(workers, build, start, float(steps.mean()), n, total, float(found.total_s))


class LoadingTraces(DomainTraces):
    """Runs and workloads of the loading room."""

    makes = "files"
    about = "files of drawn sizes; stats of run directories and DLIO workloads; fit of training logs and DLIO workloads"

    def generate(
        self,
        description: str,
        settings: Sequence[str],
        *,
        count: int | None,
        horizon_s: float | None,
        seed: int,
    ) -> Made:
        """A folder of files: those of a scenario's data set, or of the data set that the settings describe."""
        if horizon_s is not None:
            raise UsageError.at("--horizon", "files have no horizon; say how many, with -n")
        if description:
            dataset = decoded(description, {}, settings, Scenario).dataset
        else:
            dataset = decoded("", START, settings, Dataset)
        if count is not None:
            dataset = dataset.with_(samples=count)
        drawn = Scenario(dataset=dataset, step=Step(step_s=0.1), run=Run(batch=1), seed=seed)
        sizes = np.round(sample_sizes(drawn)).astype(int)
        data = {
            "files": len(sizes), "bytes": int(sizes.sum()), "mean_bytes": float(sizes.mean()),
            "median_bytes": float(np.median(sizes)), "most_bytes": int(sizes.max()),
        }  # fmt: skip
        return Made(
            count=len(sizes),
            what="files",
            save=lambda path: write_files(path, sizes.tolist(), stream(seed, "files")),
            told=Told(
                data=data,
                tables=(
                    Shown(
                        "files",
                        ("figure", "value"),
                        tuple(data.items()),
                        "one figure a row, in the unit beside it",
                    ),
                ),
            ),
            next_step="forerun measure loading {out}",
        )

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Told:
        """A folder is an experiment, a table or a YAML file DLIO's workloads."""
        path = recorded.only()
        chosen = decoded("", {}, settings, _StatsSettings)
        if path.is_dir():
            return _experiment(path, chosen)
        return _demands(_workloads(path), chosen.link_bytes_per_s)

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """A scenario from a DLIO workload (YAML), or from a log with columns load_s and step_s."""
        path = recorded.only()
        chosen = decoded("", {}, settings, _FitSettings)
        return _from_workload(path, chosen) if path.suffix in (".yaml", ".yml") else _from_log(path, chosen)


def _experiment(path: Path, chosen: _StatsSettings) -> Told:
    runs = read_experiment(path, dataset=chosen.dataset, place=chosen.place)
    data: dict[str, Any] = {"runs": len(runs), "mode": chosen.mode}
    shown = []
    for approach in dict.fromkeys(run.approach for run in runs):
        rows = table(runs, approach)
        data[approach] = [asdict(row) for row in rows]
        columns = tuple(asdict(rows[0]))
        about = "a row: means over runs of one step length; names carry the unit (_s: seconds)"
        shown.append(Shown(approach, columns, tuple(tuple(asdict(row).values()) for row in rows), about))
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
            Shown(
                "gain of merging",
                ("step s", "percent", "standard error", "Welch p", "merged", "significant"),
                rows_of,
                "percent: time saved by merging; standard error: of that, in points; merged: runs that merged",
            )
        )
    fixed = sorted((run.block, BATCH / run.completion_s) for run in runs if run.approach == UNNUMBERED)
    if len(fixed) > 1:
        trials, chosen_block = early_stop([block for block, _ in fixed], [rate for _, rate in fixed])
        data["early_stop"] = {"trials": trials, "block_samples": chosen_block}
    notes: tuple[str, ...] = ()
    if chosen.mode == "corrected":
        for name, title, explained in (
            ("law_unmerged", "the delivery law, fitted on one row", explain_unmerged(runs)),
            ("law_merged", "workers with pools that share 8 cores, fitted on one row", explain_pooled(runs)),
        ):
            if explained:
                data[name] = [{**asdict(row), "error": row.error} for row in explained]
                shown.append(_explained(title, explained))
        found = flags(runs)
        notes = _grouped(found)
        data["flags"] = [str(flag) for flag in found]
    return Told(data=data, tables=tuple(shown), notes=notes)


def _explained(title: str, rows: Sequence[Explained]) -> Shown:
    columns = ("approach", "step s", "threads", "block", "completion s", "law s", "error %", "")
    return Shown(
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


def _grouped(found: Sequence[Flag]) -> tuple[str, ...]:
    """A line a defect: the first place where it is, with its numbers, and how many more there are."""
    places: dict[str, list[Flag]] = {}
    for flag in found:
        places.setdefault(flag.id, []).append(flag)
    return tuple(
        f"{held[0]}" + (f" (and {len(held) - 1} more; all of them with --json)" if len(held) > 1 else "")
        for _, held in sorted(places.items())
    )


def _workloads(path: Path) -> tuple[Workload, ...]:
    return (read_workload(path),) if path.suffix in (".yaml", ".yml") else read_demands(path)


def _demands(workloads: Sequence[Workload], link_bytes_per_s: float) -> Told:
    fed = [work.fed_by(link_bytes_per_s) if link_bytes_per_s else None for work in workloads]
    rows = tuple(
        (
            work.name,
            work.batch,
            work.record_bytes,
            work.computation_s,
            work.utilisation_target,
            work.demand_bytes_per_s,
            many,
        )
        for work, many in zip(workloads, fed)
    )
    columns = (
        "workload",
        "batch",
        "record bytes",
        "computation s",
        "target",
        "demand bytes/s",
        "accelerators fed",
    )
    about = "batch: in records; target: utilisation of the accelerator to reach; accelerators fed: by the store's bandwidth"
    data = {
        "workloads": [
            {**asdict(work), "demand_bytes_per_s": work.demand_bytes_per_s, "accelerators_fed": many}
            for work, many in zip(workloads, fed)
        ]
    }
    note = (
        ()
        if link_bytes_per_s
        else ("accelerators fed: give the store's bandwidth, --set link_bytes_per_s=2GB/s",)
    )
    return Told(data=data, tables=(Shown("what one accelerator demands", columns, rows, about),), notes=note)


def _from_workload(path: Path, chosen: _FitSettings) -> Fitted:
    from forerun.domains.loading.scenario import Store

    work = read_workload(path)
    if not chosen.link_bytes_per_s:
        # Without its bandwidth the store would be unlimited, and any demand met.
        raise TraceError.at(
            path, "says nothing of the store: give its bandwidth, such as --set link_bytes_per_s=2GB/s"
        )
    store = Store(latency_s=chosen.latency_s, shared_bytes_per_s=chosen.link_bytes_per_s)
    scenario = work.scenario(store, jobs=chosen.accelerators, samples=min(work.samples, 64 * work.batch))
    told = _demands([work], chosen.link_bytes_per_s)
    notes = []
    if work.record_stdev_bytes:
        notes.append("sizes: lognormal, with the workload's mean and standard deviation")
    if work.processes and chosen.accelerators > 1:
        notes.append(
            "reader.read_threads: PyTorch's worker processes, as threads, since several jobs share the store"
        )
    return Fitted(description=_plain(scenario), told=replace(told, notes=(*told.notes, *notes)))


def _from_log(path: Path, chosen: _FitSettings) -> Fitted:
    from forerun.domains.loading.scenario import Cpu, Loader

    fields = (
        Field(name="load_s", column="load_s", kind="float", minimum=0),
        Field(name="step_s", column="step_s", kind="float", minimum=0),
    )
    columns = gathered(read_rows(Source(path, repairs=RepairLog()), fields)).columns
    found = fit_log(
        np.asarray(columns["load_s"], float), np.asarray(columns["step_s"], float), chosen.prefetch
    )
    scenario = Scenario(
        title=f"fitted to {path.name}",
        dataset=Dataset(samples=found.batches * chosen.batch, sample_bytes=1.0),
        cpu=Cpu(decode_s=found.build_s / chosen.batch),
        loader=Loader(
            mode="workers",
            workers=found.workers,
            prefetch=chosen.prefetch,
            start_s=(found.start_s,) * found.workers,
        ),
        step=Step(step_s=found.step_s),
        run=Run(batch=chosen.batch),
    )
    rows = tuple((name, value) for name, value in asdict(found).items())
    told = Told(
        data=asdict(found),
        tables=(Shown("what the log says", ("figure", "value"), rows, "one figure a row, in the unit beside it"),),
        notes=(f"the recursion gives {found.predicted_s:.4g} s for the log's {found.total_s:.4g} s",),
    )  # fmt: skip
    return Fitted(description=_plain(scenario), told=told)


def _plain(scenario: Any) -> dict[str, Any]:
    data = to_data(scenario)
    assert isinstance(data, dict)
    return data


TRACES: Final = LoadingTraces()
