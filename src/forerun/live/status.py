"""What a run is doing now, as data: what `forerun live status` prints, as a table, as JSON or for Prometheus."""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

import msgspec

#: a job's states, in the order in which it goes through them; the last four are final
JobState = Literal[
    "submitted", "waiting", "starting", "running", "draining", "lost", "finished", "failed", "cancelled", "refused"
]  # fmt: skip
FINAL: frozenset[str] = frozenset({"finished", "failed", "cancelled", "refused"})


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job.

    Parameters
    ----------
    job, user : its name, and who submitted it.
    state : what it does now.
    slots : those that it has, as `node:number`.
    step, iterations : iterations done, as last reported, and all of them.
    rate : iterations a second, as last measured (0: not measured).
    submit_s, deadline_s, promise_s, end_s : seconds of the run: of its submission, its deadline, the end that the policy
        planned for it, and its real end (None: none).
    epoch : number of its last start (0: not started yet).
    failures : failures of its own so far.
    lost_steps : iterations that were done again after a failure.
    why : why it was refused, failed or waits.
    """

    job: str
    user: str = ""
    state: JobState
    slots: tuple[str, ...] = ()
    step: int = 0
    iterations: int
    rate: float = 0.0
    submit_s: float = 0.0
    deadline_s: float | None = None
    promise_s: float | None = None
    end_s: float | None = None
    epoch: int = 0
    failures: int = 0
    lost_steps: int = 0
    why: str = ""

    @property
    def eta_s(self) -> float | None:
        """Seconds until its last step at the measured rate; None where nothing is known."""
        left = self.iterations - self.step
        return left / self.rate if self.rate > 0 and self.state in ("running", "draining") else None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node.

    Parameters
    ----------
    node : its name.
    state : up, down, or draining (it gets no more jobs).
    slots, used : how many it has, and how many of them have a job.
    """

    node: str
    state: Literal["up", "down", "draining"]
    slots: int
    used: int = 0


class RunStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run.

    Parameters
    ----------
    state : running, or stopped (nobody serves it now).
    now_s : seconds of the run.
    clock, policy, engine : as in its scenario.
    jobs, nodes : all of them, in the order of submission and of the scenario.
    decisions, stale : decisions so far, and observations of old epochs, which were ignored.
    """

    state: Literal["running", "stopped"]
    now_s: float
    policy: str
    clock: str = "wall"
    engine: str = "local"
    jobs: tuple[JobStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    decisions: int = 0
    stale: int = 0


def metrics_text(status: RunStatus) -> str:
    """The status in Prometheus' text format.

    Raises ImportError where prometheus_client is not installed.
    """
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"forerun_live_{name}", about, labels, registry=registry)

    gauge("run_seconds", "Seconds of the run so far.").set(status.now_s)
    gauge("decisions", "Decisions so far.").set(status.decisions)
    gauge("stale_observations", "Observations of old epochs, which were ignored.").set(status.stale)
    jobs = gauge("jobs", "Jobs by state.", "state")
    counts = Counter(job.state for job in status.jobs)
    for state in get_args(JobState):
        jobs.labels(state).set(counts[state])
    slots = gauge("slots", "Slots of a node.", "node")
    used = gauge("slots_used", "Slots of a node that have a job.", "node")
    up = gauge("node_up", "Whether a node is there.", "node")
    for node in status.nodes:
        slots.labels(node.node).set(node.slots)
        used.labels(node.node).set(node.used)
        up.labels(node.node).set(node.state != "down")
    of_job = {
        "job_slots": gauge("job_slots", "Slots of a job.", "job"),
        "job_steps": gauge("job_steps", "Iterations done.", "job"),
        "job_iterations": gauge("job_iterations", "Iterations in all.", "job"),
        "job_rate": gauge("job_rate", "Iterations a second, as last measured.", "job"),
        "job_lost_steps": gauge("job_lost_steps", "Iterations done again after failures.", "job"),
        "job_failures": gauge("job_failures", "Failures of its own.", "job"),
    }
    deadline = gauge("job_deadline_seconds", "Deadline, in seconds of the run.", "job")
    for job in status.jobs:
        values = (len(job.slots), job.step, job.iterations, job.rate, job.lost_steps, job.failures)
        for family, value in zip(of_job.values(), values, strict=True):
            family.labels(job.job).set(value)
        if job.deadline_s is not None:
            deadline.labels(job.job).set(job.deadline_s)
    return generate_latest(registry).decode()
