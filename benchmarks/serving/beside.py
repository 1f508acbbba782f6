"""How far predictions are from a language-model server that really runs: five loads up to overload, costs from others.

    python benchmarks/serving/beside.py [--python PYTHON] [--clock wall|processor] [--seconds 60] [--folder FOLDER] [--json]

The engine is `transformers serve` with continuous batching, on one processor core, with a small model of random
weights. PYTHON has `transformers[serving]` and torch (default: this one), best in an environment of its own. The
costs of iterations are fitted to three loads of other rates and lengths and to one of a client that holds requests
back; then five loads are sent open loop, and the simulator is given the instants at which requests were sent and the
tokens that the server counted. A light load is measured first and last: by how much its times differ is what the
machine itself changes. Exit code 1 if a figure is further off than its bar.

By the wall's clock requests go over HTTP, as `forerun measure llm` sends them; it takes a quarter of an hour, and
judges nothing on a machine that does other work. By the processor's clock the engine's own scheduler and model are
driven step by step (`engine_clock.py`), and time is the processor time of the steps: network and HTTP are left out,
and so is what else the machine does.
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
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.domains.serving.calibration.calibrate import Calibration, calibrate
from forerun.domains.serving.calibration.experiment import Load
from forerun.domains.serving.calibration.replay import COEFFICIENTS, cost_of
from forerun.domains.serving.calibration.server import Server as Limits
from forerun.domains.serving.inputs import ScenarioFiles
from forerun.measure.llm.exchange import Address, Usage
from forerun.measure.llm.prompts import WORDS
from forerun.measure.llm.replaying import Answered
from forerun.measure.llm.results import Answers, compared, latencies
from forerun.measure.llm.study import Traffic, measure
from forerun.measure.llm.trial import Server
from forerun.measure.serving.host import described, probe
from forerun.rng import stream

#: of what the server carries with many under way
LOADS = (0.2, 0.45, 0.7, 0.85, 1.15)
#: (load, prompt tokens, answer tokens) of what costs are fitted to
FITTED = ((0.3, (20, 60), (10, 50)), (0.35, (60, 200), (20, 80)), (0.85, (20, 100), (5, 30)))
PROMPT, OUTPUT = (20, 120), (10, 50)
SECONDS = 60.0
IN_FLIGHT, HELD_BACK = 16, 80
#: largest error of a figure that is not near saturation
BARS = {"ttft_p50": 0.05, "ttft_p99": 0.10, "itl_p50": 0.05, "itl_p99": 0.10}
#: as the engine is started. It computes attention over the cache of all requests of an iteration together, work that
#: grows with the square of the seats and that costs here have no term for: so there are few
LIMITS = Limits(max_seqs=16, token_budget=256, kv_blocks=512, block_tokens=32)
ENGINE_LIMITS = {
    "max_seqs": LIMITS.max_seqs,
    "token_budget": LIMITS.token_budget,
    "kv_blocks": LIMITS.kv_blocks,
    "block_tokens": LIMITS.block_tokens,
}


def tell(message: str) -> None:
    """Progress goes where figures do not."""
    print(message, file=sys.stderr, flush=True)


#: what the engine runs in: nothing is fetched, and it uses one core
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
#: sends a load by a name, keeps its table under that name, and simulates it beside where costs are known
Send = Callable[[str, Load, "Calibration | None"], dict[str, Any]]


def saved_model(python: str, folder: Path) -> Path:
    """The engine's model."""
    model = folder / "model"
    made = [python, str(Path(__file__).with_name("engine_model.py")), str(model)]
    subprocess.run(made, input=json.dumps(WORDS), text=True, env=ENVIRONMENT, check=True, stdout=sys.stderr)
    return model


@contextlib.contextmanager
def served(python: str, folder: Path) -> Iterator[Send]:
    """The engine behind HTTP, on a core of its own where there are two; by the wall's clock."""
    model = saved_model(python, folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The command has no option for the seats, the engine's own settings do.
    serve = (
        "import functools, sys, transformers; from transformers.cli.transformers import main; "
        f"seats = dict(max_requests_per_batch={LIMITS.max_seqs}); settings = transformers.ContinuousBatchingConfig; "
        "transformers.ContinuousBatchingConfig = functools.partial(settings, **seats); sys.exit(main())"
    )
    options = ["serve", str(model), "--continuous-batching", "--device", "cpu", "--dtype", "float32"]
    options += ["--cb-block-size", f"{LIMITS.block_tokens}", "--cb-num-blocks", f"{LIMITS.kv_blocks}"]
    options += ["--cb-max-batch-tokens", f"{LIMITS.token_budget}", "--host", "127.0.0.1", "--port", f"{port}"]
    with (folder / "engine.log").open("w") as log:
        process = subprocess.Popen([python, "-c", serve, *options], env=ENVIRONMENT, stdout=log, stderr=log)
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
        server = Server(Address.of(url, remote=False), "", False, "", 300.0, {})
        yield lambda name, of, found: measure(url, server, traffic(of, found), None, folder / name, tell)
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def stepped(python: str, folder: Path) -> Iterator[Send]:
    """The engine step by step; by the processor's clock."""
    model = saved_model(python, folder)
    with subprocess.Popen(
        [python, str(Path(__file__).with_name("engine_clock.py"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None

        def said(line: dict[str, Any]) -> dict[str, Any]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        said({"model": str(model), **ENGINE_LIMITS})

        def send(name: str, of: Load, found: Calibration | None) -> dict[str, Any]:
            before = probe()
            columns = {"send_ms": of.send_ms, "prompt": of.prompt, "output": of.output}
            shown = said(
                {key: column.tolist() for key, column in columns.items()}
                | {"most_in_flight": of.most_in_flight}
            )
            came = [
                Answered(number, sent_ms, np.array(tokens_ms), Usage(int(of.prompt[number]), len(tokens_ms)))
                for number, (sent_ms, tokens_ms) in enumerate(zip(shown["sent_ms"], shown["tokens_ms"]))
            ]
            answers, asked = Answers.of(of, came, counts=True), traffic(of, found)
            answers.write(folder / name / "requests.csv")
            llm = asked.llm
            return {
                "requests": len(of),
                "failed": 0,
                "offered_rps": of.rate_rps if of.most_in_flight is None else None,
                "throughput_rps": answers.throughput_rps,
                "lag_p99_ms": 0.0,
                "host": described(before, probe()),
                "latencies": latencies(answers),
                "compared": compared(answers, llm, 1, of.most_in_flight, asked.seed)
                if llm is not None
                else [],
            }

        yield send
        process.stdin.close()


def traffic(of: Load, found: Calibration | None) -> Traffic:
    """What is sent, with what is believed of the engine where costs are known."""
    if found is None:
        return Traffic(of, 1)
    assert found.found is not None
    cost = replace(cost_of(found.found.values), fit=found.cost.fit)
    return Traffic(of, 1, replace(LIMITS.language_model(of, ScenarioFiles(), 0), cost=cost))


def load(name: str, rate_rps: float, count: int, prompt: tuple[int, int], output: tuple[int, int]) -> Load:
    """Poisson arrivals of exactly this rate, lengths evenly between two."""
    draw = stream(1, "load", name)
    at_ms = np.cumsum(draw.exponential(1e3 / rate_rps, count))
    at_ms = (at_ms - at_ms[0]) * (1e3 * (count - 1) / rate_rps / (at_ms[-1] - at_ms[0]))
    tokens = (draw.integers(low, high + 1, count) for low, high in (prompt, output))
    return Load(at_ms, *tokens)


def figures(send: Send, clock: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Everything that is measured, in order."""

    def sent(name: str, of: Load, found: Calibration | None = None) -> dict[str, Any]:
        tell(f"{name}: {len(of)} requests, {of.rate_rps:.3g} a second")
        return send(name, of, found)

    all_at_once = replace(load("held back", 1e6, HELD_BACK, PROMPT, OUTPUT), most_in_flight=IN_FLIGHT)
    sent("warm", replace(load("warm", 1e6, 16, PROMPT, OUTPUT), most_in_flight=4))
    carried_rps = sent("held-back", all_at_once)["throughput_rps"]

    def rate(share: float) -> tuple[float, int]:
        return share * carried_rps, max(20, round(share * carried_rps * seconds))

    light = load("light", *rate(LOADS[0]), PROMPT, OUTPUT)
    before = sent("light-first", light)
    files = [folder / "held-back" / "requests.csv"]
    for share, prompt, output in FITTED:
        sent(f"fit-{share}", load(f"fit {share}", *rate(share), prompt, output))
        files.append(folder / f"fit-{share}" / "requests.csv")
    found = calibrate(LIMITS, files, say=tell)
    judged = []
    for share in LOADS:
        name = f"judged-{share}"
        judged.append((share, sent(name, load(name, *rate(share), PROMPT, OUTPUT), found)))
    after = sent("light-last", light)
    rows = [row(share, measured) for share, measured in judged]
    missed = [f"{figure} at a load of {one['load']:g}" for one in rows for figure in one["over"]]
    return {
        "engine": "transformers serve, continuous batching, one core",
        "clock": clock,
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
    options.add_argument("--clock", choices=("wall", "processor"), default="wall")
    options.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    options.add_argument("--folder", type=Path, help="where the tables are kept (default: nowhere)")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        opened = served if given.clock == "wall" else stepped
        with opened(given.python, folder) as send:
            said = figures(send, given.clock, given.seconds, folder)
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
