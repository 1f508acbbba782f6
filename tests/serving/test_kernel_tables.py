"""Tables of kernels as published: both formats, what is skipped, versions, precisions, and what no kernel is faster than."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.errors import TraceError
from forerun.core.scenario.text import read_document
from forerun.serving.llm.calibration.bottom_up import UNSEEN
from forerun.serving.llm.calibration.kernel_tables import KernelTables, nearest, read_tables, version_key
from forerun.serving.llm.calibration.kernels import Kernels, ModelKernels, Precision
from forerun.serving.llm.inputs.accelerators import ACCELERATORS, Accelerator
from forerun.serving.llm.inputs.architecture import read_architecture

from ..conftest import cases, shared_path
from .test_calibration_kernels import CARD, DEVICE, read_kernels, tables
from .test_llm_memory import LLAMA
from .test_llm_memory import saved as config

#: ascending
VERSIONS = (
    "0.5.6", "0.5.6.post2", "0.9", "0.14.0", "0.14.1.dev1+gd68209402", "0.14.1", "1.0.0rc3", "1.0.0", "1.2.0rc5",
    "1.2.0rc6.post1", "1.2.0", "1.10.0",
)  # fmt: skip


def as_parquet(file: Path, folder: Path, program: str, version: str, **renamed: str) -> Path:
    """A CSV table as Parquet, with the columns that name a program."""
    named = {"framework": polars.lit(program), "version": polars.lit(version)}
    made = folder / f"{file.stem}.parquet"
    polars.read_csv(file).with_columns(**named).rename(renamed).write_parquet(made)
    return made


def folder_of(path: Path, files: list[Path], program: str, version: str) -> Path:
    path.mkdir()
    for file in files:
        as_parquet(
            file,
            path,
            program,
            version,
            **({"backend": "implementation"} if "exchanges" in file.name else {}),
        )
    return path


def test_versions_are_in_the_order_that_they_came() -> None:
    assert sorted(set(VERSIONS), key=version_key) == list(VERSIONS)


def test_the_nearest_version_is_no_newer_where_there_is_one() -> None:
    rng = np.random.default_rng(3)
    for _ in range(cases(100, 1000)):
        chosen = rng.choice(len(VERSIONS), size=rng.integers(1, 5), replace=False)
        asked = int(rng.integers(len(VERSIONS)))
        known = [KernelTables("vllm", VERSIONS[i], DEVICE, {}) for i in chosen]
        older = [i for i in chosen if i <= asked]
        expected = max(older) if older else min(chosen)
        found = nearest(
            [*known, KernelTables("sglang", VERSIONS[asked], DEVICE, {})], "vllm", VERSIONS[asked]
        )
        assert (found.program, found.version) == ("vllm", VERSIONS[expected])
    with pytest.raises(TraceError, match="no tables of trtllm; known: vllm"):
        nearest([KernelTables("vllm", "0.5.6", DEVICE, {})], "trtllm", "1.0")


def test_both_formats_say_the_same_and_what_was_not_measured_is_skipped(tmp_path: Path) -> None:
    files = tables(tmp_path)
    gemm = files[0].read_text()
    for m, latency in ((0, 1.0), (64, 0.0)):
        gemm += f"{DEVICE},bfloat16,{m},256,256,{latency}\n"
    files[0].write_text(gemm)
    folder = folder_of(tmp_path / "vllm-0.14.0", files, "VLLM", "0.14.0")
    (folder / "other.csv").write_text("a,b\n1,2\n")
    (published,) = read_tables([folder])
    assert (published.program, published.version) == ("vllm", "0.14.0")
    assert published.notes == ("gemm.parquet: 2 rows without a size or with a time of 0 are skipped",)
    one, other = read_kernels(files), Kernels.of(published, Precision())
    many = np.array([1.0, 100.0, 9000.0])
    assert one.product_ms(many, 700, 5000).tolist() == other.product_ms(many, 700, 5000).tolist()
    assert one.exchange_ms(many, 2).tolist() == other.exchange_ms(many, 2).tolist()
    assert one.decode_ms(many, many, 8, 1, 128).tolist() == other.decode_ms(many, many, 8, 1, 128).tolist()


def test_eight_bit_products_are_without_what_stored_scales_save(tmp_path: Path) -> None:
    files = tables(tmp_path)
    scales = tmp_path / "scales.csv"
    lines = ["device,op_name,quant_dtype,m,k,latency"]
    lines += [
        f"{DEVICE},{name},fp8,{m},{k},{each}"
        for name, each in (("compute_scale", 2e-7), ("scale_matrix", 1e-7))
        for m in (1, 8192)
        for k in (256, 65536)
    ]
    scales.write_text("\n".join(lines) + "\n")
    m, files = np.array([1.0, 64.0]), [*files, scales]
    wide = read_kernels(files).product_ms(m, 256, 256)
    found = read_kernels(files, Precision("fp8")).product_ms(m, 256, 256)
    assert found == pytest.approx(wide / 3)
    stored = read_kernels(files, Precision("fp8", static=True))
    assert stored.product_ms(m, 256, 256) == pytest.approx(found - 2e-7)
    assert stored.product_ms(m, 256, 256, scaled=True) == pytest.approx(found - 3e-7)
    assert stored.wide_ms(m, 256, 256) == pytest.approx(wide)
    with pytest.raises(TraceError, match="has no products of matrices of fp8_block"):
        read_kernels(files, Precision("fp8_block"))
    with pytest.raises(TraceError, match="has no attention of a cache of 8 bits"):
        read_kernels(files, Precision("fp8", cache_bits=8))


def test_no_kernel_is_slower_than_a_larger_one_or_faster_than_memory(tmp_path: Path) -> None:
    files = tables(tmp_path, lambda m, n, k: 1e-3 * (9.0 if m == 8 else m**0.5))
    m = np.array([1.0, 8.0, 64.0, 8192.0])
    kernels = read_kernels(files)
    assert (
        kernels.product_ms(m, 256, 256)
        == pytest.approx(1e-3 * m**0.5 * np.where(m == 8, 8**0.5, 1), rel=1e-6)
        or (np.diff(kernels.product_ms(m, 256, 256)) >= 0).all()
    )
    model = read_architecture(config(tmp_path, **LLAMA))
    slow = Accelerator(80e9, 1e9, 1e15, "a test")
    of = ModelKernels(kernels, model, 1, slow)
    weights_ms = (model.layer_weights - 0) * 2 / (0.9 * slow.bandwidth_bytes_per_s) * 1e3
    cached_ms = 3 * 100 * model.kv_bytes(1, 16) / (0.9 * slow.bandwidth_bytes_per_s) * 1e3
    least = of.decode_ms(np.array([3.0]), np.array([100.0]))[0]
    assert least > weights_ms + cached_ms
    fast = ModelKernels(kernels, model, 1, CARD).decode_ms(np.array([3.0]), np.array([100.0]))[0]
    assert fast < least


def test_a_table_that_cannot_be_read_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tables(tmp_path)
    server = tmp_path / "server.yaml"
    path = config(tmp_path)
    server.write_text(
        f"max_seqs: 32\ntoken_budget: 2048\nsoftware: vllm-0.12.0\nmemory: {{model: {path}, gpu: H100-80GB}}\n"
    )
    whole = folder_of(tmp_path / "tables", files, "SGLang", "0.5.9")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes((whole / "gemm.parquet").read_bytes()[:200])
    text = polars.read_parquet(whole / "gemm.parquet").with_columns(m=polars.lit("8"))
    holes = polars.read_parquet(whole / "gemm.parquet").with_columns(m=polars.lit(None, dtype=polars.Int64))
    for frame, name in ((text, "text"), (holes, "holes")):
        frame.write_parquet(tmp_path / f"{name}.parquet")
    empty = tmp_path / "empty"
    empty.mkdir()
    for words, table in (
        ("vllm-0.12.0: no tables of vllm; known: sglang 0.5.9", whole),
        ("is not readable Parquet", broken),
        ("contains String; int is needed", tmp_path / "text.parquet"),
        ("rows have no value", tmp_path / "holes.parquet"),
        ("has no table of kernels that is known", empty),
    ):
        assert command_line(["fit", str(server), "--kernels", str(table)]) == 2
        error = capsys.readouterr().err
        assert words in error and "Traceback" not in error and len(error.strip().splitlines()) == 1
    # Not that the tables are of other accelerators: there is none of this name.
    for gpu, hint in (("h100-80GB", "did you mean 'H100-80GB'? "), ("X1000", "")):
        server.write_text(f"max_seqs: 32\ntoken_budget: 2048\nmemory: {{model: {path}, gpu: {gpu}}}\n")
        assert command_line(["fit", str(server), "--kernels", str(whole)]) == 2
        said = f"server.yaml:3: at $.memory.gpu: no accelerator named '{gpu}'; {hint}known: A100-40GB, "
        error = capsys.readouterr().err
        assert said in error and len(error.strip().splitlines()) == 1
    server.write_text("max_seqs: 32\ntoken_budget: 2048\nkv_blocks: 100\nsoftware: vlm\n")
    assert command_line(["fit", str(server), "--kernels", str(whole)]) == 2
    error = capsys.readouterr().err
    assert (
        "server.yaml:4: at $.software: 'vlm' is no program and version, such as vllm-0.12.0; did you" in error
    )
    assert "mean 'vllm'? known: sglang, trtllm, vllm" in error


def test_intervals_are_wider_where_the_version_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "older").mkdir()
    newer, older = tables(tmp_path), tables(tmp_path / "older", lambda m, n, k: 2e-9 * m**0.5 * n * k**0.9)
    folders = [
        folder_of(tmp_path / "vllm-0.14.0", older, "VLLM", "0.14.0"),
        folder_of(tmp_path / "vllm-0.19.0", newer, "vLLM", "0.19.0"),
    ]
    server, out = tmp_path / "server.yaml", tmp_path / "cost.yaml"
    limits = f"max_seqs: 32\ntoken_budget: 2048\nmemory: {{model: {config(tmp_path)}, gpu: H100-80GB}}\n"
    given = [
        "fit",
        str(server),
        *(word for one in folders for word in ("--kernels", str(one))),
        "-o",
        str(out),
    ]
    errors = []
    for software, words in (
        ("", "does not say its software"),
        ("software: vllm-0.16.1\n", "kernels are of vllm 0.14.0, the nearest version to vllm-0.16.1"),
        ("software: vllm-0.19.0\n", ""),
    ):
        server.write_text(software + limits)
        assert command_line(given) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert words in shown
        errors.append(read_document(out).data["cost"]["fit"]["errors"]["tpot_mean_ms"])
    assert errors[0] > errors[1] == errors[2] == UNSEEN["tpot_mean_ms"]


def test_published_tables_of_three_programs_are_read_as_they_are() -> None:
    folder = shared_path("data", "serving-llm", "silicon", "tables", "h100_sxm")
    found = read_tables([folder.parent], "H100")  # of the folder with all devices, too
    titles = ["sglang 0.5.6.post2", "sglang 0.5.9", "trtllm 1.2.0rc5", "vllm 0.14.0", "vllm 0.19.0"]
    assert [one.title for one in found] == titles
    assert found[2].notes == ("gemm_perf.parquet: 882 rows without a size or with a time of 0 are skipped",)
    model = read_architecture(
        shared_path("data", "serving-llm", "models", "llama-3.1-8b-instruct.config.json")
    )
    card = ACCELERATORS["H100-80GB"]
    took = [
        ModelKernels(Kernels.of(one, Precision()), model, 2, card).decode_ms(
            np.array([8.0]), np.array([1000.0])
        )[0]
        for one in found
    ]
    # Eight billion weights of two bytes on two accelerators, read at most of 3.35 TB/s.
    assert min(took) > 8e9 / 3.35e12 * 1e3 and max(took) < 2.5 * min(took)
