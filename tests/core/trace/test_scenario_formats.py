"""A format that no reader has is an error of the scenario that names it, with its line, wherever one may be named."""

from __future__ import annotations

import pytest

from forerun.core.errors import ScenarioError
from forerun.core.scenarios import loads

SERVING = """domain: serving
trace: {process: {name: poisson, rate_rps: 20rps}, queries: 200}
stages: [{name: ResNet, parents: [source]}]
configuration: {ResNet: {hardware: V100}}
slo_ms: 350ms
"""
SPOT = """domain: spot
fleet: {name: poisson, initial: 64, mean_remove_min: 5, remove: 1, mean_add_min: 5, add: 1}
prices: {spot_usd_per_h: 1}
"""
REPLAYED = "trace: {file: a.csv, format: nonsense}"
SCALED = "trace: {process: {name: scale, trace: a.csv, rate_rps: 3rps, format: nonsense}, queries: 5}"
RESAMPLED = "trace: {process: {name: bootstrap, trace: a.csv, format: nonsense}, queries: 5}"
GENERATED = "trace: {process: {name: poisson, rate_rps: 20rps}, queries: 200}"
COST = "{a_ms: 8.0, prefill_ms_per_token: 0.06, decode_ms_per_seq: 0.15}"
TOKENS = "{drawn_from: a.csv, format: nonsense}"
MODEL = f"{{max_seqs: 8, token_budget: 512, kv_blocks: 1200, cost: {COST}, tokens: {TOKENS}}}"
FLEET = SPOT.splitlines()[1]

PLACES = {
    "serving, replayed": (SERVING.replace(GENERATED, REPLAYED), "<text>:2"),
    "serving, scaled": (SERVING.replace(GENERATED, SCALED), "<text>:2"),
    "serving, resampled": (SERVING.replace(GENERATED, RESAMPLED), "<text>:2"),
    "serving, tokens": (
        SERVING.replace("{hardware: V100}", f"{{hardware: V100, llm: {MODEL}}}"),
        "<text>:4",
    ),
    "spot, fleet": (SPOT.replace(FLEET, "fleet: {name: trace, file: a.csv, format: nonsense}"), "<text>:2"),
    "spot, prices": (
        SPOT.replace("spot_usd_per_h: 1", "spot_file: {file: a.csv, format: nonsense}"),
        "<text>:3",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_format_is_an_error_of_the_scenario(place: str) -> None:
    text, line = PLACES[place]
    with pytest.raises(ScenarioError) as refusal:
        loads(text)
    said = [str(problem) for problem in refusal.value.problems if "format" in str(problem)]
    assert len(said) == 1, refusal.value
    assert said[0].startswith(line) and "no trace format named 'nonsense'; known: " in said[0]
