"""Both knobs from one belief about the cost curve over batch sizes; our own, not published elsewhere."""

from __future__ import annotations

import math
from collections import deque
from typing import Annotated, Final

import msgspec
import numpy as np

from forerun.core.scenario.numbers import Count, Positive
from forerun.energy.policy import KnobPolicy, KnobSpec, Setting
from forerun.energy.policy.curve import CostCurve, CurvePrior, Shapes
from forerun.energy.policy.view import (
    AttemptOutcome,
    Floats,
    Knobs,
    MeasuredLimits,
    ProfileLimits,
    View,
)

#: standard deviation of the error of rounding to whole numbers: what it adds to log cost, times the number of epochs
ROUNDING: Final = 1 / math.sqrt(12)


class Joint(KnobSpec, frozen=True, kw_only=True, tag="joint"):
    """Thompson sampling on a cost curve over log batch size that follows from what epochs cost and how many it takes.

    One profile measures all limits of a batch size, so only batch sizes are explored; what is learned at one says
    something about the others. Every epoch's cost is known exactly once it was measured. How far a GPU draws below
    its highest limit says how much of an epoch it waits: a step has overhead then, and larger batches save it.

    Both neighbours of the size that looks best are tried before it is settled on. The curve may be wrong: after an attempt
    far from it, every size is tried that the exploration of the published policy would try, down from the default and
    up from it until a size fails (not with a `known_curve`). At a new size only those limits are profiled that are near the
    least cost at the nearest size profiled, those between them, and one beyond on either side.

    With `detect_drift` a two-sided CUSUM watches standardised residuals, and an alarm starts again from the latest runs. A
    change may leave the best size as it was, so a neighbour of it is tried from time to time.

    shape_sd: how far log cost may leave what epochs explain (default 0.15), smoothly over length_octaves (default 4).
    own_sd: deviation of each size by itself (default 0.02). noise_sd: of one run (default 0.05), worth noise_weight
    observations (default 3). boldness: scales the spread of the samples (default 0.6). surprise_at: standard deviations
    from the curve that contradict it (default 3.5; 1.5 where costs need not be smooth). reach_octaves: how far from a
    success a trial may be once two sizes are known (default 2). known_first: only new sizes are tried until this many are
    known (default 3). stop_first_at: bound of a first trial, in best known costs (default 1.9). busy_share: draw over
    limit of a GPU that does not wait (default 0.6). profile_within: excess cost up to which limits are profiled (default
    0.1). detect_drift: default no. cusum_slack, cusum_alarm: in standard deviations (default 0.75, 5). probe_every:
    recurrences between trials of a neighbour (default 60). probe_alarm: residual of such a trial that is an alarm (default
    4). known_curve: (batch size, cost) of a similar job or another GPU type, up to a factor (default: none).
    known_curve_sd: how far log cost may differ from its shape (default 0.25).
    """

    shape_sd: Positive = 0.15
    length_octaves: Positive = 4.0
    own_sd: float = 0.02
    noise_sd: Positive = 0.05
    noise_weight: Positive = 3.0
    boldness: float = 0.6
    surprise_at: Positive = 3.5
    reach_octaves: float = 2.0
    known_first: int = 3
    stop_first_at: Annotated[
        float, msgspec.Meta(ge=1, description="even the best known would be stopped")
    ] = 1.9
    busy_share: Positive = 0.6
    profile_within: float = 0.1
    detect_drift: bool = False
    cusum_slack: float = 0.75
    cusum_alarm: Positive = 5.0
    probe_every: int = 60
    probe_alarm: float = 4.0
    known_curve: tuple[tuple[Count, Positive], ...] = ()
    known_curve_sd: Positive = 0.25

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy that starts at the default. Raises DefaultMissing or DefaultNotInRange."""
        return JointPolicy(self, setting)


class JointPolicy:
    """The joint policy of one run.

    `best` maps a batch size to its limit [W], `measured` to its profile. `gave_up` are sizes that never reached;
    `surprised` says that an attempt contradicted the curve; `alarms` counts detected changes of the job.
    """

    def __init__(self, spec: Joint, setting: Setting) -> None:
        self._spec, self._eta, self._rng = spec, setting.eta, setting.rng
        self._sizes = setting.sizes
        self._octaves = np.log2(np.array(setting.sizes, dtype=np.float64))
        self._first = setting.sizes.index(setting.default())
        self._curve = CostCurve(setting.sizes, _prior(spec), _shapes(spec, setting.sizes))
        self._recent: deque[tuple[int, float, bool]] = deque(maxlen=60)
        self._up = self._down = 0.0
        self._since_up = self._since_down = 0
        self._tried_at = [-1] * len(setting.sizes)
        self._recurrence = self._probed_at = 0
        self._probing = False
        self.gave_up: set[int] = set()
        self.alarms = 0
        self.surprised = False
        self.best: dict[int, float] = {}
        self.measured: dict[int, MeasuredLimits] = {}

    def choose(self, view: View) -> Knobs:
        """A sample of the curve, its lowest point among what may be tried; for a retry the best that has reached."""
        self._recurrence = view.recurrence
        at = self._probe(view) if self._due(view) else self._pick(view)
        self._tried_at[at] = view.recurrence
        size = self._sizes[at]
        exploring = not self._curve.completed[at]
        return Knobs(size, self._limit(at, view), self._bound(view) if exploring else None, exploring)

    def _bound(self, view: View) -> float | None:
        """Where a first trial at a size is stopped: nearer than usual, since it need not win."""
        known = [at for at, costs in enumerate(self._curve.completed) if costs]
        if not known:
            return None
        mean, _ = self._curve.posterior()
        return min(view.bound_j, self._spec.stop_first_at * math.exp(min(mean[at] for at in known)))

    def _limit(self, at: int, view: View) -> float | ProfileLimits:
        """The limit chosen at this size, or those to profile: the likely ones by the nearest size profiled."""
        size = self._sizes[at]
        if size in self.best:
            return self.best[size]
        offered = view.limits_w[size]
        several = [profile for profile in self.measured.values() if len(profile.limits_w) > 1]
        if not several:
            return ProfileLimits(offered)
        near = min(several, key=lambda profile: abs(math.log2(profile.batch_size) - self._octaves[at]))
        costs = near.epoch_cost_j(self._eta)
        most = min(costs) * (1 + self._spec.profile_within)
        likely = [limit for limit, cost in zip(near.limits_w, costs) if cost <= most]
        between = [p for p, limit in enumerate(offered) if min(likely) <= limit <= max(likely)]
        # One limit beyond on either side: the best moves from size to size, and a limit left out stays unknown.
        return ProfileLimits(offered[max(0, between[0] - 1) : between[-1] + 2] if between else offered)

    def _pick(self, view: View) -> int:
        """Index of the size to try: the lowest sample of the curve among the sizes that may be tried."""
        allowed = self._allowed()
        reached = [at for at in allowed if self._curve.completed[at]]
        if not reached:
            # Nothing is known to reach yet: the default, then the nearest that has not given up.
            fresh = [at for at in allowed if not self._curve.stopped[at]] or allowed
            return min(fresh, key=lambda at: (abs(self._octaves[at] - self._octaves[self._first]), at))
        mean, covariance = self._curve.posterior()
        if view.attempt:
            return min(reached, key=lambda at: mean[at])
        # A single known size says nothing about the others, however often it is repeated: look beside it first.
        known = [at for at in allowed if self._curve.completed[at] or self._curve.stopped[at]]
        fresh = [at for at in allowed if at not in known]
        if len(known) + len(self.gave_up) < self._spec.known_first and fresh:
            among = np.array(fresh)
        else:
            best = min(reached, key=lambda at: mean[at])
            first = {at for at in fresh if abs(at - best) == 1} | self._unwalked()
            among = np.array(sorted(at for at in first if self._sizes[at] not in view.in_flight) or allowed)
        root = np.linalg.cholesky(covariance[np.ix_(among, among)] + 1e-9 * np.eye(len(among)))
        samples = mean[among] + self._spec.boldness * (root @ self._rng.normal(size=len(among)))
        return int(among[np.argmin(samples)])

    def _unwalked(self) -> set[int]:
        """Once surprised: the next size of a walk down and of one up from the default, each until a size fails.

        This is what the exploration of the published policy tries, whatever the curve says.
        """
        sizes: set[int] = set()
        for walk in (range(self._first - 1, -1, -1), range(self._first + 1, len(self._sizes))):
            ahead = next((at for at in walk if not self._curve.completed[at]), None)
            failed = ahead is None or self._curve.stopped[ahead] or ahead in self.gave_up
            if self.surprised and ahead is not None and not failed:
                sizes.add(ahead)
        return sizes

    def _due(self, view: View) -> bool:
        """Whether a neighbour of the best should be looked at again, in case the job has changed."""
        due = view.recurrence - self._probed_at >= self._spec.probe_every and not view.attempt
        self._probing = self._spec.detect_drift and due and any(self._curve.completed)
        return self._probing

    def _probe(self, view: View) -> int:
        """The neighbour of the best, pruned or not, that was not tried for longest."""
        self._probed_at = view.recurrence
        mean, _ = self._curve.posterior()
        best = min(
            (at for at in range(len(self._sizes)) if self._curve.completed[at]), key=lambda at: mean[at]
        )
        beside = [at for at in (best - 1, best + 1) if 0 <= at < len(self._sizes)]
        return min(beside or [best], key=lambda at: self._tried_at[at])

    def _allowed(self) -> list[int]:
        """Sizes that were tried, and those near a success: next to it, or within reach once two are known."""
        alive = [at for at in range(len(self._sizes)) if at not in self.gave_up]
        reached = [at for at in alive if self._curve.completed[at]]
        if not reached or not alive:
            return alive or list(range(len(self._sizes)))
        reach = self._spec.reach_octaves if len(reached) > 1 else 1.0
        near = [
            at
            for at in alive
            if self._curve.stopped[at]
            or any(
                abs(at - of) <= 1 or abs(self._octaves[at] - self._octaves[of]) <= reach + 0.01
                for of in reached
            )
        ]
        return near

    def profiled(self, view: View, measured: MeasuredLimits) -> float:
        """Keep the cheapest limit; the highest wins ties."""
        costs = measured.epoch_cost_j(self._eta)
        self.best[measured.batch_size] = measured.limits_w[costs.index(min(costs))]
        self.measured[measured.batch_size] = measured
        return self.best[measured.batch_size]

    def learn(self, outcome: AttemptOutcome) -> None:
        """One point of the curve, without the profiling epoch's surcharge; a stopped attempt is a lower limit."""
        at = self._sizes.index(outcome.batch_size)
        if outcome.measured is not None and outcome.epochs:
            self._learn_epoch(at, outcome.measured)
        if outcome.reached:
            self._curve.epochs = min(self._curve.epochs, outcome.epochs)
        if outcome.ended_by == "max_epochs" and not self._curve.completed[at]:
            self.gave_up.add(at)
            return
        self.gave_up.discard(at)
        value = outcome.bound_j if outcome.ended_by == "never_ran" else self._plain_cost(outcome)
        if not 0 < value < math.inf:
            return
        point = (at, math.log(value), outcome.reached)
        self._recent.append(point)
        if (
            self._spec.detect_drift
            and outcome.reached
            and self._curve.completed[at]
            and self._alarm(*point[:2])
        ):
            return
        self.surprised = self.surprised or self._contradicted(*point)
        self._curve.add(at, point[1], completed=outcome.reached)

    def _contradicted(self, at: int, log_cost: float, completed: bool) -> bool:
        """Whether an attempt cost more or less than the curve leaves likely; a stopped one, at least as much."""
        if self._spec.known_curve or not any(self._curve.completed):
            return False
        away = self._residual(at, log_cost)
        return away > self._spec.surprise_at or (completed and away < -self._spec.surprise_at)

    def _residual(self, at: int, log_cost: float) -> float:
        """An attempt's log cost against what the curve says of it, in standard deviations."""
        mean, covariance = self._curve.posterior()
        sd = math.sqrt(covariance[at, at] + self._curve.noise_variance(at))
        return (log_cost - float(mean[at])) / sd

    def _learn_epoch(self, at: int, measured: MeasuredLimits) -> None:
        """Learn the cost of an epoch, and how much of it the GPU seems to wait: it draws far less than it may.

        at: index of the batch size. measured: its profile.
        """
        busy = min(1.0, measured.power_w[0] / measured.limits_w[0] / self._spec.busy_share)
        self._curve.add_epoch(at, math.log(min(measured.epoch_cost_j(self._eta))), 1 - busy)

    def _plain_cost(self, outcome: AttemptOutcome) -> float:
        """Epochs times the epoch's cost at the chosen limit: what the attempt would cost without profiling."""
        measured = self.measured.get(outcome.batch_size)
        if measured is None or outcome.limit_w not in measured.limits_w:
            return outcome.cost_j
        epoch = measured.epoch_cost_j(self._eta)[measured.limits_w.index(outcome.limit_w)]
        return outcome.epochs * epoch

    def _alarm(self, at: int, log_cost: float) -> bool:
        """Two-sided CUSUM of standardised residuals; on an alarm the runs since its start are all that stays.

        at: index of the batch size. log_cost: of an attempt that reached there.
        """
        residual = self._residual(at, log_cost)
        slack = self._spec.cusum_slack
        self._up, self._since_up = _summed(self._up, self._since_up, residual - slack)
        self._down, self._since_down = _summed(self._down, self._since_down, -residual - slack)
        surprising = self._probing and abs(residual) > self._spec.probe_alarm
        if max(self._up, self._down) < self._spec.cusum_alarm and not surprising:
            return False
        since = 3 if surprising else self._since_up if self._up > self._down else self._since_down
        self._curve.restart(list(self._recent)[-max(1, since) :])
        self.gave_up.clear()
        self.surprised = False
        self._up = self._down = 0.0
        self._since_up = self._since_down = 0
        self._probed_at = self._recurrence
        self.alarms += 1
        return True

    def beliefs(self) -> list[tuple[int, float, float, int]]:
        """Batch size, median cost [J], its standard deviation [J] and runs completed, where anything was seen."""
        mean, covariance = self._curve.posterior()
        rows = []
        for at, size in enumerate(self._sizes):
            if self._curve.completed[at] or self._curve.stopped[at]:
                cost = math.exp(mean[at])
                spread = cost * math.sqrt(covariance[at, at])
                rows.append((size, cost, spread, len(self._curve.completed[at])))
        return rows


def _summed(total: float, since: int, step: float) -> tuple[float, int]:
    """One step of a CUSUM that does not fall below zero, and how many steps it has been above."""
    raised = max(0.0, total + step)
    return raised, since + 1 if raised else 0


def _prior(spec: Joint) -> CurvePrior:
    """The spreads that the parameters of a policy stand for."""
    return CurvePrior(
        shape_sd=spec.known_curve_sd if spec.known_curve else spec.shape_sd,
        length_octaves=spec.length_octaves,
        own_sd=spec.own_sd,
        noise_sd=spec.noise_sd,
        noise_weight=spec.noise_weight,
        rounding=ROUNDING,
    )


def _shapes(spec: Joint, sizes: tuple[int, ...]) -> Shapes:
    """What costs may look like: the known curve where there is one, else all trade-offs."""
    if spec.known_curve:
        return Shapes.known(_known(spec, np.log2(np.array(sizes, dtype=np.float64))))
    return Shapes.trade_offs(sizes)


def _known(spec: Joint, octaves: Floats) -> Floats:
    """The known curve at our sizes: linear between its points, its end slopes continued beyond.

    octaves: float64[S], log2 of the sizes. Returns log cost, float64[S].
    """
    points = sorted(spec.known_curve)
    x = np.log2([size for size, _ in points])
    y = np.log([cost for _, cost in points])
    inside: Floats = np.interp(octaves, x, y)
    if len(points) > 1:
        below, above = octaves < x[0], octaves > x[-1]
        inside[below] = y[0] + (octaves[below] - x[0]) * (y[1] - y[0]) / (x[1] - x[0])
        inside[above] = y[-1] + (octaves[above] - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])
    return inside
