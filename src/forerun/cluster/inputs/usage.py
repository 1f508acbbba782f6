"""What a log shows in use of a site's machines: more than they have, and when all that runs is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, F64, I64, Cluster, JobLabels
from forerun.cluster.inputs.files import JobTable
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.cluster.summary.past import ALIKE_S, Past, Recorded, complete
from forerun.cluster.summary.spans import Spans
from forerun.core.errors import TraceError

#: rows may overlap so long, as clocks differ
_SLACK_S: Final = 60.0
#: events at the beginning of a log that are looked at for what ran before it
_MOST_EVENTS: Final = 20_000


def stamp(at_s: float, table: JobTable) -> str:
    """The minute of an instant as the log has it, else in seconds."""
    if table.origin_s is None:
        return f"{at_s:.0f} s"
    zone = table.recorded.zone if table.recorded is not None else ""
    return f"{datetime.fromtimestamp(at_s + table.origin_s, ZoneInfo(zone) if '/' in zone else UTC):%Y-%m-%dT%H:%M}"


def overlaps(table: JobTable, cluster: Cluster, node_gpus: Mapping[str, int]) -> tuple[str, ...]:
    """A note on a node of which the log has more in use than it has. node_gpus: GPUs of each node by its name.

    Raises TraceError where more GPUs are in use at once than there are. Jobs of partitions that are not there, and those
    that were suspended, do not count.
    """
    recorded = table.recorded
    if recorded is None:
        return ()
    past = recorded.jobs
    end_s = np.where(past.unfinished, np.inf, past.end_s) if past.unfinished is not None else past.end_s
    suspended = table.jobs.duration_s < end_s - past.start_s - 1
    counts = np.isfinite(past.start_s) & (end_s > past.start_s) & (~suspended | ~np.isfinite(end_s))
    if cluster.partitions:
        known = {name: bool(cluster.partitions.keys() & set(name.split(","))) for name in set(table.vc)}
        counts &= np.array([known[name] or not name for name in table.vc], np.bool_)
    rows = np.flatnonzero(counts)
    begin_s, end_s, gpus = past.start_s[rows], end_s[rows], table.jobs.gpus[rows]
    at, used = Spans(begin_s, end_s, gpus).levels()
    there = cluster.gpus + cluster.away_gpus
    if len(first := _lasting(at, used > there)):
        most = int(used.max())
        raise TraceError.at(
            table.source,
            f"up to {most} GPUs are in use at once and the machines have {there}, {most - there} too few, first at "
            f"{stamp(float(at[first[0]]), table)}: rows overlap, or the log is of other machines (name those to simulate as "
            "machines.nodes)",
        )
    if past.node_list is None:
        return ()
    sizes = Counter[str]()
    for name, count in node_gpus.items():
        sizes[name.partition(":")[0]] += count  # of all its types
    number = {name: at for at, name in enumerate(sizes)}
    nodes = {text: _numbers(text, number) for text in {past.node_list[row] for row in rows.tolist()}}
    mine = [nodes[past.node_list[row]] for row in rows.tolist()]
    share = [int(count) // max(len(names), 1) for count, names in zip(gpus, mine, strict=True)]
    widths = [len(names) for names in mine]
    node = np.array([name for names in mine for name in names], np.int64)
    seats = Spans(
        np.repeat(begin_s, widths), np.repeat(end_s, widths), np.repeat(np.array(share, np.int64), widths)
    )
    found: list[tuple[float, str, int, int]] = []
    for name, at_node in number.items():
        some = node == at_node
        at, used = Spans(seats.from_s[some], seats.to_s[some], seats.gpus[some]).levels()
        if len(first := _lasting(at, used > sizes[name])):
            found.append((float(at[first[0]]), name, int(used.max()), sizes[name]))
    if not found:
        return ()
    at_s, name, most, there = min(found)
    more = f"; so have {len(found) - 1} other nodes" if len(found) > 1 else ""
    return (
        f"{table.source}: node {name} has up to {most} GPUs in use and {there} are there, first at "
        f"{stamp(at_s, table)}{more}",
    )


def _lasting(at_s: F64, over: BOOL) -> I64:
    """Of some instants of change those at which something begins to be so for longer than clocks may differ."""
    begins = np.flatnonzero(over & ~np.append(False, over[:-1]))
    ends = np.append(at_s, np.inf)[np.flatnonzero(over & ~np.append(over[1:], False)) + 1]
    return begins[ends - at_s[begins] >= _SLACK_S]


def _numbers(text: str, number: Mapping[str, int]) -> list[int]:
    """The numbers of the nodes that a cell names, of those that are known; none of a cell that is no list of names."""
    try:
        return [number[name] for name in node_names(text, 100_000) if name in number]
    except ValueError:
        return []


def joined(table: JobTable, again: BOOL, checkpoint_s: float) -> tuple[JobTable, tuple[str, ...]]:
    """The log, in which the runs of a job are one job where the run itself puts jobs back into the queue; and a note.

    The work of such a job is that of its last run, and what checkpoints saved of those before: what a failure cut short
    would else be cut short twice.

    Parameters
    ----------
    again : which runs ended in a way that the run plays again.
    checkpoint_s : seconds of work between checkpoints; 0: there are none.
    """
    jobs, recorded, before = table.jobs, table.recorded, table.jobs.predecessor()
    labels = jobs.labels
    if labels is None or recorded is None:
        return table, ()
    joins = (before >= 0) & (labels.attempt > 1) & again[before]
    if not joins.any():
        return table, ()
    head, last, work_s = np.arange(len(jobs)), np.arange(len(jobs)), jobs.duration_s.copy()
    for row in np.flatnonzero(before >= 0).tolist():
        first = int(head[before[row]])
        if joins[row]:
            saved_s = work_s[first] // checkpoint_s * checkpoint_s if checkpoint_s else 0
            head[row], last[first], work_s[first] = first, row, saved_s + jobs.duration_s[row]
    after = tuple(str(jobs.id[head[one]]) if one >= 0 else "" for one in before.tolist())
    jobs = replace(jobs, duration_s=work_s, labels=replace(labels, after=after))
    past = replace(recorded.jobs.take(last), start_s=recorded.jobs.start_s, node_list=recorded.jobs.node_list)
    note = (
        f"{int(joins.sum())} runs after a failure or preemption, which is simulated, are one job with the run before: "
        "its work is that of the last"
    )
    table = replace(table, jobs=jobs, recorded=replace(recorded, jobs=past))
    return table.take(np.flatnonzero(~joins)), (note,)


def failed_with(table: JobTable, failures: Mapping[float, tuple[int, ...]], names: Sequence[str]) -> BOOL:
    """Which runs of a log ended as one of their nodes failed.

    Parameters
    ----------
    failures : when which nodes failed, on the clock of the run, by their numbers.
    names : of the nodes.
    """
    found = np.zeros(len(table), np.bool_)
    if table.recorded is None or not failures:
        return found
    past, at_s = table.recorded.jobs, np.array(sorted(failures))
    number = {name.partition(":")[0]: at for at, name in reversed(list(enumerate(names)))}
    ended_s = np.where([text.startswith("NODE_FAIL") for text in past.state], past.end_s, np.nan)
    for row in np.flatnonzero(np.isfinite(ended_s)).tolist():
        near = at_s[np.abs(at_s - ended_s[row]) <= _SLACK_S].tolist()
        nodes = (
            set(_numbers(past.node_list[row], number)) if past.node_list is not None else set(number.values())
        )
        found[row] = any(nodes & set(failures[one]) for one in near)
    return found


def begun(table: JobTable, cluster: Cluster, names: Sequence[str]) -> tuple[JobTable, tuple[str, ...]]:
    """The log as one that begins when all is known that runs, and a note.

    Jobs that had started by then come when they did, for the nodes that they had; those that waited when the log was cut
    come then. So the machine and the queue are as they were. All is known in a log of jobs that ended from the first end
    on; in others that begin in the middle of things, once the GPUs that are in use explain who waits.

    names : of the nodes.
    """
    recorded = table.recorded
    if recorded is None or not len(table):
        return table, ()
    past, jobs = recorded.jobs, table.jobs
    order = np.argsort(jobs.submit_s, kind="stable")
    submit_s = jobs.submit_s.astype(np.float64)
    spans = Spans(past.start_s[order], past.end_s[order], jobs.gpus[order])
    whole = complete(spans, submit_s[order])
    cut_s = from_s = whole.from_s if whole.selection == "end" else 0.0
    longest_s = float(jobs.request_s[np.isfinite(jobs.request_s)].max(initial=whole.from_s))
    from_s = max(from_s, _explained_s(table, recorded, cluster, longest_s))
    if from_s <= 0:
        return table, ()
    labels = jobs.labels or JobLabels.of(len(table))
    ran = past.start_s < from_s
    came_s = np.where(ran, np.ceil(np.maximum(past.start_s, submit_s)), submit_s).astype(np.int64)
    after = tuple("" if begun else name for name, begun in zip(labels.after, ran.tolist(), strict=True))
    eligible_after_s = np.where(ran, 0, labels.eligible_after_s)
    # who waited when the log was cut has seen machines that were fuller than the log has them
    waited_s = np.where(ran, 0, np.maximum(math.ceil(cut_s) - came_s - eligible_after_s, 0))
    only_on, nodes = _had(past, ran, names), labels.nodes.copy()
    widths = np.array([len(one) for one in only_on], np.int64)
    nodes[widths > 0] = widths[widths > 0]
    labels = replace(
        labels,
        eligible_after_s=eligible_after_s + waited_s,
        waited_s=waited_s,
        after=after,
        only_on=only_on,
        nodes=nodes,
    )
    jobs = replace(jobs, submit_s=came_s, labels=labels)
    note = (
        f"the log begins in the middle of things: what ran before {stamp(from_s, table)} is not all in it; jobs that had "
        "started come when they did, and are not scored"
    )
    if waited_s.any():
        note += f"; {np.count_nonzero(waited_s)} that waited come then"
    recorded = replace(recorded, from_s=max(recorded.from_s, from_s) if whole.selection != "end" else from_s)
    return replace(table, jobs=jobs, recorded=recorded), (note,)


def _had(past: Past, rows: BOOL, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The nodes that some jobs had, by number; none of others, or where they are not all known. names: of the nodes."""
    number, none = {name.partition(":")[0]: at for at, name in enumerate(names)}, ((),) * len(rows)
    if past.node_list is None or len(number) < len(
        names
    ):  # a node of two types is two, and which it was is not known
        return none
    had = {text: tuple(_numbers(text, number)) for text in set(past.node_list)}
    return tuple(had[text] if row else () for text, row in zip(past.node_list, rows.tolist(), strict=True))


def _explained_s(table: JobTable, recorded: Recorded, cluster: Cluster, until_s: float) -> float:
    """When the GPUs in use first explain who waits, where at the beginning of the log they do not; 0: they always do.

    Who waits without a reason would have filled half of what is free, and no job of the same user or account runs, so that
    no limit stops them. until_s: it is so by then.
    """
    past, jobs = recorded.jobs, table.jobs
    reach = reach_of(jobs, cluster)
    size = cluster.node_gpus()
    capacity, shares = reach.nodes @ size, reach.nodes.astype(np.int64) @ reach.nodes.T.astype(np.int64) > 0
    after_s = jobs.labels.eligible_after_s if jobs.labels is not None else 0
    comes_s = (jobs.submit_s + after_s).astype(np.float64)
    waits = past.start_s - comes_s >= ALIKE_S
    started = np.isfinite(past.start_s)
    events = sorted(
        [
            (at, 1, row)
            for at, row in zip(comes_s[waits].tolist(), np.flatnonzero(waits).tolist(), strict=True)
        ]
        + [
            (at, 2, row)
            for at, row in zip(past.start_s[started].tolist(), np.flatnonzero(started).tolist(), strict=True)
        ]
        + [(at, 0, row) for row, at in enumerate(past.end_s.tolist()) if at == at and started[row]]
    )[:_MOST_EVENTS]
    account = jobs.labels.account if jobs.labels is not None else ("",) * len(jobs)
    whose = [(("user", user), ("account", name)) for user, name in zip(jobs.user, account, strict=True)]
    running = Counter[tuple[str, str]]()
    used, waiting, odd = np.zeros(len(capacity), np.int64), set[int](), False
    for place, (at_s, what, row) in enumerate(events):
        if at_s > until_s:
            break
        if what == 1:
            waiting.add(row)
        else:
            used[reach.kind[row]] += jobs.gpus[row] if what else -jobs.gpus[row]
            running.update({key: 1 if what else -1 for key in whose[row] if key[1]})
            waiting.discard(row)
        if not waiting or (place + 1 < len(events) and events[place + 1][0] == at_s):
            continue
        free = (capacity - shares @ used)[reach.kind]
        strange = [
            row for row in waiting if jobs.gpus[row] <= free[row] and not any(map(running.get, whose[row]))
        ]
        if not strange or 2 * sum(jobs.gpus[strange]) < max(free[strange]):
            return at_s if odd else 0.0
        odd = True
    return until_s if odd else 0.0
