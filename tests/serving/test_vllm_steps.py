"""Recorded steps of vLLM's own scheduler, in several versions; `make validate-vllm` compares afresh."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forerun.serving.engine.events import simulate_events
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.llm.engine.pipeline import simulate_mixed

from .random_llm_pipelines import equal, llm_stage
from .vllm_steps import Trace, forerun, minor, model_of

FILES = sorted(Path(__file__).with_name("vllm").glob("vllm-*.json"))
NEWEST = "0.32"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_steps_are_those_of_the_program(file: Path) -> None:
    """An earlier version's are not those of the newest: each difference between versions has a workload that shows it."""
    version = minor(file.stem.removeprefix("vllm-"))
    for one in json.loads(file.read_text()):
        its = Trace(one["steps"], one["first"], one["last"])
        mine, _ = forerun(one["workload"], version)
        assert mine.first_difference(its) == "", one["mode"]
        if version != NEWEST:
            assert forerun(one["workload"], NEWEST)[0] != its


def test_plain_replicas_take_the_same_steps() -> None:
    (file,) = [file for file in FILES if minor(file.stem.removeprefix("vllm-")) == NEWEST]
    for one in json.loads(file.read_text()):
        llm = model_of(one["workload"], NEWEST)
        arrivals = np.array([float(request["at"]) for request in one["workload"]["requests"]])
        pipeline = Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),))
        assert equal(simulate_events(pipeline, arrivals, 1e9), simulate_mixed(pipeline, arrivals, 1e9))
