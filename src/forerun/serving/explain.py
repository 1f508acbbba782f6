"""The domain's question, the what-if parameters that may change its answer, and other orders of simultaneous events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.core.domain import Answer, Explainer, Orders, Untied, WhatIf, simulate
from forerun.core.result.run import Result, SavedRun
from forerun.core.rng import stream
from forerun.core.scenario.spec import to_data
from forerun.core.scenarios import from_data
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.scenario.language_model import LanguageModelSpec, RecordedPrefixes
from forerun.serving.llm.summary.objectives import WORDS, Stated, stated
from forerun.serving.scenario import Scenario
from forerun.serving.scenario.traces import ClosedLoop, Listed

#: by how much a tie is broken, in ms: far below any service time, far above the rounding of instants up to a week
TIE_MS = 1e-6

#: shares that a limit or a rate is tried at
TIGHTER = (0.95, 0.9, 0.8, 0.7, 0.5)
LOOSER = (1.05, 1.1, 1.25, 1.5, 2.0)


class ServingExplainer(Explainer[Scenario]):
    """The serving domain's question, its what-if parameters and its other orders of events."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether enough queries meet every stated objective."""
        limits = [Stated("", float(summary["slo_ms"]), None)] if "slo_ms" in summary else []
        limits += stated(summary)
        together = [one for one in limits if one.wanted is None]
        asked = [
            f"{one.wanted:.4g} of the requests keep the {one.words} within {one.limit_ms:.4g} ms"
            for one in limits
            if one.wanted is not None
        ]
        if together:
            first, *more = together
            begin = f"keep the {first.words}" if first.words else "stay"
            tokens = " and ".join(f"{one.words} within {one.limit_ms:.4g} ms" for one in more)
            question = (
                f"{summary['attainment_wanted']:.4g} of the queries {begin} within {first.limit_ms:.4g} ms"
            )
            asked.insert(0, f"{question}{f', with {tokens}' if tokens else ''}")
        return Answer(f"Do {', and '.join(asked)}?", bool(summary["slo_met"]))

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """More or fewer replicas a stage, other batch limits, a looser or tighter objective, less or more traffic.

        Parameters
        ----------
        scenario : whose parameters are varied.
        run : says whether the objectives are met: then what could be saved is tried, else what could help.
        """
        met = bool(run.summary["slo_met"])
        what_ifs = []
        for name, stage in scenario.configuration.items():
            where, now = f"configuration.{name}", stage.replicas
            replicas = tuple(range(now - 1, 0, -1) if met else range(now + 1, now + 5))
            if replicas:
                what_ifs.append(WhatIf(f"{where}.replicas", now, replicas, f"replicas of {name}"))
            if stage.llm is not None:
                what_ifs += _llm_what_ifs(f"{where}.llm", name, stage.llm, met)
                continue
            most = stage.max_batch
            batches = sorted((abs(batch - most), batch) for batch in (1, 2, 4, 8, 16) if batch != most)
            others = tuple(batch for _, batch in batches)
            what_ifs.append(WhatIf(f"{where}.max_batch", most, others, f"largest batch of {name}"))
        if scenario.tuned and scenario.tuner.activation_s > 0:
            slower, meaning = (1.5, 2.0, 4.0), "seconds until a replica is active"
            shares = slower if met else (0.5, 0.2, 0.0)
            what_ifs.append(_times("tuner.activation_s", scenario.tuner.activation_s, shares, meaning))
        if scenario.slo_ms:
            what_ifs.append(_limit("slo_ms", scenario.slo_ms, "objective in ms", met))
        if isinstance(scenario.trace, ClosedLoop):
            now = scenario.trace.clients
            counts = tuple(dict.fromkeys(max(1, int(now * share)) for share in (LOOSER if met else TIGHTER)))
            what_ifs.append(WhatIf("trace.clients", now, counts, "clients that send queries"))
        rate_rps = getattr(getattr(scenario.trace, "process", None), "rate_rps", None)
        if rate_rps:
            rates = LOOSER if met else TIGHTER
            what_ifs.append(_times("trace.process.rate_rps", rate_rps, rates, "arrival rate per second"))
        return tuple(what_ifs)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Arrivals before or after the completions of their instant, and one after the other instead of together."""
        if scenario.waits_for_answers:
            return Untied("queries are sent as answers come, so they cannot be moved without these")
        if any(edge.recorded for edge in scenario.edges):
            return Untied(
                "its edges are recorded beside the arrivals, so arrivals cannot be moved without them"
            )
        models = [placed.llm for placed in scenario.configuration.values() if placed.llm is not None]
        if any(isinstance(llm.prefix_cache, RecordedPrefixes) for llm in models):
            return Untied(
                "what its prompts share is recorded beside the arrivals, which cannot be moved without it"
            )
        what = "arrivals come before or after completions of their instant, and arrivals of one instant apart"
        return Orders(what, lambda number: simulate(permuted(scenario, number)))


def permuted(scenario: Scenario, number: int) -> Scenario:
    """The scenario with its ties broken in order `number`.

    Each arrival instant moves by a hair or not at all, so that it comes before or after the completions that fall on
    it. Arrivals of one instant, which would enter a queue together, follow each other in pieces: all apart in order 0,
    in drawn pieces in the others. An arrival that moves keeps its row, and with it what is drawn for it.

    Parameters
    ----------
    number : of the order; 0 puts all arrivals of one instant apart.
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
        if stage.llm is not None:  # requests keep their tokens and classes, wherever those came from
            pairs = np.stack([stage.llm.prompt, stage.llm.output], axis=1).tolist()
            data["configuration"][stage.name]["llm"]["tokens"] = {"pairs": pairs}
            if stage.llm.ranks is not None:
                data["configuration"][stage.name]["llm"]["scheduler"] |= {
                    "shares": [], "classes": stage.llm.ranks.tolist()
                }  # fmt: skip
    # The intervals of a run are not asked for here.
    data["intervals"] = {"replications": 0}
    untied = from_data(data)
    assert isinstance(untied, Scenario)
    return untied


def _times(path: str, now: float, shares: Sequence[float], meaning: str) -> WhatIf:
    """Shares of what a parameter is now."""
    return WhatIf(path, now, tuple(now * share for share in shares), meaning)


def _limit(path: str, now_ms: float, meaning: str, met: bool) -> WhatIf:
    """A tighter objective where all are met, else a looser one."""
    return _times(path, now_ms, TIGHTER if met else LOOSER, meaning)


def _llm_what_ifs(where: str, name: str, llm: LanguageModelSpec, met: bool) -> list[WhatIf]:
    """More or fewer seats, tokens in an iteration, and blocks; looser or tighter objectives."""
    sizes = (
        ("max_seqs", llm.max_seqs, f"requests that {name} runs at once"),
        ("token_budget", llm.token_budget, f"tokens in one iteration of {name}"),
        *(() if llm.kv_blocks is None else (("kv_blocks", llm.kv_blocks, f"blocks in the cache of {name}"),)),
    )
    what_ifs = [
        WhatIf(
            f"{where}.{field}", now, tuple(max(1, int(now * factor)) for factor in (2, 0.5, 4, 0.25)), meaning
        )
        for field, now, meaning in sizes
    ]
    if llm.speculation is not None:
        now = llm.speculation.draft_tokens
        fewer = tuple(dict.fromkeys(max(1, now // factor) for factor in (2, 4)))
        meaning = f"tokens that a draft proposes for a request of {name}"
        what_ifs.append(WhatIf(f"{where}.speculation.draft_tokens", now, (*fewer, 2 * now), meaning))
        what_ifs.append(WhatIf(f"{where}.speculation", "on", (None,), f"speculative decoding of {name}"))
    if llm.decode is not None:
        now = llm.decode.replicas
        counts = tuple(range(now - 1, 0, -1) if met else range(now + 1, now + 5))
        if counts:
            meaning = f"replicas of {name} that decode"
            what_ifs.append(WhatIf(f"{where}.decode.replicas", now, counts, meaning))
    for kind, limit_ms, _ in llm.limits:
        meaning = f"objective for the {WORDS[kind]} of {name} in ms"
        what_ifs.append(_limit(f"{where}.{kind}_slo_ms", limit_ms, meaning, met))
    return what_ifs
