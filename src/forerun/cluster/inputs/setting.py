"""What a run depends on, as one `Setting`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from forerun.cluster.inputs.arrays import F64, Cluster, Jobs, ThroughputTable
from forerun.cluster.inputs.costs import CostTable
from forerun.cluster.inputs.limits import Limits


@dataclass(frozen=True, slots=True)
class Window:
    """GPUs that are kept free for maintenance.

    Parameters
    ----------
    from_s, to_s : from when to when.
    gpus : how many.
    announced_s : when schedulers learn of it.
    nodes : the numbers of the nodes that are out (default: not said).
    of_types : GPUs by the number of their type, where there are several (default: all are of the first).
    """

    from_s: float
    to_s: float
    gpus: int
    announced_s: float
    nodes: tuple[int, ...] = ()
    of_types: tuple[int, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether its nodes have failed: who learns of it when it begins does not know when it ends."""
        return bool(self.nodes) and self.announced_s >= self.from_s


#: Slurm lets a job that it puts back into the queue wait so long, which its documentation gives as two minutes
REQUEUE_S: Final = 121.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Nodes that fail: what runs on them loses its GPUs and its work since its last checkpoint, and comes again.

    Parameters
    ----------
    at_s : when.
    nodes : their numbers. How long they are away, a `Window` says.
    requeue_s : how long after it the jobs come again (default: as Slurm's do).
    """

    at_s: float
    nodes: tuple[int, ...]
    requeue_s: float = REQUEUE_S


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything a run depends on, resolved into arrays.

    Parameters
    ----------
    jobs, cluster : what runs, and where.
    profile : throughput of the GPU type that the published schedules run on; None: jobs run rigid, for their durations.
    slot_s : slot of the published schedules.
    gpu_type : that GPU type (default: A100).
    seed : of all random numbers (default: 0).
    profiles : one a GPU type, where nodes differ (default: none).
    costs : of changes of GPUs, where a table gives them (default: no table).
    slowness : float64[jobs], how many times as long as its profile says each job's work takes, which no policy knows
        beforehand (default: 1 for all).
    own : what the policy has read from files of its own (default: nothing).
    placement_kept : whether schedules that plan ahead leave jobs on their GPUs while the number of them stays, as jobs that
        really run do; where others do not fit, the fewest move, and pay for it (default: everybody is placed afresh and
        moves for nothing, as published).
    maintenance : windows in which GPUs are kept free, by policies that plan by requested times (default: none).
    failures : of nodes, in order of time (default: none).
    limits : of what groups of jobs have running at once, for policies that decide through a view (default: none).
    origin_s : instant 0 in seconds since 1970, for policies that round to multiples of the clock (default: it is one).
    """

    jobs: Jobs
    cluster: Cluster
    profile: ThroughputTable | None
    slot_s: int
    gpu_type: str = "A100"
    seed: int = 0
    profiles: tuple[ThroughputTable, ...] = field(default=())
    costs: CostTable | None = None
    slowness: F64 | None = None
    own: object = None
    placement_kept: bool = False
    maintenance: tuple[Window, ...] = ()
    failures: tuple[Failure, ...] = ()
    limits: Limits | None = None
    origin_s: float = 0.0
