"""A live run as files: what a new one writes, and the controller that they describe."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from forerun.cluster.decider import Decider, require_same
from forerun.cluster.domain import DOMAIN
from forerun.cluster.inputs.arrays import NO_DEADLINE_S
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.scenario import Live, Scenario
from forerun.core.atomic_write import write_bytes, write_text
from forerun.core.errors import ScenarioError, StoreError, UsageError, worded
from forerun.core.result.reading import read_document
from forerun.core.scenario.resolve import map_inputs
from forerun.core.scenario.spec import Input, canonical_json, yaml_text
from forerun.core.scenario.text import Place
from forerun.core.scenarios import load
from forerun.live.clock import clock_of
from forerun.live.controller import Controller
from forerun.live.folder import RunFolder
from forerun.live.journal import Journal, RunMeta
from forerun.live.observation import Seen
from forerun.live.spec import Checkpoints, JobSpec

#: the program of jobs whose scenario names none
PACED = ("forerun.live.programs.paced",)
_SPECS = msgspec.json.Decoder(tuple[JobSpec, ...])


def node_names(inputs: Inputs) -> tuple[str, ...]:
    """Names of the nodes of a cluster, in its order: those of their groups, numbered where a group has several."""
    return tuple(
        group.name if group.count == 1 else f"{group.name}-{number}"
        for group in inputs.setting.cluster.groups
        for number in range(group.count)
    )


def job_specs(inputs: Inputs, folder: Path) -> tuple[JobSpec, ...]:
    """What each job of a trace runs, in the trace's order.

    Parameters
    ----------
    inputs : the scenario, read.
    folder : in which the programs run.
    """
    live = inputs.scenario.live or Live()
    jobs = inputs.setting.jobs
    names: set[str] = set()
    specs = []
    for row, (name, model) in enumerate(zip(jobs.id, jobs.model, strict=True)):
        command = live.commands.get(model, live.command)
        deadline_s = int(jobs.deadline_s[row])
        rigid = inputs.setting.profile is None or int(jobs.kind[row]) < 0
        specs.append(
            JobSpec(
                name=_unique(str(name), names),
                command=command or (sys.executable, "-m", *PACED),
                iterations=max(1, int(jobs.duration_s[row] if rigid else jobs.iterations[row])),
                slots=int(jobs.gpus[row]),
                model=model,
                batch=int(jobs.batch[row]) if model else 0,  # without a model it only counts GPUs
                duration_s=float(max(1, jobs.duration_s[row])),
                deadline_s=None
                if deadline_s >= NO_DEADLINE_S
                else float(max(1, deadline_s - jobs.submit_s[row])),
                user=jobs.user[row],
                environment=live.environment,
                folder=str(folder.absolute()),
                checkpoints=Checkpoints(every_s=live.checkpoint_s, keep=live.checkpoints_kept),
                retries=live.retries,
            )
        )
    return tuple(specs)


def _unique(name: str, names: set[str]) -> str:
    """A name that can be one of a folder and is not taken yet."""
    plain = re.sub("[^A-Za-z0-9._-]", "-", name)[:90]
    plain = plain if re.match("[A-Za-z0-9]", plain) else f"job{plain}"
    chosen, number = plain, 1
    while chosen in names:
        number += 1
        chosen = f"{plain}-{number}"
    names.add(chosen)
    return chosen


def create_run(
    path: Path,
    scenario: Scenario,
    *,
    clock: str = "wall",
    engine: str = "local",
    is_open: bool = False,
    specs: Sequence[JobSpec] | None = None,
) -> RunFolder:
    """Make the folder of a new run, with everything that it depends on.

    Parameters
    ----------
    path : of the folder; it must not exist, or be empty.
    scenario : as `forerun.load` returns it.
    clock : wall, compressed:K or fast-forward.
    engine : for people.
    is_open : whether jobs are submitted while it runs.
    specs : what the jobs run (default: as the scenario says, in the present folder).

    Raises
    ------
    ScenarioError, TraceError, ProfileError : the scenario cannot be run.
    StoreError : the folder cannot be written.
    """
    if not isinstance(scenario, Scenario):
        raise ScenarioError.at("$.domain", "only scenarios of the cluster domain run live")
    inputs = DOMAIN.prepare(scenario)
    if is_open:
        inputs = without_jobs(inputs)
    names = node_names(inputs)
    if len(set(names)) < len(names):
        raise ScenarioError.at("$.machines", f"two nodes have one name: {', '.join(names)}")
    course = clock_of(clock).course
    run_specs = tuple(specs) if specs is not None else job_specs(inputs, Path.cwd())
    encoded = msgspec.json.encode(run_specs)
    try:
        _SPECS.decode(encoded)
    except msgspec.ValidationError as error:
        raise ScenarioError.at("$.trace", f"has a job that cannot run live: {worded(error)}") from None
    Controller(inputs, run_specs, names, course, is_open=is_open)  # raises now what it would raise later
    decider = scenario.policy if isinstance(scenario.policy, Decider) else None
    folder = RunFolder.create(path, decider)
    with folder.locked():
        if folder.journal.exists():
            raise StoreError.at(path, "another process has just begun this run")
        try:
            if decider is not None:
                write_bytes(folder.kept_decider, canonical_json(decider))
                scenario = scenario.with_(policy=decider.stands_for)
            write_text(folder.scenario, yaml_text(_with_copies(scenario, folder)))
            write_bytes(folder.specs, encoded)
        except OSError as error:
            raise StoreError.at(path, f"cannot be written: {error.strerror or error}") from error
        meta = RunMeta(nodes=names, clock=clock, is_open=is_open, engine=engine)
        Journal.create(folder.journal, meta).close()
    return folder


def _with_copies(scenario: Scenario, folder: RunFolder) -> Scenario:
    """The scenario with copies of its files, by paths relative to the folder."""
    copies: dict[str, Path] = {}

    def copied(given: Input, place: Place) -> Input:
        if given.path not in copies:
            target = folder.inputs / str(len(copies)) / Path(given.path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(given.path, target)
            copies[given.path] = target.relative_to(folder.path)
        return Input(path=str(copies[given.path]), sha256=given.sha256)

    made: Scenario = map_inputs(scenario, copied)
    return made


def scenario_of(folder: RunFolder) -> Scenario:
    """The scenario of a run, from its folder, and the program that decides there. Raises UsageError without that."""
    loaded: Any = load(folder.scenario)
    scenario: Scenario = loaded
    if folder.kept_decider.exists():
        if folder.decider is None:
            what = "another program decides in this run: only forerun live run goes on with it, given --decider -- PROGRAM"
            raise UsageError.at(folder.path, what)
        require_same(read_document(folder.kept_decider), folder.decider, folder.path)
        scenario = scenario.with_(policy=folder.decider)
    return scenario


def inputs_of(folder: RunFolder) -> Inputs:
    """The inputs of a run."""
    return DOMAIN.prepare(scenario_of(folder))


def controller_of(folder: RunFolder, run: RunMeta) -> Controller:
    """The controller of a run before it has observed anything."""
    specs = _SPECS.decode(folder.specs.read_bytes())
    inputs = without_jobs(inputs_of(folder)) if run.is_open else inputs_of(folder)
    return Controller(inputs, specs, run.nodes, clock_of(run.clock).course, is_open=run.is_open)


def replayed(folder: RunFolder, journal: Journal, more: Iterable[Seen] = ()) -> Controller:
    """The controller of a run, as far as its journal goes, and what was observed since."""
    controller = controller_of(folder, journal.run)
    for seen in itertools.chain(journal.seen(), more):
        controller.receive(seen)
    return controller


def without_jobs(inputs: Inputs) -> Inputs:
    """Inputs without the jobs of their trace: what runs is submitted."""
    setting = inputs.setting
    jobs = setting.jobs.take(())
    costs = None if setting.costs is None else setting.costs.of(jobs)
    slowness = None if setting.slowness is None else setting.slowness[:0]
    return replace(inputs, setting=replace(setting, jobs=jobs, costs=costs, slowness=slowness))
