"""Jobs, nodes and throughput as arrays: what a run's inputs are made of.

All records are frozen. Times are whole seconds since the trace's own origin, GPUs are counted, throughput is in iterations
per second; columns are numpy arrays with one element a job, jobs sorted stably by submission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I8 = npt.NDArray[np.int8]
F64 = npt.NDArray[np.float64]
BOOL = npt.NDArray[np.bool_]

#: the deadline of a job that has none; far beyond any trace, small enough that sums stay in 64 bits
NO_DEADLINE_S: Final = 1 << 60
#: the requested time of a job that asked for none, or for an unlimited one
NO_REQUEST_S: Final = 1 << 60
_UNFILLED: Final[I64] = np.zeros(0, np.int64)
#: an instant after everything: when a row is spare that a job submitted later will take
NEVER_S: Final = 1 << 62


class Columns:
    """Columns with one element a job: texts as tuples, numbers as arrays, columns of their own, or none."""

    __slots__: tuple[str, ...] = ()

    def take(self, rows: Sequence[int] | I64) -> Self:
        """Those of some rows, in that order (the caller keeps jobs sorted by submission)."""
        index = np.asarray(rows, np.int64)
        return type(self)(*(_taken(getattr(self, name), index) for name in self.__slots__))

    def followed_by(self, others: Self) -> Self:
        """These, then the others."""
        return type(self)(*(_joined(getattr(self, name), getattr(others, name)) for name in self.__slots__))


def _taken(column: Any, rows: I64) -> Any:
    if column is None or isinstance(column, Columns):
        return column and column.take(rows)
    return tuple(map(column.__getitem__, rows.tolist())) if isinstance(column, tuple) else column[rows]


def _joined(one: Any, other: Any) -> Any:
    if one is None or isinstance(one, Columns):
        return one and one.followed_by(other)
    return one + other if isinstance(one, tuple) else np.concatenate((one, other))


#: columns of one job of which they are not recorded
_NO_TEXT: Final = ("",)


def _no_count() -> I64:
    return np.zeros(1, np.int64)


def _no_number() -> F64:
    return np.zeros(1)


@dataclass(frozen=True, slots=True)
class JobLabels(Columns):
    """What a log says of jobs that only some policies ask for, one element a job (default: of one job, nothing).

    Parameters
    ----------
    account, partition, qos : names; empty: not recorded.
    eligible_after_s : seconds from the submission until the job could start by itself.
    waited_s : seconds for which it could have started before it comes, as where a log begins in the middle of things.
    nice, site_factor : what is subtracted from and added to its priority.
    nodes : how many nodes it takes; 0: not recorded.
    gpu_type : of the GPUs that it asks for; empty: any.
    only_on : numbers of the nodes that it may use, where these are fewer than those of its partitions; empty: all.
    exclusive : whether it takes its nodes whole.
    array : its array, as `4%2`, if so many of its tasks may run at once; empty: any number.
    cpus, memory_bytes : that it asks for on all its nodes together; 0: not recorded.
    after : the job before it in the log after whose end it comes, in place of its submission; empty: none. So do restarts
        of a job that lost its GPUs.
    after_delay_s : how long after that end it comes.
    attempt : which run of its job it is, from 1 (0: not recorded); a later one does again what the one before it lost.
    asked_gpus : GPUs that it asks for, where it has all of its nodes; 0: as many as it has.
    billing : what a second of it is charged to its account; nan: as many as it has GPUs.
    """

    account: tuple[str, ...] = _NO_TEXT
    partition: tuple[str, ...] = _NO_TEXT
    qos: tuple[str, ...] = _NO_TEXT
    eligible_after_s: I64 = field(default_factory=_no_count)
    waited_s: I64 = field(default_factory=_no_count)
    nice: F64 = field(default_factory=_no_number)
    site_factor: F64 = field(default_factory=_no_number)
    nodes: I64 = field(default_factory=_no_count)
    gpu_type: tuple[str, ...] = _NO_TEXT
    only_on: tuple[tuple[int, ...], ...] = ((),)
    exclusive: BOOL = field(default_factory=lambda: np.zeros(1, np.bool_))
    array: tuple[str, ...] = _NO_TEXT
    cpus: I64 = field(default_factory=_no_count)
    memory_bytes: I64 = field(default_factory=_no_count)
    after: tuple[str, ...] = _NO_TEXT
    after_delay_s: I64 = field(default_factory=_no_count)
    attempt: I64 = field(default_factory=_no_count)
    asked_gpus: I64 = field(default_factory=_no_count)
    billing: F64 = field(default_factory=lambda: np.full(1, np.nan))

    @classmethod
    def of(cls, count: int, **given: Sequence[Any] | npt.ArrayLike) -> JobLabels:
        """Labels of `count` jobs; what is left out is not recorded, or 0. given: by name; a number stands for all."""
        nothing = cls()
        unknown = given.keys() - set(cls.__slots__)
        assert not unknown, f"no labels {sorted(unknown)}"
        return cls(*(_filled(getattr(nothing, name), given.get(name), count) for name in cls.__slots__))


def _filled(nothing: Any, given: Any, count: int) -> Any:
    """A column of `count` jobs. nothing: that of one job of which it is not recorded."""
    if isinstance(nothing, tuple):
        return tuple(given or nothing * count)
    values = nothing if given is None else np.asarray(given, nothing.dtype)
    return np.broadcast_to(values, count).copy()


@dataclass(frozen=True, slots=True)
class Jobs(Columns):
    """Jobs as columns, one element a job; in a run sorted stably by `submit_s`. `Jobs.of` fills columns that a log lacks.

    Parameters
    ----------
    file_row : row number in the file, from 0.
    id : the job's name.
    submit_s : when it was submitted.
    deadline_s : absolute; NO_DEADLINE_S where there is none.
    iterations : steps of the global batch.
    kind : row of the profile for (model, batch). -1: none; the job runs rigid, for `duration_s` on `gpus` GPUs.
    model, batch : what it trains, and its global batch; empty and 0: not known.
    gpus : GPUs that it asks for.
    duration_s : seconds on these.
    best_effort : whether it goes without a deadline.
    user : who submitted it.
    written_deadline_s : the deadline in the file, also for best-effort jobs, whose `deadline_s` is none.
    requested_s : the time limit that it asked for; NO_REQUEST_S: none (default: none for all).
    labels : account, partition, QOS and the like (default: the log has none).
    leaves_s : when it leaves the queue if it has not started; NEVER_S: never (default for all). How long such a job would
        run is not known: where it starts it leaves at once, after a `duration_s` of a second, and no figure counts it.
    """

    file_row: I64
    id: tuple[int | str, ...]
    submit_s: I64
    deadline_s: I64
    iterations: I64
    kind: I64
    model: tuple[str, ...]
    batch: I64
    gpus: I64
    duration_s: I64
    best_effort: BOOL
    user: tuple[str, ...]
    written_deadline_s: I64
    requested_s: I64 = field(default_factory=lambda: _UNFILLED)
    labels: JobLabels | None = None
    leaves_s: I64 = field(default_factory=lambda: _UNFILLED)

    def __post_init__(self) -> None:
        for name, nothing in (("requested_s", NO_REQUEST_S), ("leaves_s", NEVER_S)):
            if getattr(self, name) is _UNFILLED:
                object.__setattr__(self, name, np.full(len(self.id), nothing, np.int64))

    @classmethod
    def of(
        cls,
        submit_s: npt.ArrayLike,
        gpus: npt.ArrayLike,
        duration_s: npt.ArrayLike,
        *,
        id: Sequence[int | str] = (),
        iterations: npt.ArrayLike = 0,
        kind: npt.ArrayLike = -1,
        model: Sequence[str] = (),
        batch: npt.ArrayLike = 0,
        deadline_s: npt.ArrayLike = NO_DEADLINE_S,
        best_effort: npt.ArrayLike = False,
        user: Sequence[str] = (),
        requested_s: npt.ArrayLike = NO_REQUEST_S,
        labels: JobLabels | None = None,
        leaves_s: npt.ArrayLike = NEVER_S,
    ) -> Jobs:
        """Jobs in the order of a file, of whose columns only three must be known.

        Parameters
        ----------
        deadline_s : as written in the file (default: no deadlines).
        best_effort : which jobs go without theirs (default: none but those that have no deadline).
        id : default: the numbers from 0.
        """
        count = np.size(submit_s)
        given = (submit_s, gpus, duration_s, iterations, kind, batch, deadline_s, requested_s, leaves_s)
        whole = [np.broadcast_to(np.asarray(values, np.int64), count).copy() for values in given]
        submitted, asked, seconds, steps, row, samples, written, limit, leaves = whole
        due = np.where(np.asarray(best_effort, np.bool_), NO_DEADLINE_S, written)
        return cls(
            file_row=np.arange(count),
            id=tuple(id or range(count)),
            submit_s=submitted,
            deadline_s=due,
            iterations=steps,
            kind=row,
            model=tuple(model or ("",) * count),
            batch=samples,
            gpus=asked,
            duration_s=seconds,
            best_effort=due >= NO_DEADLINE_S,
            user=tuple(user or ("",) * count),
            written_deadline_s=written,
            requested_s=limit,
            labels=labels,
            leaves_s=leaves,
        )

    def __len__(self) -> int:
        return len(self.id)

    @property
    def has_deadline(self) -> BOOL:
        """Which jobs have a deadline."""
        return self.deadline_s < NO_DEADLINE_S

    @property
    def censored(self) -> BOOL:
        """Which jobs leave the queue if they have not started."""
        return self.leaves_s < NEVER_S

    @property
    def request_s(self) -> F64:
        """The requested times as float64[jobs], infinite where there is none."""
        return np.where(self.requested_s < NO_REQUEST_S, self.requested_s, np.inf)

    def predecessor(self) -> I64:
        """The row of the job after whose end each comes; -1: it comes at its submission, as where that job is not here."""
        row: I64 = np.full(len(self), -1, np.int64)
        if self.labels is None or not any(self.labels.after):
            return row
        known: dict[str, int] = {}  # earlier jobs only, so that no job waits for itself
        for at, (name, after) in enumerate(zip(self.id, self.labels.after, strict=True)):
            row[at] = known.get(after, -1) if after else -1
            known[str(name)] = at
        return row

    def followed_by(self, others: Jobs) -> Jobs:
        """These jobs, then the others."""
        one, other = self, others
        if self.labels is not None or others.labels is not None:
            one, other = (
                replace(each, labels=each.labels or JobLabels.of(len(each))) for each in (self, others)
            )
        return Columns.followed_by(one, other)


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """Throughput per (model, global batch) and GPU count, for one GPU type.

    Parameters
    ----------
    gpu_type : of the GPUs measured.
    kinds : (model, global batch) of each row.
    levels : the only legal GPU counts, ascending.
    rate : float64[kinds, levels], iterations per second with GPUs placed together; nan where it was not measured, 0 where
        the job cannot run.
    largest_column : per kind, the largest count whose cell is not literally `nan` (an empty or zero cell counts): the
        published rule for schedules other than ElasticFlow's.
    source : where the numbers come from (default: measured).
    notes : what to know about them, for the result (default: nothing).
    """

    gpu_type: str
    kinds: tuple[tuple[str, int], ...]
    levels: I64
    rate: F64
    largest_column: I64
    source: str = "measured"
    notes: tuple[str, ...] = ()

    def rate_at(self) -> F64:
        """Throughput indexed by GPU count: float64[kinds, top + 1], 0 where the count is no level or not measured."""
        table = np.zeros((len(self.kinds), int(self.levels[-1]) + 1))
        table[:, self.levels] = np.nan_to_num(self.rate, nan=0.0)
        return table

    def kind_of(self, model: str, batch: int) -> int:
        """The row of (model, batch), -1 if the profile does not know it."""
        try:
            return self.kinds.index((model, batch))
        except ValueError:
            return -1


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes in one rack (a switch).

    Parameters
    ----------
    name : of the group.
    count : nodes.
    gpus, gpu_type : GPUs of each, and their type (default: not said).
    rack : default: not said.
    cpus, memory_bytes : of each (default 0: not said).
    """

    name: str
    count: int
    gpus: int
    gpu_type: str = ""
    rack: str = ""
    cpus: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines: groups of equal nodes, in order.

    The published schedules know one kind of node: for them `switches` x `nodes_per_switch` x `gpus_per_node`.

    Parameters
    ----------
    groups : the nodes; they are numbered in this order, and their GPUs likewise.
    switches : number of racks (default: one).
    partitions : the numbers of the nodes of each partition, by its name (default: every job may use all nodes).
    notes : what its file says of other nodes, for the result (default: nothing).
    away_gpus : GPUs of nodes that are left out as they are down (default 0).
    """

    groups: tuple[NodeGroup, ...]
    switches: int = 1
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    away_gpus: int = 0

    @classmethod
    def uniform(cls, switches: int, nodes_per_switch: int, gpus_per_node: int, gpu_type: str = "") -> Cluster:
        """`switches` switches with equal nodes; node numbers restart in each switch."""
        groups = tuple(
            NodeGroup(f"switch{s}", nodes_per_switch, gpus_per_node, gpu_type, f"switch{s}")
            for s in range(switches)
        )
        return cls(groups, switches)

    @property
    def is_uniform(self) -> bool:
        """Whether all nodes have the same GPUs, of one type."""
        return len({(group.gpus, group.gpu_type) for group in self.groups}) == 1

    @property
    def nodes(self) -> int:
        """Nodes in all."""
        return sum(group.count for group in self.groups)

    @property
    def nodes_per_switch(self) -> int:
        """Nodes in the first switch; all switches of a uniform cluster are equal."""
        return self.groups[0].count

    @property
    def gpus_per_node(self) -> int:
        """GPUs of the largest node; of every node in a uniform cluster."""
        return max(group.gpus for group in self.groups)

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(group.count * group.gpus for group in self.groups)

    def node_gpus(self) -> I64:
        """GPUs of each node, int64[nodes]."""
        return np.repeat(
            [group.gpus for group in self.groups], [group.count for group in self.groups]
        ).astype(np.int64)

    def node_types(self) -> tuple[str, ...]:
        """GPU type of each node."""
        return tuple(group.gpu_type for group in self.groups for _ in range(group.count))
