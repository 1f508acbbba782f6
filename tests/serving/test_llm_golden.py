"""Language models against reference outputs: every request and the first iterations, to the last bit."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.llm.engine.pipeline import simulate_mixed
from forerun.serving.llm.inputs.model import Cost, LanguageModel

from ..conftest import shared_path
from .random_llm_pipelines import llm_stage

NAMES = ("llm01_plenty", "llm02_tight_kv", "llm03_refused")


def golden(name: str) -> tuple[dict[str, Any], Pipeline, np.ndarray]:
    """A reference output, its pipeline of one replica, and the arrivals."""
    with gzip.open(shared_path("golden", "serving", "llm", f"{name}.json.gz")) as file:
        wanted = json.load(file)
    arrivals, prompt, output = np.array(wanted["requests"]).T
    given = wanted["parameters"]
    terms = ("a_ms", "prefill_ms_per_token", "decode_ms_per_seq", "kv_ms_per_token", "attn_ms_per_token2")
    limits = {key: given[key] for key in ("max_seqs", "token_budget", "kv_blocks", "block_tokens")}
    cost = Cost(tuple(given[term] for term in terms))
    llm = LanguageModel(**limits, cost=cost, prompt=prompt.astype(np.int64), output=output.astype(np.int64))
    return wanted, Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), arrivals.copy()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", [simulate_mixed, simulate_events], ids=["kernel", "plain"])
def test_requests_and_iterations_are_exact(name: str, way: Any) -> None:
    wanted, pipeline, arrivals = golden(name)
    run: Run = way(pipeline, arrivals, 1e9)
    requests = run.requests[0]
    assert requests is not None and requests.recorded is not None
    assert np.flatnonzero(run.refused).tolist() == wanted["refused"]
    served = ~np.isin(np.arange(len(arrivals)), wanted["refused"])
    for found, key in (
        (requests.first_ms, "first_token_ms"),
        (run.visits[0].end_ms, "end_ms"),
        (requests.longest_gap_ms, "max_gap_ms"),
        (requests.preemptions, "preemptions"),
    ):
        told = [value for value, counts in zip(wanted[key], served) if counts]
        assert found[served].tolist() == told, key
    kept = requests.recorded
    assert requests.iterations == len(kept.start_ms) == wanted["iterations"]
    assert run.visits[0].end_ms[served].max() == wanted["makespan_ms"]
    assert wanted["iteration_columns"] == [
        "start_ms", "duration_ms", "prefill_tokens", "decodes", "kv_tokens_of_decodes", "running", "free_blocks",
    ]  # fmt: skip
    first = np.array(wanted["first_50_iterations"])
    rows = slice(0, len(first))
    assert np.array_equal(kept.start_ms[rows], first[:, 0])
    assert np.array_equal(kept.end_ms[rows], first[:, 0] + first[:, 1])
    counts = (kept.prefill, kept.decodes, kept.kv, kept.running, kept.free_blocks)
    assert np.array_equal(np.array([column[rows] for column in counts]).T, first[:, 2:])


def test_the_references_contain_what_they_should() -> None:
    assert sum(golden("llm02_tight_kv")[0]["preemptions"]) > 100
    assert len(golden("llm03_refused")[0]["refused"]) == 16
