"""What a scenario asks of a language model's tokens, and which queries got it.

A query attains if it meets every stated objective: the latency of the whole query, and at each language model that it
visits the time to first token and the time between tokens, where these are stated. A refused request meets none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from forerun.domains.serving.engine.outcome import Requests, Run, Visits
from forerun.domains.serving.inputs.llm.model import LanguageModel
from forerun.domains.serving.inputs.pipeline import Bools, Floats, Pipeline

Kind = Literal["ttft", "tpot"]

#: what each objective limits, in words
WORDS: Final[dict[Kind, str]] = {"ttft": "time to first token", "tpot": "time between tokens"}


@dataclass(frozen=True)
class TokenObjective:
    """One limit on the tokens of one stage, and how its requests fared.

    Parameters
    ----------
    stage : number in the pipeline.
    kind : what is limited: `ttft` or `tpot`.
    key : how its names in a summary begin, such as "ttft", or "Chat_ttft" where several stages serve models.
    limit_ms : the limit.
    values_ms : float64[queries], what is limited; NaN without a value: the query did not visit the stage, was
        refused, or has one token only.
    came : bool[queries], visited the stage.
    met : bool[queries], came and was within the limit.
    """

    stage: int
    kind: Kind
    key: str
    limit_ms: float
    values_ms: Floats = field(repr=False)
    came: Bools = field(repr=False)
    met: Bools = field(repr=False)

    @property
    def share(self) -> float:
        """The share of the stage's requests that meet it; 1 where there was no request."""
        came = int(np.count_nonzero(self.came))
        return int(np.count_nonzero(self.met)) / came if came else 1.0


def token_objectives(pipeline: Pipeline, run: Run) -> tuple[TokenObjective, ...]:
    """All stated objectives on tokens, stage by stage. The run records visits and requests."""
    objectives = []
    for number, prefix in prefixes(pipeline).items():
        llm, requests, visits = pipeline.stages[number].llm, run.requests[number], run.visits[number]
        assert llm is not None and requests is not None
        came = ~np.isnan(visits.enqueue_ms)
        served = came & ~np.isnan(requests.first_ms)
        limits: tuple[tuple[Kind, float, Floats], ...] = (
            ("ttft", llm.ttft_slo_ms, ttft_ms(visits, requests)),
            ("tpot", llm.tpot_slo_ms, tpot_ms(llm, visits, requests)),
        )
        for kind, limit_ms, values_ms in limits:
            if limit_ms:
                met = served & ~(values_ms > limit_ms)
                objectives.append(
                    TokenObjective(number, kind, f"{prefix}{kind}", limit_ms, values_ms, came, met)
                )
    return tuple(objectives)


def prefixes(pipeline: Pipeline) -> dict[int, str]:
    """By number of each stage that serves a language model, how the names of its figures begin: empty if it is the only
    one."""
    served = [s for s, stage in enumerate(pipeline.stages) if stage.llm is not None]
    return {s: "" if len(served) == 1 else f"{pipeline.names[s]}_" for s in served}


def missed(objectives: tuple[TokenObjective, ...], run: Run, slo_ms: float) -> Bools:
    """bool[queries]: refused, later than the latency objective, or outside an objective on tokens.

    Parameters
    ----------
    objectives : those on tokens, of all stages.
    run : with latencies.
    slo_ms : the latency objective.
    """
    misses = run.missed(slo_ms)
    for one in objectives:
        misses |= one.came & ~one.met
    return misses


def attainment_figures(
    objectives: tuple[TokenObjective, ...], run: Run, slo_ms: float, allowed: int
) -> dict[str, Any]:
    """Figures that replace those of the latency alone, and the share that each objective is met by.

    Empty if the latency is the only objective.

    Parameters
    ----------
    objectives : those on tokens, of all stages.
    run : with latencies.
    slo_ms : the latency objective.
    allowed : queries that may miss.
    """
    if not objectives:
        return {}
    queries = len(run.arrival_ms)
    misses = int(np.count_nonzero(missed(objectives, run, slo_ms)))
    return {
        "misses": misses,
        "slo_met": misses <= allowed,
        "attainment": 1 - misses / queries,
        "latency_attainment": 1 - run.misses / queries,
        **{f"{one.key}_attainment": one.share for one in objectives},
    }


def stated(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The objectives on tokens in a run's summary: (in words, limit in ms)."""
    limits = []
    for kind, words in WORDS.items():
        for name, limit_ms in summary.items():
            key = name.removesuffix("_slo_ms")
            if name != key and (key == kind or key.endswith(f"_{kind}")):
                stage = key.removesuffix(kind).removesuffix("_")
                limits.append((f"{words}{f' of {stage}' if stage else ''}", float(limit_ms)))
    return limits


def ttft_ms(visits: Visits, requests: Requests) -> Floats:
    """float64[queries]: from entering the stage to the first token; NaN where nobody was served."""
    return np.asarray(requests.first_ms - visits.enqueue_ms)


def tpot_ms(llm: LanguageModel, visits: Visits, requests: Requests) -> Floats:
    """float64[queries]: mean time between tokens after the first; NaN for one-token answers and where nobody was
    served."""
    more = (llm.output[: len(requests.first_ms)] - 1).astype(np.float64)
    return np.asarray((visits.end_ms - requests.first_ms) / np.where(more > 0, more, np.nan))
