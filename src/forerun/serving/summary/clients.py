"""What clients who wait for answers did, and runs without the queries that warm a system up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from forerun.serving.engine.outcome import Iterations, Outcome, Requests, Run, Visits
from forerun.serving.inputs.inputs import Inputs


def client_figures(outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """How many queries are under way on average, and how late queries are sent; with a note. Nothing where queries arrive
    whatever the answers are."""
    scenario, sent, run = outcome.inputs.scenario, outcome.sent, outcome.run
    if sent is None:
        return {}, []
    begin_ms, end_ms = run.horizon_ms
    figures: dict[str, Any] = {}
    if len(run.finish_ms) and end_ms > begin_ms:
        figures["under_way_mean"] = float(run.latency_ms.sum()) / (end_ms - begin_ms)
    late_ms = sent.late_ms[sent.order]
    if scenario.max_concurrency is None or not late_ms.any():
        return figures, []
    figures |= {"sent_late_mean_ms": float(late_ms.mean()), "sent_late_max_ms": float(late_ms.max())}
    what = (
        f"{np.count_nonzero(late_ms):,} queries are sent later than they are ready, up to {late_ms.max() / 1e3:.3g} s, "
        f"because {scenario.max_concurrency} are under way; latencies count from sending"
    )
    return figures, [what]


def counted(inputs: Inputs, run: Run) -> tuple[Inputs, Run]:
    """The inputs and the run without the queries that warm the system up; batches and iterations count from the first other
    one on.

    Parameters
    ----------
    inputs : whose scenario says how many queries that are.
    run : of all queries.
    """
    first = inputs.scenario.warm_up or 0
    if not first:
        return inputs, run
    n = len(run.arrival_ms)
    begin_ms = float(run.arrival_ms[first])
    rest = replace(
        run,
        arrival_ms=run.arrival_ms[first:],
        finish_ms=run.finish_ms[first:],
        visits=tuple(Visits(**_from(vars(visits), first)) for visits in run.visits),
        batches=tuple(
            replace(own, **{name: column[own.start_ms >= begin_ms] for name, column in vars(own).items()})
            for own in run.batches
        ),
        requests=tuple(requests and _requests(requests, first, begin_ms) for requests in run.requests),
        refused=None if run.refused is None else run.refused[first:],
    )
    if len(rest.finish_ms):
        rest = replace(rest, misses=int(np.count_nonzero(rest.missed(inputs.scenario.latency_limit_ms))))
    rows = np.arange(first, n)
    return replace(inputs, pipeline=inputs.pipeline.rows(rows), arrivals_ms=inputs.arrivals_ms[first:]), rest


def _requests(requests: Requests, first: int, begin_ms: float) -> Requests:
    """Those from the first on. Times between tokens, and what drafts guess, are known of all together."""
    each, transfers = requests.recorded, requests.transfers
    if each is not None:
        begun = each.start_ms >= begin_ms
        each = Iterations(**{name: column[begun] for name, column in vars(each).items()})
    together = {name: getattr(requests, name) for name in ("gaps", "iterations", "guesses")}
    own = {
        name: column
        for name, column in vars(requests).items()
        if name not in {*together, "recorded", "transfers"}
    }
    moved = transfers and replace(transfers, **_from(vars(transfers), first))
    return Requests(**_from(own, first), **together, recorded=each, transfers=moved)


def _from(columns: Mapping[str, Any], first: int) -> dict[str, Any]:
    return {name: column[first:] for name, column in columns.items()}
