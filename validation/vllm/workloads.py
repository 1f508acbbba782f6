"""Workloads for vLLM's scheduler and for ours: settings, requests, and which drafted tokens are right."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tests.serving.vllm_steps import Workload

#: what is special about the workloads of each mode
MODES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "prompts need not fit": {"scheduler_reserve_full_isl": False},
    "prefix caching": {"prefix_caching": True},
    "priority": {"policy": "priority"},
    "asynchronous": {"async_scheduling": True},
    "arrivals": {"spread": 8.0},
    "whole prompts": {"enable_chunked_prefill": False},
    "long prompts": {"long_prefill_token_threshold": (4, 40)},
    "speculation": {"draft_tokens": (1, 7)},
    "edges": {"max_seqs": (1, 2), "token_budget": (1, 3)},
    "blocks": {"block_tokens": (1, 4, 128, 256)},
}
#: by setting, what it is in all other modes
SETTINGS: Final[dict[str, Any]] = {
    "draft_tokens": 0,
    "block_tokens": 16,
    "prefix_caching": False,
    "enable_chunked_prefill": True,
    "policy": "fcfs",
    "async_scheduling": False,
    "long_prefill_token_threshold": 0,
    "scheduler_reserve_full_isl": True,
}


def drawn(mode: str, seed: int) -> Workload:
    """A workload of a mode, every second one mixed with another; most have a cache so scarce that requests are preempted."""
    rng = np.random.default_rng([list(MODES).index(mode), seed])
    special = dict(MODES[mode])
    if rng.random() < 0.5:
        special = {**MODES[str(rng.choice(list(MODES)))], **special}
    spread = special.pop("spread", float(rng.choice([0.0, 1.0, 4.0])))
    given: Workload = {**SETTINGS, "max_seqs": 0, "token_budget": 0, **special}
    for name, value in given.items():
        if isinstance(value, tuple):
            given[name] = (
                int(rng.choice(value)) if name == "block_tokens" else int(rng.integers(*value, endpoint=True))
            )
    count = int(rng.integers(20, 90))
    prompt = np.ceil(rng.gamma(1.2, float(rng.choice([8, 40, 120])), count)).astype(int)
    output = np.ceil(rng.gamma(1.5, float(rng.choice([5, 30, 80])), count)).astype(int)
    given["max_seqs"] = given["max_seqs"] or int(rng.choice([3, 8, 24, 64]))
    given["token_budget"] = given["token_budget"] or int(rng.choice([16, 48, 128, 512]))
    if mode == "edges" and rng.random() < 0.5:
        # Budgets about the number of seats.
        given["max_seqs"] = int(rng.integers(2, 24))
        given["token_budget"] = given["max_seqs"] + int(rng.integers(-1, 2))
    most = int((prompt + output).max())
    # Drafts may reach beyond an answer, but what a model can take is a limit that scenarios do not have.
    longest = most + 8 + 4 * given["draft_tokens"]
    given["token_budget"] = max(given["token_budget"], 1 if given["enable_chunked_prefill"] else longest)
    if mode != "edges":
        given["token_budget"] = max(given["token_budget"], given["max_seqs"])
    given["max_seqs"] = min(given["max_seqs"], given["token_budget"])
    largest = -(-(most + 2 * given["draft_tokens"] + 1) // given["block_tokens"])
    room = float(rng.choice([1.0, 1.2, 1.6])) if rng.random() < 0.85 else 50.0
    given["kv_blocks"] = int(largest * room) + 1
    given["max_model_len"] = max(longest, 0 if given["enable_chunked_prefill"] else given["token_budget"])
    at = np.cumsum(np.floor(rng.exponential(spread, count))).astype(int)
    segment_tokens = int(rng.integers(1, 4)) * given["block_tokens"]
    given["segment_tokens"] = segment_tokens
    branches = int(rng.choice([1, 2, 4]))
    given["requests"] = [
        {
            "at": int(at[i]),
            "prompt": int(prompt[i]),
            "output": int(output[i]),
            "priority": int(rng.integers(0, 4)) if given["policy"] == "priority" else 0,
            "segments": rng.integers(0, branches, prompt[i] // segment_tokens).tolist(),
            "segment_tokens": segment_tokens,
        }
        for i in range(count)
    ]
    given["acceptance"] = float(rng.choice([0.0, 0.3, 0.8, 1.0]))
    given["keys"] = rng.integers(0, 2**32, count).tolist()
    return given
