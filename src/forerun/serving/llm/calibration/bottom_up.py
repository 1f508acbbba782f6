"""Costs of a model that nobody has measured on a server: sums of its kernels' times, and what servers take beyond them.

An iteration's kernels follow from the model's shape and tables of kernels (`kernels`). What a server takes beyond them, the
gaps between its layers' kernels, its host's time, and what passes between a client and the queue, is one law for all models,
accelerators and programs; `OVERHEAD` has it as fitted to public measurements of servers (`benchmarks/serving/models.py`
finds it), and `UNSEEN` how far off predictions are in families of experiments that it was not fitted to
(`benchmarks/serving/families.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from forerun.core.errors import ScenarioError, TraceError
from forerun.serving.inputs.inputs import ScenarioFiles
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.calibrate import (
    Calibration,
    comparison,
    distinct,
    misses_of,
    refused,
    section_of,
    trial_of,
)
from forerun.serving.llm.calibration.experiment import Experiment, Steps
from forerun.serving.llm.calibration.kernel_tables import KernelTables, nearest, read_tables
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.calibration.knee import DEVIATIONS
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.replay import TERMS, possible
from forerun.serving.llm.calibration.server import PROGRAMS, Server
from forerun.serving.llm.calibration.steps import fit_steps
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.inputs.architecture import Architecture
from forerun.serving.llm.scenario.language_model import (
    FitRecord,
    ModelMemory,
    outside,
    together,
)

#: numbers of requests, and the shortest context, the longest and how many, over which decodes are taken to be linear in
#: requests and cached tokens
SIZES: Final = 12
CONTEXTS: Final = (128, 4096, 24)
#: prompt tokens of an iteration over which their multiplications are taken to be linear
PROMPTS: Final = (256, 384, 512, 768, 1024, 2048, 4096, 8192)
#: tokens for each expert from which on an iteration is taken to read all of them
AWAKE: Final = 4


#: tokens of an iteration that vLLM records at most
RECORDED: Final = 512
#: which of the coefficients of an iteration are those of prompts
OF_PROMPTS: Final = np.array([False, True, False, False, True])


@dataclass(frozen=True)
class Overhead:
    """What a server takes beyond the kernels of an iteration.

    Parameters
    ----------
    scale : what kernels of decodes take there, over what they take alone.
    prompt_scale : the same of those of prompts, which keep an accelerator busier than tables do.
    layer_ms : of every layer of an iteration: gaps between kernels, and small ones.
    piece_ms : beside it, of every layer that is recorded in pieces.
    sample_ns : of every decode and each token that exists: the next one is drawn from all.
    sort_ns : beside it, where they are sorted for that.
    message_ms : of every decode, where accelerators wait for their host's message.
    launch_ms : the host's, of every layer of an iteration whose kernels are launched one by one.
    client_ms : of every request outside of iterations: between a client and the queue, and back.
    """

    scale: float
    prompt_scale: float
    layer_ms: float
    piece_ms: float
    sample_ns: float
    sort_ns: float
    message_ms: float
    launch_ms: float
    client_ms: float


@dataclass(frozen=True)
class Running:
    """How a server runs iterations.

    Parameters
    ----------
    recorded : tokens up to which prompts' kernels are recorded, each layer's in pieces, as decodes' are; beyond them they
        are launched one by one. 0: a decode's are recorded as a whole, those of prompts launched.
    sorts : all tokens that exist are sorted before the next one is drawn.
    waits : the host sends several accelerators their work only when the iteration before has ended.
    """

    recorded: int
    sorts: bool
    waits: bool

    @classmethod
    def of(cls, program: str, split: int, max_seqs: int, *, ahead: bool) -> Running:
        """That of a program, as tables of kernels name it.

        Parameters
        ----------
        program : SGLang and TensorRT-LLM record decodes as a whole and compose iterations ahead; vLLM sorts, and records
            up to twice as many tokens as there are seats, and up to 512 (its `max_cudagraph_capture_size`).
        split : accelerators that share the model.
        max_seqs : seats.
        ahead : iterations are composed ahead.
        """
        whole = program in ("sglang", "trtllm")
        recorded = 0 if whole else min(2 * max_seqs, RECORDED)
        return cls(recorded, program == "vllm", split > 1 and not (whole or ahead))


#: fitted to the dense models of public measurements, of which most are of vLLM on H100
OVERHEAD: Final = Overhead(
    scale=0.9948,
    prompt_scale=1.0096,
    layer_ms=0.01066,
    piece_ms=0.02076,
    sample_ns=0.07041,
    sort_ns=0.07941,
    message_ms=0.0174,
    launch_ms=0.6368,
    client_ms=8.58,
)
#: families of experiments that it was fitted to
EXPERIMENTS: Final = 14
#: in these families: parameters of the smallest model and of the largest, and accelerators that share one at most
PARAMETERS: Final = (6.7e9, 70.6e9)
SHARED_BY: Final = 8
#: what 90 % of figures should not exceed in a family that it was not fitted to, as a share, where they grow as iterations do
UNSEEN: Final[Mapping[str, float]] = {
    "ttft_mean_ms": 0.17,
    "ttft_p50_ms": 0.17,
    "ttft_p90_ms": 0.17,
    "ttft_p99_ms": 0.6,
    "tpot_mean_ms": 0.15,
    "tpot_p50_ms": 0.15,
    "e2e_mean_ms": 0.11,
    "e2e_p50_ms": 0.11,
    "e2e_p90_ms": 0.13,
    "e2e_p99_ms": 0.18,
}


def kernel_times(model: ModelKernels, max_seqs: int) -> Floats:
    """Coefficients of the kernels alone, in the order of `replay.COEFFICIENTS`.

    Parameters
    ----------
    model : its kernels.
    max_seqs : requests that decode at once at most.
    """
    least = 1
    if model.model.experts:
        # Up to so many requests each further one wakes experts, beyond that all are read.
        least = min(-(-AWAKE * model.model.experts // model.model.chosen), max(1, max_seqs // 2))
    sizes = np.unique(np.round(np.geomspace(least, max_seqs, SIZES)))
    grid = np.array(
        [(size, context) for size in sizes for context in np.geomspace(*CONTEXTS)], dtype=np.float64
    )
    requests, context = grid[:, 0], grid[:, 1]
    took_ms = model.decode_ms(requests, context)
    decodes = fit_steps([Steps("kernels", np.zeros(len(grid)), requests, requests * context, took_ms)])
    a, _, of_decode, of_kv = decodes.values.tolist()
    prompts = np.array(PROMPTS, dtype=np.float64)
    linear_ms = model.linear_ms(prompts) + model.last_ms(np.ones(len(prompts)))
    # Relative errors count, so rows are divided by what they take.
    line = np.stack([np.ones(len(prompts)), prompts], axis=1) / linear_ms[:, None]
    (begin, of_prefill), *_ = np.linalg.lstsq(line, np.ones(len(prompts)), rcond=None)
    hidden = max(0.0, (a - float(begin)) / float(of_prefill))
    return possible(np.array([a, float(of_prefill), of_decode, of_kv, model.pair_ms(), 0.0, hidden]))


def with_overhead(kernels: Floats, overhead: Overhead, model: Architecture, running: Running) -> Floats:
    """Coefficients of a server, in the order of `Coefficients.names`.

    Parameters
    ----------
    kernels : those of its kernels alone.
    overhead : what the server takes beyond them.
    model : its shape.
    running : how the server runs iterations.
    """
    made, drawn_ns = kernels.copy(), overhead.sample_ns + overhead.sort_ns * running.sorts
    made[:TERMS] *= np.where(OF_PROMPTS, overhead.prompt_scale, overhead.scale)
    made[0] += model.layers * (overhead.layer_ms + overhead.piece_ms * (running.recorded > 0))
    made[2] += model.vocabulary * drawn_ns / 1e6 + overhead.message_ms * running.waits
    made[5] = overhead.client_ms
    return np.array([*made, model.layers * overhead.launch_ms, running.recorded])


def bottom_up(
    server: Server, tables: Sequence[Path], measured: Sequence[Path] = (), *, seed: int = 0
) -> Calibration:
    """Costs of a server from tables of kernels.

    Parameters
    ----------
    server : its limits, with `memory` that names model, accelerator and how many share it.
    tables : files of kernels.
    measured : measurements to compare with (default: none); nothing is fitted to them.
    seed : of what these do not list (default 0).

    Raises ScenarioError, ProfileError or TraceError for what cannot be used.
    """
    memory, reads = server.memory, ScenarioFiles()
    if memory is None or memory.gpu is None:
        raise ScenarioError.at(
            "server", "costs from kernels need memory with model and gpu: they say what is computed where"
        )
    shape = reads.architecture(memory.model)
    read = read_tables(tables, memory.gpu.split("-")[0])
    beyond = _beyond(shape, memory.tensor_parallel, read)
    if beyond:
        what = "no family of measurements says how far off costs from kernels are"
        raise ScenarioError.at("server", f"{beyond} were measured: {what}")
    used, notes, spread = _version(server, memory, shape, read)
    kernels = used.kernels
    ahead = server.scheduler.rules().ahead
    running = Running.of(kernels.program, memory.tensor_parallel, server.max_seqs, ahead=ahead)
    alone = kernel_times(used, server.max_seqs)
    values = with_overhead(alone, OVERHEAD, shape, running)
    beyond_ms = values[: len(alone)] - alone
    errors = {name: float(f"{math.hypot(error, spread):.4g}") for name, error in UNSEEN.items()}
    tokens, cached = kernels.most
    found = [one for file in measured for one in read_measurements(file, seed=seed)]
    distinct(found)
    notes += [f"{one.name}: {note}" for one in found for note in one.notes]
    trials = [trial_of(server, one, reads, seed) for one in found if isinstance(one, Experiment)]
    notes += refused(trials)
    record = FitRecord(
        experiments=EXPERIMENTS,
        prefill_tokens=tokens,
        decodes=min(tokens, server.max_seqs),
        kv_tokens=cached,
        step_error=errors["tpot_mean_ms"],
        errors=errors,
        spread=tuple(
            row(float(f"{off / DEVIATIONS:.4g}"))
            for row, off in ((together, errors["tpot_mean_ms"]), (outside, math.log(2)))
        ),
        client_ms=OVERHEAD.client_ms,
    )
    rows = [row for trial in trials for row in comparison(trial, values, "held out", record)]
    record = msgspec.structs.replace(record, misses=misses_of(rows, errors) or None)
    if record.misses:
        notes.append(f"these costs {record.missing}; scenarios that use them need --accept-fit")
    notes.append(
        f"built from kernels of {kernels.device}, with what servers take beyond them, as fitted to others: "
        f"{beyond_ms[0]:.3g} ms of an iteration, {beyond_ms[2]:.3g} ms of a decode, {OVERHEAD.client_ms:g} ms of a request "
        "outside; intervals are those of families that this was not fitted to"
    )
    if shape.experts:
        notes.append(
            "a model with experts: iterations of so few requests that some experts are not read take less than these costs "
            "say; the intervals are those of dense models"
        )
    return Calibration(section_of(values, record), None, None, tuple(rows), tuple(notes))


def _beyond(model: Architecture, split: int, tables: Sequence[KernelTables]) -> str:
    """In what a server is beyond all families, in words; empty if it is not. A model may be half as large or twice."""
    low, high = PARAMETERS
    others = {one.program for one in tables} - {*PROGRAMS, ""}
    if not low / 2 <= model.parameters <= high * 2:
        return f"a model of {model.parameters / 1e9:.3g} billion parameters, where {low / 1e9:.2g} to {high / 1e9:.2g}"
    if split > SHARED_BY:
        return f"{split} accelerators that share a model, where up to {SHARED_BY}"
    return f"the program {min(others)}, where {', '.join(PROGRAMS)}" if others else ""


def _version(
    server: Server, memory: ModelMemory, shape: Architecture, read: Sequence[KernelTables]
) -> tuple[ModelKernels, list[str], float]:
    """The model's kernels by the tables nearest to what the server runs, what is to be noted of these, and how far the
    others are off them where that is not known, as a logarithm.

    Parameters
    ----------
    server : names program and version, if they are known.
    memory : names the accelerator, and how many there are.
    shape : of the model.
    read : all tables, ascending by version.
    """
    assert memory.gpu is not None
    precision, card = Precision.of(shape, memory.kv_bits), ACCELERATORS[memory.gpu]

    def built(tables: KernelTables) -> ModelKernels:
        return ModelKernels(Kernels.of(tables, precision), shape, memory.tensor_parallel, card)

    if server.software is not None:
        program, _, version = server.software.partition("-")
        tables = nearest(read, program.lower(), version)
        notes = [*tables.notes]
        if tables.version != version:
            notes.append(
                f"kernels are of {tables.title}, the nearest version to {server.software} that there are tables of"
            )
        return built(tables), notes, 0.0
    tables, chosen = read[-1], built(read[-1])
    size = np.array([max(1.0, server.max_seqs / 4)]), np.array([1024.0])
    off: dict[str, float] = {}
    for one in read[:-1]:
        # Tables that lack this precision say nothing of it.
        with suppress(TraceError):
            off[one.title] = abs(float(np.log(built(one).decode_ms(*size) / chosen.decode_ms(*size))[0]))
    if not off:
        return chosen, [*tables.notes], 0.0
    spread, titles = max(off.values()), ", ".join(off)
    note = (
        f"kernels are of {tables.title}: the server's file does not say its software, so intervals are wider by what "
        f"tables of {titles} differ, {spread:.0%}"
    )
    return chosen, [*tables.notes, note], spread
