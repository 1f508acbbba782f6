"""The machine and the policy behind a log whose site has no files about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forerun.cluster.summary.spans import Spans
from forerun.core.errors import InputError
from forerun.core.scenario.spec import to_data
from forerun.core.trace.table import Trace
from forerun.site.history import read_history
from forerun.site.machine import Part, Pool
from forerun.site.replay.play import policy_name
from forerun.site.replay.replay import replay_log
from forerun.site.shown import ceiling


@dataclass(frozen=True, slots=True)
class Identified:
    """What a log says of its machine and policy.

    Parameters
    ----------
    conf : nodes and partitions as a configuration of Slurm; empty: no partition has nodes that are known.
    nodes : else the nodes, as a scenario has them.
    policy : as a scenario has it.
    how : how it is known, in words.
    notes : what else to know.
    """

    conf: str
    nodes: Sequence[Mapping[str, Any]]
    policy: Mapping[str, Any]
    how: str
    notes: tuple[str, ...]


def identified(path: Path, format: str, zone: str, log: Trace) -> Identified:
    """The machine and the policy of a log, as a replay of its first part has them.

    Parameters
    ----------
    path, format, zone : of the log.
    log : the same as a trace.
    """
    try:
        made = replay_log(read_history(path, format, unit="GPUs", zone=zone or "UTC"), identify=False)
    except InputError as error:
        gpus = np.ceil(log["gpus"]).astype(np.int64)
        at, busy = Spans(log["start_s"], log["end_s"], gpus).levels()
        count = max(ceiling(busy, np.diff(at, append=at[-1]))[0], int(gpus.max()))
        notes = (
            f"no file says what machine it is: {count:,} GPUs, as so many were in use",
            f"the policy is not identified: {error.problems[0].what}",
        )
        how = "easy is taken, as the log identifies no policy"
        return Identified("", [{"count": count, "gpus": 1}], {"name": "easy"}, how, notes)
    pools, card = made.system.pools, made.card
    how = f"no file names the policy; history's first part is best explained by {policy_name(card.policy)}"
    if card.named is None:
        how += ", but it does not tell that policy from others"
    policy = {name: value for name, value in to_data(card.policy).items() if name in ("name", "order")}
    parts = [(part, _partitions(part, pool)) for pool in pools for part in _parts(pool)]
    nodes = [{"name": one.name, "count": one.nodes, "gpus": one.gpus_per_node} for one, _ in parts]
    found = tuple(f"no file says it, the log does: {one.what} ({one.evidence})" for one in made.findings)
    partitions = dict.fromkeys(name for _, names in parts for name in names)
    conf = [
        f"NodeName={one.name} Gres=gpu:{one.gpu_type + ':' if one.gpu_type else ''}{one.gpus_per_node}"
        for one, _ in parts
    ]
    conf += [
        f"PartitionName={name} Nodes={','.join(one.name for one, names in parts if name in names)}"
        for name in partitions
    ]
    return Identified("\n".join(conf) + "\n" if partitions else "", nodes, policy, how, found)


def _parts(pool: Pool) -> Sequence[Part]:
    """The parts of a pool; one whose nodes have no names gets some."""
    if pool.parts:
        return pool.parts
    name = f"{pool.name.replace('+', '-')}-[1-{pool.nodes}]"
    return (Part(name=name, nodes=pool.nodes, gpus_per_node=pool.gpus_per_node, gpu_type=pool.gpu_type),)


def _partitions(part: Part, pool: Pool) -> list[str]:
    """The partitions that may use a part of a pool."""
    return [name for name in (part.partitions or pool.partition).split(",") if name]
