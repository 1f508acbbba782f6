"""The notebook's runs again: its own arithmetic beside ours.

The notebook prints no table; what stands as published here is what its scheduler gives when its cells are run on the
stated gaps (NumPy's legacy gamma generator, clipped at 0.047 ms), derived with an independent implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.core.result.figures import Axis, Figure, by_series
from forerun.replication.inferline import published
from forerun.replication.inferline.legacy_gamma import LegacyGamma
from forerun.replication.inferline.notebook import CompatRun, simulate_compat
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row
from forerun.serving.inputs.pipeline import SOURCE, Edge, Floats, Pipeline, Service, Stage
from forerun.serving.inputs.profile import embedded_profile
from forerun.serving.policies.greedy import Greedy

#: stage -> its parent, in the notebook's wiring order
_PARENTS: Final[Mapping[str, int]] = {"ResNet": SOURCE, "Inception": SOURCE, "KSVM": 0, "LogReg": 1}

_RUN: Final = {"ResNet": ("V100", 16), "Inception": ("V100", 16), "KSVM": ("cpu", 16), "LogReg": ("cpu", 2)}
_DRIVER: Final = {"ResNet": ("V100", 1), "Inception": ("V100", 1), "KSVM": ("cpu", 1), "LogReg": ("cpu", 1)}

_SLIP = (
    "the notebook takes milliseconds per query as the time of a whole batch; corrected: batch over throughput"
)
_SAME = "derived by running the notebook's own cells on these gaps"


def run_of(config: Mapping[str, tuple[str, int]], kind: str) -> Pipeline:
    """The four models, one replica each, with a kind of service time.

    Parameters
    ----------
    config : hardware and largest batch of each model.
    kind : `mean`, `p99` or `notebook`, the arithmetic that makes a batch's time out of the profile.
    """
    profile = embedded_profile()
    stages = [
        Stage(
            name, (Edge(parent),), batch, 1, Service(profile.table_ms(name, hardware, kind, batch)), Greedy()
        )
        for (name, parent), (hardware, batch) in zip(_PARENTS.items(), (config[name] for name in _PARENTS))
    ]
    return Pipeline(tuple(stages))


def driver1(progress: Progress) -> Reproduced:
    """The seed experiment's run of 50,001 queries, and the example driver with all batches of one.

    `compat` uses the notebook's scheduler and service times, `corrected` the time of a batch as batch over throughput.

    Parameters
    ----------
    progress : called with a message before each of the two.
    """
    progress("the run: 50,001 queries, 100/s, squared coefficient of variation 4")
    arrivals = LegacyGamma(rate_rps=100.0, scv=4.0, gamma_seed=22).arrivals_ms(0, n=50_001)
    notebook, mean = _both(_RUN, arrivals)
    progress("the driver: batches of one, 5/s")
    slow = LegacyGamma(rate_rps=5.0, scv=1.0, gamma_seed=11).arrivals_ms(0, n=2_001)
    driver_notebook, driver_mean = _both(_DRIVER, slow)
    run, driver = published()["notebook"]["run"], published()["notebook"]["driver"]
    rows = [
        _row("run: queries", run["queries"], len(notebook[0]), len(mean[0]), "50,000 gaps give one query more"),
        _row("run: p50 latency ms", run["latency_p50_ms"], _quantile(notebook, 0.5), _quantile(mean, 0.5)),
        _row("run: p95 latency ms", run["latency_p95_ms"], _quantile(notebook, 0.95), _quantile(mean, 0.95)),
        _row("run: p99 latency ms", run["latency_p99_ms"], _quantile(notebook, 0.99), _quantile(mean, 0.99), _SLIP),
        _row("run: mean latency ms", run["latency_mean_ms"], float(notebook[0].mean()), float(mean[0].mean())),
        _row("run: max latency ms", run["latency_max_ms"], float(notebook[0].max()), float(mean[0].max())),
        _row("run: scheduler events", run["events"], notebook[1].events, None, "callbacks the notebook's scheduler runs"),
        _row("run: ResNet batches", run["resnet_batches"], _batches(notebook[1], 0), _batches(mean[1], 0)),
        _row("run: LogReg batches", run["logreg_batches"], _batches(notebook[1], 3), _batches(mean[1], 3)),
        _row("run: price units of the configuration", run["price_units"], _price(_RUN), _price(_RUN),
             "V100 3, TXP 2, cpu 1"),
        _row("driver: p99 latency ms", driver["latency_p99_ms"], _quantile(driver_notebook, 0.99),
             _quantile(driver_mean, 0.99), "with batches of one the slip changes nothing"),
        _row("driver: mean latency ms", driver["latency_mean_ms"], float(driver_notebook[0].mean()),
             float(driver_mean[0].mean())),
        _row("driver: scheduler events", driver["events"], driver_notebook[1].events, None),
        Row("run: p99 latency ms, service as measured at p99", None, None, _p99_service(arrivals),
            note="the measured p99 of a batch as its time: ResNet is overloaded and its queue grows without bound"),
    ]  # fmt: skip
    return Reproduced(tuple(rows), (_distributions(notebook[0], mean[0]),), (_SAME,))


def _both(
    config: Mapping[str, tuple[str, int]], arrivals: Floats
) -> tuple[tuple[Floats, CompatRun], tuple[Floats, CompatRun]]:
    """Latencies and stamps under the notebook's service times and scheduler; latencies under ours.

    Ours are those of the default mode with mean service; the stamps beside them come from the notebook's scheduler with
    mean service, which gives the same batches where no events tie.
    """
    from forerun.serving.engine.stagewise import simulate_stagewise

    gaps = np.diff(arrivals)
    compat = simulate_compat(run_of(config, "notebook"), gaps, len(arrivals))
    corrected = simulate_compat(run_of(config, "mean"), gaps, len(arrivals))
    ours = simulate_stagewise(run_of(config, "mean"), arrivals, np.inf)
    return (compat.sink_ms - compat.source_ms, compat), (ours.latency_ms, corrected)


def _p99_service(arrivals: Floats) -> float:
    """The p99 latency [ms] of the run where each batch takes its measured p99 time."""
    from forerun.serving.engine.stagewise import simulate_stagewise

    return float(np.quantile(simulate_stagewise(run_of(_RUN, "p99"), arrivals, np.inf).latency_ms, 0.99))


def _row(name: str, published: float, compat: float, corrected: float | None, note: str = _SAME) -> Row:
    """A published number beside ours, judged within 1e-6."""
    return Row(name, published, compat, corrected, tolerance=1e-6, note=note)


def _quantile(run: tuple[Floats, CompatRun], share: float) -> float:
    """A quantile of a run's latencies [ms]. share: 0 ... 1."""
    return float(np.quantile(run[0], share))


def _batches(run: CompatRun, stage: int) -> int:
    """How many batches a stage ran: distinct instants at which queries left its queue."""
    visits = run.visits[stage]
    return len(np.unique(visits.dequeue_ms))


def _price(config: Mapping[str, tuple[str, int]]) -> float:
    """The price of a configuration with one replica a model, in the notebook's units."""
    prices = published()["notebook"]["prices_per_replica"]
    return float(sum(prices[hardware] for hardware, _ in config.values()))


def _distributions(notebook: Floats, mean: Floats) -> Figure:
    """The distribution of latency with the notebook's time of a batch and with ours.

    Parameters
    ----------
    notebook, mean : float64[queries] latencies [ms].
    """
    shares = np.linspace(0.0, 1.0, 401)
    runs = {"as in the notebook": notebook, "batch over throughput": mean}
    curves = {name: {"latency_ms": np.quantile(run, shares), "share": shares} for name, run in runs.items()}
    return Figure.of(
        "cdf",
        "notebook-latency",
        "Latency in the notebook's run, its arithmetic and ours",
        by_series("service", curves),
        x=Axis("latency_ms", "latency", "ms"),
        y=Axis("share", "share of queries"),
        series="service",
        series_label="time of a batch",
        caption=f"The notebook's time of a batch hides {1 - notebook.mean() / mean.mean():.0%} of the mean latency.",
    )


def planner(progress: Progress) -> Reproduced:
    """The artifact's published costs, and the greedy minimiser against the optimum; see `planner.planner`."""
    # Searching is compiled; it is imported only when this is run.
    from forerun.replication.inferline import planner as reproduced

    return reproduced.planner(progress)


def tuner(progress: Progress) -> Reproduced:
    """InferLine's tuner against coarse-grained scaling; see `tuner.tuner`."""
    from forerun.replication.inferline import tuner as reproduced

    return reproduced.tuner(progress)


def tuner_quick(progress: Progress) -> Reproduced:
    """The same on a third of the loads."""
    from forerun.replication.inferline import tuner as reproduced

    return reproduced.tuner(progress, every=3)


REPRODUCTIONS: Final = (
    Reproduction(
        id="inferline-driver1",
        title="The InferLine notebook's run and its example driver, query by query",
        source="comparison notebook of InferLine [Crankshaw et al., SoCC'20], GitHub EyalSel/plots-model-comp-paper, "
        "an early commit",
        run=driver1,
        minutes=0.1,
    ),
    Reproduction(
        id="inferline-planner",
        title="The costs that InferLine's artifact published, the greedy minimiser, and the proven optimum",
        source="InferLine [Crankshaw et al., SoCC'20], cost planning of the image pipeline, and the authors' artifact",
        run=planner,
        minutes=0.3,
    ),
    Reproduction(
        id="inferline-tuner",
        title="InferLine's high-frequency tuner against coarse-grained scaling, on steps of load",
        source="InferLine [Crankshaw et al., SoCC'20], section 7: tuner under changing load",
        run=tuner,
        quick=tuner_quick,
        minutes=0.2,
    ),
)
