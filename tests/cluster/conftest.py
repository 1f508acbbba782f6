"""Settings from the shared public traces, and the reference's outcomes for them."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from forerun.cluster import testing
from forerun.cluster.engine import Engine
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import NO_DEADLINE_S, ThroughputTable
from forerun.cluster.inputs.files import jobs_of, read_cluster, read_jobs, read_profile
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Allocator, Policy
from forerun.cluster.summary.causes import Decided
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.cluster.testing import Scene
from forerun.replication.elasticflow.engine import Compat

from ..conftest import SHARED, shared_path

DATA = Path(os.environ.get("FORERUN_DATA_DIR", SHARED / "data")) / "cluster"
GOLDEN = SHARED / "golden" / "cluster"


@dataclass(frozen=True, slots=True)
class Switched(Setting):
    """A setting, and the known bugs that published schedules do without on it."""

    corrected: frozenset[str] = frozenset()


def switched(setting: Setting, corrected: Iterable[str]) -> Switched:
    """A setting with switches."""
    parts = {field.name: getattr(setting, field.name) for field in fields(Setting)}
    return Switched(**parts, corrected=frozenset(corrected))


def waited(record: Record, policy: Policy, terms: Terms | None = None) -> dict[str, Any]:
    """Seconds that each job of a run waited, by cause."""
    decided = Decided.by(policy, terms or Terms(), record.setting)
    return waits_of(record, stretches_of(record), decided).by_cause()


def whole_as_by_views(policy: Allocator, setting: Setting, terms: Terms, what: str) -> Record:
    """The record of a compiled run, which must be that of the same policy through views. what: the world, for a failure."""
    whole, by_views = Record(setting), Record(setting)
    rules = rules_of(policy, setting, whole, terms)
    assert isinstance(rules, NodeQueueRules)
    run_rules(rules)
    scheduler = policy.build(np.random.default_rng(0))
    run_rules(AllocatorRules(setting, by_views, policy, scheduler, terms))
    for name in ("first_start_s", "start_s", "end_s", "lost_gpu_s", "useful_gpu_s", "preempts"):
        np.testing.assert_allclose(vars(whole)[name], vars(by_views)[name], err_msg=f"{what}: {name}")
    assert sorted(whole.away) == sorted(by_views.away) and whole.cancelled == by_views.cancelled, what
    return whole


def shared_or_skip() -> None:
    shared_path("golden", "cluster")
    shared_path("data", "cluster")


def trace_path(name: str) -> Path:
    for folder in (DATA, DATA / "elasticflow_traces", DATA / "generated", GOLDEN / "worlds"):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(name)


@cache
def profile(gpu_type: str) -> ThroughputTable:
    return read_profile(DATA / f"throughputs_{gpu_type}", gpu_type)


def setting(
    trace: str,
    cluster: str | tuple[int, int, int],
    slot_s: int,
    gpu_type: str = "A100",
    corrected: tuple[str, ...] | frozenset[str] = (),
) -> Switched:
    """A setting of the public data: trace file name, cluster specification name (or its three numbers)."""
    shared_or_skip()
    from forerun.cluster.inputs.arrays import Cluster

    machines = (
        read_cluster(DATA / "cluster_specs" / f"{cluster}.csv")
        if isinstance(cluster, str)
        else Cluster.uniform(*cluster)
    )
    rates = profile(gpu_type)
    return Switched(
        jobs=jobs_of(read_jobs(trace_path(trace)), rates),
        cluster=machines,
        profile=rates,
        slot_s=slot_s,
        gpu_type=gpu_type,
        corrected=frozenset(corrected),
    )


@cache
def runs() -> tuple[dict[str, Any], ...]:
    """The records of the reference runs; empty where the data are absent, so that collecting tests does not fail."""
    path = GOLDEN / "runs.json"
    return tuple(json.loads(path.read_text())) if path.exists() else ()


@cache
def small_worlds() -> tuple[dict[str, Any], ...]:
    path = GOLDEN / "worlds" / "worlds.json.gz"
    return tuple(json.loads(gzip.decompress(path.read_bytes()))) if path.exists() else ()


def golden_jobs(name: str) -> dict[str, list[str]]:
    """Columns of one reference run's job table, as text, in the order of the trace file."""
    with gzip.open(GOLDEN / f"{name}.jobs.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return {key: [row[key] for row in rows] for key in rows[0]}


def golden_alloc(name: str) -> dict[str, Any] | None:
    path = GOLDEN / f"{name}.alloc.json.gz"
    return json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None


def engine_for(setting: Setting) -> Engine:
    """The engine of published schedules with the switches of a setting, where it has some."""
    return Compat(dict.fromkeys(getattr(setting, "corrected", ()), "corrected"))


def rules_of(
    policy: Any, setting: Setting, record: Record, terms: Terms | None = None, seed: int = 0
) -> AnyRules:
    """The rules of a policy with the switches of its setting."""
    return engine_for(setting).rules(policy, setting, record, terms or Terms(), seed)


def play(policy: Any, setting: Setting) -> Record:
    """Run a schedule on a setting; what it left behind."""
    setting = replace(setting, own=policy.read())
    record = Record(setting)
    run_rules(rules_of(policy, setting, record))
    return record


def lawful(policy: Any, scene: Scene, *, watch: bool = True) -> tuple[Record, int]:
    """As `forerun.cluster.testing.play`, with the switches of the scene's setting."""
    return testing.play(policy, scene, watch=watch, engine=engine_for(scene.setting))


def in_file_order(setting: Setting, column: Any) -> list[Any]:
    """A column of the record in the order of the trace file."""
    placed: list[Any] = [None] * len(setting.jobs)
    for row, at in enumerate(setting.jobs.file_row):
        placed[int(at)] = column[row]
    return placed


def assert_equals_reference(record: Record, run_record: dict[str, Any]) -> None:
    """Counters, events and every job's fate equal one record of runs.json and its tables."""
    setting = record.setting
    assert record.accepted == run_record["accepted"]
    assert record.declined_count == run_record["declined"]
    if "completed" in run_record:
        assert len(record.completed) == run_record["completed"]
    assert len(record.events()[0]) == run_record["events"]
    table = golden_jobs(run_record["run"])
    ends = [float(text) if text else -1.0 for text in table["end"]]
    assert [float(end) for end in in_file_order(setting, record.end_s)] == ends
    refused = [int(text) for text in table["admitted"]]
    assert [int(value != 0) for value in in_file_order(setting, record.admitted)] == refused
    met = [text == "1" for text in table["met_ref"]]
    slo = setting.jobs.deadline_s < NO_DEADLINE_S
    has_deadline = in_file_order(setting, slo)
    ours = in_file_order(setting, record.met_reference)
    assert [bool(a) for a, s in zip(ours, has_deadline) if s] == [m for m, s in zip(met, has_deadline) if s]
    planned = [float(text) for text in table["real_end"] if text]
    if planned:
        real = in_file_order(setting, record.real_end_s)
        assert [real[i] for i, text in enumerate(table["real_end"]) if text] == planned
    reference = golden_alloc(run_record["run"])
    if reference is not None:
        assert_same_allocations(record, reference)


def assert_equals_small_setting(policy: Any, small: dict[str, Any], schedule: str) -> None:
    """Counters, number of events and every logged end of a small random setting."""
    shape = (small["switches"], small["nodes_per_switch"], small["gpus_per_node"])
    made = setting(small["trace"], shape, small["slot_s"], small["gpu_type"])
    expected = small["runs"][schedule]
    record = play(policy, made)
    assert (record.accepted, record.declined_count) == (expected["accepted"], expected["declined"])
    assert len(record.events()[0]) == expected["events"]
    ends = in_file_order(made, record.end_s)
    assert {row: ends[int(row)] for row in expected["end"]} == expected["end"]


def assert_same_allocations(record: Record, reference: dict[str, Any]) -> None:
    times, rows, gpus = record.changes()
    file_row = record.setting.jobs.file_row
    ours: dict[int, dict[int, int]] = {}
    for time_s, row, count in zip(times, rows, gpus):
        ours.setdefault(int(time_s), {})[int(file_row[row])] = int(count)
    theirs = {
        int(t): {int(k): v for k, v in change.items()} for t, change in reference["alloc_changes"] if change
    }
    assert ours == theirs
    event_times, _, _, _, efficiency = record.events()
    assert [int(t) for t, _ in reference["ce"]] == event_times.tolist()
    np.testing.assert_allclose(efficiency, [ce for _, ce in reference["ce"]], rtol=0, atol=1e-9)
