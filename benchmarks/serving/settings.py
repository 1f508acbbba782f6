"""What a change of a server's settings is worth, from the server before the change alone: how far off the prediction is.

    python benchmarks/serving/settings.py [--json]

Measurements of others (kubernetes-sigs/inference-perf): Llama 3.1 8B on one H100 under vLLM 0.11, seven rates up to
past saturation, without prefix caching and chunked prefill, with both, and with both and EAGLE-3. Predicted is the
highest rate that the server carries after a change, over what was measured before it: from kernels alone, and from
kernels corrected by the runs before the change (`occupancy.py` beside this script), with an interval. What was known: the
client sends a hundred prompts over and over (its configuration says ten system prompts with ten questions each; the
mean length of a stage's prompts varies as that of a fixed set does), so a prefix cache has all of a prompt but its
last block. Of the draft: four tokens, the shape of its head as published, its share of right tokens from pieces per
token of the stream in the lightest runs.

And (llm-d): the same model with prompts of thousands of tokens, prefilled and decoded by the same replicas or apart, from
kernels, with the longest gaps beside it: a server that only decodes has none as long as a prompt.

The files are not part of this project: `FORERUN_SHARED` names the folder that has `data/serving-llm`. The bar is stated
below; exit code 1 if a prediction from the runs before the change misses it, or if the measurements are absent.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import occupancy
from accuracy import SHARED
from models import TABLES, shape

from forerun.core.domain import simulate
from forerun.core.scenarios import from_data
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.bottom_up import OVERHEAD, Running, kernel_times, with_overhead
from forerun.serving.llm.calibration.calibrate import trial_of
from forerun.serving.llm.calibration.experiment import Experiment, Load
from forerun.serving.llm.calibration.kernel_tables import read_tables
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.calibration.physics import Physics
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.scenario.language_model import Coefficients, DrawnPrefixes, SpeculationSpec
from forerun.serving.policies.chunked_prefill import ChunkedPrefill

MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
STAGES: Final = 7
#: percentage points that a predicted change may be off
BAR: Final = 8.0
#: requests that the client has under way at most, so that the server is never without work: 44 workers with 10 each
UNDER_WAY: Final = 440
#: whole prompts fit into the budget, so that chunking cuts none of them; vLLM 0.11 composes iterations in turn
PLAIN: Final = Server(max_seqs=128, token_budget=8192, kv_blocks=27_000, scheduler=ChunkedPrefill())
#: a hundred prompts, of each all whole blocks
CACHED: Final = PLAIN.with_(prefix_cache=DrawnPrefixes(system_prompts=100, system_tokens=208))
#: tokens that EAGLE-3's head proposes; columns of its last layer, and layers' outputs that it begins with
DRAFTS: Final = 4
HEAD_VOCABULARY: Final = 32_000
HEAD_INPUTS: Final = 3
#: coefficients that are drawn for an interval, and the share of them that it covers
DRAWS: Final = 60
COVERED: Final = 0.9
#: pieces that the client counts for a token that comes alone (see `readers.inference_perf`)
PIECES: Final = 2


def documents(folder: str) -> list[Path]:
    """The files of one server's runs."""
    return [SHARED / "kubecon-2025" / folder / f"stage_{i}_lifecycle_metrics.json" for i in range(STAGES)]


def stages(folder: str) -> list[Experiment]:
    """The runs of one server."""
    return [
        one for file in documents(folder) for one in read_measurements(file) if isinstance(one, Experiment)
    ]


def built(card: str, max_seqs: int) -> tuple[ModelKernels, Floats]:
    """The model's kernels on a card, and what a server's iterations cost by them."""
    tables = [SHARED / "aiconfigurator" / f"{card}_sxm.vllm-0.14.0.{name}.csv.gz" for name in TABLES]
    known = shape(MODEL)
    assert known is not None
    accelerator = next(one for name, one in ACCELERATORS.items() if name.lower().startswith(card))
    kernels = ModelKernels(Kernels.of(read_tables(tables)[-1], Precision()), known, 1, accelerator)
    values = with_overhead(
        kernel_times(kernels, max_seqs), OVERHEAD, known, Running.of("vllm", 1, max_seqs, ahead=False)
    )
    return kernels, values


def carried_rps(server: Server, of: Experiment, values: Floats) -> float:
    """The rate that a server carries when it always has work."""
    load = Load(np.zeros(len(of.load)), of.load.prompt, of.load.output, UNDER_WAY)
    trial = trial_of(server, Experiment("", load, {"throughput_rps": 1.0}), ScenarioFiles(), 0)
    return trial.figures(values)["throughput_rps"]


def acceptance(before: str, after: str) -> float:
    """The share of right tokens, from pieces of the stream per token below saturation, over those without a draft.

    Tokens that come together come in one piece, so the client's own time between pieces is longer than that between tokens.
    """

    def pieces_ms(folder: str) -> Floats:
        own = []
        for file in documents(folder)[: STAGES // 2]:
            served = json.loads(file.read_text("utf-8"))["successes"]
            seen = {name: one["mean"] for name, one in served["latency"].items() if "mean" in one}
            tokens = served["output_len"]["mean"] - 1
            each = (seen["request_latency"] - seen["time_to_first_token"]) / tokens
            own.append(PIECES * seen["inter_token_latency"] / each)
        return np.array(own)

    tokens = float(np.mean(pieces_ms(after)) / np.mean(pieces_ms(before)))
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if occupancy.mean_tokens(SpeculationSpec(draft_tokens=DRAFTS, acceptance=middle)) < tokens
            else (low, middle)
        )
    return low


def eagle(kernels: ModelKernels, right: float, seats: int) -> SpeculationSpec:
    """What EAGLE-3's head takes, by the same kernels and the same overhead of a server as the model's own iterations.

    A pass is an iteration of one layer, a projection of three layers' outputs, and a last layer of its own vocabulary, and
    takes at least as long as its layer's kernels are launched. Each proposed token is drawn from the head's vocabulary, has
    a row of the last layer, and is accepted or not by the probabilities of the model's.
    """
    sizes, hidden = np.array([1.0, seats]), kernels.model.hidden
    head_ms = kernels.linear_ms(sizes) / kernels.model.layers
    head_ms = head_ms + kernels.last_ms(sizes) * HEAD_VOCABULARY / kernels.model.vocabulary
    head_ms = head_ms + kernels.kernels.product_ms(sizes, hidden, HEAD_INPUTS * hidden)
    few_ms, many_ms = kernels.last_ms(np.array([1.0, 1.0 + DRAFTS]) * seats)
    sample_ns = (OVERHEAD.sample_ns + OVERHEAD.sort_ns) * kernels.model.vocabulary
    sample_ns += OVERHEAD.sample_ns * HEAD_VOCABULARY
    row_ms = max(0.0, float(head_ms[1] - head_ms[0])) / (seats - 1) + (many_ms - few_ms) / (seats * DRAFTS)
    return SpeculationSpec(
        draft_tokens=DRAFTS,
        acceptance=right,
        draft_ms=max(OVERHEAD.scale * float(head_ms[0]) + OVERHEAD.layer_ms, OVERHEAD.launch_ms),
        draft_ms_per_seq=OVERHEAD.scale * float(row_ms) + sample_ns / 1e6,
    )


def most(runs: Sequence[Experiment]) -> float:
    """The highest rate that was measured."""
    return max(one.measured["throughput_rps"] for one in runs)


def rows() -> Iterator[dict[str, Any]]:
    """Predictions of prefix caching with chunked prefill, and of a draft."""
    plain, cached, drafted = (
        stages(f"vllm{what}") for what in ("", "+chunking_and_prefix_caching", "+eagle")
    )
    kernels, values = built("h100", PLAIN.max_seqs)
    start = Physics(values, occupancy.KERNEL_SPREAD, "kernels")
    known = [(PLAIN, one) for one in plain]
    both = [*known, *((CACHED, one) for one in cached)]
    right = acceptance("vllm+chunking_and_prefix_caching", "vllm+eagle")
    drafting = CACHED.with_(speculation=eagle(kernels, right, PLAIN.max_seqs))
    caching = "prefix caching and chunked prefill"
    for change, what, runs, before, after in (
        (caching, "kernels alone", [], (PLAIN, plain), (CACHED, cached)),
        (caching, "kernels and the runs before", known, (PLAIN, plain), (CACHED, cached)),
        ("EAGLE", "kernels and the runs before", both, (CACHED, cached), (drafting, drafted)),
        (f"{caching}, EAGLE", "kernels and the runs before", known, (PLAIN, plain), (drafting, drafted)),
    ):
        calibrated = occupancy.calibrated(runs, start) if runs else None
        costs = values if calibrated is None else calibrated.values
        predicted = [
            carried_rps(before[0], before[1][-1], costs),
            carried_rps(after[0], after[1][-1], costs),
        ]
        measured = [most(before[1]), most(after[1])]
        # Where the runs before the change are known, so is what they carried.
        base = predicted[0] if calibrated is None else measured[0]
        changes = [100 * (measured[1] / measured[0] - 1), 100 * (predicted[1] / base - 1)]
        row: dict[str, Any] = {
            "change": change,
            "from": what,
            "before_rps": [round(measured[0], 2), round(predicted[0], 2)],
            "after_rps": [round(measured[1], 2), round(predicted[1], 2)],
            "change_percent": [round(one, 2) for one in changes],
            "kept": abs(changes[1] - changes[0]) <= BAR,
        }
        if calibrated is not None:
            drawn = [
                mean_rps(server, after[1][-1], one)
                for one, server in zip(calibrated.draws(DRAWS), unsure(after[0]))
            ]
            middle = mean_rps(after[0], after[1][-1], costs)
            low, high = np.quantile(drawn, [0.5 - COVERED / 2, 0.5 + COVERED / 2]) / middle
            row["interval_percent"] = [
                round(100 * (share * predicted[1] / base - 1), 2) for share in (low, high)
            ]
        yield row


def unsure(server: Server) -> Iterator[Server]:
    """A server with its draft as it may be: a pass is as unsure as an iteration, a token as a decode."""
    rng, draft = np.random.default_rng(1), server.speculation
    for _ in range(DRAWS):
        one, token = np.exp(rng.normal(size=2) * occupancy.KERNEL_SPREAD[[0, 2]]).tolist()
        if draft is not None:
            times = {"draft_ms": draft.draft_ms * one, "draft_ms_per_seq": draft.draft_ms_per_seq * token}
            server = server.with_(speculation=draft.with_(**times))
        yield server


def mean_rps(server: Server, of: Experiment, values: Floats) -> float:
    """The same rate from the mean iteration, which takes no replay."""
    prompt, output = float(of.load.prompt.mean()), float(of.load.output.mean())
    return occupancy.carried_rps(values, server, prompt, output)


def apart() -> Iterator[dict[str, Any]]:
    """Replicas that do both, and as many of which some prefill and one decodes; beside it the longest gaps."""
    for card in ("H100", "A100"):
        _, values = built(card.lower(), 256)
        for folder in sorted((SHARED / "llmd-disaggregation" / card).iterdir()):
            files = sorted(folder.glob("benchmark_*.json"))
            runs = [one for file in files for one in read_measurements(file)]
            found = [one for one in runs if isinstance(one, Experiment)]
            raw = [json.loads(file.read_text("utf-8")) for file in files]
            # Folders are named llm-d-2p1d: two prefill, one decodes; vllm-3replicas.
            digits = [int(one) for one in folder.name if one.isdigit()]
            shown = pools(card, found[0].load, values, digits)
            together = pools(card, found[0].load, values, [sum(digits)])
            row: dict[str, Any] = {"card": card, "servers": folder.name}
            for name in ("ttft_mean_ms", "tpot_mean_ms"):
                measured = float(np.mean([one.measured[name] for one in found]))
                row[name] = [
                    round(measured, 1),
                    round(float(shown[name]), 1),
                    round(float(together[name]), 1),
                ]
            gaps = float(np.mean([one["p99_itl_ms"] for one in raw]))
            row["itl_p99_ms"] = [
                round(gaps, 1), round(float(shown["tbt_p99_ms"]), 1), round(float(together["tbt_p99_ms"]), 1)
            ]  # fmt: skip
            row["itl_p50_ms"] = round(float(np.mean([one["median_itl_ms"] for one in raw])), 1)
            yield row


def pools(card: str, load: Load, values: Floats, servers: Sequence[int]) -> dict[str, Any]:
    """The summary of a simulation: of so many replicas, or so many that prefill and so many that decode."""
    llm: dict[str, Any] = {
        "max_seqs": 256,
        "token_budget": 8192,  # the longest gaps are as long as a prompt
        "balance": "random",  # by a Service of Kubernetes
        "kv_blocks": 27_000,
        "kv_token_bytes": 131_072,
        "cost": dict(zip(Coefficients.names, values.tolist())),
        "tokens": {"prompt": int(load.prompt.mean()), "output": int(load.output.mean())},
    }
    if len(servers) > 1:
        llm["decode"] = {"replicas": servers[1], "bandwidth_bytes_per_s": 25e9, "latency_ms": 5.0}
    rate_rps = 1e3 * (len(load) - 1) / float(load.send_ms[-1] - load.send_ms[0])
    process = {"name": "gamma", "rate_rps": rate_rps, "scv": 0.02}
    return dict(
        simulate(
            from_data(
                {
                    "domain": "serving",
                    "trace": {"process": process, "queries": len(load)},
                    "stages": [{"name": "model", "parents": ["source"]}],
                    "configuration": {"model": {"hardware": card, "replicas": servers[0], "llm": llm}},
                    "prices_usd_per_h": {card: 1.0},
                    "slo_ms": 1e6,
                    "intervals": {"replications": 0},
                }
            )
        ).summary
    )


def main() -> int:
    """Predict, print; 1 where a prediction from the runs before a change misses the bar or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    found, servers = list(rows()), list(apart())
    if given.json:
        print(json.dumps({"bar_points": BAR, "rows": found, "apart": servers}))
    else:
        print(*map(json.dumps, [*found, *servers]), sep="\n")
    return int(not all(row["kept"] for row in found if "interval_percent" in row))


if __name__ == "__main__":
    sys.exit(main())
