"""The domain's question, the what-if parameters that may change its answer, and other orders of simultaneous events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.domain import Answer, Explainer, Orders, Untied, WhatIf, simulate
from forerun.domains.serving.inputs import prepare
from forerun.domains.serving.scenario import Scenario
from forerun.domains.serving.scenario.language_model import LanguageModelSpec
from forerun.domains.serving.scenario.traces import Generated, Listed
from forerun.domains.serving.summary.llm.objectives import WORDS, Kind, stated
from forerun.result.run import Result, SavedRun
from forerun.rng import stream
from forerun.scenario.spec import to_data
from forerun.scenarios import from_data

#: by how much a tie is broken, in ms: far below any service time, far above the rounding of instants up to a week
TIE_MS = 1e-6


class ServingExplainer(Explainer[Scenario]):
    """The serving domain's question, its what-if parameters and its other orders of events."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether enough queries meet every stated objective."""
        tokens = " and ".join(f"{words} within {limit_ms:.4g} ms" for words, limit_ms in stated(summary))
        question = (
            f"Do {summary['attainment_wanted']:.4g} of the queries stay within {summary['slo_ms']:.4g} ms"
        )
        return Answer(f"{question}{f', with {tokens}' if tokens else ''}?", bool(summary["slo_met"]))

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """More or fewer replicas a stage, other batch limits, a looser or tighter objective, less or more traffic."""
        met = bool(run.summary["slo_met"])
        found = []
        for name, stage in scenario.configuration.items():
            now = stage.replicas
            replicas = range(now - 1, 0, -1) if met else range(now + 1, now + 5)
            if list(replicas):
                found.append(
                    WhatIf(f"configuration.{name}.replicas", now, tuple(replicas), f"replicas of {name}")
                )
            if stage.llm is not None:
                found += _llm_what_ifs(f"configuration.{name}.llm", name, stage.llm, met)
                continue
            batches = sorted(
                {1, 2, 4, 8, 16} - {stage.max_batch}, key=lambda batch: abs(batch - stage.max_batch)
            )
            found.append(
                WhatIf(
                    f"configuration.{name}.max_batch",
                    stage.max_batch,
                    tuple(batches),
                    f"largest batch of {name}",
                )
            )
        if scenario.tuned and scenario.tuner.activation_s > 0:
            now_s = scenario.tuner.activation_s
            slower = (1.5, 2.0, 4.0) if met else (0.5, 0.2, 0.0)
            found.append(
                WhatIf(
                    "tuner.activation_s",
                    now_s,
                    tuple(now_s * share for share in slower),
                    "seconds until a replica is active",
                )
            )
        found.append(_limit("slo_ms", scenario.slo_ms, "objective in ms", met))
        rate = (
            getattr(scenario.trace.process, "rate_rps", None)
            if isinstance(scenario.trace, Generated)
            else None
        )
        if rate:
            shares = (1.05, 1.1, 1.25, 1.5, 2.0) if met else (0.95, 0.9, 0.8, 0.7, 0.5)
            found.append(
                WhatIf(
                    "trace.process.rate_rps",
                    rate,
                    tuple(rate * share for share in shares),
                    "arrival rate per second",
                )
            )
        return tuple(found)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Arrivals before or after the completions of their instant, and one after the other instead of together."""
        if any(edge.recorded for edge in scenario.edges):
            return Untied(
                "its edges are recorded beside the arrivals, so arrivals cannot be moved without them"
            )
        what = "arrivals come before or after completions of their instant, and arrivals of one instant apart"
        return Orders(what, lambda number: simulate(permuted(scenario, number)))


def permuted(scenario: Scenario, number: int) -> Scenario:
    """The scenario with its ties broken in order `number`.

    Each arrival instant moves by a hair or not at all, so that it comes before or after the completions that fall on
    it. Arrivals of one instant, which would enter a queue together, follow each other in pieces: all apart in order 0,
    in drawn pieces in the others. An arrival that moves keeps its row, and with it what is drawn for it.
    """
    inputs = prepare(scenario)
    arrivals = inputs.arrivals_ms
    draws = stream(scenario.seed, "ties", number)
    first = np.concatenate([[True], np.diff(arrivals) > 0])
    group = np.cumsum(first) - 1
    shift = draws.integers(-1, 2, size=int(group[-1]) + 1)[group]
    apart = ~first & ((number == 0) | (draws.random(len(arrivals)) < 0.5))
    pieces = np.cumsum(apart)
    within = pieces - pieces[np.flatnonzero(first)][group]
    moved = np.sort(np.maximum(arrivals + TIE_MS * (shift + within), 0.0))
    data: dict[str, Any] = to_data(scenario) | {"trace": to_data(Listed(arrivals_ms=tuple(moved.tolist())))}
    for stage in inputs.pipeline.stages:
        if stage.llm is not None:  # requests keep their tokens, wherever those came from
            pairs = np.stack([stage.llm.prompt, stage.llm.output], axis=1).tolist()
            data["configuration"][stage.name]["llm"]["tokens"] = {"pairs": pairs}
    # The intervals of a run are not asked for here.
    data["intervals"] = {"replications": 0}
    found = from_data(data)
    assert isinstance(found, Scenario)
    return found


def _limit(path: str, now_ms: float, meaning: str, met: bool) -> WhatIf:
    """A tighter objective where all are met, else a looser one."""
    steps = (0.95, 0.9, 0.8, 0.7, 0.5) if met else (1.05, 1.1, 1.25, 1.5, 2.0)
    return WhatIf(path, now_ms, tuple(now_ms * step for step in steps), meaning)


def _llm_what_ifs(where: str, name: str, llm: LanguageModelSpec, met: bool) -> list[WhatIf]:
    """More or fewer seats, tokens in an iteration, and blocks; looser or tighter objectives on tokens."""
    meanings = {
        "max_seqs": f"requests that {name} runs at once",
        "token_budget": f"tokens in one iteration of {name}",
        "kv_blocks": f"blocks in the cache of {name}",
    }
    limits: dict[Kind, float] = {"ttft": llm.ttft_slo_ms, "tpot": llm.tpot_slo_ms}
    return [
        *(
            WhatIf(
                f"{where}.{field}",
                getattr(llm, field),
                tuple(max(1, int(getattr(llm, field) * factor)) for factor in (2, 0.5, 4, 0.25)),
                meaning,
            )
            for field, meaning in meanings.items()
        ),
        *(
            _limit(f"{where}.{kind}_slo_ms", now_ms, f"objective for the {WORDS[kind]} of {name} in ms", met)
            for kind, now_ms in limits.items()
            if now_ms
        ),
    ]
