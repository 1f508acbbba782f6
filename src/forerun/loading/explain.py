"""The domain's question, and what a user can change to change its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forerun.core.domain import Answer, Explainer, Orders, Untied, WhatIf
from forerun.core.result.run import Result, SavedRun
from forerun.loading.engine.run import run
from forerun.loading.inputs import prepare, sample_sizes
from forerun.loading.scenario import RandomSeconds, Scenario
from forerun.loading.summary import summarize


class LoadingExplainer(Explainer[Scenario]):
    """Whether loading is hidden, what could change that, and other orders of events at one instant."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether loading is hidden behind the step.

        Parameters
        ----------
        summary : of a run; its `hidden` is true if the loop waits for less than 1 % of the last epoch after the first
            batches.
        """
        return Answer("Is loading hidden behind the step?", bool(summary["hidden"]))

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """Larger or smaller blocks, more or fewer threads, a slower or faster store, a longer or shorter step.

        Values go in the direction that could change the answer: where loading is hidden, to fewer threads, smaller
        blocks, a slower store and a shorter step. Sections that are random, and blocks that are cut by bytes, are left
        alone.
        """
        hidden = bool(run.summary["hidden"])
        counts = (0.5, 0.25) if hidden else (2, 4, 8, 16)
        block, most = scenario.layout.block_samples, scenario.dataset.samples
        mergeable = scenario.dataset.shuffle != "global" and not scenario.layout.block_bytes
        blocks = (
            sorted({min(most, max(1, round(block * times))) for times in counts} - {block})
            if mergeable
            else []
        )
        threads = scenario.loader.threads
        many = sorted({max(1, round(threads * times)) for times in counts} - {threads})
        latency, step_s = _fixed(scenario.store.latency_s), _fixed(scenario.step.step_s)
        latencies = [latency * times for times in ((2, 4, 8) if hidden else (0.5, 0.25, 0.1)) if latency]
        steps = [step_s * times for times in ((0.8, 0.5, 0.25) if hidden else (1.5, 2, 4)) if step_s]
        order = -1 if hidden else 1  # the nearest value first
        offered: tuple[tuple[str, float, Sequence[float], str], ...] = (
            ("layout.block_samples", block, blocks[::order], "samples a block"),
            ("loader.threads", threads, many[::order], "threads"),
            ("store.latency_s", latency, latencies, "latency of the store in s"),
            ("step.step_s", step_s, steps, "step in s"),
            *self._of_nodes(scenario, hidden),
            *self._of_gpu(scenario, hidden),
        )
        return tuple(WhatIf(path, now, tuple(values), what) for path, now, values, what in offered if values)

    def _of_nodes(self, scenario: Scenario, hidden: bool) -> tuple[tuple[str, float, list[float], str], ...]:
        """Larger caches a node, up to all data; smaller ones where loading is hidden.

        Parameters
        ----------
        hidden : whether loading is.
        """
        nodes = scenario.nodes
        if nodes is None:
            return ()
        now, whole = nodes.cache_bytes, float(sample_sizes(scenario).sum())
        begun = now or whole / 64
        larger = [min(whole, begun * times) for times in (1, 2, 4, 8, 16, 32, 64)]
        values = (
            [now * share for share in (0.5, 0.25, 0.0)] if hidden else [size for size in larger if size > now]
        )
        return (
            (
                "nodes.cache_bytes",
                now,
                list(dict.fromkeys(values)) if now or not hidden else [],
                "bytes of cache a node",
            ),
        )

    def _of_gpu(self, scenario: Scenario, hidden: bool) -> tuple[tuple[str, float, list[float], str], ...]:
        """A faster decoder on the GPU; a slower one where loading is hidden.

        Parameters
        ----------
        hidden : whether loading is.
        """
        gpu = scenario.gpu_decode
        if gpu is None:
            return ()
        now = gpu.samples_per_s
        rates = [now * times for times in ((0.8, 0.5, 0.25) if hidden else (1.5, 2, 4))]
        return (("gpu_decode.samples_per_s", now, rates, "samples a second that the GPU decodes"),)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Answers of the store before or after what else happens at their instant: without, threads run in lock-step.

        Other orders of events are runs in which each answer of the store comes up to 2 ns later; where the answer to
        the question then differs, it rests on threads that move in lock-step.
        """
        if scenario.loader.mode != "threads":
            return Untied(
                "each worker reads and decodes for itself, so the order of instants decides nothing"
            )
        inputs = prepare(scenario)
        return Orders(
            "each answer of the store comes up to 2 ns later, so that no two threads run in lock-step",
            lambda number: summarize(run(replace(inputs, tie_order=number))),
        )


def _fixed(seconds: float | RandomSeconds) -> float:
    """A time that is the same for all; 0 for one that is random."""
    return 0.0 if isinstance(seconds, RandomSeconds) else seconds
