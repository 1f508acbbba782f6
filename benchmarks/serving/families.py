"""How often intervals of costs from kernels contain what was measured, in families of experiments that they never saw.

    python benchmarks/serving/families.py [--json]

A family is what shares model, precision, accelerator, program and client: those of `silicon.py`, the models of BLIS's
experiments, a rate sweep of Qwen3-14B, inference-perf's runs of one server (kubecon), and two clusters each of llm-d's and
LMBench's. Each is predicted by a law of servers that is fitted to others, and its intervals are made of the errors of the
others (`intervals`), at 50, 80 and 90 %, and at 95 % where there are enough families. Figures near saturation are
left out, as are servers without a free seat. Beside the coverage stands the mean interval score of logarithms, width plus
penalty [Gneiting and Raftery 2007], and that of one global interval from all other errors together.
The files are not part of this project: `FORERUN_SHARED` names the folder that has `data/serving-llm`. Exit code 1 if they
are absent, if the pooled coverage of 90 % is not from 85 to 95 %, if more than one family is below 70 %, or if the global
interval scores better.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy import SHARED
from intervals import half_widths
from models import SLOWER, TABLES, built, cases, seen_of_table, shape
from settings import CACHED, PLAIN, stages
from settings import built as of_plain_servers
from silicon import graded
from silicon_rows import rows as measured_rows

from forerun.core.result.stats import student_quantile
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.bottom_up import OVERHEAD, Running, kernel_times, with_overhead
from forerun.serving.llm.calibration.calibrate import Compared, comparison, trial_of
from forerun.serving.llm.calibration.experiment import Experiment, recorded
from forerun.serving.llm.calibration.kernel_tables import read_tables
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.calibration.knee import COVERED, unsure
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.policies.chunked_prefill import ChunkedPrefill

LEVELS: Final = (0.5, 0.8, 0.9, 0.95)
FIGURES: Final = (
    "ttft_mean_ms", "ttft_p90_ms", "ttft_p99_ms", "tpot_mean_ms", "e2e_mean_ms", "e2e_p90_ms", "e2e_p99_ms",
)  # fmt: skip
POOLED: Final = (0.85, 0.95)
LEAST: Final = 0.7
#: logarithms of predicted over measured, each with how many times as unsure as iterations the figure is there
Pairs = list[tuple[float, float]]
#: by family and figure
Errors = dict[str, dict[str, Pairs]]
#: replicas of LMBench's plain servers of a 70B model on two A100 each
SERIES: Final = {"exp-0.vllm-70b.sharegpt": 1, "exp-2.vllm-70b-2replicas.sharegpt": 2}


def below_the_knee(runs: Sequence[Experiment]) -> list[Experiment]:
    """Those that take less than twice as long as the fastest."""
    fastest_ms = min(one.measured["e2e_mean_ms"] for one in runs)
    return [one for one in runs if one.measured["e2e_mean_ms"] < SLOWER * fastest_ms]


def of_rows(rows: Sequence[Compared]) -> Iterator[tuple[str, float, float]]:
    """(figure, logarithm of predicted over measured, growth) of what is judged."""
    for row in rows:
        if row.figure in FIGURES and not row.saturating and not row.full:
            grows = unsure(row.figure, row.replayed, row.growth, OVERHEAD.client_ms)
            yield row.figure, row.growth * row.log_error, grows


def errors_by_family() -> Errors:
    """The errors of all families."""
    found: Errors = {}

    def add(family: str, errors: Iterable[tuple[str, float, float]]) -> None:
        for figure, error, grows in errors:
            found.setdefault(family, {}).setdefault(figure, []).append((error, grows))

    for row in built(cases())["rows"]:
        family = f"{row['model']}, {'rate sweep' if row['kind'] == 'sweep' else 'BLIS'}"
        for name, error in row["errors"].items():
            grows = unsure(name, row["replayed_ms"][name], row["grows"].get(name, 1.0), OVERHEAD.client_ms)
            add(family, [(name, float(np.log1p(error)), grows)])
    with tempfile.TemporaryDirectory() as folder:
        for one in graded(measured_rows(Path(folder)), seen_of_table()):
            add(one["family"], (("tpot_mean_ms", float(np.log1p(error)), 1.0) for *_, error in one["errors"]))
    _, values = of_plain_servers("h100", PLAIN.max_seqs)
    for server, runs in ((PLAIN, "vllm"), (CACHED, "vllm+chunking_and_prefix_caching")):
        for run in below_the_knee(stages(runs)):
            trial = trial_of(server, run, ScenarioFiles(), 0)
            add("Llama-3.1-8B, H100, kubecon", of_rows(comparison(trial, values, "held out")))
    for card in ("H100", "A100"):
        _, values = of_plain_servers(card.lower(), 256)
        # They are behind a Service of Kubernetes.
        # What only decodes launches kernels one by one there, so those of it are not as these.
        for servers in sorted((SHARED / "llmd-disaggregation" / card).glob("vllm-*replicas")):
            behind = {"replicas": int(servers.name[5]), "balance": "random"}
            server = PLAIN.with_(max_seqs=256, **behind)
            for file in sorted(servers.glob("benchmark_*.json")):
                for one_run in read_measurements(file):
                    assert isinstance(one_run, Experiment)
                    rows = comparison(trial_of(server, one_run, ScenarioFiles(), 0), values, "held out")
                    add(f"Llama-3.1-8B, {card}, llm-d", of_rows(rows))
    for series, replicas in SERIES.items():
        add(f"Llama-3.1-70B, 2 x A100, LMBench {series.split('.')[0]}", lmbench(series, replicas))
    return found


def lmbench(series: str, replicas: int) -> Iterator[tuple[str, float, float]]:
    """Errors of one series; how much of its prompts was in the cache is not known, so the time per token alone is judged."""
    names = [f"a100_sxm.vllm-0.14.0.{name}.csv.gz" for name in TABLES[:4]]
    tables = Kernels.of(read_tables([SHARED / "aiconfigurator" / name for name in names])[-1], Precision())
    known = shape("meta-llama/Llama-3.1-70B-Instruct")
    assert known is not None
    # vLLM's default on an A100 is a budget of 2048.
    server = Server(
        max_seqs=256,
        token_budget=2048,
        kv_blocks=5_000,
        replicas=replicas,
        scheduler=ChunkedPrefill(),
    )
    kernels = ModelKernels(tables, known, 2, ACCELERATORS["A100-80GB"])
    running = Running.of("vllm", 2, server.max_seqs, ahead=server.scheduler.rules().ahead)
    values = with_overhead(kernel_times(kernels, 64), OVERHEAD, known, running)
    with gzip.open(SHARED / "lmbench" / f"{series}.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        read = list(csv.DictReader(lines))
    runs = []
    for rate in dict.fromkeys(row["qps"] for row in read):
        own = [row for row in read if row["qps"] == rate]
        launch, prompt, output, ttft, rest = (
            np.array([float(row[key]) for row in own])
            for key in ("launch_s", "prompt_tokens", "generation_tokens", "ttft_s", "generation_s")
        )
        tokens = (prompt.astype(np.int64), np.maximum(output, 1).astype(np.int64))
        runs.append(recorded(rate, 1e3 * launch, 1e3 * launch, 1e3 * ttft, 1e3 * (ttft + rest), tokens))
    for one in below_the_knee(runs):
        rows = comparison(trial_of(server, one, ScenarioFiles(), 0), values, "held out")
        yield from of_rows([row for row in rows if row.figure == "tpot_mean_ms"])


def judged(found: Errors) -> dict[str, Any]:
    """Coverage and scores, each family by intervals from the others."""
    families: dict[str, Any] = {}
    for family, own in found.items():
        row: dict[str, Any] = {"figures": sum(map(len, own.values()))}
        others = [rest for name, rest in found.items() if name != family]
        for level in LEVELS:
            halves = half_widths(list(map(grown, others)), level)
            if max(halves.values()) < np.inf:
                parts = [
                    of_figure(
                        errors,
                        halves[figure],
                        [one for rest in others for one in rest.get(figure, ())],
                        level,
                    )
                    for figure, errors in own.items()
                ]
                row[f"{level:g}"] = {"count": row["figures"]} | {
                    name: round(float(np.concatenate(one).mean()), 4)
                    for name, one in zip(("inside", "width", "score", "global"), zip(*parts))
                }
        families[family] = row
    return families


def grown(family: Mapping[str, Pairs]) -> dict[str, list[float]]:
    """Errors over what they grow by."""
    return {figure: [error / grows for error, grows in own] for figure, own in family.items()}


def of_figure(own: Pairs, half: float, others: Pairs, level: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Of each error of a figure: whether it is inside, the width, the score, and that of one interval from all others.

    Parameters
    ----------
    own : errors of the family, with what they grow by.
    half : the width to either side, of what grows as iterations do.
    others : the same of other families.
    level : share that the interval should contain.
    """
    sizes, grows = np.abs(np.array(own)).T
    every = np.array([error for error, _ in others])
    wide = (
        student_quantile(0.5 + level / 2, len(every))
        * np.sqrt(1 + 1 / len(every))
        * np.sqrt((every**2).mean())
    )

    def score(halves: Floats) -> Floats:
        return np.asarray(2 * halves + 2 / (1 - level) * np.maximum(sizes - halves, 0.0))

    return sizes <= half * grows, 2 * half * grows, score(half * grows), score(np.full(len(sizes), wide))


def pooled(families: Mapping[str, Any], level: str) -> dict[str, float]:
    """The same over all families, each figure once."""
    rows = [row[level] for row in families.values() if level in row]
    counts = np.array([row["count"] for row in rows], dtype=np.float64)
    return {"families": len(rows), "figures": int(counts.sum())} | {
        name: round(float(np.array([row[name] for row in rows]) @ counts / counts.sum()), 4)
        for name in ("inside", "width", "score", "global")
    }


def main() -> int:
    """Predict, print; 1 where a bar is missed or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    found = errors_by_family()
    families = judged(found)
    wholes = {f"{level:g}": pooled(families, f"{level:g}") for level in LEVELS}
    whole, level = wholes[f"{COVERED:g}"], f"{COVERED:g}"
    below = [name for name, row in families.items() if level in row and row[level]["inside"] < LEAST]
    widths = half_widths(list(map(grown, found.values())), COVERED)
    missed = [
        what
        for what, wrong in (
            (f"pooled coverage {whole['inside']:.3f}", not POOLED[0] <= whole["inside"] <= POOLED[1]),
            (f"below {LEAST:.0%}: {', '.join(below)}", len(below) > 1),
            (
                f"score {whole['score']} over that of one interval, {whole['global']}",
                whole["score"] >= whole["global"],
            ),
        )
        if wrong
    ]
    figures = {
        "errors": {
            name: {figure: np.round(own, 5).tolist() for figure, own in rest.items()}
            for name, rest in found.items()
        },
        "families": families,
        "pooled": wholes,
        "widths": {name: round(half, 4) for name, half in widths.items()},
        "missed": missed,
    }
    if given.json:
        print(json.dumps(figures))
    else:
        for name, row in families.items():
            print(name, json.dumps(row))
        print(json.dumps(wholes), json.dumps(widths), missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
