"""The cache from a model's configuration and an accelerator: published models, servers that were measured, bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.core.domain import simulate
from forerun.core.errors import ForerunError, InputError, ProfileError
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.inputs.architecture import Architecture, read_architecture

from ..conftest import shared_path
from .test_llm_scenario import LLM, scenario, scenario_data

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
LLAMA_70B = {
    **LLAMA,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
}
CODE_LLAMA_34B = {**LLAMA_70B, "intermediate_size": 22016, "num_hidden_layers": 48}
MIXTRAL = {
    **LLAMA,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def saved(folder: Path, **changes: Any) -> Path:
    """A configuration with some keys changed; None takes one away."""
    path = folder / "config.json"
    data = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    path.write_text(json.dumps(data))
    return path


def read(folder: Path, **changes: Any) -> Architecture:
    return read_architecture(saved(folder, **changes), "config.json")


def with_memory(path: Path, **memory: Any) -> dict[str, Any]:
    data = scenario_data()
    llm = data["configuration"]["Llama"]["llm"]
    del llm["kv_blocks"]
    llm["memory"] = {"model": {"path": str(path)}, "gpu": "H100-80GB", **memory}
    return data


@pytest.mark.parametrize(
    ("name", "parameters", "active", "kv_bytes"),
    [
        ("llama-2-7b-hf", 6.738e9, 6.738e9, 524_288),
        ("llama-3.1-8b-instruct", 8.03e9, 8.03e9, 131_072),
        ("llama-3.1-70b-instruct", 70.55e9, 70.55e9, 327_680),
        ("codellama-34b-instruct-hf", 33.74e9, 33.74e9, 196_608),
        ("mistral-nemo-instruct-2407", 12.25e9, 12.25e9, 163_840),
        ("qwen3-14b", 14.77e9, 14.77e9, 163_840),
        ("mixtral-8x7b-v0.1", 46.70e9, 12.88e9, 131_072),
        ("qwen3-30b-a3b", 30.53e9, 3.35e9, 98_304),
        ("deepseek-v2-lite", 15.71e9, 2.66e9, 31_104),
    ],
)
def test_published_models_have_their_published_sizes(
    name: str, parameters: float, active: float, kv_bytes: int
) -> None:
    path = shared_path("data", "serving-llm", "models", f"{name}.config.json")
    model = read_architecture(path)
    assert model.parameters == pytest.approx(parameters, rel=2e-3)
    # Published counts have the embedding of a token, too.
    assert model.active_weights + model.vocabulary * model.hidden == pytest.approx(active, rel=0.01)
    assert model.kv_bytes(1, model.bits) == kv_bytes


def test_quantised_weights_take_their_bits() -> None:
    path = shared_path(
        "data", "serving-llm", "models", "llama-4-scout-17b-16e-instruct-fp8-dynamic.config.json"
    )
    model = read_architecture(path)
    assert model.parameters == pytest.approx(107.8e9, rel=0.01)
    assert model.quantised_bits == 8 and model.bits == 16
    assert model.weight_bytes == pytest.approx(model.layer_weights + 2 * model.embedding_weights)
    assert any("no other part" in note for note in model.notes)


@pytest.mark.parametrize(
    ("config", "tensor_parallel", "measured"),
    [(LLAMA, 1, 7462), (CODE_LLAMA_34B, 2, 26_602), (MIXTRAL, 2, 27_510), (LLAMA_70B, 4, 31_356)],
    ids=["Llama-2-7B", "CodeLlama-34B", "Mixtral-8x7B", "Llama-2-70B"],
)
def test_blocks_are_those_that_servers_reported(
    tmp_path: Path, config: dict[str, Any], tensor_parallel: int, measured: int
) -> None:
    """vLLM on H100 cards of 80 GB with a share of 0.9, 2048 tokens an iteration and 128 seats (published logs)."""
    data = with_memory(saved(tmp_path, **config), tensor_parallel=tensor_parallel)
    llm = data["configuration"]["Llama"]["llm"]
    llm |= {"token_budget": 2048, "max_seqs": 128}
    found = prepared(data).kv_blocks
    assert found == pytest.approx(measured, rel=2e-3)


def prepared(data: dict[str, Any]) -> Any:
    from forerun.core.domain import get_domain

    (stage,) = (s for s in get_domain("serving").prepare(scenario(data)).pipeline.stages if s.llm)
    return stage.llm


def test_blocks_that_follow_give_the_run_of_the_number(tmp_path: Path) -> None:
    data = with_memory(saved(tmp_path), gpu=None, gpu_memory_bytes=16.5e9)
    blocks = prepared(data).kv_blocks
    followed = simulate(scenario(data))
    given = simulate(scenario(kv_blocks=blocks))
    assert blocks < 400
    assert followed.summary == given.summary
    assert any(
        f"{blocks} blocks of 16 tokens follow from 6.738 billion parameters" in n for n in followed.notes
    )


def test_every_gigabyte_is_accounted_for(tmp_path: Path) -> None:
    """Blocks grow by what memory is added, fall with the bits of the cache, and split over accelerators."""
    path = saved(tmp_path)

    def blocks(**memory: Any) -> int:
        return int(prepared(with_memory(path, activations_bytes=0, **memory)).kv_blocks)

    block_bytes = 16 * 524_288
    total = ACCELERATORS["H100-80GB"].memory_bytes * 0.994
    weights = read_architecture(path).weight_bytes
    assert blocks() == int((0.9 * total - weights) // block_bytes)
    assert blocks(gpu=None, gpu_memory_bytes=total) == blocks()
    assert blocks(kv_bits=8) == int((0.9 * total - weights) // (block_bytes / 2))
    assert blocks(weights_bytes=weights / 2) == int((0.9 * total - weights / 2) // block_bytes)
    assert blocks(tensor_parallel=2) == int((0.9 * total - weights / 2) // (block_bytes / 2))
    grouped = read(tmp_path, num_key_value_heads=2)
    assert grouped.kv_bytes(8, 16) == grouped.kv_bytes(2, 16) == grouped.kv_bytes(1, 16) / 2


def test_a_model_that_does_not_fit_says_how_much_is_missing(tmp_path: Path) -> None:
    data = with_memory(saved(tmp_path, **LLAMA_70B))
    with pytest.raises(InputError) as raised:
        simulate(scenario(data))
    (problem,) = raised.value.problems
    assert problem.where == "$.configuration.Llama.llm.memory"
    # 137.95 GB of weights, .33 GB of activations and 5 MB of a block; 76.51 GB are usable.
    assert "does not fit: 61.8 GB are missing on each of 1 accelerators (weights 138 GB" in problem.what


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"num_hidden_layers": None}, "the key 'num_hidden_layers' is missing"),
        ({"num_hidden_layers": 0}, "0 is no whole number from 1"),
        ({"hidden_size": "wide"}, "'wide' is no whole number"),
        ({"hidden_size": 4097}, "32 heads do not divide hidden_size 4097"),
        ({"num_key_value_heads": 5}, "5 do not divide 32 heads"),
        ({"torch_dtype": "int7"}, "'int7' is not known"),
        ({"torch_dtype": None}, "is missing; known: float32"),
        ({"quantization_config": {"quant_method": "zip"}}, "quantisation 'zip' is not known"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq does not say how many bits"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "9 are more than the 8 experts"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "kind linear_attention are not supported"),
        ({"layer_types": 3}, "3 is no list"),
        ({"index_topk": 2048}, "sparse attention with an index (DSA)"),
    ],
)
def test_configurations_that_do_not_fit_are_named(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ProfileError) as raised:
        read(tmp_path, **changes)
    (problem,) = raised.value.problems
    assert problem.where.startswith("config.json:1")
    assert what in problem.what


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"hidden_size": 4096,', "\x00\x01", "{}"])
def test_what_is_no_configuration_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_architecture(path)


@pytest.mark.parametrize(
    ("memory", "what"),
    [
        ({"gpu": "H100"}, "no accelerator named 'H100'; did you mean 'H100-80GB'?"),
        ({"gpu": None}, "give exactly one of gpu"),
        ({"gpu_memory_bytes": 8e10}, "give exactly one of gpu"),
        ({"tensor_parallel": 3}, "3 accelerators cannot share 32 heads evenly"),
        ({"memory_share": 1.5}, "memory_share"),
    ],
)
def test_memory_that_makes_no_sense_is_rejected(tmp_path: Path, memory: dict[str, Any], what: str) -> None:
    with pytest.raises(ForerunError, match=what.replace("?", r"\?")):
        simulate(scenario(with_memory(saved(tmp_path), **memory)))


def test_the_cache_is_said_one_way(tmp_path: Path) -> None:
    data = with_memory(saved(tmp_path))
    data["configuration"]["Llama"]["llm"]["kv_blocks"] = LLM["kv_blocks"]
    for found in (data, scenario_data(kv_blocks=None)):
        with pytest.raises(ForerunError, match="give exactly one of kv_blocks"):
            scenario(found)
