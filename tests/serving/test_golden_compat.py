"""The compat mode against the notebook's own scheduler, query by query."""

from __future__ import annotations

import csv
import gzip
import hashlib
from typing import Any

import numpy as np
import pytest

from forerun.replication.inferline.notebook import CompatRun, EmptyTake, simulate_compat
from forerun.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.serving.policies.greedy import Greedy

from .conftest import NOTEBOOK, golden, notebook_pipeline, read_gaps, read_json

NAMES = [
    "g01_driver_bs1", "g02_notebook_run", "g03_txp_smooth", "g07_optimum", "g08_cpp_count", "g09_batching_delay",
    "t01_zero_gaps", "t03_all_at_once", "t04_clock",
]  # fmt: skip
KINDS = ("notebook", "mean", "p99")


def _run(about: Any, kind: str, name: str) -> CompatRun:
    gaps = read_gaps(golden("compat", f"{name}.deltas.gz"))
    options = about["options"]
    return simulate_compat(
        notebook_pipeline(about["config"], kind),
        gaps,
        options.get("n_queries", len(gaps) + 1),
        batching_delay_ms=options.get("batching_delay", 0.0),
        wake_corrected="batching_delay" in options,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_query_of_the_notebook(name: str, kind: str) -> None:
    about = read_json(golden("compat", f"{name}.json"))
    wanted = about["services"][kind]
    run = _run(about, kind, name)
    latency = run.sink_ms - run.source_ms
    assert len(latency) == wanted["queries"]
    assert run.events == wanted["events"]
    assert run.peak_pending == wanted["peak_pending"]
    assert run.makespan_ms == wanted["makespan"]
    for model, visits in zip(NOTEBOOK, run.visits):
        sizes = np.bincount(visits.batch, minlength=len(wanted["queries_by_batchsize"][model]))
        assert sizes.tolist() == wanted["queries_by_batchsize"][model]
        batches = set(zip(visits.dequeue_ms.tolist(), visits.replica.tolist()))
        assert len(batches) == wanted["batches"][model]
    figures = [*np.quantile(latency, [0.5, 0.95, 0.99]), latency.max(), latency.min(), latency.mean()]
    assert figures == pytest.approx(
        [wanted[k] for k in ("p50", "p95", "p99", "max", "min", "mean")], abs=1e-6
    )
    # The references were computed with the same sums in the same order, so not a bit differs.
    assert hashlib.sha256(latency.astype("<f8").tobytes()).hexdigest() == wanted["e2e_sha256"]
    if wanted["file"] is not None:
        _check_columns(run, golden("compat", wanted["file"]), exact=name.startswith("t"))


def _check_columns(run: CompatRun, path: Any, *, exact: bool) -> None:
    with gzip.open(path, "rt", newline="") as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, np.array(rows, dtype=np.float64).T))
    ours: dict[str, Any] = {"source": run.source_ms, "sink": run.sink_ms}
    for model, visits in zip(NOTEBOOK, run.visits):
        ours[f"{model}_enqueue_time"] = visits.enqueue_ms
        ours[f"{model}_dequeue_time"] = visits.dequeue_ms
        ours[f"{model}_service_time"] = visits.service_ms
        assert np.array_equal(columns[f"{model}_batchsize"], visits.batch), model
    assert np.array_equal(columns["sink_rank"], run.sink_rank)
    for name, values in ours.items():
        assert np.allclose(columns[name], values, rtol=0, atol=0 if exact else 1e-6), name


def test_the_wake_rule_as_written_finds_an_empty_queue() -> None:
    """With a delay and two replicas the notebook wakes both for one batch; the second take finds nothing."""
    stage = Stage("m", (Edge(-1),), 4, 2, Service(np.array([0.0, 9.0, 9.0, 9.0, 9.0])), Greedy())
    with pytest.raises(EmptyTake, match=r"stage 'm': replica 1.*choose compat\.wake: corrected"):
        simulate_compat(Pipeline((stage,)), [1.0, 50.0], 3, batching_delay_ms=5.0)
    run = simulate_compat(Pipeline((stage,)), [1.0, 50.0], 3, batching_delay_ms=5.0, wake_corrected=True)
    assert run.sink_ms.tolist() == [14.0, 14.0, 65.0]


def test_the_last_scheduled_of_equals_goes_first() -> None:
    """Two sends at one instant: the second is scheduled before the first query's arrivals run, so it arrives first."""
    stage = Stage("m", (Edge(-1),), 1, 1, Service(np.array([0.0, 10.0])), Greedy())
    run = simulate_compat(Pipeline((stage,)), [0.0], 2)
    assert run.sink_ms.tolist() == [20.0, 10.0]
    assert run.sink_rank.tolist() == [1, 0]


def test_times_within_the_snap_are_one_instant() -> None:
    """A query 5e-9 ms later runs in the first one's round and is told its time; the next gap counts from there."""
    stage = Stage("m", (Edge(-1),), 4, 1, Service(np.array([0.0, 10.0, 10.0, 10.0, 10.0])), Greedy())
    run = simulate_compat(Pipeline((stage,)), [5e-9, 1.0], 3)
    assert run.source_ms.tolist() == [0.0, 0.0, 1.0]


def test_joins_inside_the_pipeline_wait_for_every_part() -> None:
    table = Service(np.array([0.0, 1.0]))
    stages = (
        Stage("a", (Edge(-1),), 1, 1, Service(np.array([0.0, 5.0])), Greedy()),
        Stage("b", (Edge(-1),), 1, 1, Service(np.array([0.0, 7.0])), Greedy()),
        Stage("c", (Edge(0), Edge(1), Edge(-1)), 1, 1, table, Greedy()),
    )
    run = simulate_compat(Pipeline(stages), [20.0], 2)
    assert run.visits[2].enqueue_ms.tolist() == [7.0, 27.0]
    assert run.sink_ms.tolist() == [8.0, 28.0]
