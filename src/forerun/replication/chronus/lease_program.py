"""The best plan of leases: an integer program, shrunk, and mostly decided by its structure.

The full program has a binary for every claim and lease: maximise value granted, plus or minus the share of the cluster
used in the lease now beginning (a term smaller than any value), so that no lease uses more GPUs than there are.
Between two deadlines leases differ in nothing, so a claim needs one count a segment. Counts that respect the segment's
total may still not fit lease by lease (a large job and a small one that wants every lease): then that segment alone is
written out lease by lease and the program is solved again. The result is optimal for the full program, or the
incumbent plan where a limit is met. Limits count nodes and gaps, never seconds, so results do not depend on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np

from forerun.core.highs import new_solver, solve
from forerun.replication.chronus.leases import Claim


class Proof(Enum):
    """Why a plan is taken."""

    STRUCTURE = "it meets a bound that no plan can pass"
    SOLVED = "the integer program was solved to its gap"
    FALLBACK = "a limit was met first; the plan the run already had stays"


@dataclass(frozen=True, slots=True)
class Limits:
    """When the solver gives up, and the run goes on with the plan that it has.

    Parameters
    ----------
    nodes : of the search (default: 200).
    gap : relative gap at which a solution is good enough (default: 1e-6).
    columns : size of the program (default: 600).
    refinements : how often segments are written out lease by lease (default: 6).
    """

    nodes: int = 200
    gap: float = 1e-6
    columns: int = 600
    refinements: int = 6


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan of leases.

    Parameters
    ----------
    leases : per claim the leases that it gets, ascending; None: none.
    proof : why this plan is taken.
    """

    leases: tuple[Sequence[int] | None, ...]
    proof: Proof


Incumbent = Sequence[Sequence[int] | None]


def best_plan(
    claims: Sequence[Claim],
    total_gpus: int,
    *,
    use_now: bool,
    incumbent: Incumbent,
    limits: Limits,
    now: int = 0,
) -> Planned:
    """The plan of greatest value; among those, one with most or fewest GPUs in the lease now beginning.

    Parameters
    ----------
    claims : of the jobs.
    total_gpus : GPUs of the cluster.
    use_now : whether the lease now beginning should be used as much as possible, or as little.
    incumbent : a feasible plan to start from and to fall back on; plans that stay as they are are its own objects.
    limits : when to give up.
    now : number of the lease now beginning, in the incumbent and in the answer (default: 0).
    """
    shifted = shift_now(claims, total_gpus, use_now=use_now, incumbent=incumbent, now=now)
    if shifted is not None:
        return Planned(shifted, Proof.STRUCTURE)
    given = tuple(incumbent)
    incumbent = [None if plan is None else [lease - now for lease in plan] for plan in incumbent]
    split: set[int] = set()
    ends = _segment_ends(claims)
    for _ in range(limits.refinements):
        counts = _solve(claims, total_gpus, ends, split, use_now=use_now, incumbent=incumbent, limits=limits)
        if counts is None:
            break
        plans, broken = _expand(claims, total_gpus, counts)
        if not broken:
            moved = tuple(None if plan is None else tuple(lease + now for lease in plan) for plan in plans)
            return Planned(moved, Proof.SOLVED)
        split |= broken
    return Planned(given, Proof.FALLBACK)


def shift_now(
    claims: Sequence[Claim], total_gpus: int, *, use_now: bool, incumbent: Incumbent, now: int = 0
) -> tuple[Sequence[int], ...] | None:
    """An optimal plan made from the incumbent by moving single leases, or None if that cannot be proved.

    Applies if the incumbent grants all claims. Moving a later lease of a claim to now never breaks the later ones, so
    most GPUs now is a packing question; fewest now is bounded by the claims without slack.
    """
    plans = [plan for plan in incumbent if plan is not None]
    if len(plans) < len(claims):
        return None
    in_use = [bool(plan) and plan[0] == now for plan in plans]
    used = sum(claim.size for claim, uses in zip(claims, in_use, strict=True) if uses)
    if use_now:
        bound = _fill(sorted((c.size for c in claims if c.needed and c.within > 0), reverse=True), total_gpus)
        order = sorted(range(len(claims)), key=lambda i: (-claims[i].size, i)) if used < bound else []
        for at in order:
            claim = claims[at]
            if not in_use[at] and claim.needed and claim.within > 0 and claim.size <= total_gpus - used:
                plans[at] = [now, *plans[at][:-1]]
                used += claim.size
        return tuple(plans) if used >= bound else None
    bound = sum(claim.size for claim in claims if claim.needed and claim.needed >= claim.within)
    if used > bound:
        used -= _postpone(claims, plans, total_gpus, now)
    return tuple(plans) if used <= bound else None


def _fill(sizes: Sequence[int], total_gpus: int) -> int:
    """An upper bound on GPUs used by a subset: exact where sizes divide one another, else what the cluster has."""
    divide = all(large % small == 0 for large, small in pairwise(sizes))
    if not divide:
        return min(total_gpus, sum(sizes))
    free = total_gpus
    for size in sizes:
        free -= size if size <= free else 0
    return total_gpus - free


def _postpone(claims: Sequence[Claim], plans: list[Sequence[int]], total_gpus: int, now: int) -> int:
    """Move leases from now to later ones with enough free GPUs, largest first; returns the GPUs freed now."""
    horizon = max((claim.within for claim in claims), default=0)
    free = np.full(max(horizon, 0) + 1, total_gpus, np.int64)
    for claim, plan in zip(claims, plans, strict=True):
        free[np.asarray(plan, np.int64) - now] -= claim.size
    freed = 0
    for at in sorted(range(len(claims)), key=lambda i: (-claims[i].size, i)):
        claim, plan = claims[at], plans[at]
        if not plan or plan[0] != now:
            continue
        capacity = free[: claim.within] >= claim.size
        capacity[np.asarray(plan, np.int64) - now] = False
        later = np.flatnonzero(capacity)
        if len(later):
            plans[at] = sorted([*plan[1:], int(later[-1]) + now])
            free[later[-1]] -= claim.size
            freed += claim.size
    return freed


def _segment_ends(claims: Sequence[Claim]) -> list[int]:
    """Ends (open) of the segments: the lease now beginning, then the leases up to each deadline."""
    return sorted({1, *(claim.within for claim in claims if claim.within > 1)})


@dataclass(frozen=True, slots=True)
class _Counts:
    """A solution: leases of each claim in each segment; segments as (start, end)."""

    granted: tuple[bool, ...]
    segments: tuple[tuple[int, int], ...]
    count: np.ndarray[Any, np.dtype[np.int64]]


def _segments(ends: Sequence[int], split: set[int]) -> list[tuple[int, int]]:
    """Segments as (start, end); those whose start is in `split` are written out lease by lease."""
    segments = []
    for start, end in zip([0, *ends], ends, strict=False):
        if start in split:
            segments += [(lease, lease + 1) for lease in range(start, end)]
        else:
            segments.append((start, end))
    return segments


def _solve(
    claims: Sequence[Claim],
    total_gpus: int,
    ends: Sequence[int],
    split: set[int],
    *,
    use_now: bool,
    incumbent: Incumbent,
    limits: Limits,
) -> _Counts | None:
    """The shrunk program by HiGHS, one thread, fixed seed; None if a limit is met before it is solved.

    Columns: one a claim (granted or not), then one a claim and segment it may use. Rows: a claim's counts sum to what
    it wants if granted; in each segment, per size s, jobs of at least s GPUs fill at most floor(N / s) places a lease.
    """
    import highspy

    segments = _segments(ends, split)
    start, end = np.array(segments, np.int64).T
    size, needed, within = np.array([(c.size, c.needed, c.within) for c in claims], np.int64).T
    user, used = np.nonzero(end <= within[:, None])  # of each pair: the claim, and the segment
    if len(claims) + len(user) > limits.columns:
        return None
    sizes = np.unique(size)
    count, columns = len(claims), len(claims) + np.arange(len(user))
    matrix = np.zeros((count + len(segments) * len(sizes), count + len(user)))
    matrix[np.arange(count), np.arange(count)] = -needed
    matrix[user, columns] = 1.0
    for at, one in enumerate(sizes):
        matrix[count + used * len(sizes) + at, columns] = size[user] // one
    column, row = np.nonzero(matrix.T)
    now_sign = (1.0 if use_now else -1.0) / total_gpus
    in_force = np.where(start[used] == 0, now_sign * size[user], 0.0)
    capacity = np.outer(end - start, total_gpus // sizes).ravel()

    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.col_cost_ = np.concatenate(([claim.value for claim in claims], in_force))
    program.col_lower_ = np.zeros(matrix.shape[1])
    program.col_upper_ = np.concatenate((np.ones(count), (end - start)[used].astype(np.float64)))
    program.row_lower_ = np.concatenate((np.zeros(count), np.full(len(capacity), -np.inf)))
    program.row_upper_ = np.concatenate((np.zeros(count), capacity.astype(np.float64)))
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(column, np.arange(matrix.shape[1] + 1)).astype(np.int32)
    program.a_matrix_.index_ = row.astype(np.int32)
    program.a_matrix_.value_ = matrix.T[column, row]
    program.sense_ = highspy.ObjSense.kMaximize
    program.integrality_ = [highspy.HighsVarType.kInteger] * matrix.shape[1]
    solver = new_solver()
    solver.setOptionValue("mip_max_nodes", limits.nodes)
    solver.setOptionValue("mip_rel_gap", limits.gap)
    solver.passModel(program)
    known = highspy.HighsSolution()
    known_leases = [np.array([] if plan is None else plan, np.int64) for plan in incumbent]
    taken = [
        np.count_nonzero((known_leases[i] >= start[k]) & (known_leases[i] < end[k]))
        for i, k in zip(user, used, strict=True)
    ]
    known.col_value = [*(float(plan is not None) for plan in incumbent), *map(float, taken)]
    solver.setSolution(known)
    if solve(solver) != highspy.HighsModelStatus.kOptimal:
        return None
    solved = np.rint(np.array(solver.getSolution().col_value)).astype(np.int64)
    leases = np.zeros((count, len(segments)), np.int64)
    leases[user, used] = solved[count:]
    return _Counts(tuple((solved[:count] != 0).tolist()), tuple(segments), leases)


def _expand(
    claims: Sequence[Claim], total_gpus: int, counts: _Counts
) -> tuple[tuple[tuple[int, ...] | None, ...], set[int]]:
    """Counts a segment as leases: large jobs first, those with most leases first, each into the emptiest leases.

    Also the starts of segments in which that does not fit.
    """
    plans: list[list[int] | None] = [[] if granted else None for granted in counts.granted]
    broken: set[int] = set()
    for k, (start, end) in enumerate(counts.segments):
        free = np.full(end - start, total_gpus, np.int64)
        users = [i for i in range(len(claims)) if counts.count[i, k]]
        for i in sorted(users, key=lambda i: (-claims[i].size, -counts.count[i, k], i)):
            emptiest = np.argsort(-free, kind="stable")[: counts.count[i, k]]
            if free[emptiest[-1]] < claims[i].size:
                broken.add(start)
                break
            free[emptiest] -= claims[i].size
            plan = plans[i]
            assert plan is not None
            plan += (np.sort(emptiest) + start).tolist()
    return tuple(None if plan is None else tuple(plan) for plan in plans), broken
