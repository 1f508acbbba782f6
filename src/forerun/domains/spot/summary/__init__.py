"""`summarize`: from what happened to the result, with its figures, tables, ledgers, timeline and reasons."""

from __future__ import annotations

from forerun.domains.spot.engine.run import ClusterOutcome, DeadlineOutcome, HistoryOutcome, Outcome
from forerun.domains.spot.summary.cluster import summarize_cluster
from forerun.domains.spot.summary.deadline import summarize_deadline
from forerun.domains.spot.summary.history import summarize_history
from forerun.domains.spot.summary.trials import summarize_trials
from forerun.result.run import Result


def summarize(outcome: Outcome) -> Result:
    """The result of a run of any kind."""
    if isinstance(outcome, HistoryOutcome):
        return summarize_history(outcome)
    if isinstance(outcome, DeadlineOutcome):
        return summarize_deadline(outcome)
    if isinstance(outcome, ClusterOutcome):
        return summarize_cluster(outcome)
    return summarize_trials(outcome)
