"""A reserved cluster fitted to a recorded log of failures and repairs: does one law for all nodes do, and which does.

The log is a membership trace whose names come back: a removal is a failure, the addition after it the end of its repair.
Single failures are a class that follows one of the laws of `laws`, failures of several nodes at one instant are another
class, lemon nodes explain why some nodes fail more often, and repairs are log-normal. As in `fit`, the fit is judged by
logs that it generates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.trace.fit import Feature
from forerun.spot.engine.job import TrainingJob
from forerun.spot.policies.immediate import Immediate
from forerun.spot.reserved.cluster import logged_trial
from forerun.spot.reserved.scenario import (
    DAY_S,
    LEAST_SHAPE,
    MOST_SHAPE,
    Cluster,
    Constant,
    Failures,
    LogNormal,
    RepairLaw,
)
from forerun.spot.scenario.processes import Rows
from forerun.spot.traces.fit import Rate, Test, poisson_interval
from forerun.spot.traces.laws import FEWEST, LawFit, LawName, fit_laws, supported

Floats = NDArray[np.float64]

FEWEST_GROUPS = 10
"""Instants with several failures below which they are no class of their own."""
RESAMPLED = 200
"""Resamples of the recording by which parameters get their intervals."""
FEATURES = (
    "failures per 1000 node-days",
    "nodes per failure",
    "CV of gaps between failures",
    "median repair h",
    "mean repair h",
    "share of failures of the worst tenth of nodes",
    "mean nodes up",
)


@dataclass(frozen=True, slots=True)
class FailureLog:
    """Failures of the nodes of a cluster, all of which are up at the start.

    Parameters
    ----------
    nodes : how many there are.
    horizon_s : how long the log is.
    times_s : float64[failures], in order.
    of_node : int64[failures], the node of each.
    repairs_s : float64[repairs], those that ended.
    down_s : time that nodes were under repair, all together.
    """

    nodes: int
    horizon_s: float
    times_s: Floats
    of_node: NDArray[np.int64]
    repairs_s: Floats
    down_s: float

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[float, bool, str]], horizon_s: float) -> FailureLog:
        """The log of changes in order of time (time in s, is it an addition, node); names come back."""
        numbers: dict[str, int] = {}
        down: dict[str, float] = {}
        failures: list[tuple[float, int]] = []
        repairs: list[float] = []
        for t_s, is_add, name in rows:
            node = numbers.setdefault(name, len(numbers))
            if is_add and name in down:
                repairs.append(t_s - down.pop(name))
            elif not is_add:
                down[name] = t_s
                failures.append((t_s, node))
        down_s = math.fsum(repairs) + math.fsum(horizon_s - t_s for t_s in down.values())
        times_s = np.array([t_s for t_s, _ in failures])
        of_node = np.array([node for _, node in failures], np.int64)
        return cls(len(numbers), horizon_s, times_s, of_node, np.array(repairs), down_s)

    @property
    def up_node_days(self) -> float:
        """Days that nodes were up."""
        return (self.nodes * self.horizon_s - self.down_s) / DAY_S

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[nodes]: failures of each node."""
        return np.bincount(self.of_node, minlength=self.nodes).astype(np.int64)

    def counts_at(self, times_s: Sequence[float]) -> NDArray[np.int64]:
        """int64[nodes]: failures of each node at some instants."""
        chosen = np.isin(self.times_s, np.asarray(times_s))
        return np.bincount(self.of_node[chosen], minlength=self.nodes).astype(np.int64)

    @property
    def batches(self) -> Counter[float]:
        """How many nodes failed at each instant."""
        return Counter(self.times_s.tolist())

    def figures(self) -> tuple[float, ...]:
        """The figures by which a fit is judged, in the order of `FEATURES`."""
        instants = np.unique(self.times_s)
        counts = np.sort(self.counts)[::-1]
        worst = max(1, round(self.nodes / 10))
        return (
            1000 * self.times_s.size / self.up_node_days,
            self.times_s.size / max(1, instants.size),
            _cv(np.diff(instants)),
            float(np.median(self.repairs_s)) / 3600 if self.repairs_s.size else math.nan,
            float(self.repairs_s.mean()) / 3600 if self.repairs_s.size else math.nan,
            float(counts[:worst].sum() / max(1, counts.sum())),
            self.up_node_days * DAY_S / self.horizon_s,
        )


@dataclass(frozen=True, slots=True)
class ClusterFit:
    """A cluster fitted to a log.

    Parameters
    ----------
    cluster : the best parameters.
    rates : its parameters, with intervals.
    features : figures of the log in the bands of generated logs.
    tests : questions to the log alone.
    laws : when failures of single nodes come, by each law that was tried, the best first.
    law : the one of them that the cluster has; None where there are too few failures to try any.
    traces : number of generated logs.
    """

    cluster: Cluster
    rates: tuple[Rate, ...]
    features: tuple[Feature, ...]
    tests: tuple[Test, ...]
    laws: tuple[LawFit, ...]
    law: LawFit | None
    traces: int


def fit_cluster(
    seen: FailureLog,
    *,
    traces: int,
    seed: int,
    gpus_per_node: int = 8,
    arrivals: LawName | Literal["best"] = "best",
) -> ClusterFit:
    """Fit a cluster to a log, and judge it by logs that it generates.

    Parameters
    ----------
    seen : the log.
    traces : generated logs.
    seed : of all draws.
    gpus_per_node : of the cluster (default: 8).
    arrivals : when failures of single nodes come (default: the simplest law that the log supports).

    Raises TraceError for a log with fewer than three failures and repairs, or too few for the law that is asked for.
    """
    if seen.times_s.size < 3 or seen.repairs_s.size < 3:
        what = "has fewer than three failures with a repair: nodes must come back under their names"
        raise TraceError.at("fleet", what)
    singles, multis, group_nodes = _classes(seen)
    # Groups are neighbours by number, whatever their nodes: lemons show in the single failures.
    single_counts = seen.counts_at(singles)
    gaps = np.diff(np.array(singles))
    laws = fit_laws(np.array(singles), seen.horizon_s) if len(singles) > 2 else ()
    law = _chosen(laws, arrivals, len(singles))
    # Of Weibull gaps the spread is matched, by which a fit is judged; the likelihood depends more on the shortest of them.
    shape = gap_shape(_cv(gaps)) if law is not None and law.name == "weibull" else 1.0
    days = seen.up_node_days

    def cluster(single: float, multi: float, repair: RepairLaw, few: tuple[float, float]) -> Cluster:
        classes = [
            Failures(
                name="node",
                per_1000_node_days=1000 * single / days,
                gap_shape=shape,
                arrivals=law.arrivals if law is not None else None,
                repair=repair,
            )
        ]
        if multis:
            classes.append(
                Failures(
                    name="several nodes",
                    takes="group",
                    group_nodes=group_nodes,
                    per_1000_node_days=1000 * multi / days,
                    repair=repair,
                )
            )
        return Cluster(
            gpus=seen.nodes * gpus_per_node,
            gpus_per_node=gpus_per_node,
            failures=tuple(classes),
            lemon_share=few[0],
            lemon_factor=few[1],
        )

    best = cluster(len(singles), len(multis), _repair_law(seen.repairs_s), lemons(single_counts))
    sampled = np.empty((traces, len(FEATURES)))
    for trial in range(traces):
        # Rates, repairs and lemons vary as the recording leaves them open; the law of arrivals is as fitted.
        random = stream(seed, "fitted cluster", trial)
        drawn = cluster(
            float(random.gamma(len(singles) + 0.5)),
            float(random.gamma(len(multis) + 0.5)),
            _repair_law(random.choice(seen.repairs_s, seen.repairs_s.size)),
            lemons(random.choice(single_counts, seen.nodes)),
        )
        sampled[trial] = generated(drawn, seen.horizon_s, seed, trial).figures()
    features = []
    for name, value, values in zip(FEATURES, seen.figures(), sampled.T, strict=True):
        known = values[~np.isnan(values)]
        if not math.isnan(value) and known.size:
            low, high = np.percentile(known, [2.5, 97.5]).tolist()
            features.append(Feature(name, value, low, high))
    return ClusterFit(
        cluster=best,
        rates=_rates(seen, best, law, gaps, single_counts),
        features=tuple(features),
        tests=law_tests(seen, seed),
        laws=laws,
        law=law,
        traces=traces,
    )


def _chosen(laws: Sequence[LawFit], arrivals: LawName | Literal["best"], failures: int) -> LawFit | None:
    """The law that is asked for, or the simplest that the log supports. failures: of single nodes."""
    if arrivals == "best":
        return supported(laws)[0] if laws else None
    for law in laws:
        if law.name == arrivals:
            return law
    fewest = FEWEST if arrivals in ("hawkes", "modulated") else 3
    what = f"{arrivals} needs {fewest} failures of single nodes, not {failures}"
    raise TraceError.at("--set arrivals", what)


def failure_rows(cluster: Cluster, horizon_s: float, seed: int, trial: int) -> Rows:
    """The failures and repairs of a cluster's nodes as membership: (time in s, is it an addition, node).

    Processes, and silent corruption, take no node.

    Parameters
    ----------
    cluster : whose classes fail.
    horizon_s : end of the rows.
    seed, trial : name the random streams.
    """
    nodes = cluster.nodes
    # What fails when does not depend on the job; this one asks for every node and takes steps of a day.
    job = TrainingJob(
        depth=cluster.job_nodes,
        max_pipelines=1,
        step_s={cluster.job_nodes: DAY_S},
        reconfig_s=0.0,
        prep_s=0.0,
        write_s=0.0,
        stall_s=0.0,
        horizon_s=horizon_s,
    )
    _, _, log = logged_trial(job, cluster, Immediate(), (0.0, 0.0, 0.0, 0.0), seed=seed, trial=trial)
    rows: Rows = [(0.0, True, f"node{node}") for node in range(nodes)]
    back_s = np.zeros(nodes)
    for t_s, c, victim, repair_s in log[log[:, 1] >= 0].tolist():
        one = cluster.failures[int(c)]
        if one.takes == "process" or one.check_s:
            continue
        size = max(1, one.group_nodes)
        low = int(victim) - int(victim) % size
        for node in range(low, min(nodes, low + size)):
            if back_s[node] <= t_s:
                back_s[node] = t_s + repair_s
                rows.append((t_s, False, f"node{node}"))
                if t_s + repair_s < horizon_s:
                    rows.append((t_s + repair_s, True, f"node{node}"))
    return sorted(rows)


def generated(cluster: Cluster, horizon_s: float, seed: int, trial: int) -> FailureLog:
    """A log of a cluster. The parameters are those of `failure_rows`."""
    return FailureLog.of_rows(failure_rows(cluster, horizon_s, seed, trial), horizon_s)


def _classes(seen: FailureLog) -> tuple[list[float], list[float], int]:
    """Instants of single failures, those of several where they are a class of their own, and nodes of one of these."""
    several = {t_s: nodes for t_s, nodes in seen.batches.items() if nodes > 1}
    if len(several) < FEWEST_GROUPS:
        return sorted(seen.batches), [], 0
    mean = math.fsum(several.values()) / len(several)
    return sorted(set(seen.batches) - set(several)), sorted(several), max(2, round(mean))


def _repair_law(repairs_s: Floats) -> RepairLaw:
    """Log-normal by median and mean; constant where the mean is not above the median."""
    median_s, mean_s = float(np.median(repairs_s)), float(repairs_s.mean())
    return LogNormal(median_s=median_s, mean_s=mean_s) if mean_s > median_s > 0 else Constant(mean_s=mean_s)


def _cv(gaps: Floats) -> float:
    """Coefficient of variation; nan for fewer than two gaps."""
    return float(gaps.std(ddof=1) / gaps.mean()) if gaps.size > 1 else math.nan


def gap_shape(cv: float) -> float:
    """The Weibull shape whose coefficient of variation this is, by bisection: the more even, the larger the shape."""
    if math.isnan(cv):
        return 1.0

    def of_shape(shape: float) -> float:
        log_ratio = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
        return math.sqrt(max(0.0, math.expm1(log_ratio)))

    low, high = LEAST_SHAPE, MOST_SHAPE
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if of_shape(middle) > cv else (low, middle)
    return round((low + high) / 2, 6)


def lemons(counts: NDArray[np.int64]) -> tuple[float, float]:
    """Share of nodes that fail more often, and how many times as often: a mixture of two Poisson laws, by EM.

    Parameters
    ----------
    counts : int64[nodes], failures of each node.
    """
    mean = counts.mean()
    share, low, high = 0.2, mean / 2, mean * 3
    values, nodes = np.unique(counts, return_counts=True)
    for _ in range(500):
        before = share
        log_high = math.log(share) - high + values * math.log(high)
        log_low = math.log1p(-share) - low + values * math.log(low)
        lemon_nodes = nodes / (1 + np.exp(np.clip(log_low - log_high, -700, 700)))
        rest = nodes - lemon_nodes
        share = min(1 - 1e-9, max(1e-9, float(lemon_nodes.sum() / nodes.sum())))
        high = max(1e-12, float((lemon_nodes * values).sum() / max(1e-12, lemon_nodes.sum())))
        low = max(1e-12, float((rest * values).sum() / max(1e-12, rest.sum())))
        if abs(share - before) < 1e-6:
            break
    factor = min(high / low, 9e5)
    return (round(share, 6), round(factor, 6)) if factor > 1 + 1e-6 else (0.0, 1.0)


def _rates(
    seen: FailureLog, best: Cluster, law: LawFit | None, gaps: Floats, single_counts: NDArray[np.int64]
) -> tuple[Rate, ...]:
    """The parameters with their intervals: exact for rates, by resampling nodes, gaps and repairs for the others.

    The parameters of failures that cause others, or come in storms, are those of the likelihood.
    """
    rates = []
    for one in best.failures:
        events = round(one.per_1000_node_days * seen.up_node_days / 1000)
        low, high = (1000 * end / seen.up_node_days for end in poisson_interval(events))
        rates.append(
            Rate(f"{one.name}: per_1000_node_days", "1/(1000 node-days)", one.per_1000_node_days, low, high)
        )
    random = stream(0, "cluster intervals")

    def resampled(name: str, unit: str, values: NDArray[np.generic], figure: Callable[..., float]) -> Rate:
        drawn = [figure(random.choice(values, values.size)) for _ in range(RESAMPLED)]
        low, high = np.percentile(drawn, [2.5, 97.5]).tolist()
        return Rate(name, unit, figure(values), low, high)

    if law is not None and law.arrivals is not None:
        rates.extend(law.rates)
    elif law is not None and law.name == "weibull":
        rates.append(resampled("gap_shape", "", gaps, lambda drawn: gap_shape(_cv(drawn))))
    rates.append(resampled("lemon_share", "", single_counts, lambda drawn: lemons(drawn)[0]))
    rates.append(resampled("lemon_factor", "", single_counts, lambda drawn: lemons(drawn)[1]))
    hours = seen.repairs_s / 3600
    rates.append(resampled("repair median", "h", hours, lambda drawn: float(np.median(drawn))))
    rates.append(resampled("repair mean", "h", hours, lambda drawn: float(drawn.mean())))
    return tuple(rates)


def law_tests(seen: FailureLog, seed: int) -> tuple[Test, ...]:
    """Whether nodes fail alike, gaps are exponential, and repairs are, each by its spread in drawn logs.

    Parameters
    ----------
    seen : the log.
    seed : of the draws.
    """
    gaps = np.diff(np.array(_classes(seen)[0]))
    random, draws = stream(seed, "cluster tests"), 2000
    counts = seen.counts

    def spread(values: NDArray[np.generic]) -> float:
        return float(((values - values.mean()) ** 2).sum() / values.mean())

    alike = [
        spread(np.bincount(random.integers(0, seen.nodes, counts.sum()), minlength=seen.nodes))
        for _ in range(draws)
    ]
    tests = [_test("all nodes fail at one rate (dispersion of counts)", spread(counts), np.array(alike))]
    for question, values in (
        ("gaps between failures are exponential (their CV)", gaps),
        ("repairs are exponential (their CV)", seen.repairs_s),
    ):
        if values.size > 2:
            drawn = np.array([_cv(random.exponential(1.0, values.size)) for _ in range(draws)])
            tests.append(_test(question, _cv(values), drawn))
    return tuple(tests)


def _test(question: str, statistic: float, drawn: Floats) -> Test:
    """A test of too much spread, or too little, against drawn logs: twice the smaller tail."""
    above = (1 + np.count_nonzero(drawn >= statistic)) / (1 + drawn.size)
    below = (1 + np.count_nonzero(drawn <= statistic)) / (1 + drawn.size)
    return Test(question, statistic, min(1.0, 2 * float(min(above, below))))
