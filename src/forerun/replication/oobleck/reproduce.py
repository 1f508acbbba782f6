"""The throughput of the Oobleck artefact's simulators, with the published numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.data.fetch import dataset
from forerun.core.result.figures import Axis, Figure
from forerun.replication.oobleck import published
from forerun.replication.oobleck.simulator import Checkpoints, ElasticJob, run_elastic
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.inputs.recorded import of_membership
from forerun.spot.policies.lazy import Lazy
from forerun.spot.policies.oobleck import Oobleck
from forerun.spot.policies.varuna import Varuna
from forerun.spot.policy import Setting


def oobleck_throughput(progress: Progress) -> Reproduced:
    """The Oobleck artefact: throughput of four models on six traces under Oobleck and Varuna.

    `compat` is the artefact's machine (`run_elastic`); `corrected` is the exact semantics of the spot domain, for Oobleck
    and for Varuna with paid checkpoints. [Jang et al., Oobleck, SOSP'23.]

    Parameters
    ----------
    progress : called with the name of each trace.

    Raises
    ------
    DataError : the artefact's traces are missing.
    """
    from forerun.core.trace.reader import read_trace

    rows = []
    points: dict[str, list[tuple[float, float, str]]] = {model: [] for model in published.ELASTIC_JOBS}
    for name in published.ELASTIC_TRACES:
        progress(f"trace {name}")
        fleet = of_membership(read_trace(dataset(f"spot/oobleck/{name}.csv"), "spot_membership"))
        changes = [(round(t_s * 1000), is_add, node) for t_s, is_add, node in fleet.rows()]
        # The artefact takes additions of an instant in file order and has no removal beside them at 0.
        for model, (oobleck, varuna, checkpoint_ms) in published.ELASTIC_JOBS.items():
            every = published.VARUNA_EVERY_STEPS
            free = Checkpoints(every_steps=every, checkpoint_ms=checkpoint_ms, free=True)
            paid = Checkpoints(every_steps=every, checkpoint_ms=checkpoint_ms)
            done = {
                "oobleck": run_elastic(oobleck, changes),
                "varuna": run_elastic(varuna, changes, paid),
                "varuna_nockpt": run_elastic(varuna, changes, free),
            }
            meant = {
                "oobleck": _corrected_rate(fleet, oobleck, 0, Oobleck(pause_s=oobleck.pause_ms / 1000)),
                "varuna": _corrected_rate(fleet, varuna, checkpoint_ms, Varuna(every_steps=every)),
            }
            minutes = float(name[:-1]) * (60 if name.endswith("h") else 1)
            for system, run in done.items():
                what, stated = (
                    f"{system} {model} {name} samples/s",
                    published.ELASTIC_RESULTS[system][model][name],
                )
                rows.append(Row(what, stated, run.samples_per_s, meant.get(system), 1e-6))
                points[model].append((minutes, run.samples_per_s, system))
            points[model] += [(minutes, rate, f"{system}, corrected") for system, rate in meant.items()]
    pictures = tuple(_oobleck_figure(model, of) for model, of in points.items())
    note = "corrected: our exact semantics; the artefact lets steps complete during pauses"
    return Reproduced(tuple(rows), pictures, (note,))


def _oobleck_figure(model: str, points: Sequence[tuple[float, float, str]]) -> Figure:
    """The throughput of one model by the time between failures, a line a system.

    Parameters
    ----------
    model : its name.
    points : (time between failures [min], throughput [samples/s], system).
    """
    return Figure.of(
        "line",
        f"elastic-{model}",
        f"{model}: throughput by how often a node fails",
        from_points(("minutes", "samples_per_s", "system"), points),
        x=Axis("minutes", "time between failures", "min", log=True),
        y=Axis("samples_per_s", "throughput", "samples/s"),
        series="system",
        order=("oobleck", "varuna_nockpt", "varuna", "oobleck, corrected", "varuna, corrected"),
        caption="As the artefact's simulators have it, and by our exact semantics (corrected).",
    )


def _corrected_rate(
    fleet: Membership, job: ElasticJob, checkpoint_ms: int, policy: Oobleck | Varuna
) -> float:
    """Samples a second until the last row of the trace, by the exact semantics.

    Parameters
    ----------
    fleet : when nodes come and go.
    job : what trains.
    checkpoint_ms : a checkpoint's write [ms]; it does not block training.
    policy : how a loss is recovered from.
    """
    sizes = range(job.min_nodes, max(job.step_ms) + 1)
    exact = TrainingJob(
        depth=1,
        max_pipelines=max(job.step_ms),
        min_pipelines=job.min_nodes,
        step_s={n: job.nearest(job.step_ms, n) / 1000 for n in sizes},
        reconfig_s=job.pause_ms / 1000,
        prep_s=job.ready_ms / 1000,
        write_s=checkpoint_ms / 1000,
        stall_s=0.0,
        horizon_s=fleet.end_s,
        warm_start=False,
    )
    setting = Setting(fleet=fleet, job=exact, growth=Lazy(), outlook=Observed())
    done = policy.replay(setting)
    return done.steps_completed * job.samples_per_step / done.end_s


REPRODUCTIONS = (
    Reproduction(
        "oobleck-throughput",
        "Oobleck and Varuna: throughput under six rates of failure",
        "Jang et al., Oobleck, SOSP'23, the artefact's simulators",
        oobleck_throughput,
        datasets=("oobleck",),
        minutes=0.2,
    ),
)
