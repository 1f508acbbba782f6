"""A live run from one call: its folder, engine, controller and control socket, and at its end the result.

`run_scenario` plays a scenario's trace, `serve` takes jobs as they are submitted. Both go on with a run that was stopped or
killed when they are called again with its folder.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forerun.cluster.decider import Decider
from forerun.cluster.domain import DOMAIN
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome
from forerun.cluster.scenario import Live, Scenario
from forerun.core.errors import ForerunError, Problem, ScenarioError, StoreError, UsageError
from forerun.core.result.reading import read_document
from forerun.core.result.run import Result, host_provenance
from forerun.core.scenario.spec import content_id
from forerun.core.version import VERSION
from forerun.live.answers import Freed
from forerun.live.clock import clock_of
from forerun.live.compare import Comparison, compare
from forerun.live.controller import Controller
from forerun.live.engines.engine import Engine
from forerun.live.folder import RunFolder
from forerun.live.forecast import Forecast, forecast, noted, offs_of, unlike
from forerun.live.inbox import Inbox
from forerun.live.job_state import Finished
from forerun.live.journal import Journal, RunMeta
from forerun.live.observation import NodeUp, Observation, Seen, Timer
from forerun.live.observation import Submitted as SubmitAsked
from forerun.live.result import live_result, of_known_jobs
from forerun.live.run_files import PACED, controller_of, create_run, replayed, scenario_of
from forerun.live.service import GetStatus, Service, Stop
from forerun.live.session import Session
from forerun.live.spec import JobSpec
from forerun.live.status import RunStatus, serve_metrics
from forerun.live.stays import Stay, stays_of

_LOG = logging.getLogger("forerun.live")
#: a context that calls the function that it is given when the run is to stop
Stopper = Callable[[Callable[[], object]], contextlib.AbstractContextManager[None]]


class Stopped(Exception):
    """A user stopped the run before its end; what was done so far is saved, and it can be taken up again."""


def run_scenario(
    scenario: Scenario,
    path: Path,
    *,
    engine: str = "local",
    clock: str = "wall",
    stop: Stopper | None = None,
) -> Result:
    """Play a scenario's trace with real processes, and save the result in the run's folder.

    Parameters
    ----------
    scenario : as `forerun.load` returns it.
    path : the run's folder; one that was stopped or killed goes on.
    engine : local or ray (default: local).
    clock : wall, compressed:K or fast-forward (default: wall).
    stop : who may stop it (default: requests on the control socket alone).

    Raises
    ------
    Stopped : somebody stopped it; what was done so far is saved.
    ForerunError : the scenario cannot be run, or the folder not be written.
    """
    meta = RunMeta(nodes=(), clock=clock, engine=engine)
    result = _at_work(scenario, path, meta, stop=stop)
    assert result is not None, "a trace has jobs"
    return result


def serve(
    scenario: Scenario,
    path: Path,
    *,
    engine: str = "local",
    metrics_port: int | None = None,
    stop: Stopper | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Result | None:
    """Run jobs on the machines of a scenario as they are submitted, until somebody stops it; its trace is left out.

    Parameters
    ----------
    scenario, path, engine, stop : as of `run_scenario`.
    ready : called once requests are taken (default: nothing).
    metrics_port : on which Prometheus text is offered on the loopback interface (default: none).

    Returns
    -------
    The result so far, saved in the run's folder as well; None if no job was submitted.

    Raises
    ------
    ForerunError : the scenario cannot be run, the folder not be written, or the port is taken.
    """
    meta = RunMeta(nodes=(), is_open=True, engine=engine)
    return _at_work(scenario, path, meta, stop=stop, ready=ready, metrics_port=metrics_port)


def compare_run(path: Path) -> Comparison:
    """The jobs of a run beside their simulation. Raises StoreError where there is no run."""
    folder = RunFolder(path.absolute())
    journal = Journal(folder.journal, read_only=True)
    controller = replayed(folder, journal)
    return compare(controller.inputs, _noted(controller), _stays(journal))


def forecast_run(scenario: Scenario, earlier: Sequence[Path], level: float) -> Forecast:
    """A scenario's run before it begins, with intervals from earlier runs of the same engine, clock, machines and costs.

    Parameters
    ----------
    scenario : as `forerun.load` returns it.
    earlier : folders of runs that have ended.
    level : of the intervals, such as 0.9.

    Raises StoreError where there is no run, UsageError for runs that have not ended, differ in kind, or are too few.
    """
    if not isinstance(scenario, Scenario):
        raise ScenarioError.at("$.domain", "only scenarios of the cluster domain run live")
    inputs = DOMAIN.prepare(scenario)
    kinds: dict[tuple[str, str], Path] = {}
    hosts: dict[str, Path] = {}
    seen: dict[bytes, Path] = {}
    offs, ran = [], []
    for path in earlier:
        folder = RunFolder(path.absolute())
        journal = Journal(folder.journal, read_only=True)
        # A copy of a run is no further evidence.
        own = folder.nonce.read_bytes() if folder.nonce.exists() else bytes(path.absolute())
        first = seen.setdefault(own, path)
        if first is not path:
            raise UsageError.at("--earlier", f"names the run {first} twice, the second time as {path}")
        controller = replayed(folder, journal)
        if not controller.is_over:
            raise UsageError.at(path, "has not ended; its forecast cannot be judged yet")
        kinds.setdefault((journal.run.engine, journal.run.clock), path)
        if len(kinds) > 1:
            raise UsageError.at(path, f"ran with another engine or clock than {next(iter(kinds.values()))}")
        if why := unlike(controller.inputs, inputs):
            raise UsageError.at(path, why)
        # Nodes of Ray are elsewhere, and the host of their controller says nothing of them.
        if journal.run.engine == "local" and (host := _host_of(folder)):
            hosts.setdefault(host, path)
        if len(hosts) > 1:
            (one, first), (other, _) = hosts.items()
            raise UsageError.at(path, f"ran on a host of {other}, and {first} on one of {one}")
        ran.append(controller.inputs)
        offs.append(offs_of(compare(controller.inputs, _noted(controller), _stays(journal))))
    notes = noted(ran, inputs)
    here = _in_words(host_provenance()["host"])
    if hosts and here not in hosts:
        notes = (*notes, f"the earlier runs were on a host of {next(iter(hosts))}, and this is one of {here}")
    return forecast(inputs, offs, level, notes)


def _host_of(folder: RunFolder) -> str:
    """The host of a run in words; empty where its result was not saved."""
    saved = folder.result / "provenance.json"
    host = read_document(saved).get("host") if saved.is_file() else None
    return _in_words(host) if isinstance(host, Mapping) else ""


def _in_words(host: Mapping[str, object]) -> str:
    return f"{host.get('cores')} cores, {host.get('machine')} with {host.get('system')}"


def stopped_status(path: Path) -> RunStatus:
    """What a run that nobody serves did until it was last served. Raises StoreError where there is no run."""
    folder = RunFolder(path.absolute())
    journal = Journal(folder.journal, read_only=True)
    controller = replayed(folder, journal)
    return controller.status(is_running=False, clock=journal.run.clock, engine=journal.run.engine)


# ------------------------------------------------------------------------------------------------------------ at work


def _at_work(
    scenario: Scenario,
    path: Path,
    meta: RunMeta,
    *,
    stop: Stopper | None,
    ready: Callable[[], None] = lambda: None,
    metrics_port: int | None = None,
) -> Result | None:
    """Run until everything has ended or somebody stops it, and save the result."""
    scenario = _within_leases(scenario)
    if RunFolder(path.absolute()).journal.exists():
        folder = _taken_up(scenario, path, meta)
    else:
        folder = create_run(path, scenario, clock=meta.clock, engine=meta.engine, is_open=meta.is_open)
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.locked())
        journal = Journal(folder.journal, read_only=True)
        if not meta.is_open:
            with contextlib.closing(replayed(folder, journal)) as before:
                if before.is_over:
                    what = "%s: this run has ended, with this result; name another folder for the next"
                    _LOG.warning(what, path)
                    return _saved(folder, before, journal)
        _warm_up(folder)
        inbox = Inbox()
        if stop is not None:
            stack.enter_context(stop(lambda: inbox.ask(Stop())))
        engine = _engine(folder, meta.engine)
        stack.callback(engine.close)
        session = Session(folder, engine, clock_of(meta.clock), inbox)
        stack.callback(session.close)
        stack.enter_context(Service(folder.path, inbox.answer))
        stack.callback(inbox.close)
        if metrics_port is not None:
            stack.callback(_metrics(inbox, metrics_port))
        ready()
        session.run()
        if not session.controller.rows:
            return None
        result = _saved(folder, session.controller, session.journal)
        if session.controller.stops and not meta.is_open:
            raise Stopped
        return result


def _saved(folder: RunFolder, controller: Controller, journal: Journal) -> Result:
    result = _result(controller, journal)
    result.save(folder.result, overwrite=True)
    return result


def _within_leases(scenario: Scenario) -> Scenario:
    """The scenario with answers of another program, if one decides, in half a lease: while it thinks, none is renewed."""
    policy, lease_s = scenario.policy, (scenario.live or Live()).lease_s
    if not isinstance(policy, Decider):
        return scenario
    answer_s = policy.answer_s or lease_s / 2
    if answer_s >= lease_s:
        raise UsageError.at(
            "--answer-within", f"is {answer_s:g} s; less than live.lease_s = {lease_s:g} s is required"
        )
    return scenario.with_(policy=policy.with_(answer_s=answer_s))


def _taken_up(scenario: Scenario, path: Path, meta: RunMeta) -> RunFolder:
    """The folder of a run that had begun. Raises StoreError if it is the run of something else."""
    folder = RunFolder(path.absolute(), scenario.policy if isinstance(scenario.policy, Decider) else None)
    journal = Journal(folder.journal, read_only=True)
    run = journal.run
    if content_id(scenario_of(folder), VERSION) != content_id(scenario, VERSION):
        raise StoreError.at(path, "has a run of another scenario; name another folder")
    for name, then, now in (
        ("live serve" if run.is_open else "live run", run.is_open, meta.is_open),
        (f"--clock {run.clock}", run.clock, meta.clock),
        (f"--engine {run.engine}", run.engine, meta.engine),
    ):
        if then != now:
            raise StoreError.at(
                path, f"has a run that began with {name}; go on with that, or name another folder"
            )
    return folder


def _warm_up(folder: RunFolder) -> None:
    """Let a controller that is thrown away decide, so that compiled code is there before leases begin to run.

    The first decision of all on a machine compiles for longer than a lease lasts.
    """
    run = Journal(folder.journal, read_only=True).run
    controller = controller_of(folder, run)
    profile = controller.online.setting.profile
    model, batch = profile.kinds[0] if run.is_open and profile is not None and profile.kinds else ("", 0)
    try_out = JobSpec(
        name="try-out", command=("true",), iterations=100, duration_s=100.0, model=model, batch=batch
    )
    events: list[Observation] = [
        NodeUp(node=name, boot="try-out", slots=node.slots) for name, node in controller.nodes.items()
    ]
    events += [SubmitAsked(spec=try_out)] if run.is_open else []
    number = itertools.count(1)
    with contextlib.suppress(ForerunError):  # the real one says the same in its time
        for event in events:
            controller.receive(Seen(next(number), controller.now_s, event))
        for _ in range(3):
            due_s = controller.due_s()
            if due_s is not None:
                controller.receive(Seen(next(number), due_s, Timer()))
    controller.close()


def _engine(folder: RunFolder, name: str) -> Engine:
    """The engine of a run, with its nodes started."""
    controller = controller_of(folder, Journal(folder.journal, read_only=True).run)
    nodes = {node: one.slots for node, one in controller.nodes.items()}
    heartbeat_s = controller.terms.heartbeat_s
    if name == "ray":
        from forerun.live.engines.ray import NODE_PROGRAM, RayEngine

        return RayEngine(folder, nodes, program=(*NODE_PROGRAM, "--heartbeat", str(heartbeat_s)))
    from forerun.live.engines.local import LocalEngine

    return LocalEngine(folder, nodes, gpus_by_node(nodes), heartbeat_s)


def gpus_by_node(nodes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The GPUs of this machine for the slots of its nodes, one each; none where it has fewer GPUs than the nodes have slots.

    They are those of CUDA_VISIBLE_DEVICES, or all that nvidia-smi lists.

    Parameters
    ----------
    nodes : slots by node.
    """
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        gpus = list(filter(None, given.split(",")))
    elif (tool := shutil.which("nvidia-smi")) is not None:
        words = [tool, "--query-gpu=uuid", "--format=csv,noheader"]
        asked = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        gpus = asked.stdout.split() if asked.returncode == 0 else []
    else:
        gpus = []
    if len(gpus) < sum(nodes.values()):
        return {}
    ends = list(itertools.accumulate(nodes.values()))
    return {node: tuple(gpus[end - nodes[node] : end]) for node, end in zip(nodes, ends, strict=True)}


def _metrics(inbox: Inbox, port: int) -> Callable[[], None]:
    """Offer metrics; returns what ends that. Raises UsageError where it cannot be done."""

    def status() -> RunStatus:
        answer = inbox.answer(GetStatus())
        if answer.status is None:
            raise StoreError(*(Problem("", what) for what in answer.problems))
        return answer.status

    try:
        return serve_metrics(status, port)
    except ImportError:
        raise UsageError.at("--metrics", "needs prometheus_client: pip install 'forerun[live]'") from None
    except OSError as error:
        raise UsageError.at(f"--metrics {port}", f"cannot be opened: {error.strerror or error}") from None


# ----------------------------------------------------------------------------------------------------------- results


def _noted(controller: Controller) -> Record:
    """The record of a run so far, with the ends that the policy would have taken note of at its next instant."""
    record = controller.online.record
    while controller.is_over and (due_s := controller.due_s()) is not None:
        open_rows = [job.row for job in controller.rows if isinstance(job.state, Finished)]
        if all(record.end_s[row] >= 0 for row in open_rows):
            break
        controller.receive(Seen(controller.number + 1, max(due_s, controller.now_s), Timer()))
    controller.online.rules.flush()
    return of_known_jobs(record, [job.name for job in controller.rows])


def _stays(journal: Journal) -> list[Stay]:
    seen = list(journal.seen())
    at_s = {one.number: one.at_s for one in seen}
    freed = [(number, at_s[number], one) for number, one in journal.answers() if isinstance(one, Freed)]
    return stays_of(seen, [*journal.sent(), *freed])


def _result(controller: Controller, journal: Journal) -> Result:
    """The result of a run so far."""
    record = _noted(controller)
    stays = _stays(journal)
    comparison = compare(controller.inputs, record, stays)
    inputs = replace(controller.inputs, setting=record.setting)
    nodes = {name: node.slots for name, node in controller.nodes.items()}
    paced = all(PACED[0] in job.spec.command for job in controller.rows)
    notes = [
        *comparison.notes,
        f"live under the {journal.run.engine} engine, {_clock_note(journal.run.clock)}",
    ]
    if paced and controller.rows:
        notes.append(
            "all jobs are paced programs: real processes whose steps take the time that the throughput says"
        )
    return live_result(Outcome(inputs, record), stays, nodes, comparison.jobs, notes)


def _clock_note(clock: str) -> str:
    kind, _, factor = clock.partition(":")
    if kind == "compressed":
        return f"the clock compressed {factor} times: times of paced jobs and of the run are divided by it"
    if kind == "fast-forward":
        return "fast-forward: the time between decisions was skipped, not waited for"
    return "by the wall clock"
