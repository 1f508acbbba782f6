"""The engine of `transformers serve`, driven step by step: its own scheduler and arithmetic, on a clock of processor time.

`beside.py` runs this in the engine's Python. A line of JSON says the limits and the model, each further line is a load; each
answer is a line with the instants of every request's tokens. The clock goes on by the processor time that a step takes, and
jumps to the next request where there is nothing to do, so other work of the machine does not lengthen what is measured.
Network, HTTP and waking up are left out.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

LONGEST = 4096


class Engine:
    """A model with its scheduler and cache, without a thread of its own."""

    def __init__(self, given: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        model = AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.float32)
        self._vocabulary = model.config.vocab_size
        settings = ContinuousBatchingConfig(
            page_size=given["block_tokens"],
            num_blocks=given["kv_blocks"],
            max_batch_tokens=given["token_budget"],
            max_requests_per_batch=given["max_seqs"],
        )
        generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=LONGEST)
        self._manager = model.init_continuous_batching(generation, settings)
        self._processor = self._manager._create_batch_processor()
        self._manager.batch_processor = self._processor
        self._draw = torch.Generator().manual_seed(1)
        self._loads = 0

    def run(self, load: dict[str, Any]) -> dict[str, Any]:
        """A load to its end: when each request was sent, and its tokens came, in ms."""
        planned, most = load["send_ms"], load["most_in_flight"] or len(load["send_ms"])
        sent: list[float] = []
        tokens: list[list[float]] = [[] for _ in planned]
        now_ms, under_way, self._loads = 0.0, 0, self._loads + 1
        while len(sent) < len(planned) or under_way:
            while len(sent) < len(planned) and planned[len(sent)] <= now_ms and under_way < most:
                self._add(len(sent), load)
                sent.append(max(planned[len(sent)], now_ms) if most < len(planned) else planned[len(sent)])
                under_way += 1
            if not under_way:
                now_ms = planned[len(sent)]
                continue
            begun_s = time.thread_time()
            scheduled = self._step()
            now_ms += (time.thread_time() - begun_s) * 1e3
            for number in scheduled:
                tokens[number].append(now_ms)
                under_way -= len(tokens[number]) == load["output"][number]
        return {"sent_ms": sent, "tokens_ms": tokens}

    def _add(self, number: int, load: dict[str, Any]) -> None:
        ids = torch.randint(self._vocabulary, (load["prompt"][number],), generator=self._draw).tolist()
        name = f"{self._loads}/{number}"
        self._manager.add_request(ids, name, max_new_tokens=load["output"][number], eos_token_id=-1)

    def _step(self) -> list[int]:
        """One iteration, as the engine's own thread does it; the requests that got a token."""
        assert self._processor.prepare_next_batch(), "requests are under way"
        batch = self._processor.inputs_and_outputs.requests_in_batch
        emitted = [int(one.state.request_id.split("/")[1]) for one in batch if one.has_new_token]
        self._processor._generation_step(self._manager.model)
        self._processor.update_batch()
        return emitted


def main() -> None:
    """Serve loads from stdin."""
    given = json.loads(sys.stdin.readline())
    with torch.inference_mode():
        engine = Engine(given)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            print(json.dumps(engine.run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
