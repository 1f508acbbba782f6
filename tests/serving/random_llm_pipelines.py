"""Random pipelines with language models among their stages, drawn from a seed alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.serving.engine.outcome import Run
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.inputs.sessions import Sessions
from forerun.serving.llm.inputs.model import (
    Cost,
    DecodePool,
    HostMemory,
    LanguageModel,
    Prefixes,
)
from forerun.serving.llm.policy.scheduling import Classes, Rules
from forerun.serving.llm.scenario.language_model import Routing, Scored, SpeculationSpec, Weighted
from forerun.serving.policies.greedy import Greedy

from .random_pipelines import random_pipeline, same

Rng = np.random.Generator


def random_model(rng: Rng, queries: int, whole: bool) -> LanguageModel:
    """Small caches and budgets, so that preemption, chunks and refusals are common; half on an integer clock."""
    block = int(rng.choice([1, 4, 16]))
    prompt = rng.integers(1, int(rng.choice([4, 40, 200])), queries)
    output = rng.integers(1, int(rng.choice([3, 30])), queries)
    most = int((-(-(prompt + output) // block)).max())
    return LanguageModel(
        max_seqs=int(rng.choice([1, 2, 5, 32])),
        token_budget=int(rng.choice([1, 7, 64, 512])),
        kv_blocks=max(1, int(most * rng.choice([0.6, 1.0, 1.3, 4.0]))),
        block_tokens=block,
        cost=_cost(rng, whole),
        prompt=prompt,
        output=output,
        routing="least-requests" if rng.integers(2) else "round-robin",
    )


def llm_pipeline(seed: int, *, queries: int = 60) -> tuple[Pipeline, np.ndarray]:
    """One stage with a language model and some replicas."""
    rng = np.random.default_rng(seed)
    whole = bool(rng.integers(2))
    llm = random_model(rng, queries, whole)
    gaps = rng.integers(0, 40, queries) if whole else rng.gamma(0.4, 30.0, queries)
    return Pipeline((llm_stage("llm", (Edge(SOURCE),), llm, int(rng.integers(1, 5))),)), np.cumsum(gaps) * 1.0


def prefix_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """The same where prompts begin alike, in segments of one to three blocks, of which some are not whole."""
    rng = np.random.default_rng(20_000 + seed)
    pipeline, arrivals = llm_pipeline(seed)
    (stage,) = pipeline.stages
    assert stage.llm is not None
    branches, deepest = int(rng.choice([1, 2, 4])), int(rng.choice([2, 10, 60]))
    segments = [rng.integers(0, branches, rng.integers(0, deepest)).tolist() for _ in range(len(arrivals))]
    shared = Prefixes.of(segments, int(rng.integers(1, 4)))
    llm = replace(
        stage.llm, shared=shared, routing=any_routing(rng), keys=rng.integers(2**32, size=len(arrivals))
    )
    return replace(pipeline, stages=(replace(stage, llm=llm),)), arrivals


def scheduled_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """Either of them under any rules of a scheduler, half with host memory to swap to."""
    rng = np.random.default_rng(30_000 + seed)
    pipeline, arrivals = (prefix_pipeline if rng.integers(2) else llm_pipeline)(seed)
    (stage,) = pipeline.stages
    assert stage.llm is not None
    classes = int(rng.choice([1, 1, 2, 5]))
    rules = Rules(
        tokens=str(rng.choice(["together", "prefills first", "decodes first"])),  # type: ignore[arg-type]
        prompts="whole" if rng.integers(2) else "in chunks",
        reserved=str(rng.choice([*["nothing"] * 6, "own answer", "longest answer"])),  # type: ignore[arg-type]
        classes=Classes() if classes > 1 else None,
        ahead=bool(np.random.default_rng(35_000 + seed).integers(2)),
    )
    rules = _as_servers_do(np.random.default_rng(36_000 + seed), rules)
    ranks = rng.integers(0, classes, len(arrivals)) if classes > 1 else None
    whole = bool((arrivals == np.round(arrivals)).all())
    if rng.random() < 0.7:
        # Much comes at once, and the cache has room for little more than the largest request.
        arrivals = np.floor(arrivals / 4) if whole else arrivals / 4
        largest = int((-(-(stage.llm.prompt + stage.llm.output) // stage.llm.block_tokens)).max())
        tight = int(largest * rng.choice([1.0, 1.4])) + 1
        stage = replace(stage, llm=replace(stage.llm, max_seqs=int(rng.choice([3, 32])), kv_blocks=tight))
        assert stage.llm is not None
    blocks = int(stage.llm.kv_blocks * rng.choice([0.1, 0.5, 3.0])) + 1
    move_ms = float(rng.integers(0, 3)) if whole else 0.37
    host = HostMemory(blocks, move_ms) if rng.integers(2) else None
    llm = replace(stage.llm, rules=rules, ranks=ranks, host=host)
    return replace(pipeline, stages=(replace(stage, llm=llm),)), arrivals


def any_routing(rng: Rng) -> Routing:
    """One of those that there are; scores with any weights, and with views that are as old as they like."""
    weights = tuple(rng.choice([0.0, 1.0, 2.5], 3).tolist())
    scored = Scored(
        prefix=weights[0], queue=weights[1], cache=weights[2], refresh_ms=float(rng.choice([0, 7, 50]))
    )
    names: list[Routing] = ["round-robin", "least-requests", "longest-prefix", "prefix-affinity", "random"]
    return [*names, Weighted(weights=(1.0, *weights)), scored, scored][int(rng.integers(8))]


def conversing_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """The same where requests continue others, answers too, and some of them the same one."""
    rng = np.random.default_rng(80_000 + seed)
    pipeline, arrivals = scheduled_pipeline(seed)
    (stage,) = pipeline.stages
    assert stage.llm is not None
    n = len(arrivals)
    base = np.array([int(rng.integers(-1, one)) if one and rng.random() < 0.7 else -1 for one in range(n)])
    own = np.minimum(stage.llm.prompt, 20)
    links = np.array([(before, one) for one, before in enumerate(base.tolist()) if before >= 0])
    of = Sessions(
        arrivals,
        np.zeros(n, dtype=np.int64),
        links.reshape(-1, 2),
        np.zeros(n),
        np.inf,
        base,
        system_tokens=9,
    )
    prompt = of.grown(own, stage.llm.output)
    most = int((-(-(prompt + stage.llm.output) // stage.llm.block_tokens)).max())
    llm = replace(
        stage.llm,
        prompt=prompt,
        shared=of.prefixes(prompt, stage.llm.output, stage.llm.block_tokens),
        kv_blocks=max(1, int(most * rng.choice([0.7, 1.0, 2.0, 9.0]))),
        routing=any_routing(rng),
        keys=rng.integers(2**32, size=n),
    )
    if llm.cost.tabled:
        llm = replace(llm, cost=Cost((6.0, 0.02, 0.02, 2.5e-6, 4e-7), hidden_prefill=37.5))
    return replace(pipeline, stages=(replace(stage, llm=llm),)), arrivals


def crowded_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """Conversations with all that schedulers of one pool may have at once: host memory for little or for much, drafts, and
    iterations composed ahead."""
    rng = np.random.default_rng(90_000 + seed)
    pipeline, arrivals = conversing_pipeline(seed)
    (stage,) = pipeline.stages
    llm = stage.llm
    assert llm is not None
    if rng.random() < 0.7:
        chunks = str(rng.choice(["in chunks", "whole beside decodes"]))
        rules = replace(llm.rules, tokens="together", prompts=chunks, reserved="nothing", ahead=True)  # type: ignore[arg-type]
        llm = replace(llm, rules=rules)
    if rng.random() < 0.7:
        drafts = int(rng.integers(1, 8))
        own = SpeculationSpec(
            draft_tokens=drafts, acceptance=float(rng.choice([0.0, 0.7])), draft_ms_per_seq=0.03
        )
        budget = max(llm.token_budget, 1 + drafts)
        llm = replace(llm, speculation=own, token_budget=budget)
    if rng.random() < 0.6 and llm.rules.reserved == "nothing":
        host = HostMemory(int(llm.kv_blocks * rng.choice([0.1, 0.5, 3.0])) + 1, float(rng.integers(0, 3)))
        llm = replace(llm, host=host)
    if rng.random() < 0.4:
        llm = replace(llm, routing="longest-prefix")
    return replace(pipeline, stages=(replace(stage, llm=llm),)), arrivals


def _as_servers_do(rng: Rng, rules: Rules) -> Rules:
    """In one of three worlds, rules that only servers of today have."""
    if rng.random() < 2 / 3:
        return rules
    return replace(
        rules,
        prompts=str(rng.choice([rules.prompts, "whole beside decodes"])),  # type: ignore[arg-type]
        whole_must_fit=bool(rng.integers(2)),
        longest_chunk=int(rng.choice([0, 3, 20])),
        alone_unlimited=bool(rng.integers(2)),
        victim=str(rng.choice([rules.victim, "last of the lowest class"])),  # type: ignore[arg-type]
        drafts=str(rng.choice([rules.drafts, "all"])),  # type: ignore[arg-type]
        pads_drafts=bool(rng.integers(2)),
        blank_first=bool(rng.integers(2)),
    )


def changing_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """Replicas come and go, at times all of them, at instants of arrivals too."""
    rng = np.random.default_rng(50_000 + seed)
    pipeline, arrivals = scheduled_pipeline(seed)
    (stage,) = pipeline.stages
    instants = np.sort(rng.choice(np.unique(np.round(arrivals)), 6) + rng.choice([0.0, 0.5, 40.0], 6))
    instants = np.unique(instants[instants > 0])
    counts = rng.integers(0, 5, len(instants))
    counts[-1] = max(1, counts[-1])
    capacity = tuple(zip(instants.tolist(), counts.tolist()))
    return replace(pipeline, stages=(replace(stage, capacity=capacity),)), arrivals


def apart_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """Such replicas prefill, and others decode, with limits of their own; transfers take no time, some, or much."""
    rng = np.random.default_rng(40_000 + seed)
    pipeline, arrivals = scheduled_pipeline(seed)
    (stage,) = pipeline.stages
    llm = stage.llm
    assert llm is not None
    whole = bool((arrivals == np.round(arrivals)).all())
    own = replace(
        llm,
        max_seqs=int(rng.choice([1, 3, 32])),
        token_budget=int(rng.choice([2, 16, 512])) if not llm.cost.tabled else llm.token_budget,
        kv_blocks=max(1, int(llm.kv_blocks * rng.choice([0.9, 1.5, 4.0]))),
        routing=str(rng.choice(["round-robin", "least-requests"])),  # type: ignore[arg-type]
        shared=None,
    )
    latency_ms, per_token_ms = float(rng.choice([0, 0, 3, 20])), float(rng.choice([0, 0, 1, 4]))
    if not whole:
        per_token_ms *= 0.013
    pool = DecodePool(int(rng.integers(1, 4)), own, per_token_ms, latency_ms)
    return replace(pipeline, stages=(replace(stage, llm=replace(llm, decode=pool)),)), arrivals


def speculative_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """Replicas of any scheduler, or pools, whose decodes are drafted: by one to seven tokens, of which none, some or all are
    right."""
    rng = np.random.default_rng(60_000 + seed)
    pipeline, arrivals = (apart_pipeline if rng.random() < 0.3 else scheduled_pipeline)(seed)
    (stage,) = pipeline.stages
    llm = stage.llm
    assert llm is not None
    if llm.cost.tabled:
        llm = replace(llm, cost=Cost((6.0, 0.02, 0.02, 2.5e-6, 4e-7), hidden_prefill=37.5))
    acceptance, pass_ms = float(rng.choice([0.0, 0.2, 0.7, 1.0])), float(rng.choice([0.0, 1.0]))
    own = SpeculationSpec(
        draft_tokens=int(rng.integers(1, 8)),
        acceptance=acceptance,
        draft_ms=pass_ms,
        draft_ms_per_seq=float(rng.choice([0.0, 0.03])),
    )
    drafted = {"speculation": own, "keys": rng.integers(2**32, size=len(arrivals))}
    if llm.decode is not None:
        llm = replace(llm, decode=replace(llm.decode, llm=replace(llm.decode.llm, cost=llm.cost, **drafted)))
    return replace(pipeline, stages=(replace(stage, llm=replace(llm, **drafted)),)), arrivals


def mixed_pipeline(seed: int) -> tuple[Pipeline, np.ndarray]:
    """A random graph of the room in which at least one stage serves a language model."""
    rng = np.random.default_rng(10_000 + seed)
    pipeline, arrivals = random_pipeline(seed, queries=50)
    whole = bool((arrivals == np.round(arrivals)).all())
    chosen = rng.random(len(pipeline.stages)) < 0.4
    chosen[rng.integers(len(chosen))] = True
    stages = [
        llm_stage(stage.name, stage.edges, random_model(rng, 50, whole), int(rng.integers(1, 4)))
        if llm
        else stage
        for stage, llm in zip(pipeline.stages, chosen)
    ]
    return replace(pipeline, stages=tuple(stages)), arrivals


def llm_stage(name: str, edges: tuple[Edge, ...], llm: LanguageModel, replicas: int) -> Stage:
    """A stage that serves a language model."""
    return Stage(name, edges, 1, replicas, Service(np.array([0.0, llm.cost.least_ms])), Greedy(), llm=llm)


def equal(left: Run, right: Run) -> bool:
    """Whether two runs agree in every column, the language models' included, bit for bit."""
    return (
        same(left, right)
        and np.array_equal(left.refused, right.refused)
        and all(
            (a is None) == (b is None) and (a is None or _equal_columns(a, b))
            for a, b in zip(left.requests, right.requests, strict=True)
        )
    )


def _equal_columns(left: object, right: object) -> bool:
    for name, value in vars(left).items():
        other = getattr(right, name)
        if hasattr(value, "__dataclass_fields__"):
            if not _equal_columns(value, other):
                return False
        elif not np.array_equal(
            value, other, equal_nan=isinstance(value, np.ndarray) and value.dtype.kind == "f"
        ):
            return False
    return True


def _cost(rng: Rng, whole: bool) -> Cost:
    if rng.random() < 0.3:
        steps = (
            (lambda n: rng.integers(1, 5, n) * 1.0) if whole else (lambda n: rng.exponential(1.0, n) + 0.01)
        )
        return Cost(prefill_ms=np.cumsum(steps(513)), decode_ms=np.cumsum(steps(33)))
    if whole:
        return Cost((float(rng.integers(1, 4)), 0.0, float(rng.integers(0, 2)), 0.0, 0.0))
    cost = Cost((6.0, 0.02, 0.02, 2.5e-6, 4e-7), hidden_prefill=37.5)
    # Few prompts take less than their launches; iterations of few tokens are recorded in one half of these worlds.
    chance = rng.random()
    slow = replace(cost, launch_ms=8.0, launch_tokens=0.0 if chance < 0.25 else 20.0)
    return slow if chance < 0.5 else cost
