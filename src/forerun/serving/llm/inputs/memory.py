"""The blocks of a cache from what the model is and what the accelerator has.

On one accelerator of `tensor_parallel` alike, the share of its memory that the server uses holds the weights, what an
iteration computes with, and the cache; a token's keys and values take 2 x layers x heads x head_dim x bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forerun.core.errors import ScenarioError
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.inputs.architecture import Architecture
from forerun.serving.llm.scenario.language_model import LanguageModelSpec, ModelMemory

GIB: Final = 2**30
#: share of the card's memory that CUDA leaves to programs
USABLE: Final = 0.994
#: taken by CUDA, libraries and recorded graphs; by the exchange between accelerators where there are several
CONTEXT_BYTES: Final = 0.3 * GIB
EXCHANGE_BYTES: Final = 0.35 * GIB


@dataclass(frozen=True)
class MemoryUse:
    """What the memory of one accelerator is used for, in bytes.

    Parameters
    ----------
    usable_bytes : the share that the server uses.
    weights_bytes : of the model.
    activations_bytes : what an iteration computes with, and what libraries take.
    block_bytes : of one block of the cache.
    """

    usable_bytes: float
    weights_bytes: float
    activations_bytes: float
    block_bytes: float

    @property
    def free_bytes(self) -> float:
        """Left for the cache; negative if the model does not fit."""
        return self.usable_bytes - self.weights_bytes - self.activations_bytes

    @property
    def blocks(self) -> int:
        """Whole blocks that fit."""
        return max(0, int(self.free_bytes // self.block_bytes))


def memory_use(spec: LanguageModelSpec, memory: ModelMemory, model: Architecture, where: str) -> MemoryUse:
    """How the memory of each accelerator is divided.

    Parameters
    ----------
    spec : the limits, which say how much an iteration computes at once.
    memory : as the scenario gives it.
    model : the shape of the model.
    where : path of `memory` in the scenario, for messages.

    Raises ScenarioError where the model cannot be split that way, and where not a single block fits, with how much is
    missing.
    """
    split = memory.tensor_parallel
    if model.heads % split:
        what = f"{split} accelerators cannot share {model.heads} heads evenly"
        raise ScenarioError.at(f"{where}.tensor_parallel", what)
    total = memory.gpu_memory_bytes
    if memory.gpu is not None:
        total = ACCELERATORS[memory.gpu].memory_bytes * USABLE
    assert total is not None, "the scenario has one of the two"
    weights = model.weight_bytes if memory.weights_bytes is None else memory.weights_bytes
    activations = memory.activations_bytes
    if activations is None:
        activations = _activations_bytes(model, split, spec.token_budget, spec.max_seqs)
    kv_bits = model.bits if memory.kv_bits is None else memory.kv_bits
    block_bytes = spec.block_tokens * model.kv_bytes(split, kv_bits)
    use = MemoryUse(total * memory.memory_share, weights / split, activations, block_bytes)
    if use.blocks < 1:
        missing = use.block_bytes - use.free_bytes
        what = (
            f"the model does not fit: {_gb(missing)} are missing on each of {memory.tensor_parallel} accelerators "
            f"(weights {_gb(use.weights_bytes)}, activations {_gb(use.activations_bytes)}, a block of "
            f"{spec.block_tokens} tokens {_gb(use.block_bytes)}; usable {_gb(use.usable_bytes)})"
        )
        raise ScenarioError.at(where, what)
    return use


def _activations_bytes(model: Architecture, split: int, tokens: int, seqs: int) -> float:
    """What the largest iteration computes with: the widest layer's two halves and its result, two hidden states, and the
    logits with a copy in 32 bits; and what libraries take."""
    layer = tokens * (3 * model.widest / split + 2 * model.hidden) * 2
    logits = min(tokens, seqs) * model.vocabulary * (2 + 4)
    return layer + logits + CONTEXT_BYTES + (EXCHANGE_BYTES if split > 1 else 0.0)


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.3g} GB"
