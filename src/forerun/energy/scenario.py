"""The records of a scenario file of the energy domain."""

from __future__ import annotations

import zlib
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from forerun.core.scenario.numbers import Count, NotNegative, Positive, Whole
from forerun.core.scenario.spec import Input, Spec, chosen_from
from forerun.core.trace.steps import Steps
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import (
    BatchSizeSpec,
    KnobSpec,
    LimitSpec,
    Pair,
    PolicySpec,
    limit_policy_registry,
    policy_registry,
)
from forerun.energy.policy.rules import Mode, Rules
from forerun.energy.policy.view import Job

#: microbatches of an iteration that are planned
MOST_MICROBATCHES: Final = 10_000
Eta: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1, description="0 counts time alone, 1 energy alone")]

#: the job of a scenario that has none
NO_JOB: Final = Job(dataset="", network="", optimizer="", target_metric=0.0, max_epochs=1)


class Measurements(Spec, frozen=True, kw_only=True):
    """The recorded trainings, and the measured epochs of each GPU type, as CSV files of the public format.

    resample: whether the seed draws the trainings of each batch size anew from those recorded (default no). Studies and
    comparisons do it at all seeds but the first, so that intervals count the recorded trainings as a sample.
    """

    train: Input | None = None
    power: dict[str, Input] = {}
    resample: bool = False

    def problems(self) -> list[tuple[str, str]]:
        """Both files or, for a pipeline, neither; at least one GPU is measured."""
        if self.train is None and self.power:
            return [("", "the key 'train' is missing")]
        if self.train is not None and not self.power:
            return [("power", "names no GPU; write `power: {v100: summary_power_v100.csv}`")]
        return []


class Group(Spec, frozen=True, kw_only=True):
    """Submissions that may overlap.

    file: a trace of groups. id: the group in it (default: the only one). seed_from_id: seed the run with the Adler-32 sum
    of the id, as the published runs of groups do (default no).
    """

    file: Input
    id: str = ""
    seed_from_id: bool = False


class Drift(Spec, frozen=True, kw_only=True):
    """A change of the job: from a recurrence on, the epochs of batch size b are multiplied by (b / pivot) ** exponent.

    from_recurrence: the first recurrence after the change, at least 1. exponent: below 0, large batches gain. pivot: the
    batch size that does not change.
    """

    from_recurrence: Count
    exponent: float
    pivot: Positive


class Signals(Spec, frozen=True, kw_only=True):
    """What energy costs over time. price: [$/kWh] (default: unknown). carbon: [g/kWh] (default: unknown)."""

    price: Steps | None = None
    carbon: Steps | None = None


class Pausing(Spec, frozen=True, kw_only=True):
    """A training that may pause. checkpoint_s, checkpoint_j: what each resumption takes [s], [J] (default 0)."""

    checkpoint_s: float = 0.0
    checkpoint_j: float = 0.0


class PipelineProfile(Spec, frozen=True, kw_only=True):
    """A pipeline-parallel training: what each pass of each stage takes at each frequency.

    file: CSV with the columns `stage,instruction,frequency,time_s,energy_j`. microbatches: of one iteration.
    blocked_power_w: draw of a stage that does not compute [W].
    """

    file: Input
    microbatches: Annotated[
        int, msgspec.Meta(ge=1, le=MOST_MICROBATCHES, description="each takes several milliseconds")
    ]
    blocked_power_w: NotNegative


class Goal(Spec, frozen=True, kw_only=True):
    """What a plan minimises, and the bounds of one training to the target (default 0: no bound).

    minimise: cost (weighed by `eta`, the default), time, energy, usd or gco2. max_time_s, max_energy_j, max_usd, max_gco2:
    bounds in s, J, $ and g. max_slowdown: times the default configuration's time. power_cap_w: bound on the mean draw of
    all GPUs [W]. deadline_s: latest end [s], which allows waiting for a cheaper hour. gpus: number of GPUs (default 1).
    all_gpus: choose among all measured GPU types (default no). confidence: a note names each bound that
    holds with a lower probability (default 0.95). pausing: whether the training may pause (default no).
    """

    minimise: Literal["cost", "time", "energy", "usd", "gco2"] = "cost"
    max_time_s: NotNegative = 0.0
    max_energy_j: NotNegative = 0.0
    max_slowdown: NotNegative = 0.0
    power_cap_w: NotNegative = 0.0
    max_usd: NotNegative = 0.0
    max_gco2: NotNegative = 0.0
    deadline_s: NotNegative = 0.0
    gpus: Count = 1
    all_gpus: bool = False
    confidence: Annotated[float, msgspec.Meta(ge=0.5, lt=1)] = 0.95
    pausing: Pausing | None = None

    def problems(self) -> list[tuple[str, str]]:
        """A slowdown is at least one, where it is bounded."""
        if 0 < self.max_slowdown < 1:
            return [("max_slowdown", f"{self.max_slowdown:g} is below 1: faster than the default")]
        return []


class Scenario(Spec, frozen=True, kw_only=True):
    """A recurring training job, what was measured of it, and who chooses its knobs; or one iteration of a pipeline.

    job, trace: the job and its measurements. gpu: the GPU type (default: the only one measured). mode: corrected (default),
    or compat, which keeps the published simulator's known bugs; rules: single switches of the mode. eta: weight of energy
    against time in costs, from 0 to 1 (default 0.5). beta: an attempt is stopped at this many times the lowest cost
    (default 2), unless `early_stopping` is off; allow_small_beta: compat mode may have less than 1. recurrences:
    submissions in sequence (default 0: twice the batch sizes times the limits). group: submissions that may overlap
    instead. policy: who chooses the batch size, or both knobs. limit_policy: who chooses the power limit; a policy for both
    knobs needs none. max_power_w: price of a second in costs [W] (default 0: the highest limit of the trace). drift:
    changes of the job. signals: price and carbon of energy over time. goal: of a plan. trials: seeds behind the intervals
    (default 20). seed: of the run (default 0).

    With a `pipeline` there is no job: the frequencies of one iteration are planned for the `goal`.
    """

    domain: Literal["energy"] = "energy"
    spec_version: int = 1
    title: str = ""
    job: Job = NO_JOB
    trace: Measurements = Measurements()
    pipeline: PipelineProfile | None = None
    gpu: str = ""
    mode: Mode = "corrected"
    rules: dict[str, bool] = {}
    eta: Eta = 0.5
    beta: NotNegative = 2.0
    early_stopping: bool = True
    allow_small_beta: bool = False
    recurrences: Whole = 0
    group: Group | None = None
    policy: Annotated[PolicySpec, chosen_from(policy_registry)] = PruningGts()
    limit_policy: Annotated[LimitSpec, chosen_from(limit_policy_registry)] = Jit()
    max_power_w: NotNegative = 0.0
    drift: tuple[Drift, ...] = ()
    signals: Signals = Signals()
    goal: Goal = Goal()
    trials: Whole = 20
    seed: int = 0

    def problems(self) -> list[tuple[str, str]]:
        """beta is at least 1, and the GPU was measured."""
        if self.pipeline is not None:
            return self._pipeline_problems()
        problems = [
            ("", f"the key {name!r} is missing")
            for name, given in (("job", self.job != NO_JOB), ("trace", self.trace.train is not None))
            if not given
        ]
        if problems:
            return problems
        small = self.allow_small_beta and self.mode == "compat"
        if self.beta < 1 and not small:
            problems.append(("beta", f"{self.beta:g} is below 1: even the best cost seen would be stopped"))
        if self.gpu not in self.trace.power and (self.gpu or len(self.trace.power) != 1):
            known = ", ".join(sorted(self.trace.power))
            problems.append(("gpu", f"no GPU {self.gpu!r} was measured; name one of: {known}"))
        unknown = sorted(set(self.rules) - set(Rules.__struct_fields__))
        if unknown:
            known = ", ".join(Rules.__struct_fields__)
            problems.append((f"rules.{unknown[0]}", f"no rule {unknown[0]!r}; known: {known}"))
        if self.group is not None and self.recurrences:
            problems.append(("recurrences", "a group's rows are its recurrences; leave one of the two out"))
        if self.group is not None and not self.job.default_batch_size:
            problems.append(("job.default_batch_size", "a group starts from a default batch size"))
        if self.mode == "compat" and isinstance(self.policy, PruningGts) and self.policy.window == 1:
            problems.append(("policy.window", "1 leaves one cost a size; compat mode needs two"))
        return problems

    def _pipeline_problems(self) -> list[tuple[str, str]]:
        """What a pipeline's plan knows: time, energy and their blend."""
        problems = []
        if self.job != NO_JOB or self.trace.train is not None:
            problems.append(("pipeline", "an iteration of a pipeline is planned without job and trace"))
        if self.goal.minimise not in ("cost", "time", "energy"):
            problems.append(
                ("goal.minimise", f"{self.goal.minimise!r} is not known of a pipeline: cost, time or energy")
            )
        unknown = ("max_usd", "max_gco2", "deadline_s", "all_gpus", "pausing")
        return problems + [
            (f"goal.{name}", "is not known of a pipeline") for name in unknown if getattr(self.goal, name)
        ]

    @property
    def gpu_type(self) -> str:
        """The GPU type that is simulated."""
        return self.gpu or next(iter(self.trace.power))

    @property
    def bound_factor(self) -> float:
        """beta, or infinity without early stopping."""
        return self.beta if self.early_stopping else float("inf")

    @property
    def first_seed(self) -> int:
        """The seed of the run that is shown."""
        if self.group is not None and self.group.seed_from_id:
            return zlib.adler32(self.group.id.encode())
        return self.seed

    @property
    def switches(self) -> Rules:
        """Which known bugs are fixed: the mode's rules with single switches overridden."""
        return Rules.of(self.mode).with_(**self.rules)

    @property
    def knob_policy(self) -> KnobSpec:
        """Who chooses both knobs: the policy, or the pair of it and the limit policy."""
        return paired(self.policy, self.limit_policy)


def paired(policy: PolicySpec, limit: LimitSpec) -> KnobSpec:
    """The policy for both knobs: `policy` itself, or the pair of it and the limit policy."""
    if isinstance(policy, KnobSpec):
        return policy
    assert isinstance(policy, BatchSizeSpec), f"{policy} chooses no batch size"
    return Pair(batch_size=policy, limit=limit)
