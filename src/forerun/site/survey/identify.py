"""The machine and the policy behind a log whose site has no files about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from forerun.cluster.summary.spans import Spans
from forerun.core.errors import InputError
from forerun.core.registry import member_name
from forerun.core.trace.table import Trace
from forerun.site.history import read_history
from forerun.site.replay.play import policy_name
from forerun.site.replay.replay import replay_log
from forerun.site.shown import ceiling


def identified(
    path: Path, format: str, zone: str, log: Trace
) -> tuple[list[dict[str, int]], dict[str, Any], str, list[str]]:
    """Nodes and policy as a scenario has them, how the policy is known, in words, and notes.

    Parameters
    ----------
    path, format, zone : of the log, for the replay of its first part.
    log : the same as a trace.
    """
    gpus = np.ceil(log["gpus"]).astype(np.int64)
    at, busy = Spans(log["start_s"], log["end_s"], gpus).levels()
    count, share = ceiling(busy, np.diff(at, append=at[-1]))
    count = max(count, int(gpus.max()))
    notes = [
        f"no file says what machine it is: {count:,} GPUs, as exactly so many are in use for {100 * share:.2f} % of the "
        "time; nodes, types and partitions are not known"
    ]
    policy: dict[str, Any] = {"name": "easy"}
    try:
        card = replay_log(read_history(path, format, zone=zone or "UTC"), identify=False).card
    except InputError as error:
        return (
            [{"count": count, "gpus": 1}],
            policy,
            "easy is taken, as the log identifies no policy",
            [
                *notes,
                f"the policy is not identified: {error.problems[0].what}",
            ],
        )
    policy = {"name": member_name(type(card.policy)), "order": {"name": member_name(type(card.policy.order))}}
    how = f"no file names the policy; history's first part is best explained by {policy_name(card.policy)}"
    if card.named is None:
        how += ", but it does not tell that policy from others"
    return [{"count": count, "gpus": 1}], policy, how, notes
