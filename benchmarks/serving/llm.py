"""How fast language models are simulated: the compiled replicas over the plain ones, and an hour of conversations.

    python benchmarks/serving/llm.py [--queries 4000] [--rounds 3] [--json]

The trace is the public Azure conversation trace (one hour, 19,366 requests) where it is at hand, else requests drawn with
its rate and mean numbers of tokens; the first line says which. Both engines are first compared, every request
and iteration. Processor time, the least of interleaved rounds, after compiling. Exit code 1 if results differ, or a floor
is missed: 100 times the plain replicas, and an hour within 0.5 s on one replica and on four.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.errors import ForerunError
from forerun.core.trace.reader import read_trace
from forerun.core.trace.requests import arrivals_ms
from forerun.serving.engine.events import simulate_events
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.llm.engine.pipeline import simulate_mixed
from forerun.serving.llm.engine.replica import Replicas
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.policies.greedy import Greedy

NAME = "AzureLLMInferenceTrace_conv.csv"
COST = Cost((6.0, 0.02, 0.02, 2.5e-6, 4e-7))


def conversations() -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """Where the requests are from; instants of arrival, prompt tokens and output tokens."""
    shared = Path(os.environ.get("FORERUN_SHARED", Path(__file__).parents[3] / "shared"))
    kept = shared / "golden" / "serving" / "readers" / f"{NAME}.gz"
    try:
        if kept.exists():
            trace = read_trace(kept)
        else:
            from forerun.core.data.fetch import dataset

            trace = read_trace(dataset(f"serving/{NAME}"))
        return f"public trace {NAME}", arrivals_ms(trace), trace["prompt_tokens"], trace["output_tokens"]
    except ForerunError:
        rng = np.random.default_rng(1)
        prompt = np.minimum(rng.lognormal(6.6, 1.0, 19_366).astype(np.int64) + 1, 14_000)
        output = np.minimum(rng.lognormal(4.95, 0.9, 19_366).astype(np.int64) + 1, 1000)
        return (
            "drawn requests (the public trace is not at hand)",
            np.cumsum(rng.exponential(181, 19_366)),
            prompt,
            output,
        )


def pipeline(prompt: np.ndarray, output: np.ndarray, replicas: int) -> Pipeline:
    """One stage: 64 requests at once, 512 tokens an iteration, 64,000 tokens of cache a replica."""
    llm = LanguageModel(64, 512, 4000, 16, COST, prompt, output, routing="least-requests")
    service = Service(np.array([0.0, COST.least_ms]))
    return Pipeline((Stage("llm", (Edge(SOURCE),), 1, replicas, service, Greedy(), llm=llm),))


def plain(llm: LanguageModel, arrivals: np.ndarray) -> list[float]:
    """One replica in plain Python, driven from iteration to iteration: when each request ends."""
    replicas, instants = Replicas(llm, 1), [*arrivals.tolist(), float("inf")]
    replica, entered, now_ms = replicas.replicas[0], 0, 0.0
    while entered < len(arrivals) or replica.open:
        now_ms = min(instants[entered], replica.busy.end_ms if replica.busy else float("inf"))
        if replica.busy is not None and replica.busy.end_ms == now_ms:
            replica.end(now_ms)
        while instants[entered] == now_ms:
            replicas.enter(entered, now_ms)
            entered += 1
        if replica.busy is None and replica.open:
            replica.begin(0, now_ms)
    return [replicas.requests[query].last_ms for query in range(len(arrivals))]


def least(rounds: int, ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Processor seconds of each way, the least of interleaved rounds."""
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            found[name] = min(found[name], time.process_time() - begin)
    return found


def hours(arrivals: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The whole trace on one replica and on four, with and without a record of every iteration."""
    found: dict[str, Callable[[], Any]] = {}
    for replicas, name in ((1, "1 replica"), (4, "4 replicas")):
        world = pipeline(prompt, output, replicas)
        found[f"{name}, requests"] = partial(simulate_mixed, world, arrivals, 1e9, keep=False)
        found[f"{name}, requests and iterations"] = partial(simulate_mixed, world, arrivals, 1e9)
    return found


def main() -> int:
    """Measure and print; 1 if results differ or a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    source, arrivals, prompt, output = conversations()
    few = slice(0, given.queries)
    part = pipeline(prompt[few], output[few], 1)
    begun = time.process_time()
    run = simulate_mixed(part, arrivals[few], 1e9)
    compiling_s = time.process_time() - begun
    short = slice(0, 300)
    small = pipeline(prompt[short], output[short], 3)
    compiled, by_events = (way(small, arrivals[short], 1e9) for way in (simulate_mixed, simulate_events))
    same = all(
        np.array_equal(
            getattr(compiled.requests[0].recorded, name), getattr(by_events.requests[0].recorded, name)
        )
        for name in ("start_ms", "end_ms", "prefill", "decodes", "kv", "running", "free_blocks")
    ) and np.array_equal(compiled.finish_ms, by_events.finish_ms)
    llm = part.stages[0].llm
    assert llm is not None
    same = same and run.finish_ms.tolist() == plain(llm, arrivals[few])
    ratio = least(
        given.rounds,
        {
            "compiled": lambda: simulate_mixed(part, arrivals[few], 1e9, keep=False),
            "plain": lambda: plain(llm, arrivals[few]),
        },
    )
    hour = least(given.rounds, hours(arrivals, prompt, output))
    times = ratio["plain"] / ratio["compiled"]
    slow = [name for name, seconds in hour.items() if name.endswith(", requests") and seconds >= 0.5]
    if given.json:
        print(
            json.dumps(
                {
                    "source": source,
                    "requests": len(arrivals),
                    "output_tokens": int(output.sum()),
                    "same": same,
                    "over_plain": times,
                    "hour_s": hour,
                }
            )
        )
    else:
        print(f"{source}: {len(arrivals):,} requests, {int(output.sum()):,} tokens out")
        print(f"equal results, request by request: {same}")
        print(f"over the plain replicas, {given.queries:,} requests: {times:,.0f} x (floor 100)")
        for name, seconds in hour.items():
            print(
                f"the hour on {name}: {seconds:.2f} s"
                + (" (floor 0.5)" if name.endswith(", requests") else "")
            )
        print(f"first run, compiling included if the cache was cold: {compiling_s:.1f} s")
    return int(not same or times < 100 or bool(slow))


if __name__ == "__main__":
    sys.exit(main())
