"""The queue on named nodes: set to a state, it decides and plays on as a run that came to it."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record

from ..conftest import cases
from .test_slurm_backfill import drawn_policy, drawn_site

CASES = cases(0)


def test_a_queue_that_is_set_to_a_state_plays_on_as_the_run_that_came_to_it() -> None:
    rng = np.random.default_rng(8)
    for _ in range(max(CASES // 4, 40)):
        made, policy = drawn_site(rng), drawn_policy(rng).with_(bf_interval_s=0.0)
        rules, other = (NodeQueueRules(made, Record(made), policy.terms(), policy.order) for _ in range(2))
        queue, terms, now_s = rules.queue, rules.terms, float(rng.integers(0, 1500))
        nq.advance(queue, terms, now_s)
        run, nodes = queue.nodes.runs[: queue.meta[qs.RUNNING]].copy(), queue.nodes
        seats = [
            nodes.seat_node[first : first + count]
            for first, count in zip(nodes.seat_first[run], nodes.seat_count[run], strict=True)
        ]
        first = np.cumsum([0, *map(len, seats)]).astype(np.int64)
        named = np.concatenate([*seats, np.zeros(0, np.int64)])
        waiting = rng.permutation(queue.waiting[: queue.meta[qs.WAITING]])
        then_s = float(np.nextafter(now_s, -np.inf))
        lost = nq.set_state(
            other.queue, terms, then_s, run, queue.first_start[run], first, named, 0 * named, waiting
        )
        assert lost == 0
        assert other.queue.waiting[: len(waiting)].tolist() == queue.waiting[: len(waiting)].tolist()
        for each in (queue, other.queue):
            nq.advance(each, terms, np.inf)
        later = queue.end >= now_s
        assert queue.end[later].tolist() == other.queue.end[later].tolist()


def test_jobs_whose_nodes_are_not_known_are_put_where_they_would_start() -> None:
    rng = np.random.default_rng(9)
    made = drawn_site(rng)
    rules = NodeQueueRules(made, Record(made), drawn_policy(rng).terms(), drawn_policy(rng).order)
    queue, nodes = rules.queue, rules.queue.nodes
    rows = np.arange(len(made.jobs))
    none = np.zeros(len(rows) + 1, np.int64)
    lost = nq.set_state(
        queue, rules.terms, 1.0, rows, np.zeros(len(rows)), none, none[:0], none[:0], rows[:0]
    )
    assert 0 < lost < len(rows), "more GPUs are in use than there are"
    assert np.count_nonzero(nodes.seat_count[rows]) == len(rows) - lost
    assert (nodes.free >= 0).all()
