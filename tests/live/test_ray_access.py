"""Which Ray clusters are joined, and which of their machines count."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.live.rays import Rays, cluster

from forerun.live.engines.ray_cluster import Machine, loopback_only, machines

CLIENT = """
import sys
from forerun.core.errors import ForerunError
from forerun.live.engines.ray_cluster import connect
try:
    connect(sys.argv[1])
except ForerunError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def join(rays: Rays, mode: str) -> str:
    """What a process says that joins the cluster, and names a token or not; nothing if it is admitted."""
    joined = subprocess.run(
        [sys.executable, "-c", CLIENT, rays.address],
        env={**os.environ, "RAY_AUTH_MODE": mode},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert joined.stdout == ""
    return joined.stderr.strip().splitlines()[-1] if joined.returncode else ""


@pytest.mark.slow
def test_a_cluster_that_asks_for_a_token_is_joined_with_it() -> None:
    with cluster("token") as rays, ThreadPoolExecutor() as pool:  # who is not admitted tries for a while
        admitted, said = pool.map(lambda mode: join(rays, mode), ("token", "disabled"))
    assert admitted == ""
    assert said.startswith(f"StoreError: --engine ray:{rays.address}: no Ray cluster can be reached")
    assert "RAY_AUTH_MODE=token" in said


@pytest.mark.slow
def test_a_cluster_that_admits_anybody_is_rejected_by_who_names_a_token_too() -> None:
    with cluster("disabled") as rays:
        said = join(rays, "token")
    assert said.startswith(f"UsageError: --engine ray:{rays.address}: the cluster admits anybody")
    assert "RAY_AUTH_MODE=token" in said


def _node(name: str, *, alive: bool = True, **resources: float) -> dict[str, object]:
    return {"NodeID": name * 8, "NodeManagerHostname": "host", "Alive": alive, "Resources": resources}


def test_machines_are_the_living_ones_with_gpus_or_declared_slots() -> None:
    known = machines(
        [
            _node("c", CPU=4.0),
            _node("b", CPU=4.0, GPU=8.0),
            _node("a", GPU=8.0, forerun_slot=2.0),
            _node("d", GPU=8.0, alive=False),
        ]
    )
    assert known == [
        Machine(ray_node="a" * 8, host="host", slots=2, resource="forerun_slot"),
        Machine(ray_node="b" * 8, host="host", slots=8, resource="GPU"),
    ]
    assert [machine.name for machine in known] == ["host-aaaaaaaa", "host-bbbbbbbb"]


def test_only_addresses_at_which_ray_listens_to_itself_alone_are_loopback() -> None:
    assert loopback_only(["127.0.0.1", "127.0.0.1"])
    assert not loopback_only(["127.0.0.1", "10.0.0.2"])
    assert not loopback_only(["127.0.0.2"])
