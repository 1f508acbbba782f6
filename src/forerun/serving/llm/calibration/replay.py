"""An experiment played through the engine: the same requests, the server's limits, and the latencies that follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forerun.serving.engine.outcome import Iterations
from forerun.serving.inputs.clients import Clients
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.calibration.experiment import Load, latencies
from forerun.serving.llm.engine.stage import LanguageStage
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.llm.scenario.language_model import Coefficients

#: names of the coefficients: those of `Cost.terms` in their order, the time of a request outside of iterations, and the
#: prompt tokens that reading the weights hides
COEFFICIENTS: Final = Coefficients.names[:7]
#: how many of the coefficients are times of an iteration
TERMS: Final = 5


@dataclass(frozen=True)
class Replay:
    """What a replay showed.

    Parameters
    ----------
    figures : means and quantiles by name, as those of an `Experiment`.
    gaps : int64[cells], times between consecutive tokens of one request, all requests together (see `gap_quantile_ms`).
    iterations : one by one, where they were asked for.
    """

    figures: dict[str, float]
    gaps: Ints = field(repr=False)
    iterations: Iterations | None = field(default=None, repr=False)


def possible(values: Floats) -> Floats:
    """The coefficients with no more prompt tokens hidden than an iteration takes without any."""
    bounded: Floats = values.copy()
    if values[1] > 0:
        bounded[6] = min(values[6], values[0] / values[1])
    return bounded


def replay(model: LanguageModel, replicas: int, load: Load, cost: Cost, *, keep: bool = False) -> Replay:
    """Play a load.

    Parameters
    ----------
    model : limits of a replica, with the tokens of the load.
    replicas : how many there are.
    load : what the client sends; where it holds requests back, it does so here.
    cost : of an iteration, and of a request outside of iterations.
    keep : record every iteration (default: no).
    """
    stage = LanguageStage(replace(model, cost=cost), replicas, keep=keep)
    queries = np.arange(len(load))
    if load.most_in_flight is None or load.most_in_flight >= len(load):
        stage.feed(queries, load.send_ms, np.ones(len(load), dtype=np.bool_))
        stage.advance(np.inf)
    else:
        stage.run_closed(Clients.single(load.send_ms, most=load.most_in_flight))
    visits, _, requests = stage.record(len(load))
    served = ~np.isnan(requests.first_ms)
    sent_ms, end_ms = visits.enqueue_ms[served], visits.end_ms[served]
    figures = latencies(requests.first_ms[served] - sent_ms, end_ms - sent_ms, load.output[served])
    figures["throughput_rps"] = len(sent_ms) * 1e3 / float(end_ms.max() - sent_ms.min())
    return Replay(figures, requests.gaps, requests.recorded)
