"""Figures of every kind and made-up runs that hold them, for the tests of the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule
from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.stats import Interval
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.scenario.spec import Spec
from forerun.replication.reproduction import Reproduced, Reproduction, Row

HOSTILE = "<script>alert(1)</script>"
BREAKOUT = "</script><img src=x onerror=alert(2)>"


class Stage(Spec):
    name: str = "decode"
    replicas: int = 2
    profile_ms: tuple[float, ...] = (1.0, 2.5, 4.0)


class GalleryScenario(Spec):
    """A scenario that no domain owns."""

    domain: Literal["gallery"] = "gallery"
    spec_version: int = 1
    seed: int = 7
    slo_ms: float = 350.0
    policy: str = "greedy"
    note: str = "yes"
    stages: tuple[Stage, ...] = (Stage(), Stage(name="svm: fast", replicas=30))


class OtherScenario(Spec):
    """A scenario of another domain."""

    domain: Literal["attic"] = "attic"
    seed: int = 1


def random(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def line(size: int = 400) -> Figure:
    x = np.linspace(0.0, 600.0, size)
    y = 40 + 15 * np.sin(x / 40)
    data = {
        "at_s": np.concatenate([x, x]),
        "queue": np.concatenate([y, y * 1.6]),
        "low": np.concatenate([y - 6, y * 1.6 - 9]),
        "high": np.concatenate([y + 6, y * 1.6 + 9]),
        "stage": ["resnet"] * size + ["inception"] * size,
    }
    return Figure(
        "queue-over-time", "Queue length over time", "line", Axis("at_s", "time", "s"),
        Axis("queue", "queries waiting"), data, "The band is the 95 % interval over ten seeds.",
        series="stage", series_label="stage", low="low", high="high",
        rules=(Rule(90.0, "capacity 90", "y"), Rule(300.0, "burst begins")),
    )  # fmt: skip


def step() -> Figure:
    x = np.arange(0.0, 200_000.0, 2_000.0)
    return Figure(
        "nodes-held", "Spot nodes held", "step", Axis("at_s", "time", "s"), Axis("nodes", "nodes held"),
        {"at_s": x, "nodes": random().integers(0, 16, len(x))}, "Nodes change only when the market does.",
        rules=(Rule(12.0, "asked for: 12", "y"),),
    )  # fmt: skip


def cdf(size: int = 2_000) -> Figure:
    names = ["edf", "fifo", "delay batching"]
    values = [np.sort(random(k).lognormal(4.6 + 0.35 * k, 0.5, size)) for k in range(3)]
    return Figure(
        "latency-cdf", "Latency of queries", "cdf", Axis("latency_ms", "latency", "ms"), Axis("share", "share of queries"),
        {
            "latency_ms": np.concatenate(values),
            "share": np.tile(np.linspace(0, 1, size), 3),
            "policy": np.repeat(np.array(names, dtype=object), size),
        },
        "Share of queries answered within a time.", series="policy", series_label="policy",
        rules=(Rule(350.0, "SLO 350 ms"), Rule(310.0, "published p99 310 ms")),
    )  # fmt: skip


def bar() -> Figure:
    return Figure(
        "cost", "Cost of the plans", "bar", Axis("plan", "plan"), Axis("cost_usd_per_h", "cost", "usd_per_h"),
        {"plan": ["greedy", "sweep", "exact"], "cost_usd_per_h": [9.389, 8.533, 6.861]}, "Cheaper is better.",
        order=("exact", "sweep", "greedy"),
    )  # fmt: skip


def bar_crowded() -> Figure:
    names = [f"policy with a rather long name {k}" for k in range(14)]
    mean = 1_000.0 + 130.0 * np.arange(14)
    return Figure(
        "jct", "Job completion time", "bar", Axis("policy", "policy"), Axis("jct_s", "mean completion time", "s"),
        {"policy": names, "jct_s": mean, "low": mean - 90, "high": mean + 140}, "Long names lie on their side.",
        low="low", high="high", rules=(Rule(1_900.0, "published", "y"),),
    )  # fmt: skip


def bar_grouped() -> Figure:
    return Figure(
        "share-by-stage", "Utilisation of stages", "bar", Axis("stage", "stage"), Axis("busy", "busy share"),
        {
            "stage": ["resnet", "svm", "logreg"] * 2,
            "busy": [0.93, 0.41, 0.12, 0.71, 0.38, 0.1],
            "mode": ["compat"] * 3 + ["corrected"] * 3,
        },
        "Two kinds of arithmetic.", series="mode", series_label="arithmetic",
    )  # fmt: skip


def stacked() -> Figure:
    jobs = ["las", "themis", "gandiva", "fifo with a long name"]
    parts = ["running", "waiting", "restoring", "lost"]
    data = {
        "policy": [job for job in jobs for _ in parts],
        "gpu_s": (random().random(16) * 90_000).tolist(),
        "part": parts * 4,
    }
    return Figure(
        "gpu-time", "Where the GPU time went", "stacked_bar", Axis("policy", "policy"), Axis("gpu_s", "GPU time", "gpu_s"),
        data, "Parts sum to the whole.", series="part", series_label="part", order=tuple(parts),
    )  # fmt: skip


def stacked_in_time(size: int = 300) -> Figure:
    parts = ["compute", "checkpoint", "idle"]
    share = random().dirichlet([6, 1, 2], size)
    data = {
        "at_s": np.repeat(np.arange(size) * 3_600.0, 3),
        "nodes": (16 * share).ravel(),
        "state": np.tile(np.array(parts, dtype=object), size),
    }
    return Figure(
        "states", "What nodes did", "stacked_bar", Axis("at_s", "time", "s"), Axis("nodes", "nodes"), data,
        "Nodes by state over time.", series="state", series_label="state",
    )  # fmt: skip


def points() -> Figure:
    x = np.geomspace(1, 4096, 7)
    y = 3.0 + x**0.7
    data = {
        "batch": np.tile(x, 2), "ms": np.concatenate([y, 1.4 * y]), "low": np.concatenate([0.85 * y, 1.2 * y]),
        "high": np.concatenate([1.2 * y, 1.65 * y]), "what": ["measured"] * 7 + ["predicted"] * 7,
    }  # fmt: skip
    return Figure(
        "profile", "Service time by batch size", "points", Axis("batch", "batch size", log=True),
        Axis("ms", "service time", "ms", log=True), data, "Whiskers: 95 % interval.", series="what",
        series_label="origin", low="low", high="high", rules=(Rule(200.0, "SLO 200 ms", "y"),),
    )  # fmt: skip


def points_named() -> Figure:
    return Figure(
        "intervals", "Difference to the first policy", "points", Axis("difference_s", "difference", "s"),
        Axis("policy", "policy"),
        {"difference_s": [-4.0, 1.5, 7.0], "policy": ["las", "themis", "gandiva"], "low": [-6, -1, 2], "high": [-2, 4, 12]},
        "Paired differences.", low="low", high="high", rules=(Rule(0.0, "no difference"),),
    )  # fmt: skip


def heatmap(wide: int = 24, deep: int = 10) -> Figure:
    x, y = np.meshgrid(np.arange(wide) * 32.0, np.arange(deep) * 25 + 100)
    return Figure(
        "energy-map", "Energy by batch size and power limit", "heatmap", Axis("batch", "batch size"),
        Axis("limit_w", "power limit", "w"),
        {"batch": x.ravel(), "limit_w": y.ravel(), "cost_j": ((x - 300) ** 2 / 40 + (y - 200) ** 2).ravel() + 2e5},
        "Darker is cheaper.", z=Axis("cost_j", "energy to accuracy", "j"),
    )  # fmt: skip


def gantt(tracks: int = 8, each: int = 30) -> Figure:
    start = np.sort(random(3).random((tracks, each)) * 40_000, axis=1)
    end = np.concatenate([start[:, 1:], np.full((tracks, 1), 42_000.0)], axis=1)
    states = np.array(["run", "wait", "restore", "preempted"], dtype=object)
    return Figure(
        "timeline", "Who held which GPU", "gantt", Axis("from_s", "time", "s"), Axis("gpu", "GPU"),
        {
            "from_s": start.ravel(), "to_s": end.ravel(),
            "gpu": np.repeat(np.array([f"node {k // 4} / gpu {k % 4}" for k in range(tracks)], dtype=object), each),
            "state": states[random(4).integers(0, 4, tracks * each)],
        },
        "One row a GPU.", series="state", series_label="state", x2="to_s", order=("run", "wait"),
    )  # fmt: skip


def histogram() -> Figure:
    count, edges = np.histogram(random(5).gamma(3.0, 40.0, 50_000), bins=40)
    return Figure(
        "batch-sizes", "Time to first byte", "histogram", Axis("from_ms", "time", "ms"), Axis("reads", "reads"),
        {"from_ms": edges[:-1], "to_ms": edges[1:], "reads": count}, "Bins of equal width.", x2="to_ms",
        rules=(Rule(200.0, "limit"),),
    )  # fmt: skip


def histogram_of_stages() -> Figure:
    parts = [np.histogram(random(8 + k).poisson(3 + 4 * k, 4_000), bins=np.arange(20)) for k in range(3)]
    return Figure(
        "sizes-by-stage", "Batch sizes by stage", "histogram", Axis("from", "batch size"), Axis("batches", "batches"),
        {
            "from": np.concatenate([edges[:-1] - 0.5 for _, edges in parts]),
            "to": np.concatenate([edges[:-1] + 0.5 for _, edges in parts]),
            "batches": np.concatenate([counts for counts, _ in parts]),
            "stage": np.repeat(np.array(["resnet", "svm", "logreg"], dtype=object), 19),
        },
        "Outlines keep apart.", series="stage", series_label="stage", x2="to",
    )  # fmt: skip


def stacked_many() -> Figure:
    parts = [f"part {k}" for k in range(11)]
    return Figure(
        "eleven-parts", "More parts than colours", "stacked_bar", Axis("policy", "policy"), Axis("cost", "cost", "usd"),
        {"policy": ["a"] * 11 + ["b"] * 11, "cost": np.arange(22.0) % 7 + 1, "part": parts * 2},
        "Pale forms follow the colours.", series="part", order=("b", "a"),
    )  # fmt: skip


def many_lines() -> Figure:
    x = np.linspace(1, 50, 60)
    names = [f"job {k}" for k in range(12)]
    return Figure(
        "many", "Twelve jobs", "line", Axis("epoch", "epoch"), Axis("loss", "loss"),
        {
            "epoch": np.tile(x, 12),
            "loss": np.concatenate([3 / (1 + x / (3 + k)) + 0.1 * k for k in range(12)]),
            "job": np.repeat(np.array(names, dtype=object), 60),
        },
        "More lines than colours.", series="job", series_label="job",
    )  # fmt: skip


def hostile() -> Figure:
    return Figure(
        "hostile", f"Jobs named {HOSTILE}", "bar", Axis("job", f"job {HOSTILE}"), Axis("s", "time", "s"),
        {"job": [HOSTILE, BREAKOUT, "=cmd()|A1", "a" * 300], "s": [1.0, 2.0, 3.0, 4.0]},
        f"A caption with {BREAKOUT} & more.", rules=(Rule(2.5, HOSTILE, "y"),),
    )  # fmt: skip


def hostile_series() -> Figure:
    return Figure(
        "hostile-series", "Hostile series", "line", Axis("x", "x"), Axis("y", "y"),
        {"x": [1, 2, 1, 2], "y": [1, 2, 2, 1], "name": [HOSTILE] * 2 + [BREAKOUT] * 2},
        series="name", series_label=HOSTILE,
    )  # fmt: skip


def every_kind() -> tuple[Figure, ...]:
    return (
        cdf(), line(), step(), histogram(), bar(), bar_crowded(), bar_grouped(), stacked(), stacked_in_time(),
        points(), points_named(), many_lines(), histogram_of_stages(), stacked_many(),
        heatmap(), gantt(), gantt_tall(), hostile(), hostile_series(), empty(),
    )  # fmt: skip


def gantt_tall() -> Figure:
    from dataclasses import replace

    return replace(gantt(40, 60), id="timeline-tall", title="A tall timeline")


def empty() -> Figure:
    return Figure(
        "empty", "Nothing happened", "line", Axis("x", "x"), Axis("y", "y"), {"x": [], "y": []}, "No rows."
    )


def result(seed: int = 7, **scenario: Any) -> Result:
    queue, service = 1_000.0 + 100 * seed, 5_000.0
    schema = TableSchema(
        "jobs", (Column("job", "", "name of the job"), Column("end_s", "s", "when it ended")), "one row a job"
    )
    return Result(
        scenario=GalleryScenario(seed=seed, **scenario),
        summary={
            "latency_p99_ms": 312.25 + seed,
            "latency_mean_ms": 88.0,
            "attainment_share": 0.9931,
            "queries": 50_001,
            "cost_usd_per_h": 8.533,
            "stages": {"resnet": {"busy_share": 0.93, "queue_p99_ms": 44.0}, HOSTILE: {"busy_share": 0.2}},
            "worst": [3, 4],
        },
        tables={"jobs": Table.of(schema, job=np.array([HOSTILE, "b"], dtype=object), end_s=np.array([1.0, 2.0]))},
        ledgers=(
            Ledger(
                "query time", "ms", queue + service + 310.0,
                {"queue": queue, "batch wait": 310.0, "service": service, "join wait": 0.0},
                {"queue": "waiting for a replica", "join wait": "waiting for the other branch"},
            ),
            Ledger("GPU time", "gpu_s", 100.0, {"busy": 60.0, HOSTILE: 40.0}),
        ),
        why=f"resnet is the bottleneck: busy 93 % of the time, and {HOSTILE} waits for it.",
        notes=("12 arrivals were moved by 1 ms.", f"job {HOSTILE} was renamed"),
        intervals={"latency_p99_ms": Interval(305.0, 322.0, 0.95, "batch means")},
        headline=("latency_p99_ms", "attainment_share"),
        next_steps=("forerun simulate {scenario} --set stages[0].replicas=3",),
        provenance={"wall_s": 0.4},
    )  # fmt: skip


def reproduction() -> tuple[Reproduction, Reproduced]:
    found = Reproduced(
        rows=(
            Row("p99 latency (ms)", 310.0, 311.5, 305.2, 2.0, "two figures are printed"),
            Row("cost (USD/h)", 8.5, 9.1, 9.0, 0.1, f"differs: {HOSTILE}"),
            Row("queries", None, 50_001, 50_001),
        ),
        figures=(cdf(), bar()),
        notes=("The trace is not public.",),
    )
    return Reproduction(
        "gallery-1", "Table 1 of the gallery", "Made up, table 1", lambda progress: found
    ), found


#: what a domain's `figures` module offers
FIGURES = SimpleNamespace(figures=lambda run: every_kind())
