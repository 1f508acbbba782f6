"""What a run is doing now, as data: what `forerun live status` prints, as a table, as JSON or for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

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
    refused_requests : requests that could not be done and were refused.
    fault : why the controller starts nothing now (default: nothing hinders it).
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
    refused_requests: int = 0
    fault: str = ""


def metrics_text(status: RunStatus) -> str:
    """The status in Prometheus' text format. Raises ImportError where prometheus_client is not installed."""
    from prometheus_client import generate_latest

    return generate_latest(_registry(lambda: status)).decode()


def serve_metrics(status: Callable[[], RunStatus], port: int) -> Callable[[], None]:
    """Offer the status to Prometheus on http://127.0.0.1:PORT/metrics; the function that is returned ends that.

    Raises ImportError where prometheus_client is not installed, OSError where the port is taken.

    Parameters
    ----------
    status : gives the present one; it is called in another thread.
    port : TCP port on the loopback interface.
    """
    from prometheus_client import start_http_server

    server, thread = start_http_server(port, addr="127.0.0.1", registry=_registry(status))

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close


def _registry(status: Callable[[], RunStatus]) -> CollectorRegistry:
    """A registry whose metrics are those of the present status, whenever somebody asks."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily

    class Collector:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for name, about, label, values in _metrics(status()):
                family = GaugeMetricFamily(f"forerun_live_{name}", about, labels=[label] if label else [])
                for at, value in values.items():
                    family.add_metric([at] if label else [], value)
                yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    return registry


def _metrics(status: RunStatus) -> Iterator[tuple[str, str, str, dict[str, float]]]:
    """Each metric: its name, what it is, its label (empty: none), and its values by label."""
    yield "run_seconds", "Seconds of the run so far.", "", {"": status.now_s}
    yield "decisions", "Decisions so far.", "", {"": status.decisions}
    yield "stale_observations", "Observations of old starts, which were ignored.", "", {"": status.stale}
    yield "refused_requests", "Requests that could not be done.", "", {"": status.refused_requests}
    yield "blocked", "Whether the journal cannot be written.", "", {"": bool(status.fault)}
    counts = Counter(job.state for job in status.jobs)
    yield "jobs", "Jobs by state.", "state", {state: counts[state] for state in get_args(JobState)}
    nodes, jobs = status.nodes, status.jobs
    yield "slots", "Slots of a node.", "node", {node.node: node.slots for node in nodes}
    yield "slots_used", "Slots of a node that have a job.", "node", {node.node: node.used for node in nodes}
    yield "node_up", "Whether a node is there.", "node", {node.node: node.state != "down" for node in nodes}
    yield "job_slots", "Slots of a job.", "job", {job.job: len(job.slots) for job in jobs}
    yield "job_steps", "Iterations done.", "job", {job.job: job.step for job in jobs}
    yield "job_iterations", "Iterations in all.", "job", {job.job: job.iterations for job in jobs}
    yield "job_rate", "Iterations a second, as last measured.", "job", {job.job: job.rate for job in jobs}
    yield (
        "job_lost_steps",
        "Iterations done again after failures.",
        "job",
        {job.job: job.lost_steps for job in jobs},
    )
    yield "job_failures", "Failures of its own.", "job", {job.job: job.failures for job in jobs}
    deadlines = {job.job: job.deadline_s for job in jobs if job.deadline_s is not None}
    yield "job_deadline_seconds", "Deadline, in seconds of the run.", "job", deadlines
