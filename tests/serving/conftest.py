"""The serving domain's reference outputs, as pipelines and columns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.inputs.profile import embedded_profile
from forerun.serving.policies.delay import Delay
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policies.timeout import Timeout
from forerun.serving.policy.batching import Batching

from ..conftest import shared_path

ROOT = Path(__file__).parents[2]

#: the notebook's pipeline: stage -> its parent
NOTEBOOK = {"ResNet": SOURCE, "Inception": SOURCE, "KSVM": 0, "LogReg": 1}


def golden(*parts: str) -> Path:
    """A reference output of this domain; the test is skipped where there are none."""
    return shared_path("golden", "serving", *parts)


def read_json(path: Path) -> Any:
    """JSON, gzipped or not."""
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def read_gaps(path: Path) -> np.ndarray:
    """One number a line, gzipped."""
    return np.array(gzip.decompress(path.read_bytes()).split(), dtype=np.float64)


def notebook_pipeline(config: dict[str, Any], kind: str = "mean") -> Pipeline:
    """The four models; config: model -> (hardware, max batch, replicas), or the golden files' hw, bs, rf."""
    stages = []
    for name, parent in NOTEBOOK.items():
        placed = config[name]
        hardware, batch, replicas = placed.values() if isinstance(placed, dict) else placed
        table = embedded_profile().table_ms(name, hardware, kind, batch)
        stages.append(Stage(name, (Edge(parent),), batch, replicas, Service(table), Greedy()))
    return Pipeline(tuple(stages))


def golden_pipeline(data: Any) -> Pipeline:
    """The pipeline of a default golden."""
    numbers = {stage["name"]: number for number, stage in enumerate(data["pipeline"])} | {"source": SOURCE}
    stages = []
    for stage in data["pipeline"]:
        edges = tuple(
            Edge(numbers[parent], recorded=_recorded(data["takes"].get(f"{parent}>{stage['name']}")))
            for parent in stage["parents"]
        )
        stages.append(
            Stage(
                stage["name"],
                edges,
                stage["batch"],
                stage["replicas"],
                Service(np.array(stage["service_ms"])),
                _batching(stage.get("policy")),
                tuple((at, int(count)) for at, count in stage.get("capacity", [])),
            )
        )
    return Pipeline(tuple(stages))


def differences(data: Any, run: Run) -> list[str]:
    """The columns in which a run differs from a default golden."""
    found = [] if np.array_equal(run.finish_ms, np.array(data["finish_ms"])) else ["finish_ms"]
    for stage, visits in zip(data["pipeline"], run.visits):
        for column in ("enqueue_ms", "start_ms", "end_ms", "batch"):
            wanted = np.array(
                [np.nan if value is None else value for value in data["stages"][stage["name"]][column]],
                dtype=np.float64,
            )
            if not np.array_equal(wanted, getattr(visits, column).astype(np.float64), equal_nan=True):
                found.append(f"{stage['name']}.{column}")
    return found


def _recorded(takes: str | None) -> np.ndarray | None:
    return None if takes is None else np.frombuffer(takes.encode(), dtype=np.uint8) == ord("1")


def _batching(policy: list[Any] | None) -> Batching:
    if policy is None:
        return Greedy()
    return Timeout(delay_ms=policy[1]) if policy[0] == "timeout" else Delay(delay_ms=policy[1])
