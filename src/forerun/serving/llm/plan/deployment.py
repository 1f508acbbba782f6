"""What to run for a plan: `vllm serve` with its flags, a manifest for Kubernetes, and what of it was compared with vLLM."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from forerun.serving.llm.plan.space import Cell, Space
from forerun.serving.llm.scenario.language_model import LanguageModelSpec

_MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai{tag}
          args: {args}
          ports: [{{containerPort: 8000}}]
          resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
"""


def deployment(space: Space, cell: Cell) -> str:
    """The commands and manifests of all stages of a cell, with what they leave open as comments."""
    return "\n".join(
        "\n".join(_stage(stage.name, choice.replicas, stage.specs[choice.variant]))
        for stage, choice in zip(space.stages, cell)
    )


def _stage(name: str, replicas: int, spec: LanguageModelSpec) -> Iterator[str]:
    yield from (f"# {name}: {line}" for line in _open(spec, replicas))
    scheduling = spec.scheduler.vllm_flags()
    if scheduling is None or spec.decode is not None:
        return
    flags = [*_flags(spec), *scheduling]
    gpus = 1 if spec.memory is None else spec.memory.tensor_parallel
    yield f"# {name}: on each of {replicas} replica{'s' * (replicas > 1)}"
    yield f"vllm serve MODEL {shlex.join(flags)}\n"
    args = json.dumps(["--model", "MODEL", *flags])
    tag = spec.scheduler.compared.replace("vLLM ", ":v")
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "model"
    yield _MANIFEST.format(name=plain, replicas=replicas, args=args, gpus=gpus, tag=tag)


def _flags(spec: LanguageModelSpec) -> Iterator[str]:
    """The flags of a replica, but for those of its scheduler."""
    yield from ("--max-num-seqs", str(spec.max_seqs), "--max-num-batched-tokens", str(spec.token_budget))
    yield from ("--block-size", str(spec.block_tokens))
    if spec.memory is not None:
        yield from ("--tensor-parallel-size", str(spec.memory.tensor_parallel))
        yield from ("--gpu-memory-utilization", f"{spec.memory.memory_share:g}")
        if spec.memory.kv_bits == 8:
            yield from ("--kv-cache-dtype", "fp8")
    if spec.kv_blocks is not None:
        yield from ("--num-gpu-blocks-override", str(spec.kv_blocks))
    yield "--no-enable-prefix-caching" if spec.prefix_cache is None else "--enable-prefix-caching"
    if spec.speculation is not None:
        draft = {"model": "DRAFT", "num_speculative_tokens": spec.speculation.draft_tokens}
        yield from ("--speculative-config", json.dumps(draft))


def _open(spec: LanguageModelSpec, replicas: int) -> Iterator[str]:
    """What no flag says, and what was compared with the program."""
    if spec.decode is not None:
        yield "prefill and decode apart need a connector of caches, which no flag here sets up"
    elif spec.scheduler.vllm_flags() is None:
        yield "vLLM has no such scheduler"
    elif spec.scheduler.compared:
        yield f"its scheduler was compared with {spec.scheduler.compared}, step for step; times of iterations are the costs'"
    else:
        yield "its scheduler was not compared with vLLM's"
    if spec.swap is not None:
        yield "swapping has no flag"
    if spec.memory is None:
        yield "the scenario says no memory: how many accelerators share the model, and their memory, are yours to say"
    if replicas > 1:
        yield f"requests are routed by {spec.balance}, which needs a router: a Kubernetes Service chooses at random"
