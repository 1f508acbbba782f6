"""The Ray cluster that a run joins: who may talk to it, and which machines it has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.errors import StoreError, UsageError
from forerun.core.study.executors.ray import answers, import_ray, unreachable

#: where messages to users point
OPTION: Final = "--engine ray"
#: the resource whose amount is the number of slots of a machine, where that is not its number of GPUs
SLOT_RESOURCE: Final = "forerun_slot"
#: of the actors and placement groups of all runs
NAMESPACE: Final = "forerun-live"
#: the first version of Ray that can ask for a token
TOKEN_SINCE: Final = (2, 52)
#: what Ray says to who names no token, or a wrong one
_REFUSAL: Final = "InvalidAuthToken"
#: wall seconds that a cluster may take to admit or refuse
_PROBE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the Ray cluster that has slots.

    Parameters
    ----------
    ray_node : its id; a raylet that is started again is another node.
    host : its name.
    slots : how many.
    resource : what a slot is to Ray: GPU, or `forerun_slot`.
    """

    ray_node: str
    host: str
    slots: int
    resource: str

    @property
    def name(self) -> str:
        """A short name of its own, for people."""
        return f"{self.host}-{self.ray_node[:8]}"


def machines(nodes: Iterable[Mapping[str, Any]]) -> list[Machine]:
    """The nodes that are alive and have slots, of what `ray.nodes()` returns; sorted by name."""
    known = []
    for node in nodes:
        resources = node["Resources"] if node["Alive"] else {}
        resource = SLOT_RESOURCE if SLOT_RESOURCE in resources else "GPU"
        slots = int(resources.get(resource, 0))
        if slots:
            known.append(Machine(node["NodeID"], node["NodeManagerHostname"], slots, resource))
    return sorted(known, key=lambda machine: machine.name)


def loopback_only(addresses: Iterable[str]) -> bool:
    """Whether machines with these addresses listen to nobody but themselves.

    Ray binds its ports to loopback for exactly these addresses; for any other, 127.0.0.2 included, to all networks.
    """
    return all(address in ("127.0.0.1", "::1") for address in addresses)


def connect(address: str) -> Any:
    """The package ray, connected to the cluster at `address` (empty: that of RAY_ADDRESS, or of this machine).

    Raises UsageError where Ray is absent, or where the cluster admits who names no token and is not on loopback;
    StoreError where no cluster answers.
    """
    # Ray would name another address of this machine in place of this one, on which such a cluster does not listen.
    if loopback_only([address.rpartition(":")[0]]) and "ray" not in sys.modules:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    # Under `uv run` Ray would rebuild the environment for every worker, and hang.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Ray prints what happens to its machines on stdout, which belongs to the command; the journal has it.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    ray = import_ray(OPTION)
    where = f"{OPTION}:{address}" if address else OPTION
    answers(address, where)
    options = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR"}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "auto", **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise StoreError.at(where, unreachable(error)) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own in place
    try:
        _require_token(ray, where)
    except BaseException:
        ray.shutdown()
        raise
    return ray


def _require_token(ray: Any, where: str) -> None:
    """Nothing, if only who has a token can start processes on the cluster. Raises UsageError if anybody can."""
    if loopback_only(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]):
        return
    remedy = "start it with RAY_AUTH_MODE=token on all machines, and set RAY_AUTH_MODE=token here"
    if tuple(map(int, ray.__version__.split(".")[:2])) < TOKEN_SINCE:
        what = f"Ray {ray.__version__} has no tokens, and anybody on its network can run code; use ray >= 2.52 and {remedy}"
        raise UsageError.at(where, what)
    # That this process names a token proves nothing: a cluster without authentication ignores it. So it is asked without.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    command += ["--address", ray.get_runtime_context().gcs_address]
    try:
        asked = subprocess.run(
            command,
            env={**variables, "RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StoreError.at(where, f"the cluster does not answer within {_PROBE_S:g} s") from None
    if asked.returncode == 0:
        raise UsageError.at(where, f"the cluster admits anybody on its network without a token; {remedy}")
    if _REFUSAL not in asked.stderr + asked.stdout:
        said = " ".join((asked.stderr or asked.stdout).split())[-300:]
        raise StoreError.at(where, f"the cluster does not say whether it requires a token: {said}")
