"""What a scenario asks of a language model's requests, and which queries got it.

Each objective is a limit: on the latency of the whole query, or on what a request takes at one stage. Limits without a share
of their own belong together: a query attains if it meets all of them. A limit with a share of its own is judged alone: that
share of the stage's requests must meet it. Goodput counts what meets every limit. A refused request meets none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from forerun.serving.engine.outcome import Requests, Run, Visits
from forerun.serving.inputs.pipeline import Bools, Floats, Pipeline
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.scenario.language_model import Kind
from forerun.serving.scenario.limits import may_miss

#: what each objective limits, in words
WORDS: Final[dict[Kind, str]] = {
    "ttft": "time to first token",
    "tpot": "time between tokens",
    "itl": "longest time between two tokens",
    "e2e": "time to last token",
}


@dataclass(frozen=True)
class TokenObjective:
    """One limit at one stage, and how its requests fared.

    Parameters
    ----------
    stage : number in the pipeline.
    kind : what is limited.
    key : how its names in a summary begin, such as "ttft", or "Chat_ttft" where several stages serve models.
    limit_ms : the limit.
    wanted : the share of the stage's requests that must meet it (None: it counts with the other limits).
    values_ms : float64[queries], what is limited; NaN without a value: the query did not visit the stage, was
        refused, or has one token only.
    came : bool[queries], visited the stage.
    met : bool[queries], came and was within the limit.
    """

    stage: int
    kind: Kind
    key: str
    limit_ms: float
    wanted: float | None
    values_ms: Floats = field(repr=False)
    came: Bools = field(repr=False)
    met: Bools = field(repr=False)

    @property
    def share(self) -> float:
        """The share of the stage's requests that meet it; 1 where there was no request."""
        came = int(np.count_nonzero(self.came))
        return int(np.count_nonzero(self.met)) / came if came else 1.0

    @property
    def kept(self) -> bool:
        """Whether enough requests meet it; always, where it has no share of its own."""
        if self.wanted is None:
            return True
        missing = int(np.count_nonzero(self.came & ~self.met))
        return missing <= may_miss(self.wanted, int(np.count_nonzero(self.came)))

    def least_ms(self, share: float) -> float:
        """The least limit that a share of the stage's requests would keep; infinite where too many are refused."""
        values = np.where(np.isnan(self.values_ms), np.where(self.met, 0.0, np.inf), self.values_ms)
        return least_limit(values[self.came], share)


def least_limit(values: Floats, share: float) -> float:
    """The least limit that a share of some values keeps."""
    ordered = np.sort(values)
    return float(ordered[len(ordered) - 1 - may_miss(share, len(ordered))]) if len(ordered) else 0.0


def token_objectives(pipeline: Pipeline, run: Run) -> tuple[TokenObjective, ...]:
    """All limits at stages with language models, stage by stage. The run records visits and requests."""
    objectives = []
    for number, prefix in prefixes(pipeline).items():
        llm, requests, visits = pipeline.stages[number].llm, run.requests[number], run.visits[number]
        assert llm is not None and requests is not None
        came = ~np.isnan(visits.enqueue_ms)
        served = came & ~np.isnan(requests.first_ms)
        for kind, limit_ms, wanted in llm.limits:
            values_ms = limited_ms(kind, llm, visits, requests)
            met = served & ~(values_ms > limit_ms)
            objectives.append(
                TokenObjective(number, kind, f"{prefix}{kind}", limit_ms, wanted, values_ms, came, met)
            )
    return tuple(objectives)


def limited_ms(kind: Kind, llm: LanguageModel, visits: Visits, requests: Requests) -> Floats:
    """float64[queries]: what a limit of this kind is on; NaN where there is no such time.

    Parameters
    ----------
    kind : of the limit.
    llm : with the tokens of all requests.
    visits, requests : of the stage.
    """
    if kind == "ttft":
        return ttft_ms(visits, requests)
    if kind == "tpot":
        return tpot_ms(llm, visits, requests)
    if kind == "itl":
        several = llm.output[: len(requests.first_ms)] > 1
        return np.where(several, requests.longest_gap_ms, np.nan)
    return np.where(np.isnan(requests.first_ms), np.nan, visits.end_ms - visits.enqueue_ms)


def together(objectives: Sequence[TokenObjective]) -> tuple[TokenObjective, ...]:
    """Those without a share of their own."""
    return tuple(one for one in objectives if one.wanted is None)


def prefixes(pipeline: Pipeline) -> dict[int, str]:
    """By number of each stage that serves a language model, how the names of its figures begin: empty if it is the only
    one."""
    served = [s for s, stage in enumerate(pipeline.stages) if stage.llm is not None]
    return {s: "" if len(served) == 1 else f"{pipeline.names[s]}_" for s in served}


def missed(objectives: Sequence[TokenObjective], run: Run, slo_ms: float) -> Bools:
    """bool[queries]: refused, later than the limit of the latency, or outside one of these limits.

    Parameters
    ----------
    objectives : those that count: all for goodput, those `together` for the attainment.
    run : with latencies.
    slo_ms : limit of the latency (infinite: none).
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
    objectives : those at stages with language models.
    run : with latencies.
    slo_ms : limit of the latency (infinite: none).
    allowed : queries that may miss the limits that count together.
    """
    if not objectives:
        return {}
    queries = len(run.arrival_ms)
    misses = int(np.count_nonzero(missed(together(objectives), run, slo_ms)))
    latency = {"latency_attainment": 1 - run.misses / queries} if math.isfinite(slo_ms) else {}
    return {
        "misses": misses,
        "slo_met": misses <= allowed and all(one.kept for one in objectives),
        "attainment": 1 - misses / queries,
        **latency,
        **{f"{one.key}_attainment": one.share for one in objectives},
    }


class Stated(NamedTuple):
    """An objective at a stage with a language model, as a run's summary tells it.

    Parameters
    ----------
    words : what is limited, with its stage where there are several.
    limit_ms : the limit.
    wanted : share of the requests that must meet it (None: it counts with the other limits).
    """

    words: str
    limit_ms: float
    wanted: float | None


def stated(summary: Mapping[str, Any]) -> list[Stated]:
    """The objectives at stages with language models in a run's summary."""
    limits = []
    for kind, words in WORDS.items():
        for name, limit_ms in summary.items():
            key = name.removesuffix("_slo_ms")
            if name != key and (key == kind or key.endswith(f"_{kind}")):
                stage = key.removesuffix(kind).removesuffix("_")
                wanted = summary.get(f"{key}_attainment_wanted")
                of = f" of {stage}" if stage else ""
                limits.append(Stated(f"{words}{of}", limit_ms, wanted))
    return limits


def ttft_ms(visits: Visits, requests: Requests) -> Floats:
    """float64[queries]: from entering the stage to the first token; NaN where nobody was served."""
    return np.asarray(requests.first_ms - visits.enqueue_ms)


def tpot_ms(llm: LanguageModel, visits: Visits, requests: Requests) -> Floats:
    """float64[queries]: mean time between tokens after the first; NaN for one-token answers and where nobody was
    served."""
    more = (llm.output[: len(requests.first_ms)] - 1).astype(np.float64)
    return np.asarray((visits.end_ms - requests.first_ms) / np.where(more > 0, more, np.nan))
