"""The changelog."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterator
from typing import Final, get_args

from ..claims import Claim


def claims() -> Iterator[Claim]:
    """What was counted when it was added."""
    from forerun.cluster.policy import schedulers
    from forerun.cluster.traces.job_logs import LONGEST_S
    from forerun.core.trace.reader import readers
    from forerun.replication.elasticflow.reproduce import fig9
    from forerun.replication.reproductions import reproductions
    from forerun.serving.plan import answers
    from forerun.spot.scenario.processes import Process

    page = "CHANGELOG.md"
    yield Claim(
        page,
        "what {} ms of objective or {} queries a second are worth",
        (answers.SLO_MORE_MS, answers.RATE_MORE_RPS),
    )
    yield Claim(page, "**Cluster**: {} GPU schedulers and variants", (len(schedulers().names()),))
    logs = [name for name in readers().names() if readers().get(name).makes == "jobs"]
    yield Claim(page, "job logs of {} formats", (len(logs),))
    draws = inspect.signature(fig9).parameters["seeds"].default
    yield Claim(page, "figures 9 and 11 over {} draws with intervals", (draws,))
    yield Claim(page, "jobs longer than {} years", (LONGEST_S / 86_400 / 365,))
    yield Claim(page, "fleets from {} processes", (len(get_args(Process)),))
    published = collections.Counter(entry.run.__module__.split(".")[2] for entry in reproductions())
    yield Claim(
        page,
        "growth and deadline rules, plans; {} published results",
        (
            published.total()
            - sum(published[name] for name in ("elasticflow", "zeus", "cndlsys", "inferline")),
        ),
    )
    yield Claim(page, "scenarios; {} published results; experiments of one's own", (published["cndlsys"],))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {("CHANGELOG.md", "as vLLM does since 0.14")}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
