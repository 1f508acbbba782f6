"""vLLM's whole engine on processors, under its own benchmark client: twenty loads, each predicted from others.

    python -m validation.vllm.truth [--seconds 45] [--folder FOLDER] [--record FILE]

The model is small and of random weights; its forward passes have one core, server and client another. Half of the loads are
clients that send again as soon as they are answered, half arrive at a rate (steady, in bursts, ramped up). They are parted
into two halves: costs are fitted to one (`forerun fit`), the other is predicted with the instants at which its requests were
sent, or with its number of clients. Exit code 1 if a figure is further off than its bar. A figure that saturates has an
interval and no value; the record counts it as such.

It takes twenty minutes, and judges nothing on a machine that does other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.llm.calibration.calibrate import Compared, calibrate, comparison
from forerun.serving.llm.calibration.experiment import Experiment
from forerun.serving.llm.calibration.fitting import Trial
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.server import Server
from forerun.serving.policies.vllm import Newest
from validation.vllm.differences import releases
from validation.vllm.environment import HOME, prepare

SECONDS: Final = 45.0
#: the largest error of a quantile
BARS: Final = {"p50": 0.05, "p90": 0.10}
#: share of the gaps between tokens that are shorter than those of one decode alone
SHORT: Final = 0.05
METRICS: Final = ("ttft", "tpot", "e2e")
#: as the engine is started; its cache never fills up. It does not compose ahead on processors
SEATS: Final = 16
BUDGET: Final = 512
LONGEST: Final = 2048
BLOCKS: Final = 4096
LIMITS: Final = Server(
    max_seqs=SEATS,
    token_budget=BUDGET,
    kv_blocks=BLOCKS,
    block_tokens=16,
    scheduler=Newest(async_scheduling=False),
)
#: 17 million parameters
MODEL: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 2048,
    "max_position_embeddings": LONGEST,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "dtype": "float32",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
}
#: a tokenizer to which a word is a token
TOKENIZER: Final = f"""
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {{"<unk>": 0, "<s>": 1, "</s>": 2}} | {{f"w{{i}}": i for i in range(3, {MODEL["vocab_size"]})}}
made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(
    tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
).save_pretrained("model")
"""
#: tokens of prompts and of answers on average; each is between half and one and a half of that
LENGTHS: Final = ((128, 64), (384, 32), (64, 128), (256, 64))


@dataclass(frozen=True)
class Sent:
    """A load as the client is asked to send it.

    Parameters
    ----------
    lengths : which of `LENGTHS`.
    clients : that send again once they are answered (0: requests arrive at a rate).
    share : of what the server carries with all seats full; without effect where there are clients.
    options : of the client, beside these.
    """

    lengths: int
    clients: int = 0
    share: float = 0.0
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """In words."""
        prompt, output = LENGTHS[self.lengths]
        load = f"{self.clients} clients" if self.clients else f"{self.share:.0%} of what is carried"
        return " ".join((load + f", prompts of {prompt}, answers of {output}", *self.options))


#: neighbours are in different halves
LOADS: Final = (
    *(Sent(which, clients=SEATS) for which in range(len(LENGTHS))),
    Sent(0, clients=1),
    Sent(3, clients=2),
    Sent(1, clients=4),
    Sent(2, clients=8),
    Sent(3, clients=12),
    Sent(0, clients=24),
    Sent(0, share=0.2),
    Sent(3, share=0.3),
    Sent(1, share=0.4),
    Sent(2, share=0.4),
    Sent(3, share=0.5),
    Sent(0, share=0.5, options=("--burstiness", "0.5")),
    Sent(2, share=0.6),
    Sent(1, share=0.6, options=("--burstiness", "4")),
    Sent(0, share=0.7),
    Sent(3, share=0.7),
)


def say(message: str) -> None:
    """Progress goes where figures do not."""
    print(message, file=sys.stderr, flush=True)


#: sends so many requests of a load at a rate, drawn by a seed, and names the result's file
Client = Callable[[Sent, float, int, int], Path]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Client]:
    """The engine behind HTTP, and its client."""
    program = str(HOME / "bin" / "vllm")
    cores = sorted(os.sched_getaffinity(0))
    variables = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # An engine with a worker beside it spins while that works, on the core of server and client.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    python = str(HOME / "bin" / "python")
    subprocess.run([python, "-c", TOKENIZER], check=True, cwd=folder, env=variables)
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--load-format", "dummy", "--max-model-len", f"{LONGEST}", "--max-num-seqs", f"{SEATS}"]
    options += ["--distributed-executor-backend", "uni", "--max-num-batched-tokens", f"{BUDGET}"]
    options += ["--host", "127.0.0.1", "--port", f"{port}"]
    with (folder / "engine.log").open("w") as log:
        process = subprocess.Popen(
            [program, "serve", "model", *options],
            cwd=folder,
            env=variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def send(load: Sent, rate_rps: float, count: int, seed: int) -> Path:
        made = folder / f"{seed:02}.json"
        if made.exists():
            return made
        prompt, output = LENGTHS[load.lengths]
        asked = [program, "bench", "serve", "--backend", "openai", "--base-url", f"http://127.0.0.1:{port}"]
        asked += ["--model", "model", "--dataset-name", "random", "--ignore-eos", "--disable-tqdm"]
        asked += ["--random-input-len", f"{prompt}", "--random-output-len", f"{output}"]
        asked += ["--random-range-ratio", "0.5", "--num-prompts", f"{count}", "--num-warmups", "4"]
        asked += ["--save-result", "--save-detailed", "--result-filename", made.name]
        asked += ["--seed", f"{seed}"]
        asked += (
            ["--max-concurrency", f"{load.clients}"] if load.clients else ["--request-rate", f"{rate_rps:g}"]
        )
        asked += load.options
        with made.with_suffix(".log").open("w") as log:
            subprocess.run(
                asked,
                check=True,
                cwd=folder,
                env=variables,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, set(cores[:1])),
            )
        return made

    try:
        for _ in range(600):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5),
            ):
                break
            assert process.poll() is None, (folder / "engine.log").read_text()[-2000:]
            time.sleep(0.5)
        keep_apart(process.pid, cores)
        yield send
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def keep_apart(session: int, cores: Sequence[int]) -> None:
    """Forward passes have the last core for themselves."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_engine = (folder / "comm").read_text().startswith("VLLM::Engine")
            if os.getsid(int(folder.name)) == session:
                for thread in (folder / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), {cores[-1]} if is_engine else set(cores[:1]))


@dataclass(frozen=True)
class Judged:
    """A quantile beside its prediction from the other half.

    Parameters
    ----------
    load, figure : which; figures are `ttft`, `tpot` and `e2e`.
    measured_ms, predicted_ms : of it.
    low_ms, high_ms : where the fit says that 90 % of such measurements lie.
    saturating : iterations 5 % longer or shorter would change it by half, so that it has no value.
    """

    load: str
    figure: str
    measured_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    saturating: bool

    @classmethod
    def of(cls, load: str, row: Compared) -> Judged:
        """From a row of a fit."""
        return cls(load, row.figure, row.measured, row.replayed, row.low, row.high, row.saturating)

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return self.predicted_ms / self.measured_ms - 1

    @property
    def bar(self) -> float:
        """How large the error may be."""
        return BARS[self.figure.split("_")[1]]


def measured(send: Client, seconds: float) -> list[Path]:
    """All loads, and the first one once more."""
    carried_rps: dict[int, float] = {}
    for which in range(len(LENGTHS)):
        trial = Sent(which, clients=SEATS)
        result = json.loads(send(trial, 0.0, 6 * SEATS, 90 + which).read_text())
        carried_rps[which] = result["request_throughput"]
        say(f"{trial.name}: carries {carried_rps[which]:.3g} requests a second")
    files = []
    for number, load in enumerate((*LOADS, LOADS[0])):
        part = load.share or min(1.0, 0.15 + load.clients / SEATS)
        rate_rps = part * carried_rps[load.lengths]
        say(f"{number + 1} of {len(LOADS) + 1}: {load.name}")
        files.append(send(load, rate_rps, max(40, round(rate_rps * seconds)), number))
    return files


class Whole(Trial):
    """A load of which all quantiles are predicted, also those of clients that send in turn."""

    @property
    def compared(self) -> tuple[str, ...]:
        """Names of figures."""
        return tuple(f"{metric}_{quantile}_ms" for metric in METRICS for quantile in BARS)


def judged(files: Sequence[Path]) -> list[Judged]:
    """Every load from a fit to the half that it is not in."""
    found = []
    for half in (0, 1):
        say(f"fitting half {half + 1}")
        fitted = calibrate(LIMITS, files[half::2], say=say)
        assert fitted.found is not None
        for number in range(1 - half, len(files), 2):
            (measured,) = read_measurements(files[number], seed=0)
            assert isinstance(measured, Experiment)
            model = LIMITS.language_model(measured.load, ScenarioFiles(), 0)
            rows = comparison(Whole(measured, model, 1), fitted.found.values, "held out", fitted.cost.fit)
            found += [Judged.of(LOADS[number].name, row) for row in rows]
    return found


def summary(rows: Sequence[Judged], files: Sequence[Path]) -> dict[str, Any]:
    """The record."""
    kept = [row for row in rows if not row.saturating]
    by_figure = {
        f"{metric}_{quantile}": [abs(row.error) for row in kept if row.figure == f"{metric}_{quantile}_ms"]
        for metric in METRICS
        for quantile in BARS
    }
    results = [json.loads(file.read_text()) for file in files]
    first, last = results[0], results[-1]
    return {
        "version": releases()[0],
        "loads": len(LOADS),
        "figures": {
            name: {
                "count": len(errors),
                "within": sum(error <= BARS[name.split("_")[1]] for error in errors),
                "mean": sum(errors) / max(len(errors), 1),
                "largest": max(errors, default=0.0),
            }
            for name, errors in by_figure.items()
        },
        "saturating": len(rows) - len(kept),
        "covered": sum(row.low_ms <= row.measured_ms <= row.high_ms for row in rows) / len(rows),
        "first_load_again": {
            name: last[f"median_{name}_ms"] / first[f"median_{name}_ms"] - 1 for name in METRICS[:2]
        },
        # What one decode takes where the server is seldom full: the machine's own speed while it ran each load.
        "short_gaps_ms": {
            load.name: float(np.quantile([1e3 * gap for gaps in one["itls"] for gap in gaps], SHORT))
            for load, one in zip(LOADS, results)
            if load.share
        },
        "rows": [asdict(row) for row in rows],
    }


def main() -> int:
    """Measure, predict, record; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load, about")
    parser.add_argument(
        "--folder", type=Path, help="where results are kept; if it has them, they are judged again"
    )
    parser.add_argument("--record", type=Path, default=Path(__file__).with_name("truth.json"))
    given = parser.parse_args()
    prepare(releases()[0])
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{number:02}.json" for number in range(len(LOADS) + 1)]
        if not all(file.exists() for file in files):
            with served(folder) as send:
                measured(send, given.seconds)
        rows = judged(files[:-1])
        made = summary(rows, files)
    given.record.write_text(json.dumps(made, indent=1) + "\n")
    for name, figure in made["figures"].items():
        print(
            f"{name}: {figure['within']} of {figure['count']} within {BARS[name.split('_')[1]]:.0%}, "
            f"mean {figure['mean']:.1%}, largest {figure['largest']:.1%}"
        )
    over = [row for row in rows if not row.saturating and abs(row.error) > row.bar]
    for row in over:
        print(f"{row.load}: {row.figure} {row.error:+.1%} of {row.measured_ms:.4g} ms")
    print(f"{made['saturating']} saturate; 90 % intervals contain {made['covered']:.0%}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
