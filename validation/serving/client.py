"""AIPerf as the client of `truth.py`: a load sent to a server at its instants, and what came of every request.

AIPerf is installed from the package index, once, in an environment of its own in the cache folder. Requests are complete
payloads whose prompts are numbers of tokens, so neither side needs a tokenizer. Each goes at its instant, or, where the
load says how many may be under way, as soon as another ends. The server counts tokens.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from forerun.core.data.fetch import cache_dir
from forerun.core.rng import stream
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.calibration.experiment import Load

PACKAGE: Final = "aiperf==0.13.0"
RECORDS: Final = "profile_export.jsonl"
# fmt: off
OPTIONS: Final = (
    "--endpoint-type", "completions", "--streaming", "--use-server-token-count", "--connection-reuse-strategy", "never",
    "--custom-dataset-type", "mooncake_trace", "--workers-max", "1", "--record-processors", "1", "--ui-type", "none",
    "--export-level", "records", "--no-gpu-telemetry", "--no-server-metrics",
)
# fmt: on


@dataclass(frozen=True)
class Sent:
    """Requests that were answered, in the order they were sent; arrays by request. Instants in ms since the first was sent.

    Parameters
    ----------
    file : of the client's records, or a table, for `calibrate`.
    load : what was sent and when, with the tokens that the server counted.
    ttft_ms, e2e_ms : float64[n], to the first and to the last token.
    gaps_ms : times between the tokens of each answer.
    lag_ms : float64[n], how much later than due each was sent, over the least late.
    failed : requests that were not answered.
    """

    file: Path
    load: Load
    ttft_ms: Floats = field(repr=False)
    e2e_ms: Floats = field(repr=False)
    gaps_ms: tuple[Floats, ...] = field(repr=False)
    lag_ms: Floats = field(repr=False)
    failed: int

    @property
    def throughput_rps(self) -> float:
        """Requests answered a second, from the first that was sent to the last token."""
        return len(self.load) * 1e3 / float((self.load.send_ms + self.e2e_ms).max())

    def times_ms(self, rows: Ints) -> dict[str, Floats]:
        """Times of some requests by kind: one each, and all times between tokens together."""
        ttft_ms, e2e_ms, output = self.ttft_ms[rows], self.e2e_ms[rows], self.load.output[rows]
        several = output > 1
        return {
            "ttft": ttft_ms,
            "tpot": (e2e_ms - ttft_ms)[several] / (output[several] - 1),
            "itl": np.concatenate([np.empty(0), *(self.gaps_ms[row] for row in rows.tolist())]),
            "e2e": e2e_ms,
        }


def installed(folder: Path, package: str, **environment: str) -> Path:
    """The Python of an environment with a package, made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    print(f"{package} in {folder}", file=sys.stderr, flush=True)
    made = [str(python), "-m", "pip", "install", "--quiet", package]
    subprocess.run(made, env={**os.environ, **environment}, check=True, stdout=sys.stderr)
    return python


def send(url: str, load: Load, words: tuple[int, int], folder: Path) -> Sent:
    """Send a load and follow every answer to its end.

    Parameters
    ----------
    url : of the server.
    load : when to send what, and how many may be under way.
    words : the lowest and the highest number of a token of prompts.
    folder : of the client's files.
    """
    python = installed(cache_dir() / "aiperf", PACKAGE)
    folder.mkdir(parents=True, exist_ok=True)
    requests, tokenizer = folder / "requests.jsonl", folder / "tokenizer"
    _write_requests(requests, load, words)
    _write_tokenizer(tokenizer)
    paced = ["--fixed-schedule"]
    if load.most_in_flight is not None:
        paced = ["--concurrency", f"{load.most_in_flight}", "--request-count", f"{len(load)}"]
        paced += ["--dataset-sampling-strategy", "sequential"]
    command = [str(python.with_name("aiperf")), "profile", "--model", "model", "--url", url, *OPTIONS, *paced]
    command += [
        "--input-file",
        str(requests),
        "--tokenizer",
        str(tokenizer),
        "--output-artifact-dir",
        str(folder),
    ]
    with (folder / "client.log").open("w") as log:
        done = subprocess.run(command, stdout=log, stderr=log, check=False)
    assert done.returncode == 0, (folder / "client.log").read_text()[-2000:]
    return read(folder, load)


def read(folder: Path, load: Load) -> Sent:
    """What the client saw of a load."""
    records = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    good = [one for one in records if one.get("error") is None]
    good.sort(key=lambda one: one["metadata"]["request_start_ns"])
    number = np.array([one["metadata"]["session_num"] for one in good])

    def column(name: str) -> Floats:
        return np.array([one["metrics"][name]["value"] for one in good], dtype=np.float64)

    sent_ns = [one["metadata"]["request_start_ns"] for one in good]
    sent_ms = np.array([at - sent_ns[0] for at in sent_ns]) / 1e6
    lag_ms = sent_ms - load.send_ms[number]
    prompt, output = (column(f"{which}_sequence_length").astype(np.int64) for which in ("input", "output"))
    gaps_ms = tuple(
        np.array(one["metrics"].get("inter_chunk_latency", {"value": []})["value"]) for one in good
    )
    sent = Sent(
        folder / RECORDS,
        Load(sent_ms, prompt, output, load.most_in_flight),
        column("time_to_first_token"),
        column("request_latency"),
        gaps_ms,
        lag_ms - lag_ms.min(),
        len(records) - len(good),
    )
    return sent if load.most_in_flight is None else _as_table(sent, folder / "requests.csv")


def _as_table(sent: Sent, path: Path) -> Sent:
    """The same as a table that says when requests were due: the client's records do not say that it held them back."""
    names = ("arrival_ms", "send_ms", "prompt_tokens", "output_tokens", "ttft_ms", "e2e_ms")
    columns = (sent.load.send_ms, sent.load.prompt, sent.load.output, sent.ttft_ms, sent.e2e_ms)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows((0, *row) for row in zip(*(column.tolist() for column in columns)))
    return Sent(path, sent.load, sent.ttft_ms, sent.e2e_ms, sent.gaps_ms, sent.lag_ms, sent.failed)


def _write_requests(path: Path, load: Load, words: tuple[int, int]) -> None:
    """A line a request; with its instant where nothing holds it back."""
    with path.open("w") as file:
        for number, (at_ms, prompt, output) in enumerate(zip(load.send_ms, load.prompt, load.output)):
            tokens = stream(1, "prompt", number).integers(words[0], words[1] + 1, int(prompt)).tolist()
            payload = {
                "model": "model",
                "prompt": tokens,
                "max_tokens": int(output),
                "ignore_eos": True,
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            due = {"timestamp": float(at_ms)} if load.most_in_flight is None else {}
            file.write(json.dumps({"payload": payload, **due}) + "\n")


def _write_tokenizer(folder: Path) -> None:
    """One that knows no word: the client loads a tokenizer, and has nothing to do for it."""
    folder.mkdir(exist_ok=True)
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}
    parts = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps({**dict.fromkeys(parts), **whole}))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
