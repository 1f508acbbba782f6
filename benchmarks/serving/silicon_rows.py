"""Public measurements of servers with programs' defaults, by prompt, answer and clients, and their mean iterations.

Means of time per output token and to the first token of dense models in 16 and 8 bits, on three programs and three
accelerators, as published with AIConfigurator. What is not published of a server is what its program has by default, fixed
here once for each program: seats, token budget, share of the memory. A checkpoint with one scale a tensor has those of its
cache too, so the cache is of 8 bits; with others it is of 16. Qwen3 in 8 bits is Qwen's own checkpoint, which has a scale a
block, whatever the column says: it is the one that the rows' publisher deploys with that program and version
(github.com/ai-dynamo/aiconfigurator, docs/dynamo_deployment_guide.md and tools/automation/config.env, commits 07fac0f and
771d1b0). Rows whose names begin with a date are InferenceX's, whose
client and servers are published (github.com/SemiAnalysisAI/InferenceX, `70b_fp8_*.sh`): lengths are drawn evenly between
80 % of the longest and that, caches are of 8 bits, and vLLM records decodes as a whole on B200.
"""

from __future__ import annotations

import csv
import functools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy import SHARED
from occupancy import Occupied
from overheads import Seen

from forerun.core.scenario.spec import Input
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.bottom_up import Running, kernel_times
from forerun.serving.llm.calibration.kernel_tables import KernelTables, nearest, read_tables, version_key
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.inputs.architecture import read_architecture
from forerun.serving.llm.scenario.language_model import ModelMemory
from forerun.serving.policies.chunked_prefill import ChunkedPrefill
from forerun.serving.policies.prefill_first import PrefillFirst

#: rows with longer times to the first token are a group of their own
QUEUED_MS: Final = 10_000.0
CARDS: Final = {"h100_sxm": "H100-80GB", "h200_sxm": "H200-141GB", "b200_sxm": "B200-180GB"}
#: the version from which on vLLM composes iterations ahead
AHEAD: Final = "0.14.0"
BUDGET: Final = 8192
SEATS: Final = {"vllm": 256, "sglang": 512, "trtllm": 256}
MEMORY_SHARE: Final = {"vllm": 0.9, "sglang": 0.88, "trtllm": 0.9}
#: models whose checkpoint in 8 bits has a scale a block
BLOCK_SCALES: Final = "Qwen/Qwen3-"
#: InferenceX's rows, the shortest of its prompts and answers over the longest, and where its vLLM records decodes as a whole
INFERENCEX: Final = r"\d{4}_\d\d_\d\d_"
SHORTEST: Final = 0.8
RECORDED: Final = ("b200_sxm",)


class Row(NamedTuple):
    """One measurement.

    Parameters
    ----------
    family : model, precision, accelerator and program.
    server : the limits, as the program has them by default; with its software where the version is known.
    program : as tables of kernels name it.
    running : how the server runs iterations.
    clients, prompt, output : requests under way; tokens of each at most.
    shortest : tokens of each at least, as a share of these.
    tpot_ms, ttft_ms : as measured.
    """

    family: str
    server: Server
    program: str
    running: Running
    clients: int
    prompt: int
    output: int
    shortest: float
    tpot_ms: float
    ttft_ms: float

    @property
    def queued(self) -> bool:
        """Whether requests waited long, so that fewer than the clients were served at once."""
        return self.ttft_ms > QUEUED_MS


def rows(folder: Path) -> list[Row]:
    """The measurements.

    Parameters
    ----------
    folder : for configurations of models with the precision of a row.
    """
    with (SHARED / "silicon" / "silicon_given.csv").open(encoding="utf-8", newline="") as lines:
        return [row_of(one, folder) for one in csv.DictReader(lines)]


def row_of(one: Mapping[str, str], folder: Path) -> Row:
    """A measurement from a line of the table."""
    # Without a precision weights are of 16 bits, unless their products are not.
    program, eight = one["backend"], (one["precision"] or one["gemm_quant_mode"]).startswith("fp8")
    family = f"{one['model_path'].split('/')[-1]} {one['precision'] or 'bf16'} {one['system']} {program}"
    method: dict[str, object] = {} if not eight else {"quant_method": "fp8", "activation_scheme": "static"}
    block = one["gemm_quant_mode"] == "fp8_block" or (eight and one["model_path"].startswith(BLOCK_SCALES))
    if block:
        method |= {"weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    ahead = not one["backend_version"] or version_key(one["backend_version"]) >= version_key(AHEAD)
    running = Running.of(program, int(one["tp_size"]), SEATS[program], ahead=ahead)
    published = re.match(INFERENCEX, one["id"]) is not None
    memory = ModelMemory(
        model=Input(path=str(configuration(one["model_path"], json.dumps(method), folder))),
        gpu=CARDS[one["system"]],
        tensor_parallel=int(one["tp_size"]),
        memory_share=MEMORY_SHARE[program],
        kv_bits=8 if eight and not block else 16,
    )
    server = Server(
        max_seqs=SEATS[program],
        token_budget=BUDGET,
        memory=memory,
        scheduler=PrefillFirst()
        if program == "sglang"
        else ChunkedPrefill(ahead=ahead or program == "trtllm"),
        software=f"{program}-{one['backend_version']}" if one["backend_version"] else None,
    )
    return Row(
        family,
        server,
        program,
        replace(running, recorded=0) if published and one["system"] in RECORDED else running,
        int(one["batch_size"]),
        int(one["isl"]),
        int(one["osl"]),
        SHORTEST if published else 1.0,
        float(one["silicon_tpot_ms"]),
        float(one["silicon_ttft_ms"]),
    )


@functools.cache
def configuration(model: str, method: str, folder: Path) -> Path:
    """A model's configuration with weights quantised by a method, `{}` for none."""
    begin = model.split("/")[-1].lower()
    known = next(
        path for path in sorted((SHARED / "models").glob("*.config.json")) if path.name.startswith(begin)
    )
    data = json.loads(known.read_text("utf-8"))
    if json.loads(method):
        data["quantization_config"] = json.loads(method)
    made = folder / f"{len(list(folder.iterdir()))}.json"
    made.write_text(json.dumps(data), encoding="utf-8")
    return made


@functools.cache
def tables_of(card: str) -> list[KernelTables]:
    """All tables of an accelerator."""
    system = next(system for system, name in CARDS.items() if name == card)
    return read_tables([SHARED / "silicon" / "tables" / system])


@functools.cache
def kernels_of(program: str, software: str | None, memory: ModelMemory) -> tuple[ModelKernels, str]:
    """The kernels of a model by the nearest tables, the newest where the version is not known; and these tables."""
    assert memory.gpu is not None
    known = [one for one in tables_of(memory.gpu) if one.program == program]
    tables = known[-1] if software is None else nearest(known, program, software.partition("-")[2])
    shape = read_architecture(Path(memory.model.path))
    kernels = Kernels.of(tables, Precision.of(shape, memory.kv_bits))
    return ModelKernels(kernels, shape, memory.tensor_parallel, ACCELERATORS[memory.gpu]), tables.title


@functools.cache
def alone_of(program: str, software: str | None, memory: ModelMemory, seats: int) -> Floats:
    """Coefficients of the kernels alone."""
    return kernel_times(kernels_of(program, software, memory)[0], seats)


def seen_of(row: Row) -> Seen:
    """The mean iteration of a closed loop: each client's request is processed and decodes, again and again."""
    server, memory = row.server, row.server.memory
    assert memory is not None
    kernels, _ = kernels_of(row.program, server.software, memory)
    mean, alone = (1 + row.shortest) / 2, server.scheduler.rules().tokens != "together"
    prompt, output, others = row.prompt * mean, row.output * mean, row.clients - 1.0
    # A request does not wait for its own prompt between its tokens.
    prompts = min(others / (output - 1 + max(1.0, prompt / BUDGET)), 0.98 * BUDGET / prompt)
    decodes = 1 + min(others, prompts * (output - 1))
    of = Occupied(decodes, prompts, prompt, prompt + output / 2, alone=alone)
    values = alone_of(row.program, server.software, memory, server.max_seqs)
    return Seen(row.family, values, kernels.model, row.running, of, row.tpot_ms)
