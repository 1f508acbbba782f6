"""What a run of this room depends on, as data."""

from __future__ import annotations

import zlib
from typing import Annotated, Final, Literal

from forerun.domains.energy.model import Job, Mode, Rules
from forerun.domains.energy.policies.jit import Jit
from forerun.domains.energy.policies.pruning_gts import PruningGts
from forerun.domains.energy.policy import (
    BatchSizeRecipe,
    Chooser,
    KnobRecipe,
    LimitRecipe,
    Pair,
    choosers,
    limit_policies,
)
from forerun.scenario.spec import Input, Spec, recipe
from forerun.trace.steps import Steps

#: microbatches of an iteration that are planned
MOST_MICROBATCHES: Final = 10_000
#: stands where a scenario has none
NO_JOB: Final = Job(dataset="", network="", optimizer="", target_metric=0.0, max_epochs=1)


class Measurements(Spec, frozen=True, kw_only=True):
    """The recorded trainings, and the measured epochs of each GPU type, as CSV files of the public format."""

    train: Input | None = None
    power: dict[str, Input] = {}

    def problems(self) -> list[tuple[str, str]]:
        """Both files or, for a pipeline, neither; at least one GPU is measured."""
        if self.train is None and self.power:
            return [("", "the key 'train' is missing")]
        if self.train is not None and not self.power:
            return [("power", "names no GPU; write `power: {v100: summary_power_v100.csv}`")]
        return []


class Group(Spec, frozen=True, kw_only=True):
    """Submissions that may overlap: a group trace and the group in it (empty: the file holds one).

    `seed_from_id` seeds the run with the Adler-32 sum of the id, as the published group runs do.
    """

    file: Input
    id: str = ""
    seed_from_id: bool = False


class Drift(Spec, frozen=True, kw_only=True):
    """From `from_recurrence` on, the epochs of a batch size b are multiplied by (b / pivot) ** exponent."""

    from_recurrence: int
    exponent: float
    pivot: float

    def problems(self) -> list[tuple[str, str]]:
        """A change happens after the start, around a positive batch size."""
        found = [] if self.from_recurrence >= 1 else [("from_recurrence", "is below 1: drift needs a before")]
        return found + ([] if self.pivot > 0 else [("pivot", f"{self.pivot:g} is not above 0")])


class Signals(Spec, frozen=True, kw_only=True):
    """What energy costs over time: `price` [$/kWh] and `carbon` [g/kWh]."""

    price: Steps | None = None
    carbon: Steps | None = None


class Pausing(Spec, frozen=True, kw_only=True):
    """A run may stop and go on later, at the price of a checkpoint each time it goes on."""

    checkpoint_s: float = 0.0
    checkpoint_j: float = 0.0


class PipelineProfile(Spec, frozen=True, kw_only=True):
    """A pipeline-parallel training: what each stage's passes take at each frequency, and how it is run.

    `file` has the columns `stage,instruction,frequency,time_s,energy_j`. `microbatches` an iteration;
    `blocked_power_w` is what a stage draws while it does not compute.
    """

    file: Input
    microbatches: int
    blocked_power_w: float

    def problems(self) -> list[tuple[str, str]]:
        """At least one microbatch; a draw is not negative."""
        found = []
        if not 1 <= self.microbatches <= MOST_MICROBATCHES:
            what = f"{self.microbatches} is not between 1 and {MOST_MICROBATCHES:,}: each takes several milliseconds"
            found.append(("microbatches", what))
        if not self.blocked_power_w >= 0:
            found.append(("blocked_power_w", f"{self.blocked_power_w:g} is negative"))
        return found


class Goal(Spec, frozen=True, kw_only=True):
    """What a plan must keep (0: no bound) and what it minimises.

    `minimise` cost (the taste `eta`), time, energy, usd or gco2. Bounds: `max_time_s`, `max_energy_j`, `max_slowdown`
    (times the default configuration's), `power_cap_w` on the average draw of all `gpus` GPUs, `max_usd`, `max_gco2`,
    each on one training to the target. `deadline_s` allows waiting for a cheaper or cleaner hour;
    `all_gpus` chooses among all GPU types measured.
    """

    minimise: Literal["cost", "time", "energy", "usd", "gco2"] = "cost"
    max_time_s: float = 0.0
    max_energy_j: float = 0.0
    max_slowdown: float = 0.0
    power_cap_w: float = 0.0
    max_usd: float = 0.0
    max_gco2: float = 0.0
    deadline_s: float = 0.0
    gpus: int = 1
    all_gpus: bool = False
    confidence: float = 0.95
    pausing: Pausing | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Bounds are not negative; a slowdown is at least one."""
        found = [
            (name, f"{getattr(self, name):g} is negative; 0 is no bound")
            for name in ("max_time_s", "max_energy_j", "power_cap_w", "max_usd", "max_gco2", "deadline_s")
            if getattr(self, name) < 0
        ]
        if self.max_slowdown and self.max_slowdown < 1:
            found.append(("max_slowdown", f"{self.max_slowdown:g} is below 1: faster than the default"))
        if not 0.5 <= self.confidence < 1:
            found.append(("confidence", f"{self.confidence:g} is not in [0.5, 1)"))
        if self.gpus < 1:
            found.append(("gpus", f"{self.gpus} is below 1"))
        return found


class Scenario(Spec, frozen=True, kw_only=True):
    """A recurring training job, what was measured of it, and who chooses its knobs; or one pipeline's iteration.

    `policy` chooses the batch size, and `limit_policy` the power limit; a policy for both knobs needs no second.
    `eta` weighs energy against time in costs; `beta` times the lowest cost stops an attempt, unless `early_stopping`
    is off. `recurrences` 0 is the customary number, twice the batch sizes times the limits. `rules` overrides single
    switches of the mode. `max_power_w` 0 takes the trace's top limit. `trials` seeds give the intervals.

    With a `pipeline` there is no job: an iteration's frequencies are planned for the `goal`.
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
    eta: float = 0.5
    beta: float = 2.0
    early_stopping: bool = True
    allow_small_beta: bool = False
    recurrences: int = 0
    group: Group | None = None
    policy: Annotated[Chooser, recipe(choosers)] = PruningGts()
    limit_policy: Annotated[LimitRecipe, recipe(limit_policies)] = Jit()
    max_power_w: float = 0.0
    drift: tuple[Drift, ...] = ()
    signals: Signals = Signals()
    goal: Goal = Goal()
    trials: int = 20
    seed: int = 0

    def problems(self) -> list[tuple[str, str]]:
        """Taste in [0, 1], a bound of at least the best cost, a GPU that was measured."""
        if self.pipeline is not None:
            return self._pipeline_problems()
        found = [
            ("", f"the key {name!r} is missing")
            for name, given in (("job", self.job != NO_JOB), ("trace", self.trace.train is not None))
            if not given
        ]
        if found:
            return found
        if not 0 <= self.eta <= 1:
            found.append(("eta", f"{self.eta:g} is outside [0, 1]: 0 counts time alone, 1 energy alone"))
        small = self.allow_small_beta and self.mode == "compat" and self.beta >= 0
        if not self.beta >= 1 and not small:
            found.append(("beta", f"{self.beta:g} is below 1: even the best cost seen would be stopped"))
        if self.gpu not in self.trace.power and (self.gpu or len(self.trace.power) != 1):
            known = ", ".join(sorted(self.trace.power))
            found.append(("gpu", f"no GPU {self.gpu!r} was measured; name one of: {known}"))
        unknown = sorted(set(self.rules) - set(Rules.__struct_fields__))
        if unknown:
            known = ", ".join(Rules.__struct_fields__)
            found.append((f"rules.{unknown[0]}", f"no rule {unknown[0]!r}; known: {known}"))
        for name in ("recurrences", "trials", "max_power_w"):
            if getattr(self, name) < 0:
                found.append((name, f"{getattr(self, name):g} is negative"))
        if self.group is not None and self.recurrences:
            found.append(("recurrences", "a group's rows are its recurrences; leave one of the two out"))
        if self.group is not None and not self.job.default_batch_size:
            found.append(("job.default_batch_size", "a group starts from a default batch size"))
        if self.mode == "compat" and isinstance(self.policy, PruningGts) and self.policy.window == 1:
            found.append(("policy.window", "1 leaves one cost a size; compat mode needs two"))
        return found

    def _pipeline_problems(self) -> list[tuple[str, str]]:
        """What a pipeline's plan knows: time, energy and their blend."""
        found = []
        if self.job != NO_JOB or self.trace.train is not None:
            found.append(("pipeline", "an iteration of a pipeline is planned without job and trace"))
        if not 0 <= self.eta <= 1:
            found.append(("eta", f"{self.eta:g} is outside [0, 1]: 0 counts time alone, 1 energy alone"))
        if self.goal.minimise not in ("cost", "time", "energy"):
            found.append(
                ("goal.minimise", f"{self.goal.minimise!r} is not known of a pipeline: cost, time or energy")
            )
        unknown = ("max_usd", "max_gco2", "deadline_s", "all_gpus", "pausing")
        return found + [
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
        """The mode's rules with single switches overridden."""
        return Rules.of(self.mode).with_(**self.rules)

    @property
    def chooser(self) -> KnobRecipe:
        """Who chooses both knobs: the policy, or the pair that it makes with the limit policy."""
        return paired(self.policy, self.limit_policy)


def paired(policy: Chooser, limit: LimitRecipe) -> KnobRecipe:
    """A policy for both knobs: itself, or a batch size policy beside a limit policy."""
    if isinstance(policy, KnobRecipe):
        return policy
    assert isinstance(policy, BatchSizeRecipe), f"{policy} chooses no batch size"
    return Pair(batch_size=policy, limit=limit)
