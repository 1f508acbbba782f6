"""Costs from tables of kernels: times between measured sizes, sums over a model, what cannot be built, and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.domain import simulate
from forerun.core.errors import TraceError
from forerun.core.scenario.text import read_document
from forerun.serving.llm.calibration import bottom_up as built
from forerun.serving.llm.calibration.bottom_up import (
    OVERHEAD,
    UNSEEN,
    Overhead,
    Running,
    kernel_times,
    with_overhead,
)
from forerun.serving.llm.calibration.kernel_tables import read_tables
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.calibration.knee import CLIENT
from forerun.serving.llm.inputs.accelerators import ACCELERATORS, Accelerator
from forerun.serving.llm.inputs.architecture import read_architecture

from ..conftest import shared_path
from .test_llm_memory import LLAMA, LLAMA_70B, MIXTRAL
from .test_llm_memory import saved as config
from .test_llm_scenario import scenario, scenario_data

DEVICE = "NVIDIA H100 80GB HBM3"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SIZES = (1, 8, 64, 256, 1024, 8192)
COLUMNS = (256, 4096, 65536)


def read_kernels(files: Sequence[Path], precision: Precision | None = None) -> Kernels:
    """The tables in some files, the newest of several versions."""
    return Kernels.of(read_tables(files)[-1], precision or Precision())


def product_ms(m: float, n: float, k: float) -> float:
    """Times that are a power of each size, so what lies between them is exact."""
    return 1e-9 * m**0.5 * n * k**0.9


def decode_ms(requests: float, context: float, heads: float, kv_heads: float) -> float:
    return 1e-6 * requests * context * kv_heads * heads**0.1


#: memory so fast that no kernel here is slower than what it reads
CARD = Accelerator(80e9, 1e21, 1e15, "a test")


def tables(folder: Path, law: Callable[[float, float, float], float] = product_ms) -> list[Path]:
    """One file a kind, of 16 bits and of 8, which are three times as fast and do not count."""
    lines = ["device,gemm_dtype,m,n,k,latency"]
    for dtype, share in (("bfloat16", 1.0), ("fp8", 1 / 3)):
        lines += [
            f"{DEVICE},{dtype},{m},{n},{k},{share * law(m, n, k)!r}"
            for m in SIZES
            for n in COLUMNS
            for k in COLUMNS
        ]
    gemm = folder / "gemm.csv"
    gemm.write_text("\n".join(lines) + "\n")
    head = "device,op_name,batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,step,latency"
    lines = [head]
    for heads, kv in ((8, 1), (8, 8), (32, 1), (32, 8)):
        lines += [
            f"{DEVICE},generation_attention,{b},1,{heads},{kv},128,bfloat16,bfloat16,{c - 1},{decode_ms(b, c, heads, kv)!r}"
            for b in (1, 8, 128)
            for c in (64, 512, 8192)
        ]
        lines += [
            f"{DEVICE},context_attention,1,{t},{heads},{kv},128,bfloat16,bfloat16,0,{2e-9 * heads * t * t / 2!r}"
            for t in (256, 2048, 8192)
        ]
    attention = folder / "attention.csv"
    attention.write_text("\n".join(lines) + "\n")
    lines = ["device,allreduce_dtype,num_gpus,message_size,latency,backend"]
    lines += [f"{DEVICE},bfloat16,2,{size},{1e-8 * size!r},vllm_graph" for size in (1, 10**9)]
    lines += [f"{DEVICE},bfloat16,2,{size},5.0,vllm_eager" for size in (1, 10**9)]
    exchanges = folder / "exchanges.csv"
    exchanges.write_text("\n".join(lines) + "\n")
    return [gemm, attention, exchanges]


def test_between_measured_sizes_powers_are_exact_and_beyond_them_times_grow_in_proportion(
    tmp_path: Path,
) -> None:
    kernels = read_kernels(tables(tmp_path))
    m = np.array([1.0, 3.0, 100.0, 8192.0])
    assert kernels.product_ms(m, 700, 5000) == pytest.approx(
        [product_ms(one, 700, 5000) for one in m], rel=1e-9
    )
    assert kernels.product_ms(m, 2 * 65536, 256) == pytest.approx(
        2 * kernels.product_ms(m, 65536, 256), rel=1e-9
    )
    assert kernels.product_ms(np.array([16384.0]), 256, 256)[0] == pytest.approx(
        2 * product_ms(8192, 256, 256)
    )
    requests, context = np.array([3.0, 50.0]), np.array([100.0, 900.0])
    for heads, kv in ((8, 1), (16, 3), (32, 8)):
        expected = [decode_ms(b, c, heads, kv) for b, c in zip(requests, context)]
        assert kernels.decode_ms(requests, context, heads, kv, 128) == pytest.approx(expected, rel=1e-9)
    # Thirty-two heads of keys and values are read as four times as many requests with eight.
    many = kernels.decode_ms(requests, context, 32, 32, 128)
    assert many == pytest.approx([decode_ms(4 * b, c, 8, 8) for b, c in zip(requests, context)], rel=1e-9)
    assert kernels.pair_ms(32, 8, 128) == pytest.approx(2e-9 * 32)
    assert kernels.exchange_ms(np.array([5000.0]), 2)[0] == pytest.approx(5e-5)
    assert kernels.most == (8192, 128 * 8191)


def test_a_model_is_the_sum_of_its_kernels(tmp_path: Path) -> None:
    model = read_architecture(config(tmp_path, **LLAMA_70B))
    of = ModelKernels(read_kernels(tables(tmp_path)), model, 2, CARD)
    tokens = np.array([17.0])
    shapes = ((32 * 128 + 2 * 4 * 128, 8192), (8192, 32 * 128), (2 * 14336, 8192), (8192, 14336))
    layer_ms = sum(product_ms(17, n, k) for n, k in shapes) + 2 * 1e-8 * 17 * 8192
    assert of.linear_ms(tokens)[0] == pytest.approx(80 * layer_ms, rel=1e-9)
    whole_ms = 80 * (layer_ms + decode_ms(17, 300, 32, 4)) + product_ms(17, 16000, 8192)
    assert of.decode_ms(tokens, np.array([300.0]))[0] == pytest.approx(whole_ms, rel=1e-9)


def test_experts_take_the_place_of_dense_layers(tmp_path: Path) -> None:
    """Those of this shape, split as the model is, chosen unevenly; a model of another shape is named."""
    files = tables(tmp_path)
    lines = [
        "device,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency"
    ]
    for split, share in ((1, 1.0), (2, 0.5)):
        for law, times in (("balanced", 1.0), ("power_law_1.01", 2.0)):
            lines += [
                f"{DEVICE},bfloat16,{m},4096,14336,2,8,{split},1,{law},{0.001 * m * times * share!r}"
                for m in (1, 8192)
            ]
    moe = tmp_path / "moe.csv"
    moe.write_text("\n".join(lines) + "\n")
    kernels = read_kernels([*files, moe])
    model = read_architecture(config(tmp_path, **MIXTRAL))
    assert (model.experts, model.chosen, model.routed_layers) == (8, 2, 32)
    layer_ms = product_ms(17, 2048 + 2 * 4 * 128, 4096) + product_ms(17, 4096, 2048)
    layer_ms += 2 * 1e-8 * 17 * 4096 + 0.001 * 17 * 2 * 0.5
    assert ModelKernels(kernels, model, 2, CARD).linear_ms(np.array([17.0]))[0] == pytest.approx(
        32 * layer_ms, rel=1e-9
    )
    other = read_architecture(config(tmp_path, **{**MIXTRAL, "num_local_experts": 16}))
    with pytest.raises(
        TraceError, match="no experts with hidden_size 4096, inter_size 14336, topk 2, num_experts 16"
    ):
        ModelKernels(kernels, other, 2, CARD).linear_ms(np.ones(1))


def test_coefficients_are_those_that_made_linear_kernels(tmp_path: Path) -> None:
    """Products that take as long as the weights are read, up to so many tokens, and then in proportion."""

    def roofline(m: float, n: float, k: float) -> float:
        return 1e-9 * n * k * max(1.0, m / 256)

    model = read_architecture(config(tmp_path))
    values = kernel_times(ModelKernels(read_kernels(tables(tmp_path, roofline)), model, 1, CARD), 128)
    a, prefill, decode, kv, pair, request, hidden = values.tolist()
    weights_ms = 1e-9 * (model.layer_weights + model.vocabulary * model.hidden)
    assert a == pytest.approx(weights_ms, rel=0.01)
    assert prefill == pytest.approx(1e-9 * model.layer_weights / 256, rel=0.01)
    # Beyond the last layer, which makes one token, the weights hide as many tokens as they take longer than one.
    assert hidden == pytest.approx(256, rel=0.03)
    assert kv == pytest.approx(32 * 4 * decode_ms(1, 1, 8, 8), rel=0.01) and decode < 1e-3
    assert pair == pytest.approx(32 * 2e-9 * 32, rel=1e-6) and request == 0
    law = Overhead(
        2.0,
        prompt_scale=3.0,
        layer_ms=0.1,
        piece_ms=0.2,
        sample_ns=0.3,
        sort_ns=0.1,
        message_ms=0.5,
        launch_ms=0.2,
        client_ms=3.0,
    )
    drawn_ms = 0.3e-6 * model.vocabulary
    made = with_overhead(values, law, model, Running(256, sorts=False, waits=False))
    assert made[0] == pytest.approx(2 * a + 9.6) and made[2] == pytest.approx(2 * decode + drawn_ms)
    assert made[1] == pytest.approx(3 * prefill) and made[4] == pytest.approx(3 * pair)
    assert made[5] == 3 and made[6] == hidden and made[7:] == pytest.approx([6.4, 256])
    waits = with_overhead(values, law, model, Running(256, sorts=False, waits=True))
    assert waits[2] - made[2] == pytest.approx(0.5)
    whole = with_overhead(values, law, model, Running.of("trtllm", 1, 128, ahead=True))
    assert whole[0] == pytest.approx(2 * a + 3.2) and whole[7:] == pytest.approx([6.4, 0])
    assert whole[2] == pytest.approx(2 * decode + drawn_ms)
    of_vllm = [Running.of("vllm", 1, seats, ahead=True) for seats in (128, 1024)]
    assert [one.recorded for one in of_vllm] == [256, 512] and of_vllm[0].sorts


@pytest.mark.parametrize("max_seqs", [1, 2, 300])
def test_few_seats_and_many_are_built(tmp_path: Path, max_seqs: int) -> None:
    of = ModelKernels(read_kernels(tables(tmp_path)), read_architecture(config(tmp_path)), 1, CARD)
    values = kernel_times(of, max_seqs)
    own, requests = of.decode_ms(np.array([float(max_seqs)]), np.array([700.0]))[0], max_seqs
    shown = values[0] + values[2] * requests + values[3] * requests * 700
    # The kernels here are powers of the tokens, so a line is near them only.
    assert shown == pytest.approx(own, rel=0.01 if max_seqs == 1 else 0.25) and (values >= 0).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**MIXTRAL, "first_k_dense_replace": 2}, "a model with experts beside dense layers is not built"),
        ({**MIXTRAL, "n_shared_experts": 1}, "a model with experts beside dense layers is not built"),
        ({**MIXTRAL, "quantization_config": {"quant_method": "fp8"}}, "a model with 8-bit experts"),
        (
            {**LLAMA, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
            "a model with 4-bit weights",
        ),
    ],
)
def test_a_model_that_cannot_be_built_is_named(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    kernels = read_kernels(tables(tmp_path))
    with pytest.raises(TraceError, match=words):
        ModelKernels(kernels, read_architecture(config(tmp_path, **changes)), 1, CARD)


def test_tables_that_do_not_belong_together(tmp_path: Path) -> None:
    gemm, attention, exchanges = tables(tmp_path)
    with pytest.raises(TraceError, match="have no attention; known: "):
        read_kernels([gemm, exchanges])
    other = tmp_path / "other.csv"
    other.write_text(gemm.read_text().replace("H100", "A100"))
    with pytest.raises(TraceError, match="are tables of several devices: "):
        read_kernels([gemm, other, attention])
    other.write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match="is no table of kernels that is known: its columns are a, b"):
        read_kernels([other])
    other.write_text(gemm.read_text().replace("bfloat16", "int4"))
    with pytest.raises(TraceError, match="has no products of matrices of 16 bits"):
        read_kernels([other, attention])
    of = ModelKernels(read_kernels([gemm, attention]), read_architecture(config(tmp_path)), 2, CARD)
    with pytest.raises(TraceError, match="no all-reduce among 2 accelerators; known: none"):
        of.linear_ms(np.ones(1))


def test_the_command_builds_costs_that_a_scenario_runs_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = tmp_path / "server.yaml"
    path = config(tmp_path)
    server.write_text(f"max_seqs: 32\ntoken_budget: 2048\nmemory: {{model: {path}, gpu: H100-80GB}}\n")
    options = [word for table in tables(tmp_path) for word in ("--kernels", str(table))]
    requests = tmp_path / "requests.csv"
    requests.write_text(
        "arrival_ms,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n"
        + "".join(f"{100 * i},300,20,50,300\n" for i in range(30))
    )
    out = tmp_path / "cost.yaml"
    assert command_line(["fit", str(server), str(requests), *options, "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "held out" in shown and "built from kernels of NVIDIA H100" in shown
    cost = read_document(out).data["cost"]
    assert cost["fit"]["errors"] == dict(UNSEEN) and cost["fit"]["prefill_tokens"] == 8192
    (first, *_), (*of_iterations, client, _) = cost["fit"]["spread"]
    assert first == pytest.approx(cost["fit"]["step_error"] / 1.645, rel=1e-3)
    # Another client's time may be half or twice, and a figure's error is one of iterations.
    assert client == pytest.approx(math.log(2) / 1.645, rel=1e-3) and not any(of_iterations)
    assert cost["fit"]["client_ms"] == cost["request_ms"] == OVERHEAD.client_ms
    assert math.log(2) / UNSEEN["tpot_mean_ms"] == pytest.approx(CLIENT)
    assert cost["launch_tokens"] == 64 and cost["launch_ms"] == pytest.approx(32 * OVERHEAD.launch_ms)
    made = simulate(scenario(scenario_data(cost=cost) | {"accept_fit": True}))
    assert (made.tables["fit_intervals"]["low"] <= made.tables["fit_intervals"]["high"]).all()
    assert command_line(["fit", str(server), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compared"] == []
    for words, given in (
        ("nothing to fit", ["fit", str(server)]),
        ("the server has A100", ["fit", str(server), *options, "--set", "memory.gpu=A100-80GB"]),
        ("costs from kernels need memory", ["fit", str(bare(tmp_path)), *options]),
    ):
        assert command_line(given) == 2
        error = capsys.readouterr().err
        assert words in error and "Traceback" not in error


def bare(folder: Path) -> Path:
    path = folder / "bare.yaml"
    path.write_text("max_seqs: 32\ntoken_budget: 2048\nkv_blocks: 4000\n")
    return path


def test_what_servers_take_beyond_kernels_is_what_was_measured() -> None:
    figures = json.loads((RESULTS / "serving-models.json").read_text())["figures"]["built"]
    for name, value in figures["overhead"].items():
        assert vars(OVERHEAD)[name] == pytest.approx(value, rel=0.01)
    assert figures["experiments"] == built.EXPERIMENTS
    widths = json.loads((RESULTS / "serving-families.json").read_text())["figures"]["widths"]
    # Written down generously, to two digits; medians as means.
    for name, error in UNSEEN.items():
        found = widths[name.replace("p50", "mean")]
        assert found <= error <= found + 0.012


def test_public_tables_are_read_and_give_about_what_a_server_of_that_model_takes() -> None:
    """A step of Llama 3.1 70B on four H100, of which published step traces say 15.6 ms and 28 to 77 ms for a million tokens
    of the cache."""
    folder = shared_path("data", "serving-llm", "aiconfigurator")
    names = ("gemm_perf", "generation_attention_perf", "context_attention_perf", "custom_allreduce_perf")
    kernels = read_kernels([folder / f"h100_sxm.vllm-0.14.0.{name}.csv.gz" for name in names])
    model = read_architecture(
        shared_path("data", "serving-llm", "models", "llama-3.1-70b-instruct.config.json")
    )
    of = ModelKernels(kernels, model, 4, ACCELERATORS["H100-80GB"])
    values = with_overhead(kernel_times(of, 128), OVERHEAD, model, Running.of("vllm", 4, 128, ahead=True))
    assert values[0] == pytest.approx(15.6, rel=0.08)
    assert 2.5e-5 < values[3] < 7.7e-5
