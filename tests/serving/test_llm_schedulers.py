"""Schedulers of language models: both engines agree under any rules, blocks and tokens are conserved, each differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.catalog import policies
from forerun.core.domain import get_domain, simulate
from forerun.core.errors import ForerunError
from forerun.core.scenarios import from_data
from forerun.serving.engine.events import simulate_events
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.engine.pipeline import MixedRun, simulate_mixed
from forerun.serving.llm.engine.replica import Replica, Replicas, Request
from forerun.serving.llm.inputs.model import Cost, HostMemory, LanguageModel
from forerun.serving.llm.policy.scheduling import Rules, Scheduler, scheduler_policies
from forerun.serving.policies.chunked_prefill import ChunkedPrefill
from forerun.serving.policies.orca import Orca
from forerun.serving.policies.priority import Priority
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_llm_pipelines import equal, llm_stage, scheduled_pipeline
from .test_llm_scenario import problems, scenario, scenario_data

SLO_MS = 20.0
#: drawn worlds of each law in a run of the suite; set FORERUN_CASES for more
CASES = cases(30)
NAMES = scheduler_policies().names()
#: those of papers
PAPERS = [name for name in NAMES if not name.startswith("vllm")]


def test_engines_agree_under_any_rules() -> None:
    seen = {"swapped": 0, "preempted": 0, "classes": 0, "reserved": 0}
    for seed in range(CASES):
        pipeline, arrivals = scheduled_pipeline(seed)
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run), f"pipeline {seed}"
        check_run(pipeline, run, SLO_MS)
        llm, requests = pipeline.stages[0].llm, run.requests[0]
        assert llm is not None and requests is not None
        preempted = bool(requests.preemptions.any())
        seen["preempted"] += preempted
        seen["swapped"] += preempted and llm.host is not None
        seen["classes"] += llm.classes > 1
        seen["reserved"] += llm.reserved_tokens > 0
    assert min(seen.values()) > CASES / 20, f"worlds are too tame: {seen}"


def test_cutting_changes_no_byte() -> None:
    for seed in range(CASES // 2):
        pipeline, arrivals = scheduled_pipeline(2000 + seed)
        whole = simulate_mixed(pipeline, arrivals, SLO_MS)
        rng = np.random.default_rng(seed)
        instants = np.concatenate([arrivals, whole.batches[0].end_ms])
        cut, fed = MixedRun(pipeline, len(arrivals), SLO_MS), 0
        for until_ms in np.sort(rng.choice(instants, 8) + rng.choice([0.0, 0.25], 8)).tolist():
            due = int(np.searchsorted(arrivals, until_ms, side="left"))
            fed = max(fed, min(len(arrivals), due + int(rng.integers(0, 4))))
            cut.advance(arrivals[cut.fed : fed], until_ms)
        cut.advance(arrivals[cut.fed :])
        assert equal(cut.run(), whole), f"pipeline {seed}"


class Counted(Replica):
    """A replica that counts the tokens that it drops, and checks its blocks after every step."""

    dropped = 0
    checked = 0

    def _preempt(self, request: Request, now_ms: float) -> int:
        cached = request.cached
        moved = super()._preempt(request, now_ms)
        self.dropped += cached - request.cached
        return moved

    def begin(self, number: int, now_ms: float) -> Any:
        iteration = super().begin(number, now_ms)
        self._check()
        return iteration

    def end(self, now_ms: float) -> list[Request]:
        left = super().end(now_ms)
        self._check()
        return left

    def _check(self) -> None:
        """Free, owned and shared blocks are all there are, on both sides."""
        self.checked += 1
        owned = {block for request in self.running for block in request.blocks}
        assert self.cache.free + len(owned) == self.llm.kv_blocks and self.cache.blank >= 0
        assert not any(request.blocks or request.pending for request in self.queue)
        assert all(request.cached <= len(request.blocks) * self.llm.block_tokens for request in self.running)
        out = sum(request.host for request in self.queue)
        assert self.host + out == (self.llm.host.blocks if self.llm.host else 0) and self.host >= 0
        ranks = [request.rank for request in self.running]
        assert ranks == sorted(ranks) or self.llm.rules.victim == "last of the lowest class"
        assert len(self.running) <= self.llm.max_seqs


def counted(llm: LanguageModel, replicas: int, arrivals: np.ndarray) -> Replicas:
    """A run of replicas that check themselves."""
    stage = Replicas(llm, replicas)
    stage.replicas = [Counted(number, llm) for number in range(replicas)]
    waiting, ends = list(enumerate(arrivals.tolist())), set()
    while waiting or ends:
        now_ms = min([*ends, *(at_ms for _, at_ms in waiting[:1])])
        ends.discard(now_ms)
        stage.end(now_ms)
        while waiting and waiting[0][1] == now_ms:
            stage.enter(waiting.pop(0)[0], now_ms)
        ends |= set(stage.begin(now_ms))
    return stage


def test_blocks_and_tokens_are_conserved() -> None:
    """Tokens processed and tokens that the prefix cache had are those that are cached in the end, and those dropped."""
    checked = 0
    for seed in range(CASES // 3):
        pipeline, arrivals = scheduled_pipeline(4000 + seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        run = counted(stage.llm, stage.replicas, arrivals)
        requests = list(run.requests.values())
        processed = sum(one.prefill + one.decodes for one in run.iterations)
        dropped = sum(replica.dropped for replica in run.replicas)  # type: ignore[attr-defined]
        wanted = sum(request.prompt + request.output - 1 for request in requests)
        assert processed + sum(request.hit for request in requests) == wanted + dropped
        assert all(request.emitted == request.output for request in requests)
        checked += sum(replica.checked for replica in run.replicas)  # type: ignore[attr-defined]
    assert checked > 100 * CASES


def times(scheduler: Scheduler) -> tuple[list[float], list[float]]:
    """When first and last tokens of A to E come, on one replica where an iteration takes 1 ms and a token is a block."""
    prompt, output = np.array([3, 4, 2, 4, 1]), np.array([4, 2, 3, 1, 5])
    ranks = None if scheduler.rules().classes is None else np.array([1, 1, 0, 1, 0])
    cost = Cost((1.0, 0.0, 0.0, 0.0, 0.0))
    llm = LanguageModel(3, 5, 14, 1, cost, prompt, output, rules=scheduler.rules(), ranks=ranks)
    pipeline = Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),))
    arrivals = np.array([0.0, 0.0, 1.0, 1.0, 2.0])
    run = simulate_mixed(pipeline, arrivals, SLO_MS)
    assert equal(simulate_events(pipeline, arrivals, SLO_MS), run) and run.requests[0] is not None
    return run.requests[0].first_ms.tolist(), run.finish_ms.tolist()


def test_each_scheduler_answers_differently() -> None:
    """First and last tokens. In the first iteration, with 5 tokens, A takes 3; only where prompts are cut does B begin.

    Orca reserves 5 tokens for every answer, so that no two of A, B and D fit. Decode-first does not let B begin before A has
    ended, but D and E together. Only in classes does E come before D. vLLM composes ahead: C, which comes as the second
    iteration begins, waits for the third, and E until A's seat is known to be free.
    """
    answers = {name: times(scheduler_policies().get(name)()) for name in (*PAPERS, "vllm-0.32")}
    assert answers == {
        "chunked-prefill": ([1, 2, 2, 5, 5], [4, 3, 4, 5, 9]),
        "decode-first": ([1, 5, 7, 10, 10], [4, 6, 9, 10, 14]),
        "orca": ([1, 5, 7, 10, 11], [4, 6, 9, 10, 15]),
        "prefill-first": ([1, 2, 3, 5, 6], [8, 4, 7, 5, 10]),
        "priority": ([1, 2, 2, 5, 4], [4, 3, 4, 5, 8]),
        "vllm-0.32": ([1, 2, 3, 5, 6], [4, 3, 5, 5, 10]),
    }
    assert len({str(answer) for answer in answers.values()}) == len(answers)


def test_versions_differ_where_their_rules_do() -> None:
    """(Recorded steps of the program tell which rules a version has.)"""
    rules = {name: scheduler_policies().get(name)().rules() for name in NAMES if name not in PAPERS}
    assert (
        rules["vllm-0.18"]
        != rules["vllm-0.19"]
        != rules["vllm-0.24"]
        != rules["vllm-0.25"]
        != rules["vllm-0.31"]
    )
    assert rules["vllm-0.31"] == rules["vllm-0.32"]


def test_composed_ahead_whoever_comes_later_waits_for_the_iteration_behind() -> None:
    """Iterations of 1 ms. A runs from 0. B comes at 0.5, within A's first iteration, and C at 1, as the second begins; that
    was composed at 0, so both begin at 2. D finds nobody running."""
    prompt, output = np.array([3, 2, 1, 2]), np.array([4, 2, 1, 2])
    arrivals = np.array([0.0, 0.5, 1.0, 20.5])
    first_ms = {}
    for ahead in (False, True):
        rules = ChunkedPrefill(ahead=ahead).rules()
        llm = LanguageModel(4, 64, 100, 1, Cost((1.0, 0.0, 0.0, 0.0, 0.0)), prompt, output, rules=rules)
        pipeline = Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),))
        run = simulate_mixed(pipeline, arrivals, SLO_MS)
        assert equal(simulate_events(pipeline, arrivals, SLO_MS), run) and run.requests[0] is not None
        first_ms[ahead] = run.requests[0].first_ms.tolist()
    assert first_ms == {False: [1.0, 2.0, 2.0, 21.5], True: [1.0, 3.0, 3.0, 21.5]}


def test_without_rivals_all_schedulers_are_one() -> None:
    """One request after the other, each within the budget."""
    rng = np.random.default_rng(7)
    prompt, output = rng.integers(1, 40, 50), rng.integers(1, 9, 50)
    arrivals = np.arange(50) * 1000.0
    runs = []
    for name in NAMES:
        rules = scheduler_policies().get(name)().rules()
        ranks = None if rules.classes is None else rng.integers(0, 3, 50)
        cost = Cost((2.0, 0.25, 0.5, 0.0, 0.0))
        llm = LanguageModel(4, 64, 100, 4, cost, prompt, output, rules=rules, ranks=ranks)
        runs.append(simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 2),)), arrivals, SLO_MS))
    assert all(np.array_equal(run.finish_ms, runs[0].finish_ms) for run in runs)


def test_one_class_is_no_class() -> None:
    for seed in range(cases(8, 30)):
        pipeline, arrivals = scheduled_pipeline(6000 + seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        runs = [
            simulate_mixed(
                Pipeline((replace(stage, llm=replace(stage.llm, rules=Priority().rules(), ranks=ranks)),)),
                arrivals,
                SLO_MS,
            )
            for ranks in (np.zeros(len(arrivals), dtype=np.int64), None)
        ]
        assert equal(*runs)


@pytest.mark.parametrize("name", ["prefill-first", "decode-first"])
def test_iterations_process_one_kind_alone(name: str) -> None:
    rules, alone = scheduler_policies().get(name)().rules(), 0
    for seed in range(cases(8, 30)):
        pipeline, arrivals = scheduled_pipeline(7000 + seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        llm = replace(stage.llm, rules=rules, ranks=None)
        run = simulate_mixed(Pipeline((replace(stage, llm=llm),)), arrivals, SLO_MS)
        each = run.requests[0].recorded  # type: ignore[union-attr]
        assert each is not None and not (each.prefill * each.decodes).any()
        alone += int((each.prefill > 0).sum())
    assert alone > 500


def test_reserved_answers_are_never_preempted() -> None:
    """A cache so small that other schedulers preempt."""
    preempted = 0
    for seed in range(cases(12, 60)):
        pipeline, arrivals = scheduled_pipeline(8000 + seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        counts = {}
        for scheduler in (Orca(reserve="own"), Orca(), None):
            rules = Rules() if scheduler is None else scheduler.rules()
            llm = replace(stage.llm, rules=rules)
            run = simulate_mixed(Pipeline((replace(stage, llm=llm),)), arrivals, SLO_MS)
            counts[scheduler] = int(run.requests[0].preemptions.sum())  # type: ignore[union-attr]
        assert counts[Orca()] == counts[Orca(reserve="own")] == 0
        preempted += counts[None]
    assert preempted > 25


def test_swapping_processes_nothing_anew() -> None:
    """With host memory for everybody, every token is processed once, and moving a block takes its time."""
    swapped = 0
    for seed in range(cases(12, 60)):
        pipeline, arrivals = scheduled_pipeline(9000 + seed)
        (stage,) = pipeline.stages
        assert stage.llm is not None
        roomy = replace(stage.llm, shared=None, routing="round-robin", host=HostMemory(10**6, 0.0))
        runs = {}
        for move_ms in (0.0, 0.5):
            llm = replace(roomy, host=HostMemory(10**6, move_ms))
            run = simulate_mixed(Pipeline((replace(stage, llm=llm),)), arrivals, SLO_MS)
            runs[move_ms] = run.requests[0]
        served, (free, slow) = ~llm.refused, runs.values()
        assert (
            free is not None and free.recorded is not None and slow is not None and slow.recorded is not None
        )
        for one in (free.recorded, slow.recorded):
            assert one.prefill.sum() == llm.prompt[served].sum()
            assert one.decodes.sum() == (llm.output[served] - 1).sum()
        swapped += int(free.preemptions.sum())
    assert swapped > 50


def test_a_block_is_moved_there_and_back() -> None:
    """Two requests that grow into each other: the second is swapped out, and returns when the first has ended."""
    prompt, output = np.array([2, 2]), np.array([4, 4])
    llm = LanguageModel(2, 8, 6, 1, Cost((1.0, 0.0, 0.0, 0.0, 0.0)), prompt, output, host=HostMemory(9, 0.25))
    run = simulate_mixed(Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, 1),)), np.zeros(2), SLO_MS)
    requests = run.requests[0]
    assert requests is not None and requests.recorded is not None
    # Both are prefilled and decode once: six blocks. Then the second, of three blocks, is moved out: 0.75 ms more; when the
    # first has ended after two more tokens, it comes back for 0.75 ms.
    assert requests.recorded.end_ms.tolist() == [1.0, 2.0, 3.75, 4.75, 6.5, 7.5]
    assert run.finish_ms.tolist() == [4.75, 7.5]
    assert requests.stalled_ms.tolist() == [0.0, 2.75]
    assert requests.preemptions.tolist() == [0, 1]


def test_classes_come_from_the_trace_a_draw_or_a_list(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    rows = "".join(f"{i / 40},300,20,{5 + i // 2 % 2}\n" for i in range(200))
    path.write_text("arrival_s,prompt_tokens,output_tokens,priority\n" + rows)
    data = scenario_data(scheduler="priority", max_seqs=2)
    del data["configuration"]["Llama"]["llm"]["tokens"]
    data["trace"] = {"file": str(path)}
    result = simulate(scenario(data)).check()
    ttft_ms = result.tables["requests"]["ttft_ms"]
    urgent = np.arange(200) // 2 % 2 == 0
    assert ttft_ms[urgent].mean() < 0.5 * ttft_ms[~urgent].mean()
    listed = {**data["configuration"]["Llama"]["llm"]}
    listed["scheduler"] = {"name": "priority", "classes": [i // 2 % 2 for i in range(200)]}
    data["configuration"]["Llama"]["llm"] = listed
    again = simulate(scenario(data))
    assert np.array_equal(again.tables["requests"]["ttft_ms"], ttft_ms)
    listed["scheduler"] = {"name": "priority", "shares": [1, 3]}
    ranks = prepare(scenario(data)).pipeline.stages[1].llm.ranks  # type: ignore[union-attr]
    assert ranks is not None and 0.15 < float(np.mean(ranks == 0)) < 0.35
    assert np.array_equal(ranks, prepare(scenario(data)).pipeline.stages[1].llm.ranks)  # type: ignore[union-attr]


def test_other_orders_of_ties_keep_the_classes() -> None:
    explainer = get_domain("serving").explainer
    assert explainer is not None
    given = scenario(scenario_data(scheduler={"name": "priority", "shares": [1, 1]}))
    orders = explainer.orders(given)
    assert len(orders.simulate(1).tables["requests"]["ttft_ms"]) == 300


def test_a_scheduler_takes_the_place_of_another() -> None:
    data = scenario_data(kv_blocks=40)
    by_name = simulate(scenario(scenario_data(kv_blocks=40, scheduler={"name": "orca", "reserve": "own"})))
    placed = simulate(scenario(data), policy=Orca(reserve="own"))
    assert placed.id == by_name.id and placed.summary["preemptions"] == 0
    assert simulate(scenario(data)).summary["preemptions"] > 0


def test_schedulers_are_listed_with_their_papers() -> None:
    listed = {entry.name: entry.about for entry in policies("serving") if entry.kind == "scheduler"}
    assert (
        set(listed) == set(NAMES) >= {"chunked-prefill", "decode-first", "orca", "prefill-first", "priority"}
    )
    assert all("et al." in about for about in listed.values())


def test_swapping_in_a_scenario() -> None:
    given: dict[str, Any] = {"kv_blocks": 40, "kv_token_bytes": "128KiB"}
    swap = {"host_blocks": 1000, "bandwidth": "16GB/s"}
    result = simulate(scenario(scenario_data(**given, swap=swap))).check()
    anew = simulate(scenario(scenario_data(**given)))
    assert result.summary["preemptions"] > 0 and anew.summary["preemptions"] > 0
    host = prepare(scenario(scenario_data(**given, swap=swap))).pipeline.stages[1].llm.host  # type: ignore[union-attr]
    assert host is not None and host.move_ms == pytest.approx(16 * 131_072 / 16e9 * 1e3)


@pytest.mark.parametrize(
    ("llm", "said"),
    [
        ({"scheduler": "fifo"}, "no scheduler of language models named 'fifo'"),
        ({"scheduler": "priority"}, "the trace has no column priority; say shares"),
        ({"scheduler": {"name": "priority", "shares": [1], "classes": [1]}}, "by shares or listed as classes, not both"),
        ({"scheduler": {"name": "priority", "shares": [0]}}, "shares"),
        ({"scheduler": {"name": "priority", "classes": [0, 1]}}, "lists the classes of 2 requests; 300 arrive"),
        ({"scheduler": {"name": "priority", "classes": [-1]}}, "classes"),
        ({"scheduler": {"name": "priority", "classes": list(range(300)) * 4}}, "lists the classes of 1200 requests"),
        ({"scheduler": {"name": "orca", "reserve": "all"}}, "reserve"),
        ({"swap": {"host_blocks": 9, "bandwidth": "1GB/s"}}, "kv_token_bytes: is needed to time what swap moves"),
        ({"kv_token_bytes": 1, "swap": {"host_blocks": 9, "bandwidth": "-1GB/s"}}, "bandwidth"),
        ({"kv_token_bytes": 1, "swap": {"host_blocks": 0, "bandwidth": "1GB/s"}}, "host_blocks"),
        ({"scheduler": "orca", "kv_blocks": 5}, "the smallest of the 300 requests needs 340"),
    ],
)  # fmt: skip
def test_what_cannot_be_scheduled(llm: dict[str, Any], said: str) -> None:
    found = problems(lambda data, placed: placed["llm"].update(llm))
    assert len(found) == 1 and said in found[0], found


def test_errors_are_of_the_package() -> None:
    with pytest.raises(ForerunError):
        from_data(scenario_data(scheduler={"name": "orca", "reserved": "own"}))
