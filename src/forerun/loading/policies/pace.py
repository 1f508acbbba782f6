"""Threads and blocks while a loader runs, by the thread law and measured times of store and decoding.

The online form of the tuner `three_probes`: the same law, its parameters estimated from the loader's own requests.
tf.data's autotuning and Plumber [Kuchnik et al., MLSys'22] measure the running pipeline in the same spirit; the law and
the rule for acting on it are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from forerun.core.result.stats import normal_quantile, standard_error
from forerun.loading.engine.calibration import slope_of
from forerun.loading.policy import F64, HIDDEN, Pace, PacePolicy, PaceSpec, PaceView

#: blocks that an estimate rests on at least, and the most recent ones that it keeps
_LEAST_BLOCKS = 8
_MOST_BLOCKS = 4000
#: means of one store, looked at twice, may lie this many standard errors apart, or this share of the mean
_APART = 3.0
_SAME = 0.05
#: more threads must bring this share of what the law promises
_LEAST_GAIN = 0.25


class ByInterval(PaceSpec, frozen=True, kw_only=True, tag="by_interval"):
    """As few threads as hide loading with some headroom; acts only beyond what the estimates' 95 % intervals leave open.

    Estimates the time of a request and of decoding a sample from the blocks handed over while the store looks the same;
    where new ones differ beyond chance, the old ones are forgotten. The thread law then gives the threads that hide the
    loading: more are taken where the loop waits and even the low end of the interval wants more, fewer where even the
    high end wants fewer. Threads that bring nothing (a link, slots or cores bind) are given back, and not asked for again
    until the speed of the loop changes. When an epoch ends, and no number of threads would hide the loading, the smallest
    block size that would is taken, if that pays for merging in the epochs left even at the intervals' bad ends.
    `conn_bytes_per_s`: bandwidth of a connection, where it is known (0: from requests of different sizes).
    """

    headroom: float = 1.15
    conn_bytes_per_s: float = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Headroom is a factor."""
        problems = super().problems()
        if not self.headroom >= 1:
            problems.append(("headroom", f"{self.headroom:g} is below 1"))
        if not self.conn_bytes_per_s >= 0:
            problems.append(("conn_bytes_per_s", f"{self.conn_bytes_per_s:g} is negative"))
        return problems

    def build(self, rng: np.random.Generator) -> PacePolicy:
        """A policy that has seen nothing."""
        return _ByInterval(self)


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: F64) -> Estimate:
        """Of a sample."""
        return cls(float(values.mean()), standard_error(values))

    def low(self) -> float:
        """Lower end of the interval, not below nothing."""
        return max(0.0, self.mean - normal_quantile(0.975) * self.error)

    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + normal_quantile(0.975) * self.error

    def differs(self, other: Estimate) -> bool:
        """Whether two are apart beyond chance."""
        chance = max(_APART * math.hypot(self.error, other.error), _SAME * max(self.mean, other.mean))
        return abs(self.mean - other.mean) > chance


@dataclass
class _Seen:
    """Blocks seen of a store that looks the same: bytes, samples, request and decode seconds."""

    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]] = field(default_factory=lambda: np.empty((0, 4)))

    def add(self, view: PaceView, *, moved: bool) -> bool:
        """Take new blocks in; whether they made the old ones forgotten.

        Parameters
        ----------
        moved : the number of threads has changed, and blocks that were asked for before do not count.
        """
        new = np.column_stack([view.block_bytes, view.samples, view.request_s, view.decode_s])
        new = new[view.asked_s >= 0] if moved else new
        differs = (
            len(new) >= _LEAST_BLOCKS
            and len(self.rows) >= _LEAST_BLOCKS
            and (
                Estimate.of(new[:, 2]).differs(Estimate.of(self.rows[:, 2]))
                or Estimate.of(new[:, 3]).differs(Estimate.of(self.rows[:, 3]))
            )
        )
        self.rows = new if differs else np.concatenate([self.rows, new])[-_MOST_BLOCKS:]
        return differs

    @property
    def enough(self) -> bool:
        """Whether an estimate can rest on them."""
        return len(self.rows) >= _LEAST_BLOCKS

    def turn(self) -> Estimate:
        """A thread's seconds for a sample: reading and decoding."""
        return Estimate.of((self.rows[:, 2] + self.rows[:, 3]) / self.rows[:, 1])

    def request(self) -> Estimate:
        """Seconds of a request."""
        return Estimate.of(self.rows[:, 2])

    def decode(self) -> Estimate:
        """Seconds of decoding a sample."""
        return Estimate.of(self.rows[:, 3] / self.rows[:, 1])

    def s_per_byte(self, conn_bytes_per_s: float) -> float:
        """What a byte of a request costs: as known, else the slope over requests of different sizes where it is certain."""
        if conn_bytes_per_s:
            return 1 / conn_bytes_per_s
        size, seconds = self.rows[:, 0], self.rows[:, 2]
        if len(size) < _LEAST_BLOCKS:
            return 0.0
        slope, error = slope_of(size, seconds)
        # No more than what the mean request allows, and nothing that may as well be chance.
        return min(slope, float(seconds.mean() / size.mean())) if slope > 2 * error else 0.0


@dataclass
class _ByInterval:
    spec: ByInterval
    seen: _Seen = field(default_factory=_Seen)
    #: what a raise of threads was made from: threads and seconds of a batch, to judge what it brought
    tried: tuple[int, Estimate] | None = None
    #: threads beyond which more brought nothing, and the seconds of a batch with them
    useful: tuple[int, Estimate] | None = None
    #: whether the last look changed the threads
    moved: bool = False
    #: seconds of each batch of the epoch since then
    batches_s: F64 = field(default_factory=lambda: np.empty(0))

    def adjust(self, view: PaceView) -> Pace:
        """Threads now; a block size where an epoch ends."""
        changed = self.seen.add(view, moved=self.moved)
        if not self.seen.enough or not len(view.load_s):
            self.moved = False
            return Pace(view.threads, why="too few blocks seen to judge")
        self.batches_s = np.concatenate([self.batches_s, view.load_s + view.step_s])
        threads, why = self._threads(view)
        self.moved = threads != view.threads
        if view.epoch_ends:
            block, more = self._block(view)
            if block != view.block_samples:
                # Another block size is another store as far as requests go.
                self.seen, self.tried, self.useful, self.batches_s = _Seen(), None, None, np.empty(0)
                return Pace(threads, block, more)
        if self.moved or view.epoch_ends:
            self.batches_s = np.empty(0)
        return Pace(threads, None, ("requests take another time now; " if changed else "") + why)

    def _needed(self, turn_s: float, view: PaceView) -> float:
        """Threads that keep the loop busy, with headroom, if a sample takes a thread `turn_s`."""
        step_s = float(view.step_s.mean()) if len(view.step_s) else 0.0
        if not step_s:
            return math.inf if turn_s else 1.0
        return self.spec.headroom * turn_s * view.batch_samples / step_s

    def _threads(self, view: PaceView) -> tuple[int, str]:
        turn, now = self.seen.turn(), view.threads
        batch = Estimate.of(view.load_s + view.step_s)
        offered = [
            n for n in view.offered_threads if n * view.block_samples * self._bytes() <= view.memory_bytes
        ]
        offered = offered or [view.offered_threads[0]]
        if self.tried is not None:
            fewer, before = self.tried
            self.tried = None
            promised_s = before.mean - max(float(view.step_s.mean()), before.mean * fewer / now)
            brought_s = before.mean - batch.mean
            if (
                view.waited_share > HIDDEN
                and brought_s < _LEAST_GAIN * promised_s
                and not batch.high() < before.low()
            ):
                # More threads, and hardly more samples: something that they share binds.
                self.useful = (fewer, before)
                return fewer, f"{now} threads brought no more than {fewer}: what they share binds"
        if self.useful is not None and not self.moved and self.useful[1].differs(batch):
            self.useful = None  # what binds has become another
        low, middle, high = (self._needed(s, view) for s in (turn.low(), turn.mean, turn.high()))
        most = self.useful[0] if self.useful is not None else offered[-1]
        usable = [n for n in offered if n <= most] or [offered[0]]
        why = f"{_shown(low)} to {_shown(high)} threads hide loading with headroom"
        if self.useful is not None and low > most:
            why += f", more than {most} bring nothing"
        if now < low and now < usable[-1] and view.waited_share > HIDDEN:
            more = next((n for n in usable if n >= middle), usable[-1])
            self.tried = (now, batch)
            return max(more, now), why
        fewer = next((n for n in usable if n >= high), usable[-1])
        if fewer < now:
            return fewer, why
        return now, why

    def _bytes(self) -> float:
        """Mean bytes of a sample."""
        return float(self.seen.rows[:, 0].sum() / self.seen.rows[:, 1].sum())

    def _block(self, view: PaceView) -> tuple[int, str]:
        """The block size of the epochs left, and why."""
        now, none = view.block_samples, "loading is hidden, or fewer threads are in use than are on offer"
        step_s = float(view.step_s.mean()) if len(view.step_s) else 0.0
        if view.epochs_left < 1 or view.waited_share <= HIDDEN or len(view.offered_blocks) < 2:
            return now, none
        most = view.offered_threads[-1]
        if self._needed(self.seen.turn().low(), view) <= most:
            return now, none
        size, request, decode = self._bytes(), self.seen.request(), self.seen.decode()
        per_byte = self.seen.s_per_byte(self.spec.conn_bytes_per_s)
        transfer_s = self.seen.rows[:, 0].mean() * per_byte
        compute = view.batch_samples / step_s if step_s else math.inf

        def rate(block: int, threads: int, request_s: float, decode_s: float) -> float:
            turn = max(0.0, request_s - transfer_s) + block * (size * per_byte + decode_s)
            return min(compute, threads * block / (turn * self.spec.headroom)) if turn else compute

        cells = [
            (block * threads * size, block, rate(block, threads, request.high(), decode.high()))
            for block in view.offered_blocks
            for threads in view.offered_threads
            if block * threads * size <= view.memory_bytes
        ]
        if not cells:
            return now, "no block size on offer fits the memory"
        best = max(cell[2] for cell in cells)
        _, block, pessimistic = min(cell for cell in cells if cell[2] >= 0.99 * best)
        batch = Estimate.of(self.batches_s)
        have = view.batch_samples / max(batch.low(), 1e-9)
        saved_s = view.epoch_samples * (1 / have - 1 / pessimistic) * view.epochs_left
        if pessimistic <= have or saved_s <= view.merge_s:
            return now, f"blocks of {block} would not pay for merging in {view.epochs_left} epochs"
        return block, f"blocks of {block} save at least {saved_s:.3g} s of the {view.epochs_left} epochs left"


def _shown(threads: float) -> str:
    return f"{threads:.3g}" if math.isfinite(threads) else "no number of"
