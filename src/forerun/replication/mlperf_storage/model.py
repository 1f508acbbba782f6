"""A submission simulated: its accelerators share a link, each loads with its own threads, an epoch with its first step.

All accelerators are alike and have an equal share of the link, so one of them is simulated, by the recursion of the loading
domain: PyTorch's workers make whole batches at once and have a part of the share each; TensorFlow's threads fill one
pipeline. Records are drawn as the benchmark makes them, a product of two normal sides, so that a batch of few large records
varies. Not modelled: latency, processors, and that an accelerator that waits for nothing leaves its share to others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from forerun.domains.loading.engine.kernels.deliver import deliver
from forerun.domains.loading.policy import F64
from forerun.replication.mlperf_storage.results import MIB, Result, Workload
from forerun.rng import stream

#: batches ahead where a result does not say: of each worker, or of the pipeline
PREFETCH: Final = 2
#: halvings of the logarithm by which a limit is found
HALVINGS: Final = 30
#: a link that no accelerator notices, over what they take
FREE: Final = 1000.0


@dataclass(frozen=True)
class Epoch:
    """A simulated epoch.

    Parameters
    ----------
    mib_per_s : throughput of all accelerators, with the first step [MiB/s].
    utilisation : as the benchmark reports it, without the first step.
    """

    mib_per_s: float
    utilisation: float


@cache
def batch_mib(workload: Workload, steps: int) -> F64:
    """The size of each batch of an epoch [MiB]."""
    mean, spread = workload.record_bytes, workload.record_sd_bytes
    if not spread:
        return np.full(steps, workload.batch * mean / MIB)
    side, width = math.sqrt(mean), spread / (2 * math.sqrt(mean))
    sides = stream(0, "mlperf storage records", workload.name).normal(side, width, (2, steps, workload.batch))
    drawn: F64 = np.maximum(sides[0] * sides[1], 1.0).sum(axis=1) / MIB
    scaled: F64 = drawn * (workload.batch * mean / MIB / float(drawn.mean()))
    return scaled


def simulated(result: Result, limit_mib_per_s: float, accelerators: int = 0) -> Epoch:
    """An epoch of a submission's own workload, accelerators and threads on a link that they share.

    Parameters
    ----------
    result : whose set-up is simulated; its throughput is not looked at.
    limit_mib_per_s : of the link [MiB/s].
    accelerators : in place of its own (default 0: its own).
    """
    workload, many = result.workload, accelerators or result.accelerators
    steps = max(2, result.records // (result.accelerators * workload.batch))
    workers = result.threads if workload.torch else 1
    build_s = workers * batch_mib(workload, steps) / (limit_mib_per_s / many)
    turn = np.arange(steps, dtype=np.int64) % workers
    ahead = workers * (result.prefetch or PREFETCH)
    delivery = deliver(turn, build_s, np.array([workload.computation_s]), np.zeros(workers), ahead)
    first_s = float(delivery.got_s[0]) + workload.computation_s
    computing_s = (steps - 1) * workload.computation_s
    total_s = float(delivery.total_s)
    mib = steps * workload.batch * workload.record_bytes / MIB
    return Epoch(many * mib / total_s, computing_s / (total_s - first_s))


def limit_of(result: Result) -> float:
    """The link with which the simulated epoch has the published throughput [MiB/s].

    Infinite where even a free one does not reach it.
    """
    least, most = math.log(result.mib_per_s / 2), math.log(FREE * result.ideal_mib_per_s)
    if simulated(result, math.exp(most)).mib_per_s < result.mib_per_s:
        return math.inf
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        if simulated(result, math.exp(middle)).mib_per_s < result.mib_per_s:
            least = middle
        else:
            most = middle
    return math.exp(most)


def most_that_pass(result: Result, limit_mib_per_s: float) -> int:
    """The largest number of accelerators, of its workload and hosts, that keep the required utilisation on a link.

    Parameters
    ----------
    result : whose set-up is simulated with other numbers of accelerators.
    limit_mib_per_s : of the link [MiB/s].
    """
    per = result.workload.ideal_mib_per_s
    least, most = 1, max(2, math.ceil(2 * limit_mib_per_s / per / result.workload.required))
    while most - least > 1:
        middle = (least + most) // 2
        if simulated(result, limit_mib_per_s, middle).utilisation >= result.workload.required:
            least = middle
        else:
            most = middle
    return least


@dataclass(frozen=True)
class Span:
    """An interval of a throughput [MiB/s], or of a utilisation."""

    low: float
    high: float


def span_of(result: Result, others: Sequence[Result], limits: Mapping[Result, float]) -> Span | None:
    """The throughput of a result, by what the other results of its system leave open; None without any.

    Two explanations of the others' waiting bound it. The link: the target shares the fastest that was seen, no faster on
    more hosts (low) or in proportion to them (high). Each accelerator's own: the target's accelerators are as busy as the
    others' busiest (high). Results of the same workload are used where there are some.

    Parameters
    ----------
    result : the target; its throughput is not looked at.
    others : further results, of which those of its system are used.
    limits : `limit_of` each of these.
    """
    own = [one for one in others if one.system == result.system and one is not result]
    same = [one for one in own if one.workload.name == result.workload.name]
    if not own:
        return None
    seen = [(min(limits[one], FREE * one.ideal_mib_per_s), result.hosts / one.hosts) for one in same or own]
    low = max(limit * min(1.0, hosts) for limit, hosts in seen)
    high = max(limit * max(1.0, hosts) for limit, hosts in seen)
    busiest = max((one.busy for one in same), default=0.0)
    reached = max(simulated(result, high).mib_per_s, result.ideal_mib_per_s * busiest)
    return Span(simulated(result, low).mib_per_s, reached)


def utilisations(result: Result, span: Span) -> Span:
    """The utilisations that are reported at both ends of an interval of the throughput.

    Parameters
    ----------
    result : whose set-up is simulated; its throughput is not looked at.
    span : interval of the throughput [MiB/s].
    """
    ends = (limit_of(replace(result, mib_per_s=end)) for end in (span.low, span.high))
    return Span(*(simulated(result, limit).utilisation for limit in ends))


def misses(span: Span, mib_per_s: float) -> float:
    """How far a throughput lies outside an interval, as a logarithm; negative inside."""
    return max(math.log(span.low / mib_per_s), math.log(mib_per_s / span.high))


def widened(span: Span, scores: Sequence[float], coverage: float, most_mib_per_s: float) -> Span:
    """The interval that covers a share of further results as like as those that gave the scores (split conformal).

    Parameters
    ----------
    span : of the target.
    scores : `misses` of other results; without any, nothing is known of the widening and there is none.
    coverage : the share, such as 0.9.
    most_mib_per_s : that the target cannot exceed.
    """
    rank = min(len(scores), math.ceil(coverage * (len(scores) + 1)))
    factor = math.exp(sorted(scores)[rank - 1]) if scores else 1.0
    low, high = min(span.low / factor, most_mib_per_s), min(span.high * factor, most_mib_per_s)
    return Span(min(low, high), high)
