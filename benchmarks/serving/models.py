"""How right predictions of language models' servers are that nobody measured under that load, or at all.

    python benchmarks/serving/models.py [--json] [--only fitted|built]

Measurements of others: the experiments of BLIS (vLLM, many models, prompts nearly all in the prefix cache). `fitted`: every
workload of a model, accelerator and tensor parallelism is predicted by costs that are fitted to its other workloads.
`built`: every 16-bit model is predicted from its configuration and public tables of kernels; what a server takes beyond
kernels is fitted to the other dense models. Experiments past saturation are left out, and so are those whose rate is not
public.
The files are not part of this project: `FORERUN_SHARED` names the folder that has `data/serving-llm`. Bars are stated below;
exit code 1 if the measurements are absent or a median misses its bar. What misses one by itself is listed.
"""

from __future__ import annotations

import argparse
import csv
import functools
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy import QWEN, RATES, SHARED, covered, trial
from occupancy import Occupied
from overheads import Seen, overhead_of
from silicon_rows import rows as measured_rows
from silicon_rows import seen_of

from forerun.core.scenario.spec import Input
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.bottom_up import (
    Overhead,
    Running,
    kernel_times,
    with_overhead,
)
from forerun.serving.llm.calibration.calibrate import Compared, comparison, interval_errors
from forerun.serving.llm.calibration.experiment import Experiment, Load, recorded
from forerun.serving.llm.calibration.fitting import Trial, fit
from forerun.serving.llm.calibration.kernel_tables import read_tables
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.calibration.physics import Physics, from_hardware, from_measurements
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.inputs.architecture import Architecture, read_architecture
from forerun.serving.llm.scenario.language_model import DrawnPrefixes, ModelMemory
from forerun.serving.policies.chunked_prefill import ChunkedPrefill

SEATS: Final = 128
RUNNING: Final = Running.of("vllm", 1, SEATS, ahead=True)
#: blocks of the cache where a table does not say it; none of these experiments comes near
BLOCKS: Final = 26_000
#: an experiment is below the knee with less than this share of the seats taken, and less than this over the whole time of
#: the lightest load
SEATS_SHARE: Final = 0.85
SLOWER: Final = 2.0
#: the figures that are judged, and the largest error: of each experiment, of the median for the time per token
FIGURES: Final = (
    "ttft_mean_ms", "ttft_p90_ms", "ttft_p99_ms", "tpot_mean_ms", "e2e_mean_ms", "e2e_p90_ms", "e2e_p99_ms",
)  # fmt: skip
FITTED_BARS: Final = {
    "ttft_mean_ms": 0.10, "tpot_mean_ms": 0.03, "e2e_mean_ms": 0.05, "ttft_p99_ms": 0.15, "e2e_p99_ms": 0.15,
}  # fmt: skip
BUILT_BARS: Final = {"ttft_mean_ms": 0.15, "tpot_mean_ms": 0.06, "e2e_mean_ms": 0.065}


@dataclass(frozen=True)
class Workload:
    """What clients send: sessions whose prompts begin alike (inference-perf's shared prefixes, constant rates).

    Parameters
    ----------
    sessions : prompts that exist.
    prompt, output : tokens.
    seconds : of each of its stages.
    """

    sessions: int
    prompt: int
    output: int
    seconds: float = 600.0


WORKLOADS: Final = {
    "codegen": Workload(44, 566, 247),
    "general": Workload(45, 547, 248),
    "roleplay": Workload(50, 750, 251, 1200.0),
    "reasoning": Workload(23, 1034, 1448, 1200.0),
    "reasoning-lite": Workload(23, 1034, 1448, 1200.0),
}
#: configurations by what the experiments call the model; two have the shape of another
CONFIGS: Final = {
    "Qwen/Qwen3-14B": "qwen3-14b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b-instruct",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b-instruct-hf",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b-hf",
    "meta-llama/Llama-2-70b-hf": "llama-3.1-70b-instruct",
    "meta-llama/Llama-3.1-70B-Instruct": "llama-3.1-70b-instruct",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b-instruct",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b-v0.1",
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": "llama-4-scout-17b-16e-instruct-fp8-dynamic",
}
#: tokens that exist, where that is not as in the configuration
VOCABULARIES: Final = {"meta-llama/Llama-2-70b-hf": 32_000}
#: the model of a rate sweep
SWEPT: Final = "Qwen/Qwen3-14B"
CARDS: Final = {"H100": "H100-80GB"}
TABLES: Final = (
    "gemm_perf", "generation_attention_perf", "context_attention_perf", "custom_allreduce_perf", "moe_perf",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An experiment, or a stage of one, ready to be replayed.

    Parameters
    ----------
    group : (model, accelerator, tensor parallelism).
    kind : `dense`, `experts` or `8 bits`.
    workload, name : of the experiment.
    trial : the load and what was measured.
    """

    group: tuple[str, str, int]
    kind: str
    workload: str
    name: str
    trial: Trial

    @property
    def in_flight(self) -> float:
        """Requests under way on average."""
        return self.trial.experiment.in_flight

    @property
    def title(self) -> str:
        """The model as tables show it."""
        model, card, split = self.group
        return f"{model.split('/')[-1]}, {split} x {card}"


def rows_of_table() -> list[dict[str, str]]:
    """Stages of the experiments that did not saturate and whose rate is known."""
    with (SHARED / "blis" / "experiments.csv").open(encoding="utf-8", newline="") as lines:
        return [
            row
            for row in csv.DictReader(lines)
            if row["regime"] == "normal"
            and row["offered_rate_rps"]
            and row["workload"] in WORKLOADS
            and row["hardware"] in CARDS
        ]


def group_of(row: Mapping[str, str]) -> tuple[str, str, int]:
    """Model, accelerator and tensor parallelism; the two forms of one model are one."""
    return row["model"].replace("8x22B-Instruct", "8x22B"), row["hardware"], int(row["tp"])


def server_of(row: Mapping[str, str], workload: Workload, prompt: int) -> Server:
    """The server's limits, with prompts of which all but the last tokens are in the cache; iterations are composed ahead,
    the default of vLLM when these experiments ran."""
    shared = DrawnPrefixes(system_prompts=workload.sessions, system_tokens=(prompt - 1) // 16 * 16)
    blocks = int(row["kv_blocks_total_gpu"] or BLOCKS)
    return Server(
        max_seqs=SEATS,
        token_budget=int(row["max_num_batched_tokens"]),
        kv_blocks=blocks,
        prefix_cache=shared,
        scheduler=ChunkedPrefill(ahead=True),
        replicas=int(row["dp"] or 1),
    )


def of_table(row: Mapping[str, str]) -> tuple[Experiment, Server]:
    """A stage of which only figures are public, with answers as long as they were asked for."""
    workload, rate_rps = WORKLOADS[row["workload"]], float(row["offered_rate_rps"])
    measured = {
        f"{metric}_{share}_ms": float(row[f"{metric}_{share}_ms"])
        for metric in ("ttft", "e2e")
        for share in ("mean", "p90", "p99")
    }
    measured["tpot_mean_ms"] = (measured["e2e_mean_ms"] - measured["ttft_mean_ms"]) / (workload.output - 1)
    measured["throughput_rps"] = rate_rps
    n = round(rate_rps * workload.seconds)
    gaps_ms = np.random.default_rng(0).exponential(1e3 / rate_rps, n)
    sizes = (np.full(n, workload.prompt), np.full(n, workload.output))
    load = Load(np.cumsum(gaps_ms) - gaps_ms[0], *sizes)
    return Experiment(f"{row['experiment']}, stage {row['stage']}", load, measured), server_of(
        row, workload, workload.prompt
    )


def of_requests(row: Mapping[str, str]) -> tuple[Experiment, Server]:
    """A run whose requests are public, with answers as long as they were asked for: the client counts the tokens of the
    text, of which some answers, as long in coming as the others, have none."""
    workload = WORKLOADS[row["workload"]]
    with gzip.open(
        SHARED / "blis" / "requests" / row["requests_file"], "rt", encoding="utf-8", newline=""
    ) as lines:
        read = [one for one in csv.DictReader(lines) if one["error"] == "0"]
    arrival_ms, prompt, ttft_ms, e2e_ms = (
        np.array([float(one[key]) for one in read]) * factor
        for key, factor in (
            ("arrival_us", 1e-3), ("input_tokens", 1), ("ttft_s", 1e3), ("e2e_s", 1e3),
        )
    )  # fmt: skip
    tokens = (prompt.astype(np.int64), np.full(len(prompt), workload.output))
    found = recorded(row["experiment"], arrival_ms, arrival_ms, ttft_ms, e2e_ms, tokens)
    return found, server_of(row, workload, int(prompt.min()))


def cases() -> list[Case]:
    """Every experiment below the knee."""
    found, seen = [], set()
    for row in rows_of_table():
        name = row["experiment"]
        if row["requests_file"]:
            if name in seen:
                continue
            experiment, server = of_requests(row)
        else:
            experiment, server = of_table(row)
        seen.add(name)
        kind = "8 bits" if row["precision"] == "FP8" else "experts" if "ixtral" in row["model"] else "dense"
        trial = Trial(
            replace(experiment, load=experiment.load),
            server.language_model(experiment.load, ScenarioFiles(), 0),
            server.replicas,
        )
        found.append(Case(group_of(row), kind, row["workload"], experiment.name, trial))
    return [one for one in found if below_the_knee(one, found)]


def below_the_knee(one: Case, all_cases: Sequence[Case]) -> bool:
    """Whether there are seats left, and the whole takes less than twice as long as under the lightest such load."""
    if one.in_flight > SEATS_SHARE * SEATS * one.trial.replicas:
        return False
    alike = [other for other in all_cases if (other.group, other.workload) == (one.group, one.workload)]
    whole_ms = one.trial.experiment.measured["e2e_mean_ms"]
    return whole_ms < SLOWER * min(other.trial.experiment.measured["e2e_mean_ms"] for other in alike)


def shape(model: str) -> Architecture | None:
    """A model's shape, if its configuration is at hand."""
    name = CONFIGS.get(model)
    if name is None:
        return None
    read = read_architecture(SHARED / "models" / f"{name}.config.json")
    return replace(read, vocabulary=VOCABULARIES.get(model, read.vocabulary))


def start_of(group: tuple[str, str, int], trials: Sequence[Trial]) -> Physics:
    """Where a search begins: at what the hardware can do, where the configuration is at hand."""
    model, card, split = group
    known = shape(model)
    if known is None:
        return from_measurements([one.experiment for one in trials])
    memory = ModelMemory(model=Input(path=model), gpu=CARDS[card], tensor_parallel=split)
    return from_hardware(known, memory)


def row_of(one: Case, compared: Sequence[Compared], bars: Mapping[str, float]) -> dict[str, Any]:
    """A prediction: errors of the figures that are judged, and what misses its bar."""
    errors = {row.figure: row.error for row in compared if row.figure in FIGURES and not row.saturating}
    return {
        "model": one.title,
        "kind": one.kind,
        "workload": one.workload,
        "experiment": one.name,
        "requests": one.name.count(", stage") == 0,
        "in_flight": round(one.in_flight, 1),
        "errors": {name: round(value, 5) for name, value in errors.items()},
        "replayed_ms": {row.figure: round(row.replayed, 3) for row in compared if row.figure in errors},
        "grows": {
            row.figure: round(row.growth, 3) for row in compared if row.figure in errors and row.growth > 1
        },
        "saturating": [row.figure for row in compared if row.saturating],
        "over": [name for name, bar in bars.items() if abs(errors.get(name, 0.0)) > bar],
    }


def fitted(all_cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Every workload of a server from the others."""
    for group in dict.fromkeys(one.group for one in all_cases):
        own = [one for one in all_cases if one.group == group]
        workloads = list(dict.fromkeys(one.workload for one in own))
        for workload in workloads:
            others = [one.trial for one in own if one.workload != workload]
            if not others:
                continue
            values = fit(others, start_of(group, others)).values
            print(f"{group} without {workload}: {values.tolist()}", file=sys.stderr, flush=True)
            for one in own:
                if one.workload == workload:
                    yield row_of(one, comparison(one.trial, values, "left out"), FITTED_BARS)


def seen_of_table(kernels: Mapping[tuple[str, str, int], Floats] | None = None) -> list[Seen]:
    """The mean iterations of the stages of dense 16-bit models, under as many requests as were under way; their prompts were
    in the prefix cache.

    Parameters
    ----------
    kernels : coefficients of the kernels alone, by model, accelerator and tensor parallelism (default: of all there are).
    """
    made = []
    if kernels is None:
        kernels = {
            group: kernels_of(tables(), group)
            for group in {group_of(row) for row in rows_of_table() if row["precision"] != "FP8"}
            if (known := shape(group[0])) is not None and not known.experts
        }
    for row in rows_of_table():
        group, workload = group_of(row), WORKLOADS[row["workload"]]
        if group not in kernels or row["precision"] == "FP8":
            continue
        known = shape(group[0])
        assert known is not None
        ttft_ms, e2e_ms = float(row["ttft_mean_ms"]), float(row["e2e_mean_ms"])
        count = float(row["offered_rate_rps"]) * e2e_ms / 1e3 / int(row["dp"] or 1)
        of = Occupied(count, 0.0, 0.0, workload.prompt + workload.output / 2)
        tpot_ms = (e2e_ms - ttft_ms) / (workload.output - 1)
        made.append(Seen(group[0], kernels[group], known, RUNNING, of, tpot_ms))
    return made


def client_ms_of(kernels: Mapping[tuple[str, str, int], Floats], without: str = "") -> float:
    """What passes between a client and the queue, and back: the median over the stages.

    Parameters
    ----------
    kernels : by model, accelerator and tensor parallelism: those whose stages count.
    without : a model whose stages are left out (default: none).
    """
    rest_ms = []
    for row in rows_of_table():
        group, workload = group_of(row), WORKLOADS[row["workload"]]
        if group in kernels and group[0] != without:
            ttft_ms, e2e_ms = float(row["ttft_mean_ms"]), float(row["e2e_mean_ms"])
            # It comes within an iteration, the next one is composed already, and the one behind that is its own.
            rest_ms.append(ttft_ms - 2.5 * (e2e_ms - ttft_ms) / (workload.output - 1))
    return float(np.median(rest_ms))


@functools.cache
def tables() -> Kernels:
    """Times of kernels on the accelerator of these experiments."""
    folder = SHARED / "aiconfigurator"
    return Kernels.of(
        read_tables([folder / f"h100_sxm.vllm-0.14.0.{name}.csv.gz" for name in TABLES])[-1], Precision()
    )


def kernels_of(found: Kernels, group: tuple[str, str, int]) -> Floats:
    """Coefficients of the kernels alone of a model on accelerators that share it."""
    known = shape(group[0])
    assert known is not None
    return kernel_times(ModelKernels(found, known, group[2], ACCELERATORS[CARDS[group[1]]]), SEATS)


def sweep(law: Overhead) -> Iterator[dict[str, Any]]:
    """Another server of one of the models, whose prompts are processed: its loads that the client did not hold back."""
    folder, known = SHARED / "aiconfigurator", shape(SWEPT)
    assert known is not None
    names = [f"h100_sxm.vllm-0.24.0.{name}.csv.gz" for name in TABLES[:3]]
    found = Kernels.of(read_tables([folder / name for name in names])[-1], Precision())
    own = kernel_times(ModelKernels(found, known, 1, ACCELERATORS[CARDS["H100"]]), QWEN.max_seqs)
    values = with_overhead(own, law, known, Running.of("vllm", 1, QWEN.max_seqs, ahead=True))
    for name in RATES:
        one = trial(QWEN, SHARED / "qwen3-14b-rate-sweep" / f"{name}.csv.gz")
        if not one.experiment.holds_back:
            case = Case((SWEPT, "H100", 1), "sweep", "sweep", name, one)
            yield row_of(case, comparison(one, values, "left out"), BUILT_BARS)


def built(all_cases: Sequence[Case]) -> dict[str, Any]:
    """Every 16-bit model from its kernels and what servers of other models take beyond theirs."""
    known = [one for one in all_cases if one.kind != "8 bits" and shape(one.group[0]) is not None]
    alone = {group: kernels_of(tables(), group) for group in dict.fromkeys(one.group for one in known)}
    kernels = {
        group: alone[group] for group in dict.fromkeys(one.group for one in known if one.kind == "dense")
    }
    with tempfile.TemporaryDirectory() as folder:
        others = [seen_of(row) for row in measured_rows(Path(folder)) if not row.queued]
    seen = [*seen_of_table(kernels), *others]

    def law_without(model: str) -> Overhead:
        law = overhead_of([one for one in seen if one.family != model])
        return replace(law, client_ms=client_ms_of(kernels, model))

    rows, compared, inside = [], [], []
    for group, own in alone.items():
        # No model with experts is among those that the law is fitted to.
        law, model = law_without(group[0]), cast(Architecture, shape(group[0]))
        print(f"{group}: {law}", file=sys.stderr, flush=True)
        for one in known:
            if one.group == group:
                found = comparison(one.trial, with_overhead(own, law, model, RUNNING), "left out")
                compared += [(group[0], row) for row in found if one.kind == "dense"]
                rows.append(row_of(one, found, BUILT_BARS))
    rows += list(sweep(law_without(SWEPT)))
    for group in kernels:
        widths, _ = interval_errors([row for model, row in compared if model != group[0]], [], [])
        inside += [
            abs(np.log1p(row.error)) <= widths[row.figure]
            for model, row in compared
            if model == group[0] and row.figure in FIGURES and row.figure in widths and not row.saturating
        ]
    return {
        "rows": rows,
        "overhead": {name: round(value, 5) for name, value in vars(law_without("")).items()},
        "experiments": len({one.family for one in seen}),
        "coverage": {"share": round(float(np.mean(inside)), 4), "figures": len(inside)},
    }


def medians(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Median, mean and largest absolute error of each figure."""
    made = {}
    for name in FIGURES:
        sizes = [abs(row["errors"][name]) for row in rows if name in row["errors"]]
        if sizes:
            made[name] = {
                "median": round(float(np.median(sizes)), 5),
                "mean": round(float(np.mean(sizes)), 5),
                "most": round(max(sizes), 5),
            }
    return made


def main() -> int:
    """Predict, print; 1 where a median misses its bar or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("fitted", "built"))
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    all_cases = cases()
    figures: dict[str, Any] = {"bars": {"fitted": FITTED_BARS, "built": BUILT_BARS}}
    if given.only in (None, "fitted"):
        rows = list(fitted(all_cases))
        kinds = sorted({row["kind"] for row in rows})
        figures["fitted"] = {
            "rows": rows,
            "errors": {kind: medians([row for row in rows if row["kind"] == kind]) for kind in kinds},
            "coverage": covered(rows),
        }
    if given.only in (None, "built"):
        figures["built"] = built(all_cases)
        rows = figures["built"]["rows"]
        figures["built"]["errors"] = {
            kind: medians([row for row in rows if row["kind"] == kind])
            for kind in ("dense", "experts", "sweep")
        }
    if given.json:
        print(json.dumps(figures))
    else:
        print_rows(figures)
    missed = [
        name
        for part, bars in (("fitted", FITTED_BARS), ("built", BUILT_BARS))
        if part in figures
        for name, bar in bars.items()
        if figures[part]["errors"]["dense"].get(name, {"median": 0.0})["median"] > bar
    ]
    return int(bool(missed))


def print_rows(figures: Mapping[str, Any]) -> None:
    """What was found, in words."""
    for part in ("fitted", "built"):
        for row in figures.get(part, {}).get("rows", []):
            shown = ", ".join(f"{name} {100 * error:+.1f}" for name, error in row["errors"].items())
            print(
                f"{part} {row['model']} {row['experiment']} ({row['in_flight']:.0f} in flight): {shown}; over: {row['over']}"
            )
        rest = {key: value for key, value in figures.get(part, {}).items() if key != "rows"}
        print(json.dumps(rest, indent=1))


if __name__ == "__main__":
    sys.exit(main())
