"""Costs of a model that nobody has measured on a server: sums of its kernels' times, and what servers take beyond them.

An iteration's kernels follow from the model's shape and tables of kernels (`kernels`). What a server takes beyond them, its
host's time, the share of a request, and the iterations that a request waits outside of the queue, is the same law for all
models; `OVERHEAD` has it as fitted to public measurements of servers, and `UNSEEN` how far off predictions of models are
that this law was not fitted to (`benchmarks/serving/models.py` finds both).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    misses_of,
    section_of,
    trial_of,
)
from forerun.serving.llm.calibration.experiment import Experiment, Steps
from forerun.serving.llm.calibration.kernels import ModelKernels, read_kernels
from forerun.serving.llm.calibration.readers import read_measurements
from forerun.serving.llm.calibration.replay import possible
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.calibration.steps import fit_steps
from forerun.serving.llm.scenario.language_model import FitRecord

#: numbers of requests, and the shortest context, the longest and how many, over which decodes are taken to be linear in
#: requests and cached tokens
SIZES: Final = 12
CONTEXTS: Final = (128, 4096, 24)
#: prompt tokens of an iteration over which their multiplications are taken to be linear
PROMPTS: Final = (512, 768, 1024, 2048, 4096, 8192)
#: tokens for each expert from which on an iteration is taken to read all of them
AWAKE: Final = 4


@dataclass(frozen=True)
class Overhead:
    """What a server takes beyond the kernels of an iteration.

    Parameters
    ----------
    scale : what the kernels take there, over what they take alone.
    host_ms : of every iteration.
    request_ms : of every decode.
    waits : iterations without prompts that pass between a client and the queue, and back.
    """

    scale: float
    host_ms: float
    request_ms: float
    waits: float


#: fitted to the dense 16-bit models of BLIS's experiments on H100, whose servers compose iterations ahead
OVERHEAD: Final = Overhead(scale=1.061, host_ms=0.542, request_ms=0.0124, waits=0.922)
#: experiments that it was fitted to
EXPERIMENTS: Final = 24
#: what 90 % of figures of models that it was not fitted to should not exceed, as a share
UNSEEN: Final[Mapping[str, float]] = {
    "ttft_mean_ms": 0.26,
    "ttft_p50_ms": 0.22,
    "ttft_p90_ms": 0.27,
    "ttft_p99_ms": 0.55,
    "tpot_mean_ms": 0.17,
    "tpot_p50_ms": 0.37,
    "e2e_mean_ms": 0.13,
    "e2e_p50_ms": 0.17,
    "e2e_p90_ms": 0.15,
    "e2e_p99_ms": 0.21,
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


def with_overhead(kernels: Floats, overhead: Overhead) -> Floats:
    """Coefficients of a server, from those of its kernels alone.

    Parameters
    ----------
    kernels : in the order of `replay.COEFFICIENTS`.
    overhead : what the server takes beyond them.
    """
    made = kernels.copy()
    made[:5] *= overhead.scale
    made[0] += overhead.host_ms
    made[2] += overhead.request_ms
    made[5] = overhead.waits * made[0]
    return made


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
    kernels = read_kernels(tables)
    if memory.gpu.split("-")[0] not in kernels.device:
        what = f"are of {kernels.device!r}; the server has {memory.gpu}"
        raise TraceError.at(", ".join(map(str, tables)), what)
    model = ModelKernels(kernels, reads.architecture(memory.model), memory.tensor_parallel)
    values = with_overhead(kernel_times(model, server.max_seqs), OVERHEAD)
    tokens, cached = kernels.most
    found = [one for file in measured for one in read_measurements(file, seed=seed)]
    notes = [f"{one.name}: {note}" for one in found for note in one.notes]
    trials = [trial_of(server, one, reads, seed) for one in found if isinstance(one, Experiment)]
    record = FitRecord(
        experiments=EXPERIMENTS,
        prefill_tokens=tokens,
        decodes=min(tokens, server.max_seqs),
        kv_tokens=cached,
        step_error=UNSEEN["tpot_mean_ms"],
        errors=dict(UNSEEN),
    )
    rows = [row for trial in trials for row in comparison(trial, values, "held out", record)]
    record = msgspec.structs.replace(record, misses=misses_of(rows, UNSEEN) or None)
    if record.misses:
        notes.append(f"these costs {record.missing}; scenarios that use them need --accept-fit")
    notes.append(
        f"built from kernels of {kernels.device}, times {OVERHEAD.scale:g}, with {OVERHEAD.host_ms:g} ms of every "
        f"iteration, {OVERHEAD.request_ms:g} ms of every decode and {OVERHEAD.waits:g} iterations outside of the queue: as "
        "fitted to servers of other models; intervals are those of models that this was not fitted to"
    )
    if model.model.experts:
        notes.append(
            "a model with experts: iterations of so few requests that some experts are not read take less than these costs "
            "say; the intervals are those of dense models"
        )
    return Calibration(section_of(values, record), None, None, tuple(rows), tuple(notes))
