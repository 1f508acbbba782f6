"""What a change of a server's settings is worth, from the server before the change alone: how far off the prediction is.

    python benchmarks/serving/settings.py [--json]

Measurements of others (kubernetes-sigs/inference-perf): Llama 3.1 8B on one H100 under vLLM 0.11, seven rates up to past
saturation, without prefix caching and chunked prefill, and with both. Predicted is the highest rate that the server carries
afterwards over that before: from costs fitted to the run before, with whole prompts between decodes and with both in one
iteration, and from kernels. And (llm-d): the same model with prompts of thousands of tokens, prefilled and decoded by the
same replicas or apart, from kernels. The files are not part of this project: `FORERUN_SHARED` names the folder that has
`data/serving-llm`. The bar is stated below; exit code 1 if no prediction keeps it, or if the measurements are absent.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy import SHARED, hardware
from models import TABLES, shape

from forerun.domain import simulate
from forerun.domains.serving.calibration.bottom_up import OVERHEAD, kernel_times, with_overhead
from forerun.domains.serving.calibration.calibrate import trial_of
from forerun.domains.serving.calibration.experiment import Experiment, Load
from forerun.domains.serving.calibration.fitting import fit
from forerun.domains.serving.calibration.kernels import ModelKernels, read_kernels
from forerun.domains.serving.calibration.readers import read_measurements
from forerun.domains.serving.calibration.replay import COEFFICIENTS
from forerun.domains.serving.calibration.server import Server
from forerun.domains.serving.inputs import ScenarioFiles
from forerun.domains.serving.inputs.pipeline import Floats
from forerun.domains.serving.policies.prefill_first import PrefillFirst
from forerun.domains.serving.scenario.language_model import DrawnPrefixes
from forerun.scenarios import from_data

MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
STAGES: Final = 7
#: percentage points that a predicted change may be off
BAR: Final = 8.0
#: requests under way, so that the server is never without work
UNDER_WAY: Final = 256
MIXED: Final = Server(max_seqs=128, token_budget=8192, kv_blocks=27_000)
WHOLE: Final = MIXED.with_(scheduler=PrefillFirst())
AFTER: Final = MIXED.with_(prefix_cache=DrawnPrefixes(system_prompts=10, system_tokens=128))


def stages(folder: str) -> list[Experiment]:
    """The runs of one server."""
    files = [SHARED / "kubecon-2025" / folder / f"stage_{i}_lifecycle_metrics.json" for i in range(STAGES)]
    return [one for file in files for one in read_measurements(file) if isinstance(one, Experiment)]


def carried_rps(server: Server, of: Experiment, values: Floats) -> float:
    """The rate that a server carries when it always has work."""
    load = Load(np.zeros(len(of.load)), of.load.prompt, of.load.output, UNDER_WAY)
    trial = trial_of(server, Experiment("", load, {"throughput_rps": 1.0}), ScenarioFiles(), 0)
    return trial.figures(values)["throughput_rps"]


def rows() -> Iterator[dict[str, Any]]:
    """Predictions of prefix caching with chunked prefill."""
    before, after = stages("vllm"), stages("vllm+chunking_and_prefix_caching")
    measured = [max(one.measured["throughput_rps"] for one in runs) for runs in (before, after)]
    change = 100 * (measured[1] / measured[0] - 1)
    tables = [SHARED / "aiconfigurator" / f"h100_sxm.vllm-0.14.0.{name}.csv.gz" for name in TABLES]
    known = shape(MODEL)
    assert known is not None
    built = with_overhead(
        kernel_times(ModelKernels(read_kernels(tables), known, 1), MIXED.max_seqs), OVERHEAD
    )
    for what, server, values in (
        ("costs fitted before the change, prompts and decodes together", MIXED, None),
        ("costs fitted before the change, whole prompts between decodes", WHOLE, None),
        ("costs from kernels, whole prompts between decodes before the change", WHOLE, built),
    ):
        if values is None:
            trials = [trial_of(server, one, ScenarioFiles(), 0) for one in before]
            values = fit(trials, hardware("llama-3.1-8b-instruct", 1)).values
        predicted = [carried_rps(server, before[-1], values), carried_rps(AFTER, after[-1], values)]
        own = 100 * (predicted[1] / predicted[0] - 1)
        yield {
            "from": what,
            "before_rps": [round(measured[0], 2), round(predicted[0], 2)],
            "after_rps": [round(measured[1], 2), round(predicted[1], 2)],
            "change_percent": [round(change, 2), round(own, 2)],
            "kept": abs(own - change) <= BAR,
        }


def costs_of(card: str) -> dict[str, float]:
    """The model's costs on a card, from kernels, as the section of a scenario."""
    tables = [SHARED / "aiconfigurator" / f"{card}_sxm.vllm-0.14.0.{name}.csv.gz" for name in TABLES]
    known = shape(MODEL)
    assert known is not None
    own = with_overhead(kernel_times(ModelKernels(read_kernels(tables), known, 1), 256), OVERHEAD)
    return dict(zip(COEFFICIENTS, own.tolist()))


def apart() -> Iterator[dict[str, Any]]:
    """Replicas that do both, and as many of which some prefill and one decodes."""
    for card in ("H100", "A100"):
        for folder in sorted((SHARED / "llmd-disaggregation" / card).iterdir()):
            runs = [
                one for file in sorted(folder.glob("benchmark_*.json")) for one in read_measurements(file)
            ]
            found = [one for one in runs if isinstance(one, Experiment)]
            load = found[0].load
            # Folders are named llm-d-2p1d: two prefill, one decodes; vllm-3replicas.
            digits = [int(one) for one in folder.name if one.isdigit()]
            llm = {
                "max_seqs": 256,
                "token_budget": 8192,
                "kv_blocks": 27_000,
                "kv_token_bytes": 131_072,
                "cost": costs_of(card.lower()),
                "tokens": {"prompt": int(load.prompt.mean()), "output": int(load.output.mean())},
            }
            if len(digits) > 1:
                llm["decode"] = {"replicas": digits[1], "bandwidth_bytes_per_s": 25e9, "latency_ms": 5.0}
            process = {"name": "gamma", "rate_rps": load.rate_rps, "scv": 0.02}
            shown = simulate(
                from_data(
                    {
                        "domain": "serving",
                        "trace": {"process": process, "queries": len(load)},
                        "stages": [{"name": "model", "parents": ["source"]}],
                        "configuration": {"model": {"hardware": card, "replicas": digits[0], "llm": llm}},
                        "prices_usd_per_h": {card: 1.0},
                        "slo_ms": 1e6,
                        "intervals": {"replications": 0},
                    }
                )
            ).summary
            row: dict[str, Any] = {"card": card, "servers": folder.name}
            for name in ("ttft_mean_ms", "tpot_mean_ms"):
                measured = float(np.mean([one.measured[name] for one in found]))
                row[name] = [round(measured, 1), round(float(shown[name]), 1)]
            yield row


def main() -> int:
    """Predict, print; 1 where no prediction keeps the bar or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    found, pools = list(rows()), list(apart())
    if given.json:
        print(json.dumps({"bar_points": BAR, "rows": found, "apart": pools}))
    else:
        print(*map(json.dumps, [*found, *pools]), sep="\n")
    return int(not any(row["kept"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
