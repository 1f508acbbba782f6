"""How far predictions are from a language-model server that really runs: five loads up to overload, costs from others.

    python benchmarks/serving/beside.py [--python PYTHON] [--seconds 60] [--folder FOLDER] [--json]

The engine is `transformers serve` with continuous batching, on one processor core, with a small model of random
weights. PYTHON has `transformers[serving]` and torch (default: this one), best in an environment of its own. The
costs of iterations are fitted to three loads of other rates and lengths and to one of a client that holds requests
back; then five loads are sent open loop, and the simulator is given the instants at which requests were sent and the
tokens that the server counted. A light load is measured first and last: by how much its times differ is what the
machine itself changes. Exit code 1 if a figure is further off than its bar. It takes a quarter of an hour, and judges
nothing on a machine that does other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.domains.serving.calibration.calibrate import Calibration, calibrate
from forerun.domains.serving.calibration.experiment import Load
from forerun.domains.serving.calibration.replay import COEFFICIENTS, cost_of
from forerun.domains.serving.calibration.server import Server as Limits
from forerun.domains.serving.inputs import ScenarioFiles
from forerun.measure.llm.exchange import Address
from forerun.measure.llm.prompts import WORDS
from forerun.measure.llm.study import Traffic, measure
from forerun.measure.llm.trial import Server
from forerun.rng import stream

#: of what the server carries with many under way
LOADS = (0.2, 0.45, 0.7, 0.85, 1.15)
#: (load, prompt tokens, answer tokens) of what costs are fitted to
FITTED = ((0.3, (20, 60), (10, 50)), (0.6, (60, 200), (20, 80)), (0.85, (20, 100), (5, 30)))
PROMPT, OUTPUT = (20, 120), (10, 50)
SECONDS = 60.0
IN_FLIGHT, HELD_BACK = 16, 80
#: largest error of a figure that is not near saturation
BARS = {"ttft_p50": 0.05, "ttft_p99": 0.10, "itl_p50": 0.05, "itl_p99": 0.10}
#: as the engine is started; it has no limit of seats but this
LIMITS = Limits(max_seqs=1024, token_budget=256, kv_blocks=512, block_tokens=32)


def tell(message: str) -> None:
    """Progress goes where figures do not."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def engine(python: str, folder: Path) -> Iterator[str]:
    """The URL of the engine, on a core of its own where there are two."""
    model, offline = folder / "model", {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    made = [python, str(Path(__file__).with_name("engine_model.py")), str(model)]
    environment = {**os.environ, **offline}
    subprocess.run(made, input=json.dumps(WORDS), text=True, env=environment, check=True, stdout=sys.stderr)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    options = ["serve", str(model), "--continuous-batching", "--device", "cpu", "--dtype", "float32"]
    options += ["--cb-block-size", f"{LIMITS.block_tokens}", "--cb-num-blocks", f"{LIMITS.kv_blocks}"]
    options += ["--cb-max-batch-tokens", f"{LIMITS.token_budget}", "--host", "127.0.0.1", "--port", f"{port}"]
    with (folder / "engine.log").open("w") as log:
        process = subprocess.Popen([python, "-c", serve, *options], env=environment, stdout=log, stderr=log)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, {cores[-1]})
        os.sched_setaffinity(0, set(cores[:-1]))
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/models", timeout=5):
                break
            assert process.poll() is None, (folder / "engine.log").read_text()[-2000:]
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def load(name: str, rate_rps: float, count: int, prompt: tuple[int, int], output: tuple[int, int]) -> Load:
    """Poisson arrivals of exactly this rate, lengths evenly between two."""
    draw = stream(1, "load", name)
    at_ms = np.cumsum(draw.exponential(1e3 / rate_rps, count))
    at_ms = (at_ms - at_ms[0]) * (1e3 * (count - 1) / rate_rps / (at_ms[-1] - at_ms[0]))
    tokens = (draw.integers(low, high + 1, count) for low, high in (prompt, output))
    return Load(at_ms, *tokens)


def sent(url: str, name: str, of: Load, folder: Path, found: Calibration | None = None) -> dict[str, Any]:
    """One load measured, its table kept as FOLDER/NAME/requests.csv; with the simulation beside it where costs are known."""
    tell(f"{name}: {of.rate_rps:.3g} requests a second")
    traffic = Traffic(of, 1)
    if found is not None:
        assert found.found is not None
        cost = replace(cost_of(found.found.values), fit=found.cost.fit)
        traffic = replace(traffic, llm=replace(LIMITS.language_model(of, ScenarioFiles(), 0), cost=cost))
    server = Server(Address.of(url, remote=False), "", False, "", 300.0, {})
    return measure(url, server, traffic, None, folder / name, tell)


def figures(url: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Everything that is measured, in order."""
    all_at_once = replace(load("held back", 1e6, HELD_BACK, PROMPT, OUTPUT), most_in_flight=IN_FLIGHT)
    sent(url, "warm", replace(load("warm", 1e6, 16, PROMPT, OUTPUT), most_in_flight=4), folder)
    carried_rps = sent(url, "held-back", all_at_once, folder)["throughput_rps"]

    def rate(share: float) -> tuple[float, int]:
        return share * carried_rps, max(20, round(share * carried_rps * seconds))

    light = load("light", *rate(LOADS[0]), PROMPT, OUTPUT)
    before = sent(url, "light-first", light, folder)
    files = [folder / "held-back" / "requests.csv"]
    for share, prompt, output in FITTED:
        sent(url, f"fit-{share}", load(f"fit {share}", *rate(share), prompt, output), folder)
        files.append(folder / f"fit-{share}" / "requests.csv")
    found = calibrate(LIMITS, files, say=tell)
    judged = []
    for share in LOADS:
        name = f"judged-{share}"
        judged.append((share, sent(url, name, load(name, *rate(share), PROMPT, OUTPUT), folder, found)))
    after = sent(url, "light-last", light, folder)
    rows = [row(share, measured) for share, measured in judged]
    missed = [f"{figure} at a load of {one['load']:g}" for one in rows for figure in one["over"]]
    return {
        "engine": "transformers serve, continuous batching, one core",
        "carried_rps": carried_rps,
        "cost": dict(zip(COEFFICIENTS, found.found.values.tolist())) if found.found is not None else {},
        "fitted": [
            [one.experiment.split("/")[-2], one.role, one.figure, round(one.error, 4)]
            for one in found.compared
        ],
        "rows": rows,
        "machine_changed": changed(before, after),
        "bars": BARS,
        "missed": missed,
    }


def row(share: float, measured: dict[str, Any]) -> dict[str, Any]:
    """One load: what was measured and predicted, and what misses its bar."""
    kept = (
        "figure",
        "measured_ms",
        "predicted_ms",
        "error",
        "error_low",
        "error_high",
        "low_ms",
        "high_ms",
        "saturating",
    )
    shown = [{name: one[name] for name in kept} for one in measured["compared"]]
    over = [
        one["figure"]
        for one in shown
        if not one["saturating"] and abs(one["error"]) > BARS.get(one["figure"], float("inf"))
    ]
    return {
        "load": share,
        "requests": measured["requests"],
        "failed": measured["failed"],
        "offered_rps": measured["offered_rps"],
        "throughput_rps": measured["throughput_rps"],
        "lag_p99_ms": measured["lag_p99_ms"],
        "load_average": measured["host"]["load_average"],
        "figures": shown,
        "over": over,
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """How much more each time of the same load took at the end than at the beginning, at the median."""
    first, last = (
        {one["time"]: one["p50_ms"] for one in measured["latencies"]} for measured in (before, after)
    )
    return {name: last[name] / first[name] - 1 for name in first}


def main() -> int:
    """Print what was found; 1 if a bar is missed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--python", default=sys.executable, help="has transformers[serving]")
    options.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    options.add_argument("--folder", type=Path, help="where the tables are kept (default: nowhere)")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with engine(given.python, folder) as url:
            said = figures(url, given.seconds, folder)
    if given.json:
        print(json.dumps(said, indent=1))
    else:
        for one in said["rows"]:
            print(
                f"load {one['load']:g}, {one['requests']} requests, {one['throughput_rps']:.3g} answered a second"
            )
            for each in one["figures"]:
                bar = " (over its bar)" if each["figure"] in one["over"] else ""
                near = " saturating" if each["saturating"] else ""
                print(
                    f"  {each['figure']}: measured {each['measured_ms']:.4g} ms, off by {each['error']:+.1%} "
                    f"({each['error_low']:+.1%} to {each['error_high']:+.1%}){near}{bar}"
                )
        shifts = ", ".join(f"{name} {share:+.1%}" for name, share in said["machine_changed"].items())
        print(f"the same light load, last against first: {shifts}")
        print(f"missed: {', '.join(said['missed'])}" if said["missed"] else "no bar is missed")
    return 1 if said["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
