"""From a live run to an ordinary result: the tables of a simulation, and where the time of real slots and jobs went."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome
from forerun.cluster.summary.summarize import summarize
from forerun.core.domain import code_of, with_code
from forerun.core.registry import member_name
from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.result.timeline import Timeline
from forerun.live.compare import Prediction, predictions_table
from forerun.live.stays import STATES, State, Stay

STAYS: Final = TableSchema(
    "stays",
    (
        Column("job", "", "name"),
        Column("start", "", "number of this start of the job, from 1"),
        Column("slots", "slots", "how many it had"),
        Column("slot_numbers", "", "which, by node, as a:0,1 b:3"),
        Column("from_s", "s", "the start was sent"),
        Column("first_step_s", "s", "it began to work; nan: never"),
        Column("asked_s", "s", "it was asked to leave or ended by force; nan: never"),
        Column("left_s", "s", "its ranks said that they leave; nan: never"),
        Column("to_s", "s", "all its slots were free again; nan: not yet"),
        Column("why", "", "finished, drained or failed; empty: its ranks did not say"),
        Column("step", "iterations", "done by then"),
        Column("lost_steps", "iterations", "done, and in no checkpoint"),
    ),
    "one row a start of a job, in order",
)

SLOTS: Final = TableSchema(
    "slots",
    (
        Column("slot", "", "node and number"),
        Column("job", "", "whose slot it was"),
        Column("state", "", "starting, useful, lost or draining"),
        Column("from_s", "s", "begin"),
        Column("to_s", "s", "end, not included"),
    ),
    "one row a stretch in which a slot did one thing",
)

#: figures of a simulation that stand first, and what stands in their place
HEADLINE_OF: Final = {"gpu_time_useful_share": "slot_time_useful_share"}

_MEANINGS: Final[Mapping[str, str]] = {
    "starting": "from the start command to the first step",
    "useful": "steps that count",
    "lost": "steps after the last checkpoint of ranks that failed; they were done again",
    "draining": "from the request to leave to the end of the last process",
}


def live_result(
    outcome: Outcome,
    stays: Sequence[Stay],
    nodes: Mapping[str, int],
    predictions: Sequence[Prediction] = (),
    notes: Sequence[str] = (),
) -> Result:
    """The result of a live run.

    Parameters
    ----------
    outcome : inputs, and the record of what the policy decided.
    stays : of all jobs.
    nodes : slots by node, in the cluster's order.
    predictions : what a simulation of the same jobs says (default: none).
    notes : what a reader must know, besides the domain's own (default: nothing).
    """
    base = summarize(outcome)
    jobs = base.tables["jobs"]
    first_s = float(np.min(jobs["submit_s"])) if len(jobs) else 0.0
    last_s = max([first_s, *(at for stay in stays for at in _instants(stay))])
    pieces = [
        (f"{node} slot {number}", stay.job, state, from_s, to_s)
        for stay in stays
        for node, numbers in stay.slots.items()
        for state, from_s, to_s in stay.parts(node, last_s)
        for number in numbers
    ]
    lost_steps = sum(stay.lost_steps for stay in stays)
    tables = {**base.tables, "stays": _stays_table(stays), "slots": Table.of_rows(SLOTS, pieces)}
    if predictions:
        tables["predictions"] = predictions_table(predictions)
    slot_ledger = _slot_ledger(stays, sum(nodes.values()) * (last_s - first_s), last_s)
    job_ledger = _job_ledger(stays, jobs)
    result = replace(
        base,
        headline=tuple(HEADLINE_OF.get(name, name) for name in base.headline),
        why=_why(member_name(type(outcome.inputs.scenario.policy)), slot_ledger, job_ledger, base.summary),
        summary={
            # What the policy's own model says of GPU time is not what was observed.
            **{name: value for name, value in base.summary.items() if not name.startswith("gpu_time_")},
            "starts": len(stays),
            "failed_starts": sum(stay.why == "failed" for stay in stays),
            "lost_steps": lost_steps,
            **{f"slot_time_{part}_share": share for part, share in slot_ledger.shares().items()},
        },
        tables=tables,
        ledgers=(slot_ledger, *job_ledger),
        timeline=_timeline(pieces, nodes),
        notes=(*base.notes, *notes),
        provenance={**base.provenance, "live": True},
    )
    return with_code(result, code_of(outcome.inputs.scenario))


def _why(policy: str, slots: Ledger, job: Sequence[Ledger], summary: Mapping[str, Any]) -> str:
    """One sentence: what the slots did, what the mean job's time went into besides work, and how many were rejected."""
    said = f"under {policy} {slots.shares()['useful']:.0%} of the slot time was useful work"
    if job:
        shares = job[0].shares()
        largest = max((part for part in shares if part != "useful"), key=lambda part: shares[part])
        said += f"; {shares[largest]:.0%} of the time of a job was {largest}"
    refused = int(summary["refused_jobs"])
    return said + (f"; {refused} {'job was' if refused == 1 else 'jobs were'} rejected" if refused else "")


def of_known_jobs(record: Record, names: Sequence[str]) -> Record:
    """A record without its spare rows, and with the names that the jobs have in the run.

    Parameters
    ----------
    record : of a policy at work on real jobs.
    names : of the known jobs, by row.
    """
    rows, count = len(record.setting.jobs), len(names)
    setting = record.setting
    known = copy.copy(record)
    known.setting = replace(
        setting,
        jobs=replace(setting.jobs.take(range(count)), id=tuple(names)),
        costs=setting.costs and replace(setting.costs, row=setting.costs.row[:count]),
        slowness=None if setting.slowness is None else setting.slowness[:count],
    )
    for name, column in vars(record).items():
        if isinstance(column, np.ndarray) and column.shape[:1] == (rows,):
            setattr(known, name, column[:count])
    return known


def _instants(stay: Stay) -> list[float]:
    """The last instants that are known of a stay."""
    known = (stay.start_s, stay.first_step_s, stay.saved_s, stay.left_s, *stay.free_s.values())
    return [at for at in known if at is not None]


def _stays_table(stays: Sequence[Stay]) -> Table:
    def known(at_s: float | None) -> float:
        return math.nan if at_s is None else at_s

    return Table.of_rows(
        STAYS,
        (
            (
                stay.job,
                stay.epoch,
                stay.count,
                " ".join(f"{node}:{','.join(map(str, numbers))}" for node, numbers in stay.slots.items()),
                stay.start_s,
                known(stay.first_step_s),
                known(stay.asked_s),
                known(stay.left_s),
                max(stay.free_s.values()) if stay.free_s.keys() >= stay.slots.keys() else math.nan,
                stay.why,
                stay.step,
                stay.lost_steps,
            )
            for stay in stays
        ),
    )


def _slot_ledger(stays: Sequence[Stay], whole_slot_s: float, last_s: float) -> Ledger:
    """Where the time of all slots went."""
    parts = dict.fromkeys(("useful", "starting", "draining", "lost"), 0.0)
    for stay in stays:
        for node, numbers in stay.slots.items():
            for state, from_s, to_s in stay.parts(node, last_s):
                parts[state] += len(numbers) * (to_s - from_s)
    free = whole_slot_s - math.fsum(parts.values())
    meanings = {**_MEANINGS, "free": "no job had it, or its node was away"}
    return Ledger("slot time", "slot-s", whole_slot_s, {**parts, "free": max(0.0, free)}, meanings)


def _job_ledger(stays: Sequence[Stay], jobs: Table) -> tuple[Ledger, ...]:
    """Where the time of the mean ended job went, from its submission to its end; none if no job ended."""
    wholes: list[float] = []
    parts: dict[str, float] = dict.fromkeys((*STATES, "waiting"), 0.0)
    for job, submit_s, end_s in zip(*(jobs[name].tolist() for name in ("job", "submit_s", "end_s"))):
        if math.isnan(end_s):
            continue
        wholes.append(end_s - submit_s)
        at = submit_s
        for stay in (stay for stay in stays if stay.job == job):
            node = max(stay.slots, key=lambda node: stay.end_s(node, end_s))
            for state, from_s, to_s in stay.parts(node, end_s):
                from_s, to_s = max(from_s, at), min(to_s, end_s)
                if to_s > from_s:
                    parts["waiting"] += from_s - at
                    parts[state] += to_s - from_s
                    at = to_s
        parts["waiting"] += end_s - at
    if not wholes:
        return ()
    means = {part: amount / len(wholes) for part, amount in parts.items()}
    meanings = {**_MEANINGS, "waiting": "it had no slots, or its end was not counted yet"}
    return (Ledger("time of a job", "s", math.fsum(wholes) / len(wholes), means, meanings),)


def _timeline(pieces: Sequence[tuple[str, str, State, float, float]], nodes: Mapping[str, int]) -> Timeline:
    """One track a slot."""
    names = [(node, f"{node} slot {number}") for node, count in nodes.items() for number in range(count)]
    code = {name: at for at, (_, name) in enumerate(names)}
    known = [piece for piece in pieces if piece[0] in code]
    return Timeline(
        entities=tuple(name for _, name in names),
        states=STATES,
        entity=np.array([code[slot] for slot, *_ in known], np.int64),
        state=np.array([STATES.index(state) for _, _, state, _, _ in known], np.int64),
        from_s=np.array([from_s for *_, from_s, _ in known], np.float64),
        to_s=np.array([to_s for *_, to_s in known], np.float64),
        label=np.array([f"job {job}" for _, job, *_ in known], dtype=object),
        groups=tuple(node for node, _ in names),
    )
