"""CPUs and memory, which nodes have beside their GPUs and no policy here counts: where they would have bound."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.summary.causes import seats_by_node
from forerun.cluster.summary.spans import Spans, Stretches


def uncounted(record: Record, stretches: Stretches) -> tuple[str, ...]:
    """Notes on jobs that ran where fewer CPUs or less memory was free than they ask for, of what log and nodes both say.

    A job's CPUs are on its nodes as its GPUs are; where it is not known on which it ran, all nodes are one.
    """
    labels, groups = record.setting.jobs.labels, record.setting.cluster.groups
    if labels is None:
        return ()
    resources = {
        "CPUs": (labels.cpus, [group.cpus for group in groups]),
        "memory": (labels.memory_bytes, [group.memory_bytes for group in groups]),
    }
    resources = {name: one for name, one in resources.items() if one[0].any() and any(one[1])}
    if not resources or not len(stretches.row):
        return ()
    counts = [group.count for group in groups]
    which, node, gpus = np.arange(len(stretches.row)), np.zeros(len(stretches.row), np.int64), stretches.gpus
    if record.names_gpus:
        seats = record.seats(stretches.row, stretches.from_s)
        begin, node, _, gpus = seats_by_node(seats, record.setting.cluster.node_gpus())
        which = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    row, from_s, to_s = stretches.row[which], stretches.from_s[which], stretches.to_s[which]
    notes = []
    for name, (asked, of_group) in resources.items():
        there = np.repeat(np.array(of_group, np.int64), counts)
        there = there if record.names_gpus else np.array([there.sum() * there.all()])
        share = asked[row] * gpus // stretches.gpus[which]
        short, node_s, nodes = _short(row, node, Spans(from_s, to_s, share), there)
        if len(short):
            where = f"for {node_s / 3600:,.3g} h"
            if record.names_gpus:
                where = f"on {nodes} nodes, for {node_s / 3600:,.3g} node hours"
            notes.append(
                f"{name} would have bound and are not simulated: {len(short)} of {len(labels.cpus)} jobs start where fewer "
                f"are free than they ask for; more are in use than there are {where}"
            )
    return tuple(notes)


def _short(row: I64, node: I64, spans: Spans, there: I64) -> tuple[I64, float, int]:
    """The jobs that start where more is in use than a node has, for how long that is so, and of how many nodes.

    Parameters
    ----------
    row, node, spans : by stretch on a node, its job, the node, and what it has of it.
    there : what each node has; 0: not said.
    """
    jobs, seconds, nodes = [np.zeros(0, np.int64)], 0.0, 0
    order = np.argsort(node, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(node[order])) + 1):
        most = int(there[node[mine[0]]])
        at_s, used = Spans(spans.from_s[mine], spans.to_s[mine], spans.gpus[mine]).levels()
        over = used > most
        if most == 0 or not over.any():
            continue
        nodes += 1
        length_s: F64 = np.diff(at_s, append=at_s[-1])
        seconds += float(length_s[over].sum())
        jobs.append(row[mine[over[np.searchsorted(at_s, spans.from_s[mine])]]])
    return np.unique(np.concatenate(jobs)), seconds, nodes
