"""What an iteration should cost, roughly: where a search begins, and how far each coefficient may be from there.

With a model's configuration and an accelerator: weights and keys and values are read from memory, prompts are computed.
Without, from the measurements alone, and wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.experiment import Experiment
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.inputs.architecture import Architecture
from forerun.serving.llm.scenario.language_model import ModelMemory

#: shares of the peak rates that kernels reach: reading memory, multiplying matrices, attention of prompts
READS: Final = 0.75
MULTIPLIES: Final = 0.6
ATTENDS: Final = 0.35
#: of every iteration on the host, and of every layer's exchange between accelerators, twice a layer
HOST_MS: Final = 3.0
EXCHANGE_MS: Final = 0.012
#: a decode's share beyond its cache: sampling, its rows of the matrices
DECODE_MS: Final = 0.02
#: the same as a share of a prompt's token, where no data sheet says what the engine is: a processor is slower at both
DECODES: Final = 0.5
REQUEST_MS: Final = 5.0
#: share of an iteration without prompts that reading the weights takes, where no configuration says it
HIDES: Final = 0.5
#: bits of a weight below which products may be those of 8-bit values
LOW_BITS: Final = 12
#: standard deviation of the logarithm of each coefficient around its start, with a configuration and without
SPREAD: Final = np.array([0.35, 0.4, 1.0, 0.5, 0.8, 1.0, 0.5])
WIDE_SPREAD: Final = np.array([0.5, 1.0, 1.5, 1.5, 2.0, 1.0, 1.0])


@dataclass(frozen=True)
class Physics:
    """Coefficients before anything is fitted, in the order of `replay.COEFFICIENTS`.

    Parameters
    ----------
    values : float64[7], where the search begins.
    spread : float64[7], standard deviation of each logarithm.
    source : what they follow from, in words.
    least : float64[7], what they are at the least: at the accelerator's peak rates (default: no bound).
    """

    values: Floats = field(repr=False)
    spread: Floats = field(repr=False)
    source: str
    least: Floats = field(default_factory=lambda: np.zeros(7), repr=False)


def from_hardware(model: Architecture, memory: ModelMemory) -> Physics:
    """From a model's shape and an accelerator's rates.

    Parameters
    ----------
    model : its shape.
    memory : names the accelerator and how many share the model; what it does not say is as the model's shape says.
    """
    assert memory.gpu is not None
    card, tensor_parallel = ACCELERATORS[memory.gpu], memory.tensor_parallel
    weights_bytes = memory.weights_bytes or model.weight_bytes
    bits = 8 * weights_bytes / model.parameters
    reads_per_ms = card.bandwidth_bytes_per_s * READS / 1e3 * tensor_parallel
    flops_per_ms = card.flops_16bit * MULTIPLIES / 1e3 * tensor_parallel
    attends_per_ms = card.flops_16bit * ATTENDS / 1e3 * tensor_parallel
    exchange_ms = 2 * model.layers * EXCHANGE_MS if tensor_parallel > 1 else 0.0
    weights_ms = weights_bytes / reads_per_ms
    a = weights_ms + HOST_MS + exchange_ms
    prefill = 2 * model.active_weights / flops_per_ms
    kv_bytes = model.kv_bytes(tensor_parallel, memory.kv_bits or model.bits) * tensor_parallel
    kv = kv_bytes / reads_per_ms
    pair = 4 * model.layers * model.heads * model.head_dim / attends_per_ms
    values = [a, prefill, DECODE_MS, kv, pair, REQUEST_MS, weights_ms / prefill]
    at_peak = np.array([weights_ms, prefill, 0.0, kv, pair, 0.0, 0.0])
    # Products of 8-bit values take half as long at the peak; the start allows for slower kernels.
    multiplies = MULTIPLIES / 2 if bits < LOW_BITS else MULTIPLIES
    at_peak *= [READS, multiplies, 0.0, READS, ATTENDS, 0.0, 0.0]
    source = "the model's configuration and the accelerator's data sheet"
    return Physics(np.array(values), SPREAD, source, at_peak)


def from_measurements(experiments: Sequence[Experiment]) -> Physics:
    """From the lightest latencies alone.

    Parameters
    ----------
    experiments : at least one.
    """
    lightest = min(experiments, key=lambda one: one.measured.get("tpot_mean_ms", np.inf))
    tpot_ms = lightest.measured.get("tpot_mean_ms", 10.0)
    a = 0.8 * tpot_ms
    prompt = float(np.mean(lightest.load.prompt))
    ttft_ms = min(one.measured.get("ttft_mean_ms", np.inf) for one in experiments)
    first_ms = ttft_ms if np.isfinite(ttft_ms) else 2 * a
    prefill = max(first_ms - 1.5 * a, 0.1 * first_ms) / prompt
    request_ms = min(REQUEST_MS, 0.3 * first_ms)
    values = [a, prefill, DECODES * prefill, 3e-5, prefill / 50_000, request_ms, HIDES * a / prefill]
    return Physics(np.array(values), WIDE_SPREAD, "the lightest measurements alone")
