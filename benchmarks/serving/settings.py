"""What a change of a server's settings is worth, from the server before the change alone: how far off the prediction is.

    python benchmarks/serving/settings.py [--json]

Measurements of others (kubernetes-sigs/inference-perf): Llama 3.1 8B on one H100 under vLLM 0.11, seven rates up to past
saturation, without prefix caching and chunked prefill, and with both. Predicted is the highest rate that the server carries
afterwards over that before: from costs fitted to the run before, with whole prompts between decodes and with both in one
iteration, and from kernels. The files are not part of this project: `FORERUN_SHARED` names the folder that has
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

from forerun.domains.serving.calibration.bottom_up import OVERHEAD, kernel_times, with_overhead
from forerun.domains.serving.calibration.calibrate import trial_of
from forerun.domains.serving.calibration.experiment import Experiment, Load
from forerun.domains.serving.calibration.fitting import fit
from forerun.domains.serving.calibration.kernels import ModelKernels, read_kernels
from forerun.domains.serving.calibration.readers import read_measurements
from forerun.domains.serving.calibration.server import Server
from forerun.domains.serving.inputs import ScenarioFiles
from forerun.domains.serving.inputs.pipeline import Floats
from forerun.domains.serving.policies.prefill_first import PrefillFirst
from forerun.domains.serving.scenario.language_model import DrawnPrefixes

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


def main() -> int:
    """Predict, print; 1 where no prediction keeps the bar or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    found = list(rows())
    if given.json:
        print(json.dumps({"bar_points": BAR, "rows": found}))
    else:
        print(*map(json.dumps, found), sep="\n")
    return int(not any(row["kept"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
