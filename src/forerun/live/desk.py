"""Users' requests in terms of a controller: what each lets it observe, and how it is answered."""

from __future__ import annotations

from forerun.core.errors import UnknownName, UsageError
from forerun.live.controller import Controller
from forerun.live.job_state import Ended, Job, Refused, Submitted
from forerun.live.observation import Cancelled, NodeDrained, Observation, StopAsked
from forerun.live.observation import Submitted as SubmitAsked
from forerun.live.service import Cancel, DrainNode, Request, Stop, Submit


def observed(controller: Controller, request: Request) -> tuple[Observation | None, str]:
    """What the controller observes of a request (None: nothing new), and the answer once the journal has it.

    Raises UsageError and UnknownName for what cannot be done.
    """
    match request:
        case Submit(spec=spec):
            known = controller.jobs.get(spec.name)
            if known is None:
                return SubmitAsked(spec=spec), f"{spec.name}: submitted"
            if known.spec != spec:
                raise UsageError.at(
                    f"job {spec.name}",
                    "another job has this name in this run; choose one with --set name=...",
                )
            return None, f"{spec.name}: had been submitted before"
        case Cancel(job=name):
            job = job_of(controller, name)
            if isinstance(job.state, Ended):
                return None, f"{name}: has ended already: {job.state.name}"
            return Cancelled(job=name), f"{name}: cancelled"
        case DrainNode(node=name):
            if name not in controller.nodes:
                raise UnknownName.among("node", name, controller.nodes)
            said = f"{name}: its jobs save their state and leave; nothing more starts on it"
            return NodeDrained(node=name), said
        case Stop():
            return StopAsked(), "stopping: jobs save their state and leave"
    return None, ""


def job_of(controller: Controller, name: str) -> Job:
    """A job of the run. Raises UnknownName."""
    if name not in controller.jobs:
        raise UnknownName.among("job", name, controller.jobs)
    return controller.jobs[name]


def decision_on(controller: Controller, job: Job) -> str:
    """What the policy has decided on a job, in words."""
    if isinstance(job.state, Refused):
        return f"rejected: {job.state.why}"
    if isinstance(job.state, Submitted):
        return "the policy decides at its next slot"
    status = controller.job_status(job)
    promise = "" if status.promise_s is None else f", planned to end by {status.promise_s:.0f} s of the run"
    due = "" if status.deadline_s is None else f", deadline at {status.deadline_s:.0f} s"
    return f"{status.state}{promise}{due}"
