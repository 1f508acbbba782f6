"""What clients who wait for answers did, their sessions, and runs without the queries that warm a system up.

A figure of a session comes with its requests: the tables `turns` and `requests` have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.core.errors import CheckFailed, Problem, ScenarioError
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.serving.engine.outcome import Iterations, Outcome, Requests, Run, Visits
from forerun.serving.inputs.clients import Floats, Ints
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.routing import as_drawn
from forerun.serving.llm.engine.kernels.endings import ABANDONED, COMPLETE, REFUSED

_SESSION: Final = Column("session", "", "number of the session, in order of the trace")

SESSIONS: Final = TableSchema(
    "sessions",
    (
        _SESSION,
        Column("begin_ms", "ms", "when its first query is ready"),
        Column("end_ms", "ms", "when its last query ends"),
        Column("time_ms", "ms", "end minus begin"),
        Column("queries", "queries", "sent"),
        Column("unsent", "queries", "not sent because it ended before"),
        Column(
            "ended", "", "complete; abandoned, after an answer that took too long; or refused, a query of it"
        ),
    ),
    "one session of a user, or one job of an agent",
)
TURNS: Final = TableSchema(
    "turns",
    (
        Column("query", "", "number of the query, in order of arrival"),
        _SESSION,
        Column("turn", "", "number of the query within its session, in order of arrival"),
        Column("late_ms", "ms", "from being ready to being sent"),
    ),
    "one query of a session",
)
_ENDED: Final = {COMPLETE: "complete", ABANDONED: "abandoned", REFUSED: "refused"}


def client_figures(outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """How many queries are under way on average, and how late queries are sent; with notes. Nothing where queries arrive
    whatever the answers are."""
    scenario, sent, run = outcome.inputs.scenario, outcome.sent, outcome.run
    if sent is None:
        return {}, []
    _check_sessions(outcome)
    begin_ms, end_ms = run.horizon_ms
    figures, notes = _session_figures(outcome)
    if len(run.finish_ms) and end_ms > begin_ms:
        figures["under_way_mean"] = float(run.latency_ms.sum()) / (end_ms - begin_ms)
    late_ms = sent.late_ms[sent.order]
    if scenario.max_concurrency is None or not late_ms.any():
        return figures, notes
    figures |= {"sent_late_mean_ms": float(late_ms.mean()), "sent_late_max_ms": float(late_ms.max())}
    what = (
        f"{np.count_nonzero(late_ms):,} queries are sent later than they are ready, up to {late_ms.max() / 1e3:.3g} s, "
        f"because {scenario.max_concurrency} are under way; latencies count from sending"
    )
    return figures, [*notes, what]


def session_tables(outcome: Outcome) -> dict[str, Table]:
    """One row a session, and one row a query of theirs; nothing where each query stands alone."""
    if outcome.sent is None or outcome.inputs.scenario.sessions is None or not len(outcome.run.finish_ms):
        return {}
    sent, first = outcome.sent, outcome.inputs.scenario.warm_up or 0
    rows, begin_ms, end_ms = _sessions(outcome)
    total, done = (np.bincount(of, minlength=len(sent.ended)) for of in (sent.clients.session, sent.session))
    session, late_ms = sent.session[first:], sent.late_ms[sent.order[first:]]
    order = np.argsort(sent.session, kind="stable")
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order)) - np.searchsorted(sent.session[order], sent.session[order])
    return {
        "sessions": Table.of(
            SESSIONS,
            session=rows,
            begin_ms=begin_ms,
            end_ms=end_ms,
            time_ms=end_ms - begin_ms,
            queries=done[rows],
            unsent=(total - done)[rows],
            ended=np.array([_ENDED[how] for how in sent.ended[rows].tolist()], dtype=object),
        ),
        "turns": Table.of(
            TURNS, query=np.arange(len(session)), session=session, turn=turn[first:], late_ms=late_ms
        ),
    }


def _sessions(outcome: Outcome) -> tuple[Ints, Floats, Floats]:
    """Sessions that are counted whole, when each is ready to begin, and when its last query ends."""
    sent, first = outcome.sent, outcome.inputs.scenario.warm_up or 0
    assert sent is not None
    begin_ms, end_ms = np.full(len(sent.ended), np.inf), np.full(len(sent.ended), -np.inf)
    ready_ms = sent.sent_ms[sent.order] - sent.late_ms[sent.order]
    np.minimum.at(begin_ms, sent.session, ready_ms)
    np.maximum.at(end_ms, sent.session[first:], outcome.run.finish_ms)
    counts = np.ones(len(sent.ended), dtype=np.bool_)
    counts[sent.session[:first]] = False
    rows = np.flatnonzero(counts)
    return rows, begin_ms[rows], end_ms[rows]


def _session_figures(outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """How many sessions end in which way, and how long those take that are complete; with a note where there are none."""
    if outcome.sent is None or outcome.inputs.scenario.sessions is None or not len(outcome.run.finish_ms):
        return {}, []
    rows, begin_ms, end_ms = _sessions(outcome)
    ended = outcome.sent.ended[rows]
    figures: dict[str, Any] = {"sessions": len(rows)}
    figures |= {f"sessions_{name}": int(np.count_nonzero(ended == how)) for how, name in _ENDED.items()}
    time_ms = (end_ms - begin_ms)[ended == COMPLETE]
    known = len(time_ms) > 0
    figures["session_mean_ms"] = float(time_ms.mean()) if known else float("nan")
    for share in (50, 90, 99):
        figures[f"session_p{share}_ms"] = float(np.quantile(time_ms, share / 100)) if known else float("nan")
    if known:
        return figures, []
    every = len(outcome.sent.ended)
    what = (
        f"sessions have no times, which are of complete ones without a query in the warm-up: of {every:,} sessions "
        f"{every - len(rows):,} have one there, and {len(rows):,} have none but are not complete"
    )
    return figures, [what]


def _check_sessions(outcome: Outcome) -> None:
    """Reject a run in which a session neither is complete, nor abandoned, nor refused, or which sends what it should not."""
    sent = outcome.sent
    assert sent is not None
    total, done = (np.bincount(of, minlength=len(sent.ended)) for of in (sent.clients.session, sent.session))
    laws = {
        "a session does not end": sent.ended > 0,
        "a session is complete without all of its queries": (sent.ended != COMPLETE) | (done == total),
        "a session is abandoned that has nothing more to send": (sent.ended != ABANDONED) | (done < total),
        "a query is sent twice": len(np.unique(sent.order)) == len(sent.order),
    }
    broken = [Problem("sessions", law) for law, is_met in laws.items() if not np.all(is_met)]
    if broken:
        raise CheckFailed(*broken)


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
    if first >= len(run.arrival_ms):
        what = f"{first} queries are left out of {len(run.arrival_ms)} that are sent; some must be counted"
        raise ScenarioError.at("$.warm_up", what)
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
    return counted_inputs(inputs), rest


def counted_inputs(inputs: Inputs) -> Inputs:
    """The inputs without the queries that warm the system up."""
    first, n = inputs.scenario.warm_up or 0, len(inputs.arrivals_ms)
    if not first:
        return inputs
    pipeline = as_drawn(inputs.pipeline, n).rows(np.arange(first, n))
    return replace(inputs, pipeline=pipeline, arrivals_ms=inputs.arrivals_ms[first:])


def _requests(requests: Requests, first: int, begin_ms: float) -> Requests:
    """Those from the first on; times between tokens and what drafts guess are of these already."""
    each, transfers = requests.recorded, requests.transfers
    if each is not None:
        begun = each.start_ms >= begin_ms
        each = Iterations(**{name: column[begun] for name, column in vars(each).items()})
    iterations = requests.iterations if each is None else len(each.start_ms)
    together: dict[str, Any] = {
        "gaps": requests.gaps,
        "iterations": iterations,
        "guesses": requests.guesses,
    }
    own = {
        name: column
        for name, column in vars(requests).items()
        if name not in {*together, "recorded", "transfers"}
    }
    moved = transfers and replace(transfers, **_from(vars(transfers), first))
    return Requests(**_from(own, first), **together, recorded=each, transfers=moved)


def _from(columns: Mapping[str, Any], first: int) -> dict[str, Any]:
    return {name: column[first:] for name, column in columns.items()}
