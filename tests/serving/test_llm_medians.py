"""Imported measurements: what is told between points, how well, and what is refused with file, line and field."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from forerun.core.domain import simulate
from forerun.core.errors import ForerunError, ProfileError
from forerun.serving.llm.inputs.medians import Key, Medians, Point, read_medians

from ..conftest import shared_path
from .test_llm_scenario import scenario

HEADER = "model,hardware,tensor_parallel,prompt_tokens,batch,output_tokens,prompt_ms_median,token_ms_median\n"
ROWS = [
    (128, 1, 128, 80.0, 48.0), (512, 1, 128, 170.0, 49.0), (2048, 1, 128, 540.0, 50.0),
    (512, 4, 128, 600.0, 52.0), (512, 16, 128, 2500.0, 58.0), (512, 1, 512, 171.0, 49.5),
]  # fmt: skip


def text(rows: list[tuple[object, ...]] = ROWS) -> str:  # type: ignore[assignment]
    return HEADER + "".join(f"m,gpu,2,{','.join(map(str, row))}\n" for row in rows)


def medians(tmp_path: Path, content: str | None = None) -> Medians:
    path = tmp_path / "medians.csv"
    path.write_text(content if content is not None else text())
    return read_medians(path)


def splitwise() -> Medians:
    return read_medians(shared_path("golden", "serving", "llm", "splitwise_medians.csv"))


def between(line: list[tuple[int, Point]], at: int) -> tuple[float, float]:
    """The prompt's and the token's time at a place on a line of measured points."""
    places = [place for place, _ in line]
    prompts, tokens = zip(*((point.prompt_ms, point.token_ms) for _, point in line))
    return float(np.interp(at, places, prompts)), float(np.interp(at, places, tokens))


def left_out(known: Medians, axis: str) -> list[tuple[float, float]]:
    """Every point inside the grid estimated from the others on its axis: relative errors of prompt and token."""
    errors = []
    for line in (known.line(key, axis) for key in known.points):
        for i in range(1, len(line) - 1):
            at, point = line[i]
            prompt_ms, token_ms = between([*line[:i], *line[i + 1 :]], at)
            errors.append((prompt_ms / point.prompt_ms - 1, token_ms / point.token_ms - 1))
    return errors


def quantiles(errors: list[tuple[float, float]]) -> list[float]:
    """Median and 90th percentile of the prompt's and of the token's error."""
    return np.quantile(np.abs(errors), [0.5, 0.9], axis=0).T.ravel().tolist()


def test_points_left_out_are_estimated_from_their_neighbours() -> None:
    """At most 6 % and 3 % in the median; their 90th percentiles are looked at, too."""
    known = splitwise()
    found = {axis: left_out(known, axis) for axis in ("prompt_tokens", "batch", "output_tokens")}
    every = [error for errors in found.values() for error in errors]
    assert len(every) == 132 and len(known.points) == 12
    prompt, _, token, _ = quantiles(every)
    assert prompt <= 0.06 and token <= 0.03
    for errors, wanted in (
        (every, (1.4, 21, 1.1, 5.5)),
        (found["prompt_tokens"], (12, 45, 1.4, 4)),
        (found["batch"], (4.5, 29, 1.4, 10)),
    ):
        assert [100 * share for share in quantiles(errors)] == pytest.approx(wanted, rel=0.05)


#: Llama 2 on two GPUs at points that the summary leaves out: prompt tokens, batch -> ms of the prompt, of a token; medians
#: of five repetitions [Splitwise, ISCA'24: data/perf_model.csv of its simulator]
LLAMA = {
    "a100-80gb": {
        (1024, 1): (377.0576, 54.7708), (4096, 1): (1485.3473, 55.8686),
        (512, 4): (845.3684, 60.5211), (512, 16): (3238.8481, 65.4624),
    },
    "h100-80gb": {
        (1024, 1): (157.9501, 37.3872), (4096, 1): (642.6616, 37.5357),
        (512, 4): (299.8205, 39.9817), (512, 16): (1191.9787, 41.9724),
    },
}  # fmt: skip


def test_points_that_the_summary_leaves_out() -> None:
    """Against repetitions that it does not hold, across fourfold gaps; the errors as the document has them."""
    known = splitwise()
    errors = []
    for hardware, points in LLAMA.items():
        key = known.key("llama2-70b", hardware, 2)
        for (tokens, batch), (prompt_ms, token_ms) in points.items():
            axis, at = ("prompt_tokens", tokens) if batch == 1 else ("batch", batch)
            told = between(known.line(key, axis), at)
            errors.append((told[0] / prompt_ms - 1, told[1] / token_ms - 1))
    worst = 100 * np.abs(errors).max(axis=0)
    assert len(errors) == 8 and [round(float(one), 1) for one in worst] == [4.4, 5.7]


def test_measured_points_come_back_exactly() -> None:
    known = splitwise()
    assert len(known.points) == 12
    key = known.key("bloom-176b", "a100-80gb", 8)
    lengths, batches = known.line(key, "prompt_tokens"), known.line(key, "batch")
    assert (between(lengths, 2048)[0], between(batches, 32)[1]) == (540.4119, 65.3805)
    assert between(lengths, 1024)[0] == pytest.approx(173.81 + (540.4119 - 173.81) * 512 / 1536)


def test_the_cost_agrees_with_the_points(tmp_path: Path) -> None:
    known = medians(tmp_path)
    key = Key("m", "gpu", 2)
    cost, notes = known.cost(key, 2048, 16)
    assert notes == ()
    for tokens in (128, 300, 512, 2048):
        assert cost.iteration_ms(tokens, 0, 0, 0.0) == between(known.line(key, "prompt_tokens"), tokens)[0]
    for batch in (1, 3, 4, 16):
        assert cost.iteration_ms(0, batch, 0, 0.0) == between(known.line(key, "batch"), batch)[1]
    assert cost.iteration_ms(512, 4, 0, 0.0) == pytest.approx(170.0 + 52.0 - 49.0)
    assert cost.iteration_ms(512, 1, 0, 0.0) == 170.0, "one decode rides along"
    assert 49.0 <= cost.iteration_ms(5, 0, 0, 0.0) < 80.0


def test_repetitions_are_reduced_to_medians(tmp_path: Path) -> None:
    lines = [
        "model,hardware,prompt_size,batch_size,token_size,peak_power,prompt_time,token_time,e2e_time,tensor_parallel"
    ]
    for prompt_ms in (80.0, 90.0, 70.0):
        lines.append(f"m,gpu,128,1,128,0,{prompt_ms},48,1000,2")
    lines += ["m,gpu,512,1,128,0,170,49,1000,2", "m,gpu,512,4,128,0,600,52,1000,2"]
    known = medians(tmp_path, "\n".join(lines) + "\n")
    assert known.line(Key("m", "gpu", 2), "prompt_tokens")[0][1].prompt_ms == 80.0


def test_less_time_for_more_work_is_noted_and_taken_as_measured() -> None:
    known = splitwise()
    cost, notes = known.cost(known.key("llama2-70b", "a100-80gb", 2), 2048, 64)
    assert len(notes) == 1 and "67.2433 ms at 64, 72.1898 ms at 32" in notes[0]
    assert cost.decode_ms[64] == 67.2433
    assert known.cost(known.key("llama2-70b", "a100-80gb", 2), 2048, 32)[1] == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", r"medians\.csv.*(empty|no rows)"),
        (HEADER, r"medians\.csv: contains no rows of data"),
        ("model,hardware\nm,gpu\n", r"medians\.csv:1: the header lacks .*tensor_parallel"),
        (
            HEADER + "m,gpu,2,128,1,128,eighty,48\n",
            r"medians\.csv:2:prompt_ms_median: 'eighty' is not a number",
        ),
        (HEADER + "m,gpu,2,128,1,128,nan,48\n", r"medians\.csv:2:prompt_ms_median"),
        (HEADER + "m,gpu,2,128,1,128,-80,48\n", r"medians\.csv:2:prompt_ms_median: -80"),
        (HEADER + "m,gpu,2,128,1,128,80,0\n", r"medians\.csv:2:token_ms_median"),
        (HEADER + "m,gpu,2,128,0,128,80,48\n", r"medians\.csv:2:batch: 0"),
        (
            HEADER + "m,gpu,2,128.5,1,128,80,48\n",
            r"medians\.csv:2:prompt_tokens: '128.5' is not a whole number",
        ),
        (HEADER + "m,gpu,2,128,1,128,80\n", r"medians\.csv:2: has 7 cells, 8 are expected"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", r"medians\.csv.*LFS"),
    ],
)
def test_bad_files_are_named_with_line_and_field(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        medians(tmp_path, content)
    assert re.search(said, str(caught.value)), str(caught.value)


def test_what_was_not_measured_is_refused_with_what_was(tmp_path: Path) -> None:
    known = medians(tmp_path)
    key = Key("m", "gpu", 2)
    for ask, said in (
        (lambda: known.key("n", "gpu", 2), "model 'n' was not measured; .*known: m"),
        (lambda: known.key("m", "tpu", 2), "hardware 'tpu' of m was not measured; .*known: gpu"),
        (lambda: known.key("m", "gpu", 8), "tensor_parallel 8 of m on gpu was not measured; .*known: 2"),
        (
            lambda: known.cost(key, 4096, 16),
            r"up to 2048 prompt tokens in one iteration \(token_budget\), not for 4096",
        ),
        (lambda: known.cost(key, 512, 64), r"up to 16 requests at once \(max_seqs\), not for 64"),
    ):
        with pytest.raises(ProfileError, match=said):
            ask()


def test_a_scenario_with_medians(tmp_path: Path) -> None:
    path = tmp_path / "medians.csv"
    path.write_text(text())
    cost = {"medians": str(path), "model": "m", "hardware": "gpu", "tensor_parallel": 2}
    result = simulate(scenario(cost=cost, token_budget=512, max_seqs=16)).check()
    assert result.summary["tbt_p50_ms"] == pytest.approx(49.0, rel=0.2)
    with pytest.raises(ForerunError, match=r"medians.csv: m on 2 x gpu .* not for 64"):
        simulate(scenario(cost=cost, token_budget=512, max_seqs=64))
