"""A whole measurement: a testbed from a scenario, its profile, and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.core.atomic_write import refuse_foreign
from forerun.core.errors import Problem, UsageError, known_names
from forerun.core.measure.host import described, probe
from forerun.core.measure.progress import Tell
from forerun.core.scenario.spec import to_data
from forerun.core.study.executors.interrupts import terminable
from forerun.core.version import VERSION
from forerun.serving.inputs.pipeline import SOURCE, Pipeline, Service
from forerun.serving.inputs.prepare import prepare
from forerun.serving.measure.models import model_named
from forerun.serving.measure.profiling import (
    TOLERANCE,
    Measured,
    Taken,
    profile_of,
    profiled,
    sizes_to_measure,
    write_profile,
)
from forerun.serving.measure.testbed import Testbed
from forerun.serving.policies.fixed import Fixed
from forerun.serving.scenario import Scenario, Tables

#: what built-in pipelines call the machine they are measured on, and what one replica costs there
HERE: Final = "here"
PRICE_USD_PER_H: Final = 0.05
#: times of a batch size in place below which a measurement that was stopped takes those alone
LEAST_TIMES: Final = 5


@dataclass(frozen=True)
class Request:
    """What to measure.

    Parameters
    ----------
    scenario : the pipeline, its configuration, its objective.
    models : stage -> what its replicas compute.
    samples : of every batch size in the profile (default: 40).
    """

    scenario: Scenario
    models: Mapping[str, str]
    samples: int = 40


def builtin(models: Sequence[str] = ("matrix", "forest"), max_batch: int = 8) -> dict[str, Any]:
    """The data of a chain of small models, one replica each, under Poisson traffic; rate and objective are placeholders.

    Parameters
    ----------
    models : what the stages compute, by the names of `models` (default: `matrix`, then `forest`).
    max_batch : largest batch of each stage (default: 8).
    """
    names = [model.replace(":", "-").replace(".", "-") for model in models]
    parents = ["source", *names[:-1]]
    return {
        "domain": "serving",
        "trace": {"process": {"name": "poisson", "rate_rps": 1.0}, "queries": 20_000},
        "stages": [{"name": name, "parents": [parent]} for name, parent in zip(names, parents)],
        "configuration": {name: {"hardware": HERE, "max_batch": max_batch} for name in names},
        "service": {"tables_ms": {name: [1.0] * max_batch for name in names}},
        "slo_ms": 1000.0,
        "prices_usd_per_h": {HERE: PRICE_USD_PER_H},
        "intervals": {"replications": 0},
    }


def measure(asked: Request, folder: Path | None, tell: Tell) -> dict[str, Any]:
    """Measure, write the results into the folder (profile.csv, scenario.json, measured.json), and return it.

    If it is interrupted once something is measured, that is written and returned, with `stopped` in words; a scenario
    is written only if the profile has every batch size of it.

    Parameters
    ----------
    asked : what to measure.
    folder : where files are written (None: nowhere).
    tell : is given the progress in words.

    Raises UsageError for a pipeline or model that cannot be run here, KeyboardInterrupt if nothing was measured yet.
    """
    if folder is not None:
        written = ("profile.csv", "scenario.json", "measured.json")
        refuse_foreign(folder, written, marker="measured.json", sign=b"forerun.measurement")
    pipeline = pipeline_of(asked.scenario, asked.models)
    before, stopped = probe(), ""
    taken = Taken.of(len(pipeline.stages))
    try:
        with (
            terminable(),
            Testbed(pipeline, [asked.models[name] for name in pipeline.names]) as testbed,
        ):
            measured = profile(asked, testbed, tell, taken)
    except KeyboardInterrupt:
        measured = taken.measured(*_called(asked, pipeline), least=LEAST_TIMES)
        if not measured:
            raise
        stopped = _stopped(pipeline, measured)
    host = described(before, probe())
    content: dict[str, Any] = {
        "format": "forerun.measurement/1",
        "domain": "serving",
        "forerun": VERSION,
        "answer": _answer(measured),
        "host": host,
        "batch_times": [record for each in measured for record in each.rows()],
        "notes": [stopped] if stopped else _notes(measured),
    }
    complete = _complete(pipeline, measured)
    if complete:
        believed, slo_ms, data = believed_of(asked, pipeline, measured)
        content |= {"capacity_rps": capacity_rps(believed), "slo_ms": slo_ms}
    if stopped:
        content["stopped"] = stopped
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        about = {k: v for k, v in host.items() if k != "quiet"}
        write_profile(measured, about, folder / "profile.csv", stopped=stopped)
        if complete:
            scenario_text = json.dumps(data | {"profiles": ["profile.csv"]}, indent=1)
            (folder / "scenario.json").write_text(scenario_text + "\n", encoding="utf-8")
        text = json.dumps(content, indent=1, allow_nan=False)
        (folder / "measured.json").write_text(text + "\n", encoding="utf-8")
    return content


def pipeline_of(scenario: Scenario, models: Mapping[str, str]) -> Pipeline:
    """The scenario's pipeline, as it can be run here; no service times need be known.

    Parameters
    ----------
    models : stage -> what its replicas compute.

    Raises UsageError for a pipeline or model that cannot be run here.
    """
    names = [stage.name for stage in scenario.stages]
    problems = [
        Problem(f"--model {name}", f"no stage named {name!r}; {known_names(name, names)}")
        for name in models
        if name not in names
    ]
    if not problems:
        problems += [
            Problem("--model", f"what does stage {name!r} compute? give every stage a model")
            for name in names
            if name not in models
        ]
    if scenario.mode != "default":
        problems.append(Problem("$.mode", "what is run for real is mode default"))
    if not isinstance(scenario.tuner, Fixed) or any(p.changes for p in scenario.configuration.values()):
        problems.append(Problem("$.tuner", "a real run keeps its replicas; use tuner: fixed and no changes"))
    if problems:
        raise UsageError(*problems)
    for model in dict.fromkeys(models.values()):
        model_named(model)
    blank = {name: (1.0,) * placed.max_batch for name, placed in scenario.configuration.items()}
    return prepare(scenario.with_(service=Tables(tables_ms=blank))).pipeline


def _called(asked: Request, pipeline: Pipeline) -> tuple[list[str], list[str]]:
    """By stage, the hardware and the model as the profile calls them."""
    models = {spec.name: spec.model or spec.name for spec in asked.scenario.stages}
    hardware = [asked.scenario.configuration[name].hardware for name in pipeline.names]
    return hardware, [models[name] for name in pipeline.names]


def profile(asked: Request, testbed: Testbed, tell: Tell, taken: Taken | None = None) -> list[Measured]:
    """The times of every stage's batches.

    Parameters
    ----------
    asked : what to measure.
    testbed : the pipeline's replicas, running.
    tell : is given the progress in words.
    taken : keeps what is measured, also if this is interrupted.
    """
    tell("profile: begin")
    hardware, names = _called(asked, testbed.pipeline)
    return profiled(testbed, hardware, names, asked.samples, asked.scenario.seed, tell, taken=taken)


def _complete(pipeline: Pipeline, measured: Sequence[Measured]) -> bool:
    """Whether every batch size of every stage was measured, alone at least."""
    return len(measured) == len(pipeline.stages) and all(
        set(sizes_to_measure(stage.max_batch)) <= set(each.alone_ms)
        for stage, each in zip(pipeline.stages, measured)
    )


def _stopped(pipeline: Pipeline, measured: Sequence[Measured]) -> str:
    """How far a measurement that was stopped is."""
    most = sum(len(sizes_to_measure(stage.max_batch)) for stage in pipeline.stages)
    alone, in_place = (
        sum(map(len, sizes)) for sizes in zip(*((m.alone_ms, m.in_place_ms) for m in measured))
    )
    return f"stopped: of {most} batch sizes {alone} were measured alone and {in_place} of them in place"


def capacity_rps(pipeline: Pipeline) -> float:
    """The most queries a second that every stage can carry, by mean service at the best batch size."""
    visited: list[float] = []
    carried = []
    for stage in pipeline.stages:
        missed = 1.0
        for edge in stage.edges:
            came = 1.0 if edge.parent == SOURCE else visited[edge.parent]
            share = (
                1.0
                if edge.always
                else float(edge.recorded.mean())
                if edge.recorded is not None
                else edge.share
            )
            missed *= 1 - came * (share or 0.0)
        visited.append(1 - missed)
        sizes = np.arange(1, stage.max_batch + 1)
        best = float((sizes * 1e3 / stage.service.table_ms[1 : stage.max_batch + 1]).max())
        if visited[-1] > 0:
            carried.append(stage.replicas * best / visited[-1])
    return min(carried)


def believed_of(
    asked: Request, pipeline: Pipeline, measured: Sequence[Measured]
) -> tuple[Pipeline, float, dict[str, Any]]:
    """The pipeline as the model believes it, with the times measured in place; an objective and a rate that fit it;
    and the scenario of that.

    Parameters
    ----------
    asked : whose objective counts; the built-in pipeline gets one of three full batches along the path.
    pipeline : as it runs.
    measured : by stage; a profile of it must be valid.
    """
    services: list[Service] = [
        each.service(stage.max_batch, 7 + s) for s, (each, stage) in enumerate(zip(measured, pipeline.stages))
    ]
    stages = tuple(replace(stage, service=service) for stage, service in zip(pipeline.stages, services))
    believed = replace(pipeline, stages=stages)
    profile_of(measured, "measured")  # raises where the measured times are no valid profile
    data = {**to_data(asked.scenario), "service": "mean", "tuner": {"name": "fixed"}}
    slo_ms = asked.scenario.slo_ms
    if data["trace"].get("process", {}).get("rate_rps") == 1.0 and "queries" in data["trace"]:
        # The built-in pipeline: an objective of three full batches along the path, and three fifths of its capacity.
        slo_ms = round(3 * sum(float(stage.service.table_ms[-1]) for stage in stages), 1)
        process = {**data["trace"]["process"], "rate_rps": round(0.6 * capacity_rps(believed), 2)}
        data = {**data, "slo_ms": slo_ms, "trace": {**data["trace"], "process": process}}
    return believed, slo_ms, data


def _notes(measured: Sequence[Measured]) -> list[str]:
    worst = max(
        (row for each in measured for row in each.rows()), key=lambda row: abs(row["in_place_over_alone"] - 1)
    )
    apart = worst["in_place_over_alone"] - 1
    what = f"{worst['model']} in batches of {worst['batch']} takes {apart:+.0%} in place, against alone"
    if abs(apart) > TOLERANCE:
        return [f"a profile taken stage by stage would be wrong here: {what}"]
    return [f"a profile taken stage by stage would do here: at most {what}"]


def _answer(measured: Sequence[Measured]) -> str:
    sizes = [len(each.in_place_ms) for each in measured if each.in_place_ms]
    return f"{len(sizes)} model{'' if len(sizes) == 1 else 's'} measured in place, {sum(sizes)} batch sizes"
