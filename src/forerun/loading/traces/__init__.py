"""What the commands of `forerun trace` do for loading: generate files, look at measured runs and workloads, fit scenarios.

`stats`: measured runs in a folder (see `layouts`), or DLIO workloads and their demands. `fit`: a scenario from a training
log (waits and steps of each batch), or from a DLIO workload. `generate`: files of random sizes, as many and as large as a
scenario's data set says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from forerun.blocks.container.corpus import write_files
from forerun.core.errors import UsageError
from forerun.core.rng import stream
from forerun.core.scenario.spec import Spec
from forerun.core.trace.domain_traces import (
    DomainTraces,
    Fitted,
    GeneratedTrace,
    Recorded,
    ReportTable,
    TraceReport,
    Wanted,
    decoded,
)
from forerun.loading.inputs import sample_sizes
from forerun.loading.scenario import Dataset, Run, Scenario, Step
from forerun.loading.traces.layouts import DEFAULT as DEFAULT_LAYOUT
from forerun.loading.traces.layouts import run_layouts
from forerun.loading.traces.logs import fitted_to_log
from forerun.loading.traces.workloads import demands, fitted_to_workload, workloads_of

#: the data set of `generate` without a description: 53 KB a file in the mean
START: Final[dict[str, Any]] = {"samples": 1000, "sample_bytes": {"mean_bytes": 53_428, "sigma": 0.55}}


class _StatsSettings(Spec, frozen=True, kw_only=True):
    """link_bytes_per_s: bandwidth of a store; the answer then counts the accelerators it feeds (default 0: unknown)."""

    link_bytes_per_s: float = 0.0


class _FitSettings(Spec, frozen=True, kw_only=True):
    """What a log or a workload does not contain.

    batch: samples a batch of the log (default 512). prefetch: batches that each worker makes ahead (default 2). latency_s,
    link_bytes_per_s: of a DLIO workload's store (default 0 s; bandwidth must be given). accelerators: that share it
    (default 1).
    """

    batch: int = 512
    prefetch: int = 2
    latency_s: float = 0.0
    link_bytes_per_s: float = 0.0
    accelerators: int = 1


class LoadingTraces(DomainTraces):
    """Files to load, measured runs and workloads of the loading domain."""

    makes = "files"
    about = "files of random sizes; stats of run directories and DLIO workloads; fit of training logs and DLIO workloads"

    def generate(self, wanted: Wanted) -> GeneratedTrace:
        """A folder of files: those of a scenario's data set, or of the data set that the settings describe.

        Parameters
        ----------
        wanted : its description is a loading scenario or a data set, as a file; empty for files of 53 KB in the mean.
            Its settings are such as `sample_bytes.mean_bytes=2000`, its count is of files, its seed of sizes and
            content.

        Raises UsageError for a horizon.
        """
        if wanted.horizon_s is not None:
            raise UsageError.at("--horizon", "files have no horizon; say how many, with -n")
        if wanted.description:
            dataset = decoded(wanted.description, {}, wanted.settings, Scenario).dataset
        else:
            dataset = decoded("", START, wanted.settings, Dataset)
        if wanted.count is not None:
            dataset = dataset.with_(samples=wanted.count)
        scenario = Scenario(dataset=dataset, step=Step(step_s=0.1), run=Run(batch=1), seed=wanted.seed)
        sizes = np.round(sample_sizes(scenario)).astype(int)
        data = {
            "files": len(sizes), "bytes": int(sizes.sum()), "mean_bytes": float(sizes.mean()),
            "median_bytes": float(np.median(sizes)), "most_bytes": int(sizes.max()),
        }  # fmt: skip
        return GeneratedTrace(
            count=len(sizes),
            what="files",
            save=lambda path: write_files(path, sizes.tolist(), stream(wanted.seed, "files")),
            report=TraceReport(
                data=data,
                tables=(
                    ReportTable(
                        "files",
                        ("figure", "value"),
                        tuple(data.items()),
                        "one figure a row, in the unit beside it",
                    ),
                ),
            ),
            next_step="forerun measure loading {out}",
        )

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> TraceReport:
        """Of a folder its measured runs, in the layout that `recorded` names; of a file DLIO's workloads.

        Parameters
        ----------
        recorded : one folder or file, and the layout of a folder's runs (default: `cndlsys`).
        settings : of the layout, or the bandwidth of a store.
        """
        path = recorded.only()
        if path.is_dir():
            layout = run_layouts().get(recorded.format or DEFAULT_LAYOUT, where="--format")
            return decoded("", {}, settings, layout).stats(path)
        return demands(workloads_of(path), decoded("", {}, settings, _StatsSettings).link_bytes_per_s)

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """A scenario from a DLIO workload (YAML), or from a log with columns load_s and step_s.

        Parameters
        ----------
        recorded : one file.
        settings : what the file does not say; see `_FitSettings`.

        Raises TraceError for a log that hardly waits, and for a workload without the bandwidth of a store.
        """
        path = recorded.only()
        chosen = decoded("", {}, settings, _FitSettings)
        if path.suffix in (".yaml", ".yml"):
            return fitted_to_workload(
                path, chosen.latency_s, chosen.link_bytes_per_s, jobs=chosen.accelerators
            )
        return fitted_to_log(path, chosen.batch, chosen.prefetch)


TRACES: Final = LoadingTraces()
