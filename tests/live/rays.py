"""Ray clusters of several raylets on this machine, with a token of their own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import forerun

#: bytes of an object store; these clusters store nothing
STORE_BYTES = 80 * 2**20


class Rays:
    """A running cluster: a head without slots, and raylets that are added and killed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # Raylets that die are noticed within seconds; those that only wait for a busy machine do not count as dead.
        health = {"health_check_period_ms": 1000, "health_check_timeout_ms": 60_000}
        head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": health})
        self.address: str = self._cluster.address
        self._raylets: dict[str, Any] = {}

    def add(self, slots: int) -> str:
        """Start a raylet; returns its node's id."""
        raylet = self._cluster.add_node(
            num_cpus=0, resources={"forerun_slot": slots}, object_store_memory=STORE_BYTES
        )
        self._raylets[raylet.node_id] = raylet
        return str(raylet.node_id)

    def signal(self, node: str, number: signal.Signals) -> None:
        """Send a signal to a raylet."""
        os.kill(self.pid(node), number)

    def nodes(self) -> list[str]:
        """Ids of the nodes whose raylets were started, killed ones among them."""
        return list(self._raylets)

    def pid(self, node: str) -> int:
        """Of a raylet."""
        return int(self._raylets[node].all_processes["raylet"][0].process.pid)

    def close(self) -> None:
        """End the cluster."""
        self._cluster.shutdown()


@contextlib.contextmanager
def cluster(mode: Literal["token", "disabled"] = "token") -> Iterator[Rays]:
    """A cluster, and this process and those that it starts as its clients; skips where there is no Ray.

    Parameters
    ----------
    mode : whether it asks for a token.
    """
    try:
        import ray
        from ray._raylet import AuthenticationTokenLoader, Config
    except Exception as error:  # not installed, or broken by another package of this environment
        pytest.skip(f"Ray cannot be imported here: {type(error).__name__}: {error}")
    sources = os.pathsep.join(map(str, [Path(forerun.__file__).parents[1], Path(__file__).parents[2]]))
    temporary = tempfile.mkdtemp(prefix="rays", dir="/tmp")  # sockets have short paths
    own = {
        "PYTHONPATH": sources,
        "RAY_AUTH_MODE": mode,
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_TMPDIR": temporary,
        "RAY_worker_niceness": "0",  # the usual 15 starves beside anything else that runs
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
    }

    def settle() -> None:
        Config.initialize("")  # Ray reads these variables once
        AuthenticationTokenLoader.instance().reset_cache()

    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        settle()
        rays = Rays()
        try:
            yield rays
        finally:
            ray.shutdown()
            rays.close()
            shutil.rmtree(temporary, ignore_errors=True)
    settle()
