"""Speculative decoding: both engines agree, laws of tokens and blocks, the law of acceptance, what it costs, and plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.core.domain import get_domain, simulate
from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.outcome import Guesses, Requests, Run
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.llm.engine.pipeline import MixedRun, simulate_mixed
from forerun.serving.llm.inputs.model import Cost, HostMemory, LanguageModel, hashed
from forerun.serving.llm.policy.scheduling import Rules
from forerun.serving.llm.scenario.language_model import SpeculationSpec
from forerun.serving.plan import plan
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_llm_pipelines import equal, llm_stage, scheduled_pipeline, speculative_pipeline
from .test_llm_scenario import llm, problems, scenario

SLO_MS = 20.0
#: drawn worlds of each law in a run of the suite; set FORERUN_CASES for more
CASES = cases(30)
COST = Cost((6.0, 0.05, 0.1, 0.0, 0.0), hidden_prefill=100.0)


def requests_of(run: Run) -> Requests:
    requests = run.requests[0]
    assert requests is not None
    return requests


def guesses_of(run: Run) -> Guesses:
    guesses = requests_of(run).guesses
    assert guesses is not None
    return guesses


def model(
    queries: int,
    output: int,
    own: SpeculationSpec | None,
    *,
    cost: Cost = COST,
    seats: int = 8,
    seed: int = 1,
) -> LanguageModel:
    keys = np.random.default_rng(seed).integers(2**32, size=queries)
    prompt, answer = np.full(queries, 20), np.full(queries, output)
    return LanguageModel(seats, 512, 4000, 16, cost, prompt, answer, speculation=own, keys=keys)


def run_of(llm: LanguageModel, gap_ms: float = 3.0) -> Run:
    arrivals = np.arange(len(llm.prompt)) * gap_ms
    pipeline = Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),))
    run = simulate_mixed(pipeline, arrivals, SLO_MS)
    check_run(pipeline, run, SLO_MS)
    return run


def test_engines_agree() -> None:
    """Any scheduler, prefixes, swapping, pools: chunks, preemption and refusals, with drafts of any length."""
    seen = {"drafted": 0, "accepted": 0, "preempted": 0, "refused": 0, "apart": 0}
    for seed in range(CASES):
        pipeline, arrivals = speculative_pipeline(seed)
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(pipeline, run, SLO_MS)
        seen["drafted"] += guesses_of(run).drafted > 0
        seen["accepted"] += guesses_of(run).accepted > 0
        seen["preempted"] += bool(requests_of(run).preemptions.any())
        seen["refused"] += bool(run.refused is not None and run.refused.any())
        seen["apart"] += requests_of(run).transfers is not None
    assert min(seen.values()) > CASES / 20, f"worlds are too tame: {seen}"


def test_cutting_changes_no_byte() -> None:
    for seed in range(CASES // 3):
        pipeline, arrivals = speculative_pipeline(3000 + seed)
        whole = simulate_mixed(pipeline, arrivals, SLO_MS)
        rng = np.random.default_rng(seed)
        instants = np.concatenate([arrivals, whole.batches[0].end_ms])
        cut = MixedRun(pipeline, len(arrivals), SLO_MS)
        for until_ms in np.sort(rng.choice(instants, 6) + rng.choice([0.0, 0.25], 6)).tolist():
            due = int(np.searchsorted(arrivals, until_ms, side="left"))
            cut.advance(arrivals[cut.fed : max(cut.fed, due)], until_ms)
        cut.advance(arrivals[cut.fed :])
        assert equal(cut.run(), whole), f"pipeline {seed}"


def test_drafts_that_are_never_right_only_cost() -> None:
    """Acceptance 0: as without drafts, each iteration with decodes longer by what drafting and verifying take."""
    for drafts in (1, 4):
        own = SpeculationSpec(draft_tokens=drafts, acceptance=0.0, draft_ms=0.5, draft_ms_per_seq=0.25)
        run, plain = (run_of(model(40, 30, one), 400.0) for one in (own, None))
        assert guesses_of(run).accepted == 0
        # One request at a time: each of its 29 steps drafts, up to the end of the answer.
        drafted = np.minimum(drafts, np.arange(28, -1, -1)).sum()
        assert guesses_of(run).drafted == 40 * drafted
        longer_ms = run.latency_ms - plain.latency_ms
        assert np.allclose(longer_ms, drafted * (0.5 + 0.25)), "verified tokens are hidden behind the weights"
        dear = replace(COST, hidden_prefill=0.0)
        run, plain = (run_of(model(40, 30, one, cost=dear), 400.0) for one in (own, None))
        assert np.allclose(run.latency_ms - plain.latency_ms, drafted * (0.5 + 0.25 + 0.05))


def test_drafts_that_are_always_right_come_whole() -> None:
    """Acceptance 1: k + 1 tokens a step, so an answer of n comes in ceil((n - 1) / (k + 1)) steps behind the first token."""
    for drafts in (1, 3, 7):
        for output in (1, 2, 5, 9, 33):
            run = run_of(model(5, output, SpeculationSpec(draft_tokens=drafts, acceptance=1.0)), 1000.0)
            steps = -(-(output - 1) // (drafts + 1))
            assert requests_of(run).iterations == 5 * (1 + steps)
            assert requests_of(run).gaps.sum() == 5 * steps
            first_ms = 6.0
            assert np.allclose(run.latency_ms, first_ms + steps * (6.0 + 0.1))


@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("drafts", [1, 4, 8])
def test_steps_yield_what_the_law_says(drafts: int, acceptance: float) -> None:
    """A step yields (1 - a^(k+1)) / (1 - a) tokens on average, within three standard errors."""
    own, queries, output = SpeculationSpec(draft_tokens=drafts, acceptance=acceptance), 400, 400
    steps = int(requests_of(run_of(model(queries, output, own, seats=100))).gaps.sum())
    yielded = np.arange(1, drafts + 2)
    chance = acceptance ** (yielded - 1) * np.where(yielded <= drafts, 1 - acceptance, 1.0)
    assert chance.sum() == pytest.approx(1.0)
    mean = float((chance * yielded).sum())
    assert mean == pytest.approx((1 - acceptance ** (drafts + 1)) / (1 - acceptance))
    deviation = float(np.sqrt((chance * yielded**2).sum() - mean**2))
    # The last step of an answer may be cut short: by less than its drafts.
    cut = drafts * queries / steps
    found = queries * (output - 1) / steps
    assert abs(found - mean) < 3 * deviation / np.sqrt(steps) + cut


def test_guesses_are_independent_and_have_their_share() -> None:
    own = SpeculationSpec(draft_tokens=1, acceptance=0.3)
    keys = np.random.default_rng(4).integers(2**32, size=400).tolist()
    drawn = np.array(
        [[hashed(key, place) < own.threshold for place in range(100)] for key in keys], dtype=float
    )
    error = np.sqrt(0.3 * 0.7 / drawn.size)
    assert abs(drawn.mean() - 0.3) < 3 * error
    for lag in (1, 2, 5):
        together = (drawn[:, lag:] * drawn[:, :-lag]).mean()
        assert abs(together - 0.09) < 4 * np.sqrt(0.09 * 0.91 / drawn[:, lag:].size)
    assert abs((drawn[1:] * drawn[:-1]).mean() - 0.09) < 4 * np.sqrt(0.09 * 0.91 / drawn[1:].size)


def test_a_higher_acceptance_never_needs_more_steps() -> None:
    """The same tokens are guessed, and more: alone, no request ends later."""
    ends = [
        run_of(model(60, 80, SpeculationSpec(draft_tokens=4, acceptance=share)), 2000.0).finish_ms
        for share in (0.2, 0.5, 0.9)
    ]
    assert (ends[0] >= ends[1]).all() and (ends[1] >= ends[2]).all()
    assert (ends[0] > ends[2]).any()


def test_it_pays_for_few_and_loses_for_many() -> None:
    """Verified tokens are hidden behind the weights while few decode; beyond that they take the time of as many prompts."""
    own = SpeculationSpec(draft_tokens=4, acceptance=0.5, draft_ms=0.2)
    for gap_ms, pays in ((500.0, True), (2.0, False)):
        drafted, plain = (run_of(model(300, 60, one, seats=128), gap_ms) for one in (own, None))
        assert (drafted.latency_ms.mean() < plain.latency_ms.mean()) == pays


def test_tokens_that_come_together_have_no_time_between_them() -> None:
    """The time between tokens is between deliveries; the mean per token counts all of them."""
    run = run_of(model(1, 9, SpeculationSpec(draft_tokens=3, acceptance=1.0)))
    requests = requests_of(run)
    assert requests.gaps.sum() == 2 and guesses_of(run) == Guesses(6, 6)
    assert requests.longest_gap_ms[0] == pytest.approx(6.1)
    assert (run.finish_ms[0] - requests.first_ms[0]) / 8 == pytest.approx(2 * 6.1 / 8)


SPECULATION = {"draft_tokens": 4, "acceptance": 0.6, "draft_ms": 0.5, "draft_ms_per_seq": 0.01}


def test_a_scenario_says_it_and_a_result_shows_it() -> None:
    plain, drafted = simulate(scenario()), simulate(scenario(speculation=SPECULATION))
    assert not any("speculation:" in note for note in plain.notes)
    assert "tokens_per_step" not in plain.summary
    summary = drafted.summary
    assert summary["drafted_tokens"] > summary["accepted_tokens"] > 0
    assert 1.5 < summary["tokens_per_step"] < 1 / (1 - 0.6)
    assert any("speculation: a step yields" in note for note in drafted.notes)
    assert any("speculative decoding" in note for note in drafted.notes)
    assert simulate(scenario(speculation=SPECULATION)).summary == summary, "same scenario, same draws"


def test_an_explanation_tries_fewer_tokens_and_none() -> None:
    drafted = scenario(speculation=SPECULATION, tpot_slo_ms=9.0)
    tried = {
        one.path: one.values for one in get_domain("serving").explainer.what_ifs(drafted, simulate(drafted))
    }
    where = "configuration.Llama.llm.speculation"
    assert tried[f"{where}.draft_tokens"] == (2, 1, 8) and tried[where] == (None,)


def test_drafts_in_vain_are_the_next_step() -> None:
    """Where decoding is too slow and drafts make it slower, the next step is to do without; it helps."""
    useless = {"draft_tokens": 4, "acceptance": 0.05, "draft_ms": 2.0}
    missed = simulate(scenario(speculation=useless, tpot_slo_ms=9.0))
    assert not missed.summary["slo_met"]
    assert any("decoding is slower than without" in note for note in missed.notes)
    assert missed.next_steps[0].endswith("--set configuration.Llama.llm.speculation=null")
    plain = simulate(scenario(tpot_slo_ms=9.0))
    assert plain.summary["tpot_attainment"] > missed.summary["tpot_attainment"]


def test_padded_requests_fit_into_an_iteration() -> None:
    """Else one with a single token to process would wait for ever."""
    drafted = {"speculation": {"draft_tokens": 5, "acceptance": 0.5}, "token_budget": 5}
    assert any(
        "token_budget: is 5; this scheduler gives a request" in one for one in problems(llm(**drafted))
    )
    assert not problems_of(drafted | {"token_budget": 6}) and not problems_of(
        drafted | {"scheduler": "vllm-0.24"}
    )


def problems_of(fields: dict[str, Any]) -> list[tuple[str, str]]:
    placed = scenario(**fields).configuration["Llama"]
    assert placed.llm is not None
    return placed.llm.problems()


def test_problems_are_named() -> None:
    wrong = problems(llm(speculation={"draft_tokens": 0, "acceptance": 1.5}))
    assert len(wrong) == 2 and "draft_tokens" in wrong[0] and "acceptance" in wrong[1]
    medians = {"medians": "no.csv", "model": "m", "hardware": "h"}
    assert "measured medians do not say" in problems(llm(speculation=SPECULATION, cost=medians))[0]


def test_a_plan_chooses_it_where_few_decode() -> None:
    """Long answers of few requests come in time with drafts only; the certificate holds."""
    data = {
        "domain": "serving",
        "trace": {"process": {"name": "poisson", "rate_rps": 1.0}, "queries": 60},
        "stages": [{"name": "Chat", "parents": ["source"]}],
        "configuration": {
            "Chat": {
                "hardware": "H100",
                "llm": {
                    "max_seqs": 16,
                    "token_budget": 512,
                    "kv_blocks": 900,
                    "cost": {"a_ms": 7.0, "prefill_ms_per_token": 0.03, "hidden_prefill_tokens": 200},
                    "tokens": {"prompt": 100, "output": 80},
                    "tpot_slo_ms": 5.0,
                    "plan": {"replicas": [1, 2], "speculation": [None, SPECULATION]},
                },
            }
        },
        "prices_usd_per_h": {"H100": 4.0},
        "attainment": 0.9,
        "intervals": {"replications": 0},
    }
    planned = plan(scenario(data))
    assert planned.check().data()["configuration"]["Chat"]["speculation"]["draft_tokens"] == 4
    assert "speculation 4 at 0.6" in planned.why
    plain = [one["cell"] for one in planned.certificate["excluded"]]
    assert all("speculation" not in cell["Chat"] for cell in plain)
    again = simulate(planned.scenario_planned())
    assert again.summary["tpot_p99_ms"] == planned.summary["tpot_p99_ms"]


def test_drafts_under_way_are_not_kept_of_who_is_swapped_out_meanwhile() -> None:
    """Composed ahead, a request may be swapped out while its drafts are verified; the wrong ones are processed again."""
    swapped = 0
    for seed in range(100, 100 + cases(24, 80)):
        pipeline, arrivals = scheduled_pipeline(seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        own = SpeculationSpec(draft_tokens=1 + seed % 7, acceptance=0.5)
        tight = -(-(stage.llm.prompt + stage.llm.output).max() // stage.llm.block_tokens) + 1
        llm = replace(
            stage.llm,
            rules=Rules(ahead=True),
            ranks=None,
            kv_blocks=int(tight),
            max_seqs=8,
            host=HostMemory(10_000, 0.5),
            speculation=own,
            keys=np.arange(len(arrivals)) * 7919 + seed,
            cost=Cost((6.0, 0.02, 0.02, 2.5e-6, 4e-7)),
        )
        pipeline = replace(pipeline, stages=(replace(stage, llm=llm),))
        run = simulate_mixed(pipeline, arrivals / 8, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals / 8, SLO_MS), run), seed
        check_run(pipeline, run, SLO_MS)
        swapped += int(run.requests[0].preemptions.sum()) if run.requests[0] is not None else 0
    assert swapped > 20
