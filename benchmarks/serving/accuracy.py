"""How right fitted costs of language models are: every public experiment is predicted from a fit that has not seen it.

    python benchmarks/serving/accuracy.py [--json] [--only rates|steps]

Two sets of measurements, of others: Qwen3-14B under eight loads (vLLM 0.23 on one H100, prompts processed), each
predicted from the seven others, those past saturation as closed loops, of which the throughput is judged; and sampled
steps of two servers. The files are not part of this project: `FORERUN_SHARED` names the folder that has
`data/serving-llm`. Bars are stated below; exit code 1 if the measurements are absent or a median misses its bar. What
misses one by itself is listed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.scenario.spec import Input
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.llm.calibration.calibrate import Compared, interval_errors, is_full
from forerun.serving.llm.calibration.experiment import Steps
from forerun.serving.llm.calibration.fitting import Trial, fit
from forerun.serving.llm.calibration.physics import Physics, from_hardware
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.calibration.steps import fit_steps
from forerun.serving.llm.inputs.architecture import read_architecture
from forerun.serving.llm.scenario.language_model import ModelMemory
from forerun.serving.policies.chunked_prefill import ChunkedPrefill

SHARED = Path(os.environ.get("FORERUN_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "serving-llm"
#: the largest error of each figure, of every experiment below saturation
BARS = {
    "ttft_mean_ms": 0.10, "tpot_mean_ms": 0.03, "e2e_mean_ms": 0.05, "ttft_p99_ms": 0.15, "e2e_p99_ms": 0.15,
    "throughput_rps": 0.05,
}  # fmt: skip
#: mean errors of iterations, within one run and from its lighter half to its heavier
STEP_BARS = {"within": 0.015, "across": 0.03}
#: vLLM 0.23 with its defaults, among them asynchronous scheduling
QWEN = Server(max_seqs=256, token_budget=8192, kv_blocks=18_038, scheduler=ChunkedPrefill(ahead=True))
RATES = ("rate_2", "rate_4", "rate_8", "w5_6", "w5_18", "w5_30", "w7_6", "w7_18")
STEPS = ("20260217-203421-llama-2-70b-hf-tp4-codegen", "20260218-150304-codellama-34b-tp2-general")


def hardware(config: str, tensor_parallel: int) -> Physics:
    """Where the search begins: a model on H100 cards."""
    path = SHARED / "models" / f"{config}.config.json"
    memory = ModelMemory(model=Input(path=str(path)), gpu="H100-80GB", tensor_parallel=tensor_parallel)
    return from_hardware(read_architecture(path), memory)


def trial(server: Server, path: Path) -> Trial:
    """A table of requests, ready to be replayed."""
    (found,) = read_measurements(path)
    assert not isinstance(found, Steps)
    return Trial(found, server.language_model(found.load, ScenarioFiles(), 0), server.replicas)


def predicted(fitted: Sequence[Trial], start: Physics, unseen: Trial) -> dict[str, float]:
    """Relative errors of a trial's figures, by coefficients that are fitted to others."""
    figures, measured = unseen.figures(fit(fitted, start).values), unseen.experiment.measured
    return {name: figures[name] / measured[name] - 1 for name in unseen.compared}


def rates() -> Iterator[dict[str, Any]]:
    """Every load of the rate sweep from the others."""
    start = hardware("qwen3-14b", 1)
    trials = {name: trial(QWEN, SHARED / "qwen3-14b-rate-sweep" / f"{name}.csv.gz") for name in RATES}
    for name, one in trials.items():
        others = [other for key, other in trials.items() if key != name]
        yield row("Qwen3-14B", name, one, predicted(others, start, one))


def row(model: str, name: str, one: Trial, errors: dict[str, float]) -> dict[str, Any]:
    """An experiment with its errors, and what misses its bar; past saturation the throughput alone is judged."""
    if is_full(one):
        errors = {figure: value for figure, value in errors.items() if figure == "throughput_rps"}
    over = [figure for figure, bar in BARS.items() if abs(errors.get(figure, 0.0)) > bar]
    return {
        "model": model,
        "experiment": name,
        "saturated": is_full(one),
        "in_flight": round(one.experiment.in_flight, 1),
        "errors": {figure: round(value, 5) for figure, value in errors.items()},
        "over": over,
    }


def rows(table: Steps, chosen: Any) -> Steps:
    """Some of the iterations."""
    columns = (table.prefill, table.decodes, table.kv, table.took_ms)
    return Steps(table.name, *(column[chosen] for column in columns))


def steps() -> Iterator[dict[str, Any]]:
    """Iterations: two thirds predict one third; the lighter half of a run predicts the heavier."""
    for run in STEPS:
        (table,) = read_measurements(SHARED / "blis" / "steps" / f"{run}.csv.gz")
        assert isinstance(table, Steps)
        decoding = rows(table, table.prefill == 0)
        chosen = np.random.default_rng(0).random(len(decoding)) < 2 / 3
        within = fit_steps([rows(decoding, chosen)]).mean_error(rows(decoding, ~chosen))
        light = decoding.decodes <= np.median(decoding.decodes)
        across = fit_steps([rows(decoding, light)]).mean_error(rows(decoding, ~light))
        yield {
            "run": run,
            "iterations": len(decoding),
            "within": round(within, 5),
            "across": round(across, 5),
        }


def covered(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The share of figures inside an interval that is made of the errors of the model's other experiments."""
    inside, total = 0, 0
    for one in rows:
        others = [
            Compared("", "left out", figure, 1.0, 1.0 + error)
            for other in rows
            if other is not one and other["model"] == one["model"]
            for figure, error in other["errors"].items()
        ]
        widths, _ = interval_errors(others, [], [])
        for figure, error in one["errors"].items():
            if figure in widths:
                total += 1
                inside += abs(np.log1p(error)) <= widths[figure]
    return {"share": round(inside / total, 4), "figures": total} if total else {}


def median(rows: Sequence[dict[str, Any]], figure: str) -> float | None:
    """The median of the absolute errors of a figure."""
    found = [abs(one["errors"][figure]) for one in rows if figure in one["errors"]]
    return round(float(np.median(found)), 5) if found else None


def main() -> int:
    """Predict, print; 1 where a median misses its bar or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("rates", "steps"))
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    sets = {"rates": rates, "steps": steps}
    figures: dict[str, Any] = {}
    for name, measure in sets.items():
        if given.only in (None, name):
            figures[name] = list(measure())
    predictions = figures.get("rates", [])
    figures["bars"] = BARS | {f"step_{name}": bar for name, bar in STEP_BARS.items()}
    figures["medians"] = {figure: median(predictions, figure) for figure in BARS}
    figures["coverage"] = {name: covered(figures[name]) for name in ("rates",) if name in figures}
    if given.json:
        print(json.dumps(figures))
    else:
        for one in predictions:
            shown = ", ".join(
                f"{name} {100 * one['errors'][name]:+.1f}" for name in BARS if name in one["errors"]
            )
            print(
                f"{one['model']} {one['experiment']} ({one['in_flight']:.0f} in flight): {shown}; over: {one['over']}"
            )
        for one in figures.get("steps", []):
            print(
                f"{one['run']}: within {one['within']:.2%}, across {one['across']:.2%} of {one['iterations']} iterations"
            )
        print(figures["medians"], figures["coverage"])
    missed = [name for name, bar in BARS.items() if (figures["medians"][name] or 0) > bar]
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
