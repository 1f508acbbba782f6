"""Workloads of vLLM's scheduler on a replica of ours, step by step: for its recorded steps, and for ``validation/vllm``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from forerun.serving.llm.engine.stage import LanguageStage
from forerun.serving.llm.inputs.model import Cost, LanguageModel, Prefixes, hashed
from forerun.serving.llm.policy.scheduling import scheduler_policies
from forerun.serving.llm.scenario.language_model import SpeculationSpec

#: settings, requests, and which drafted tokens are right, as ``validation/vllm/rig.py`` reads them
Workload: TypeAlias = dict[str, Any]
Steps: TypeAlias = list[list[int]]

#: flags of the server that workloads have
FLAGS: Final = (
    "async_scheduling",
    "scheduler_reserve_full_isl",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "policy",
)


@dataclass(frozen=True)
class Trace:
    """What happened step by step.

    Parameters
    ----------
    steps : of each its time, tokens of prompts, decodes, requests running, free blocks, and how often requests have been
        preempted so far.
    first, last : by request, the times after its first and its last token.
    """

    steps: Steps
    first: list[int]
    last: list[int]

    def first_difference(self, other: Trace) -> str:
        """Where two part; empty if they do not."""
        for number, (mine, its) in enumerate(zip(self.steps, other.steps)):
            if mine != its:
                return f"step {number}: {mine} beside {its}"
        if len(self.steps) != len(other.steps):
            return f"{len(self.steps)} steps beside {len(other.steps)}"
        ours, theirs = zip(self.first, self.last), zip(other.first, other.last)
        for who, (own, its_own) in enumerate(zip(ours, theirs, strict=True)):
            if own != its_own:
                return f"request {who}: first and last token at {own} beside {its_own}"
        return ""


def model_of(workload: Workload, version: str) -> LanguageModel:
    """A replica as the workload has it; every iteration takes a millisecond."""
    requests = workload["requests"]
    prompt, output = (np.array([one[name] for one in requests]) for name in ("prompt", "output"))
    kind = scheduler_policies().get(f"vllm-{version}")
    flags = {name: workload[name] for name in FLAGS}
    if "scheduler_reserve_full_isl" in dict(kind(**flags).problems()):
        del flags["scheduler_reserve_full_isl"]
    scheduler = kind(**flags)
    speculation = drafts_of(workload) if workload["draft_tokens"] else None
    blocks = workload["segment_tokens"] // workload["block_tokens"]
    return LanguageModel(
        workload["max_seqs"],
        workload["token_budget"],
        workload["kv_blocks"],
        workload["block_tokens"],
        Cost((1.0, 0.0, 0.0, 0.0, 0.0)),
        prompt,
        output,
        keeps_iterations=True,
        rules=scheduler.rules(),
        ranks=np.array([one["priority"] for one in requests]) if workload["policy"] == "priority" else None,
        shared=Prefixes.of([one["segments"] for one in requests], blocks)
        if workload["prefix_caching"]
        else None,
        speculation=speculation,
        keys=np.array(workload["keys"]) if speculation else np.empty(0, dtype=np.int64),
    )


def drafts_of(workload: Workload) -> SpeculationSpec:
    """How a workload's decodes are drafted."""
    return SpeculationSpec(draft_tokens=workload["draft_tokens"], acceptance=workload["acceptance"])


def right(workload: Workload) -> list[list[bool]]:
    """Which tokens a draft guesses, by request and place in its answer."""
    if not workload["draft_tokens"]:
        return []
    threshold = drafts_of(workload).threshold
    return [
        [hashed(key, place) < threshold for place in range(one["output"] + workload["draft_tokens"])]
        for key, one in zip(workload["keys"], workload["requests"])
    ]


def forerun(workload: Workload, version: str) -> tuple[Trace, float]:
    """What the compiled replica does, and the processor time that it took."""
    llm, count = model_of(workload, version), len(workload["requests"])
    at_ms = np.array([float(one["at"]) for one in workload["requests"]])
    begin = time.process_time()
    stage = LanguageStage(llm, 1, keep=True)
    stage.feed(np.arange(count), at_ms, np.ones(count, dtype=np.bool_))
    stage.advance(np.inf)
    visits, _, requests = stage.record(count)
    taken_s = time.process_time() - begin
    each = requests.recorded
    assert each is not None
    preempted = np.cumsum(each.preempted)
    columns = (each.start_ms, each.prefill, each.decodes, each.running, each.free_blocks, preempted)
    rows = np.stack([np.asarray(column, dtype=np.int64) for column in columns], axis=1)
    return Trace(rows.tolist(), _whole(requests.first_ms), _whole(visits.end_ms)), taken_s


def _whole(values: Any) -> list[int]:
    return [int(value) for value in values]


def minor(version: str) -> str:
    """Major and minor of a release."""
    return ".".join(version.split(".")[:2])
