"""A run's status: what follows from it, and what Prometheus gets of it."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

from forerun.live.status import JobStatus, NodeStatus, RunStatus, metrics_text, serve_metrics


def job(**changes: Any) -> JobStatus:
    return JobStatus(
        **{
            "job": "a",
            "state": "running",
            "iterations": 100,
            "step": 40,
            "rate": 2.0,
            "slots": ("n:0", "n:1"),
            **changes,
        }
    )


STATUS = RunStatus(
    state="running", now_s=12.0, policy="edf", decisions=3, stale=1,
    jobs=(job(deadline_s=60.0), job(job='b"\n', state="waiting", rate=0.0, slots=())),
    nodes=(NodeStatus(node="n", state="up", slots=8, used=2), NodeStatus(node="m", state="down", slots=8)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "eta_s"),
    [({}, 30.0), ({"step": 100}, 0.0), ({"rate": 0.0}, None), ({"state": "waiting"}, None), ({"state": "finished"}, None)],
)  # fmt: skip
def test_a_job_ends_at_its_measured_rate(changes: dict[str, Any], eta_s: float | None) -> None:
    assert job(**changes).eta_s == eta_s


def samples(text: str) -> dict[tuple[str, str], float]:
    """Every sample by name and label, as Prometheus' own parser reads them."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_say_what_the_status_says() -> None:
    pytest.importorskip("prometheus_client")
    read = samples(metrics_text(STATUS))
    expected = {
        ("run_seconds", ""): 12, ("decisions", ""): 3, ("stale_observations", ""): 1, ("jobs", "running"): 1,
        ("jobs", "waiting"): 1, ("jobs", "finished"): 0, ("slots_used", "n"): 2, ("node_up", "m"): 0,
        ("job_steps", "a"): 40, ("job_slots", 'b"\n'): 0, ("job_deadline_seconds", "a"): 60,
    }  # fmt: skip
    assert {at: read[f"forerun_live_{at[0]}", at[1]] for at in expected} == expected
    assert ("forerun_live_job_deadline_seconds", 'b"\n') not in read


def test_prometheus_gets_the_present_status_on_loopback() -> None:
    pytest.importorskip("prometheus_client")
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    now = [STATUS]
    close = serve_metrics(lambda: now[0], port)
    try:
        for decisions in (3, 4):
            now[0] = RunStatus(state="running", now_s=1.0, policy="edf", decisions=decisions)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                assert samples(answer.read().decode())["forerun_live_decisions", ""] == decisions
    finally:
        close()
