"""Every domain's cells on a Ray cluster: one is started for these tests, on loopback, and joined at its address.

The studies are run by the verb in processes of their own: what Ray keeps in a process stays out of this one.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from forerun.core.catalog import demos
from forerun.core.domain import domain_names
from forerun.core.study.cell import Done, Failed, Outcome
from forerun.core.study.executors import Here
from forerun.core.study.expand import load_study
from forerun.core.study.run import run_study
from forerun.core.study.store import Store

from ..conftest import cases

pytestmark = pytest.mark.slow

TOY = Path(__file__).parents[1] / "core" / "study" / "toy"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its address, and the environment in which it is reached."""

    address: str
    environment: Mapping[str, str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray cluster of two cores with a token of its own, ended with the tests; skipped where Ray cannot be had."""
    try:
        import ray  # noqa: F401
    except Exception as error:  # not installed, or broken by another package of this environment
        pytest.skip(f"Ray cannot be imported here: {type(error).__name__}: {error}")
    address = f"127.0.0.1:{free_port()}"
    paths = os.pathsep.join([str(TOY), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    own = {"PYTHONPATH": paths, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    own["RAY_worker_niceness"] = "0"  # the usual 15 starves beside anything else that runs
    environment = {**os.environ, **own}
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1",
        f"--port={address.partition(':')[2]}", "--num-cpus=2", "--include-dashboard=false",
        "--disable-usage-stats", "--object-store-memory=80000000",
    ]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        _wait_for([command[0], "status", f"--address={address}"], environment, started)
        yield Cluster(address, environment)
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def _wait_for(ask: list[str], environment: Mapping[str, str], started: subprocess.Popen[bytes]) -> None:
    """Until the cluster answers with its nodes: its port is open earlier."""
    end_s = time.monotonic() + 180
    while time.monotonic() < end_s and started.poll() is None:
        if subprocess.run(ask, env=environment, capture_output=True, check=False).returncode == 0:
            return
    pytest.skip(f"no Ray cluster came up here (exit code {started.poll()})")


def studied(
    cluster: Cluster, study: Path, name: str, *options: str, hash_seed: str = "random"
) -> list[Outcome]:
    """The outcomes of a study, run by the verb into a store of its own."""
    store = study.with_name(f"{study.stem}-{name}.sqlite")
    command = [
        sys.executable,
        "-m",
        "forerun",
        "study",
        str(study),
        "--store",
        str(store),
        "--json",
        *options,
    ]
    environment = {**cluster.environment, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, env=environment, cwd=study.parent, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with Store(store) as opened:
        return list(opened.outcomes())


def on_ray(cluster: Cluster, workers: int = 2) -> list[str]:
    return ["--executor", "ray", "--address", cluster.address, "-j", str(workers)]


def test_every_rooms_cells_are_the_same_on_ray(cluster: Cluster, tmp_path: Path) -> None:
    """Two cells of a demonstration, of each where FORERUN_CASES asks for more, under another hash seed on Ray."""
    known = [demo for demo in demos() if demo.domain != "toy"]
    assert {demo.domain for demo in known} == set(domain_names()) - {"toy"}
    for demo in known[: cases(1, len(known))]:
        study = tmp_path / f"{demo.domain}.yaml"
        study.write_text(json.dumps({"base": str(demo.scenario), "seeds": 2}))
        run_study(load_study(study), tmp_path / "here.sqlite", Here())
        with Store(tmp_path / "here.sqlite") as opened:
            here = list(opened.outcomes())
        (tmp_path / "here.sqlite").unlink()
        there = studied(cluster, study, "ray", *on_ray(cluster, workers=1), hash_seed="31")
        assert here == there and all(isinstance(one, Done) for one in here) and len(here) == 2, demo.domain


def test_misfortunes_are_told_alike_on_ray_and_in_the_pool(cluster: Cluster, tmp_path: Path) -> None:
    """Cells that raise, break, exhaust the memory, are killed and hang, among others that are done: word for word."""
    study = tmp_path / "s.yaml"
    study.write_text(
        "base: {domain: toy, noise: 1.0, unlucky_x: 7}\n"
        "axes: {misfortune: [error, bug, memory, die, hang], x: {start: 6, stop: 9, step: 1}}\n"
    )
    pool = studied(cluster, study, "pool", "-j", "2", "--limit", "1")
    there = studied(cluster, study, "ray", *on_ray(cluster), "--limit", "1")
    assert pool == there
    failed = [one.reason for one in there if isinstance(one, Failed)]
    assert len(there) == 20 and len(failed) == 5
    for told in (
        "x is unlucky",
        "a bug of the domain",
        "ran out of memory",
        "ended by SIGKILL",
        "limit of 1 s",
    ):
        assert sum(told in reason for reason in failed) == 1, told


def test_a_cell_that_kills_rays_own_worker_is_blamed_alone(cluster: Cluster, tmp_path: Path) -> None:
    """Without a limit, cells run in Ray's workers: one dies there with its chunk, and only its cell fails."""
    study = tmp_path / "s.yaml"
    study.write_text(
        "base: {domain: toy, noise: 1.0, unlucky_x: 7, misfortune: die}\naxes: {x: {start: 1, stop: 30, step: 1}}\n"
    )
    there = studied(cluster, study, "ray", *on_ray(cluster))
    assert there == studied(cluster, study, "pool", "-j", "2")
    assert [one.number for one in there if isinstance(one, Failed)] == [6] and len(there) == 30
