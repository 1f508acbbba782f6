"""The sentence that says what decided the outcome of a run."""

from __future__ import annotations

from typing import Any

from forerun.cluster.summary.causes import CAUSES
from forerun.cluster.summary.waits import Waits
from forerun.core.registry import member_name
from forerun.core.result.ledger import Ledger
from forerun.core.scenario.spec import NamedSpec


def why_of(
    summary: dict[str, Any], waits: Waits, ledger: Ledger, policy: NamedSpec, refused_because: str
) -> str:
    """One sentence: what decided the outcome.

    Parameters
    ----------
    summary : the run in figures.
    waits : what jobs waited for; the cause of most waiting is named.
    ledger : where the GPU time went.
    policy : whose run it was.
    refused_because : the constraints of refused jobs, most frequent first; empty: none, or not known.
    """
    name = member_name(type(policy))
    by_cause = {cause: seconds for cause, seconds in waits.by_cause().items() if cause != "not_eligible"}
    total = sum(float(seconds.sum()) for seconds in by_cause.values())
    shares = ledger.shares()
    used = f"{100 * shares['useful']:.0f} % of the GPU time was useful"
    also = ""
    if number := summary["refused_jobs"]:
        also += f"; {number} {'job was' if number == 1 else 'jobs were'} refused"
        also += f" ({refused_because})" if refused_because else ""
    if number := summary["unfinished_jobs"]:
        also += f"; {number} {'job' if number == 1 else 'jobs'} never ended"
    if not summary["finished_jobs"]:
        return f"under {name} no job ended, {used}{also}"
    if total <= 0:
        return f"under {name} nobody waited, {used}{also}"
    worst = max(by_cause, key=lambda cause: float(by_cause[cause].sum()))
    others = {"admission": "admission", "reconfiguration": "restarts and slot ends"}
    what = others.get(worst) or CAUSES[worst][0]
    share = 100 * float(by_cause[worst].sum()) / total
    most = next(iter(waits.causes.by_partition()), "")
    top, part = waits.causes.top(most) if most else ("", 0.0)
    where = f"; most of it in partition {most}: {100 * part:.0f} % for {top}" if top else ""
    return f"under {name} {share:.0f} % of all waiting was for {what}{where}; {used}{also}"
