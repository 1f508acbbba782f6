"""`summarize`: from what happened to the result, with its figures, tables, ledgers, timeline and reasons."""

from __future__ import annotations

from forerun.core.result.run import Result
from forerun.spot.engine.run import ClusterOutcome, DeadlineOutcome, HistoryOutcome, Outcome
from forerun.spot.reserved.summary import summarize_cluster
from forerun.spot.summary.deadline import summarize_deadline
from forerun.spot.summary.history import summarize_history
from forerun.spot.summary.trials import summarize_trials


def summarize(outcome: Outcome) -> Result:
    """The result of a run of any kind."""
    if isinstance(outcome, HistoryOutcome):
        return summarize_history(outcome)
    if isinstance(outcome, DeadlineOutcome):
        return summarize_deadline(outcome)
    if isinstance(outcome, ClusterOutcome):
        return summarize_cluster(outcome)
    return summarize_trials(outcome)
