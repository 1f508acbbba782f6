"""The world as a site's files show it: what the best reader could simulate, so that nobody is asked for more.

Jobs are the rows of the log: eligible when it says so, whatever made them wait before; in the partition in which they ran;
as long as they ran, and what still runs as long as it asked. Who ran when the log begins starts when it did. Not shown are
limits of arrays, the other partitions of a job that has started, and what was used before the log begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .scheduler import Attempt, World
from .sites import Site


def seen(site: Site, truth: Sequence[Attempt]) -> World:
    """A site's world without what its files do not show."""
    last = {one.job.id: one for one in truth if one.submit_s <= site.as_of_s}
    jobs = []
    for one in truth:
        job = one.job
        again = one.submit_s != job.submit_s  # follows from the failure of its node
        if again or one.submit_s > site.as_of_s or (one.end_s is not None and one.end_s < site.from_s):
            continue
        started = one.start_s is not None and one.start_s <= site.as_of_s
        eligible_s = one.eligible_s if one.eligible_s is not None else site.as_of_s
        if one.start_s is not None and one.start_s < site.from_s:
            eligible_s = one.start_s
        run = last[job.id]
        ran = run.start_s is not None and run.end_s is not None and run.end_s <= site.as_of_s
        jobs.append(
            replace(
                job,
                begin_s=eligible_s,
                held=None,
                after=(),
                array_limit=0,
                partitions=(one.partition,) if started else job.partitions,
                run_s=job.run_s if ran else job.request_s,
                cancel_s=one.end_s if one.state == "CANCELLED" else None,
            )
        )
    failures = tuple(one for one in site.world.failures if one.from_s <= site.as_of_s)
    return replace(site.world, jobs=tuple(jobs), failures=failures)
