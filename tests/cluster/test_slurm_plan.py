"""The compiled plan of `slurm-backfill` against the model of slurmctld, state by state, and its runs against recordings."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels import slurm_rule
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.queue_arrays import blank_queue, words_of
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.reach import WHOLE_NODE, Entries, Reach
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.orders.multifactor import Multifactor, Partition
from forerun.cluster.policies.slurm_backfill import SlurmBackfill

from ..conftest import cases, shared_path
from .slurm_reference import Job, Machine, Ran, Running, State, alike, plan, read_run, read_trace, replay

HERE = Path(__file__).parent / "slurm"
KEPT = sorted(path.name.removesuffix(".trace.tsv") for path in HERE.glob("*.trace.tsv"))

Starts = set[tuple[str, frozenset[int]]]


def compiled(state: State, policy: SlurmBackfill) -> Starts:
    """What the compiled plan starts in a state; nodes are numbered from 1."""
    jobs = (*(one.job for one in state.running), *state.waiting)
    size = np.array([state.machine.gpus[node] for node in sorted(state.machine.gpus)], np.int64)
    count = len(jobs)
    wide, asked, limit_s = (
        np.array([getattr(job, name) for job in jobs], np.int64) for name in ("nodes", "gpus", "limit_s")
    )
    each = np.where([job.exclusive for job in jobs], WHOLE_NODE, asked)
    names = sorted(state.machine.partitions) or [""]
    lines = np.array(
        [[node in state.machine.reach(name) for node in sorted(state.machine.gpus)] for name in names]
    )
    asks = [(name, job) for job in jobs for name in job.partitions]
    kinds = {(name, job.feature): job for name, job in asks}
    nodes_of = np.array(
        [
            [node in state.machine.usable(job, name) for node in sorted(state.machine.gpus)]
            for (name, _), job in kinds.items()
        ]
    )
    kind = np.array([list(kinds).index((name, job.feature)) for name, job in asks], np.int64)
    first = np.cumsum([0, *(len(job.partitions) for job in jobs)]).astype(np.int64)
    apart = tuple(name for job in jobs for name in job.partitions)
    line, of = (
        np.array([names.index(name) for name in apart], np.int64),
        np.repeat(np.arange(count), np.diff(first)),
    )
    entries = Entries(first, Reach(nodes_of, kind, wide[of], wide[of], each[of], line, lines), apart)
    queue = blank_queue(size, entries, wide * asked, limit_s.astype(np.float64), (), policy.terms())
    queue.ranks.tier[:] = [state.machine.tiers.get(name, 1) for name in apart]
    for at, one in enumerate(state.running):
        queue.nodes.chosen[:] = words_of(np.isin(np.arange(len(size)) + 1, list(one.nodes))[None, :])[0]
        slurm_rule.start(queue, policy.terms(), at, one.start_s)
    for at in range(len(state.running), count):
        qs.queue_up(queue, at, state.now_s, policy.terms())
    queue.clock[qs.WAKE_S] = state.now_s
    nq.decide(queue, policy.terms(), state.now_s, 0)
    nodes = queue.nodes
    starts = nodes.starts[: nodes.meta[npl.STARTS]].tolist()
    seats = [
        nodes.seat_node[nodes.seat_first[at] : nodes.seat_first[at] + nodes.seat_count[at]] for at in starts
    ]
    return {(jobs[at].id, frozenset((on + 1).tolist())) for at, on in zip(starts, seats, strict=True)}


def modelled(state: State) -> Starts:
    return {(one.job.id, one.nodes) for one in plan(state).starts}


@pytest.mark.parametrize("name", KEPT)
def test_printed_states_are_decided_alike(name: str) -> None:
    jobs = {job.id: job for job in read_trace(HERE / f"{name}.trace.tsv")}
    for now_s, waiting, running, starts, _ in json.loads((HERE / f"{name}.plans.json").read_text()):
        on = tuple(Running(jobs[job], start_s, frozenset(nodes)) for job, start_s, nodes in running)
        machine = Machine(dict.fromkeys(range(1, 5), 8))
        state = State(now_s, machine, tuple(jobs[job] for job in waiting), on)
        assert compiled(state, SlurmBackfill()) == {(job, frozenset(nodes)) for job, nodes in starts}, now_s


def parts(draw: random.Random, gpus: Mapping[int, int]) -> tuple[dict[str, frozenset[int]], dict[str, int]]:
    """None, or up to three partitions that may share nodes or have their own, and their tiers."""
    names = ("p", "q", "r")[: draw.randrange(4)]
    on = {name: frozenset(node for node in gpus if draw.random() < 0.6) or frozenset(gpus) for name in names}
    if names and draw.random() < 0.3:
        mine = {node: names[node % len(names)] for node in gpus}
        on = {name: frozenset(node for node in gpus if mine[node] == name) for name in names}
    return on, {name: draw.choice((1, 1, 2)) for name in names}


def drawn(draw: random.Random) -> tuple[State, SlurmBackfill]:
    """Up to seventy nodes with jobs on some of them, and up to forty that wait."""
    gpus = {node: draw.choice((4, 8)) for node in range(1, draw.choice((3, 6, 70)))}
    interval_s, resolution_s = 30, draw.choice((1, 60, 300))
    window_s, now_s = draw.choice((7_200, 86_400)), 100_000 + draw.randrange(600)
    features = {node: draw.choice(("a", "b")) for node in gpus}
    machine = Machine(gpus, (), interval_s, resolution_s, window_s, 500, *parts(draw, gpus), features)
    free, running = dict(gpus), list[Running]()

    def job(name: str) -> Job:
        wide = draw.choice((1, 1, 1, 2, min(4, len(gpus))))
        limit_s = 60 * draw.choice((1, 5, 20, 45, 90, 300, 1_000, 2_000))
        names = sorted(machine.partitions) or [""]
        mine = tuple(draw.sample(names, draw.choice((1, 1, min(2, len(names))))))
        feature = draw.choice(("", "", "a", "b"))
        return Job(name, 0.0, 1.0, wide, draw.choice((1, 2, 4)), limit_s, draw.random() < 0.2, mine, feature)

    for number in range(draw.randrange(3 * len(gpus))):
        one = job(f"r{number}")
        share = {node: gpus[node] if one.exclusive else one.gpus for node in gpus}
        open_nodes = [n for n in sorted(machine.usable(one, one.partitions[0])) if free[n] >= share[n]]
        if len(open_nodes) >= one.nodes:
            on = frozenset(draw.sample(open_nodes, one.nodes))
            for node in on:
                free[node] -= share[node]
            running.append(Running(one, now_s - draw.randrange(one.limit_s), on))
    waiting = tuple(job(f"w{number}") for number in range(draw.randrange(1, 40)))
    policy = SlurmBackfill(bf_resolution_s=float(resolution_s), bf_window_s=float(window_s))
    return State(now_s, machine, waiting, tuple(running)), policy


def test_drawn_states_are_decided_alike() -> None:
    draw, started = random.Random(3), 0
    for _ in range(cases(150, 2_000)):
        state, policy = drawn(draw)
        found = compiled(state, policy)
        assert found == modelled(state), state
        started += len(found)
    assert started > 150


def played(jobs: Sequence[Job], machine: Machine) -> dict[str, Ran]:
    """A whole run of the product, whose second 0 is that of the first submission; nodes are numbered from 1."""
    origin_s = math.floor(min(job.submit_s for job in jobs))
    jobs = sorted(jobs, key=lambda job: max(job.submit_s, job.begin_s))
    labels = JobLabels.of(
        len(jobs),
        eligible_after_s=[max(math.floor(job.begin_s) - math.floor(job.submit_s), 0) for job in jobs],
        nodes=[job.nodes for job in jobs],
        exclusive=[job.exclusive for job in jobs],
        gpu_type=[job.feature for job in jobs],
        partition=[",".join(job.partitions) for job in jobs],
    )
    size = np.array([machine.gpus[node] for node in sorted(machine.gpus)], np.int64)
    made = Jobs.of(
        [math.floor(max(job.submit_s, job.begin_s)) - origin_s for job in jobs],
        [job.nodes * job.gpus for job in jobs],
        [round(min(job.duration_s, job.limit_s + 30)) for job in jobs],
        id=[job.id for job in jobs],
        requested_s=[job.limit_s for job in jobs],
        labels=labels,
    )
    cluster = Cluster(
        tuple(
            NodeGroup(f"n{at}", 1, gpus, machine.features.get(1 + at, ""))
            for at, gpus in enumerate(size.tolist())
        ),
        partitions={name: tuple(sorted(node - 1 for node in on)) for name, on in machine.partitions.items()},
    )
    setting = Setting(made, cluster, None, 60, origin_s=origin_s)
    record = Record(setting)
    order = Multifactor(partitions={name: Partition(tier=tier) for name, tier in machine.tiers.items()})
    policy = SlurmBackfill(
        order=order, bf_resolution_s=float(machine.resolution_s), bf_window_s=float(machine.window_s)
    )
    run_rules(NodeQueueRules(setting, record, policy.terms(), policy.order))
    node_of = np.repeat(np.arange(len(size)), size)
    on = {
        row: frozenset(1 + int(node_of[gpu]) for first, count in runs for gpu in range(first, first + count))
        for (row, _), runs in record.places.items()
    }
    return {
        job.id: Ran(origin_s + record.first_start_s[row], origin_s + record.end_s[row], on[row])
        for row, job in enumerate(jobs)
    }


def test_whole_runs_are_those_of_the_model() -> None:
    """Every start, to the second, and its nodes."""
    draw = random.Random(5)
    for _ in range(cases(25, 400)):
        gpus = dict.fromkeys(range(1, draw.choice((3, 5, 9))), 8)
        features = {node: draw.choice(("a", "b")) for node in gpus}
        window_s = draw.choice((7_200, 86_400))
        machine = Machine(gpus, (), 30, 60, window_s, 500, *parts(draw, gpus), features)
        names, submit_s, jobs = sorted(machine.partitions) or [""], draw.randrange(900), list[Job]()
        for number in range(draw.randrange(5, 45)):
            submit_s += draw.choice((0, 0, 1, 2, 20, 100, 600))
            limit_s = 60 * draw.choice((1, 5, 20, 45, 90, 300))
            mine = tuple(draw.sample(names, draw.choice((1, 1, min(2, len(names))))))
            gpus_each, feature = draw.choice((1, 2, 4, 8)), draw.choice(("", "", "a", "b"))
            seconds = draw.randint(1, limit_s)
            one = Job(f"j{number}", submit_s + 0.5, seconds, 1, gpus_each, limit_s, False, mine, feature)
            if not (most := min(len(machine.usable(one, name)) for name in mine)):
                one, most = replace(one, feature=""), min(len(machine.reach(name)) for name in mine)
            begin_s = math.floor(one.submit_s) + 60.0 * draw.randrange(40) if draw.random() < 0.15 else 0.0
            jobs.append(replace(one, nodes=draw.randint(1, most), begin_s=begin_s))
        assert played(jobs, machine) == replay(jobs, machine), (jobs, machine)


def test_recorded_micro_runs() -> None:
    """Of all jobs that waited, at least 95 % start in the same cycle."""
    same = waited = 0.0
    for kind in ("whole", "shared"):
        for number in range(1, 9):
            name = f"micro-{kind}{number}"
            jobs = read_trace(shared_path("golden", "slurm", f"{name}.trace.tsv"))
            ran = read_run(shared_path("golden", "slurm", f"{name}.bf4.tsv"))
            mine = played(jobs, Machine(dict.fromkeys(range(1, 5), 8)))
            late = [job for job in jobs if max(ran[job.id].start_s, mine[job.id].start_s) - job.submit_s > 34]
            same += sum(abs(ran[job.id].start_s - mine[job.id].start_s) <= 34 for job in late)
            waited += len(late)
    assert same / waited >= 0.95


@pytest.mark.parametrize(("trace", "nodes"), [("w1", 16), ("w2", 8), ("w3", 8)])
def test_recorded_traces(trace: str, nodes: int) -> None:
    """Mean waits within 7 % of slurmctld's. On w1 and w3 it is as far from itself where it plans at other seconds."""
    jobs = read_trace(shared_path("tools", "slurm-lockstep", "traces", f"{trace}.tsv"))
    ran = read_run(shared_path("golden", "slurm", f"{trace}-bf{nodes}.tsv"))
    assert (
        abs(alike(jobs, played(jobs, Machine(dict.fromkeys(range(1, nodes + 1), 8))), ran).mean_wait_off)
        <= 0.07
    )
