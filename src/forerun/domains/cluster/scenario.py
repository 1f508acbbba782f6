"""What a run of this room depends on, as data."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from forerun.domains.cluster.costs import PRESETS, faults
from forerun.domains.cluster.generate import JobGenerator, Resample, unknown_format
from forerun.domains.cluster.policies.ef_accessctrl import ElasticFlow
from forerun.domains.cluster.policy import Policy, schedulers
from forerun.domains.cluster.switches import MODES, SWITCHES
from forerun.errors import known_names
from forerun.registry import member_name
from forerun.scenario.spec import Input, Spec, recipe
from forerun.trace.steps import Steps

#: a cluster has no more: tables by GPU count have a column for each
MOST_GPUS: Final = 1_000_000
#: the analytic profile of jobs that do not scale
RIGID: Final = "rigid"
Placement = Literal["anywhere", "first-fit", "best-fit", "consolidated", "buddy", "random"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class PublishedGenerator(Spec, frozen=True, kw_only=True):
    """The generator published with ElasticFlow, draw for draw; `slack_seed` stands for its unseeded draws."""

    jobs: Positive
    mean_gap_s: Annotated[float, msgspec.Meta(gt=0)]
    least_slack: float = 0.5
    most_slack: float = 1.5
    best_effort_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    slack_seed: int = 0


class TraceSpec(Spec, frozen=True, kw_only=True):
    """Where the jobs come from: one of a file, a description to draw from, the published generator, a log resampled.

    `format` is `native` for the room's own headers, else the name of a reader (`sacct`, `philly`, ...); empty: told from
    the content, and said. `first` keeps only so many jobs (0: all). `strict` makes repairs errors. Foreign logs have no
    models: such jobs run rigid for their recorded duration, unless `draw_models` draws them as the published conversion
    does.
    `slack`: jobs without a deadline get one, so many durations after submission (with `most_slack`: drawn between both).
    `larger` says what becomes of jobs that ask for more GPUs than the cluster has: an error, or they are left out, counted.
    """

    file: Input | None = None
    format: str = ""
    generate: JobGenerator | None = None
    published: PublishedGenerator | None = None
    resample: Resample | None = None
    first: Annotated[int, msgspec.Meta(ge=0)] = 0
    strict: bool = False
    draw_models: bool = False
    larger: Literal["refuse", "drop"] = "refuse"
    slack: Seconds = 0.0
    most_slack: Seconds = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Exactly one source, of a format that exists."""
        if what := unknown_format(self.format):
            return [("format", what)]
        if self.most_slack and not 0 < self.slack <= self.most_slack:
            return [("most_slack", f"is {self.most_slack:g}; it wants a slack above 0 and not above it")]
        names = ("file", "generate", "published", "resample")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) == 1:
            return []
        found = " and ".join(given) if given else "none of them"
        return [("", f"names {found}; give one of {', '.join(names)}")]


class Nodes(Spec, frozen=True, kw_only=True):
    """Equal nodes: how many, GPUs on each, their type and rack."""

    name: str = ""
    count: Positive
    gpus: Positive
    gpu_type: str = ""
    rack: str = ""


class Machines(Spec, frozen=True, kw_only=True):
    """The cluster: a specification file, or groups of nodes."""

    file: Input | None = None
    nodes: tuple[Nodes, ...] = ()

    def problems(self) -> list[tuple[str, str]]:
        """One of the two."""
        if (self.file is None) == (not self.nodes):
            return [("", "give either file, or nodes: [{count: 4, gpus: 8}, ...]")]
        if (total := sum(group.count * group.gpus for group in self.nodes)) > MOST_GPUS:
            return [("nodes", f"have {total:.3g} GPUs; at most {MOST_GPUS:,} are simulated")]
        return []


class ProfileSpec(Spec, frozen=True, kw_only=True):
    """Throughput: measured tables (one file a model, named after it), or an analytic preset with its kinds of job.

    An analytic preset without kinds is for logs without models: each job scales by it, from its recorded duration on the
    GPUs it asks for. `analytic: rigid` says that such jobs do not scale: elastic schedules, too, run them on the GPUs they
    ask for or not at all.

    `gpu_type` empty: the only type of the machines. `extrapolate` admits counts beyond the measured range, marked.
    """

    tables: tuple[Input, ...] = ()
    analytic: str = ""
    kinds: tuple[tuple[str, int], ...] = ()
    gpu_type: str = ""
    levels: tuple[int, ...] = ()
    extrapolate: bool = False

    def problems(self) -> list[tuple[str, str]]:
        """One of the two."""
        if bool(self.tables) == bool(self.analytic):
            return [("", "give either tables: [model.csv, ...] or analytic: balanced")]
        if self.analytic == RIGID and self.kinds:
            return [("kinds", "analytic: rigid is for jobs without a model; leave kinds out")]
        found = [
            (f"kinds[{at}]", f"the batch of {model} is {batch}, a whole number from 1 is wanted")
            for at, (model, batch) in enumerate(self.kinds)
            if not 1 <= batch < 1 << 53
        ]
        return found + [
            (f"levels[{at}]", f"is {level}, a count of GPUs from 1 to {MOST_GPUS:,} is wanted")
            for at, level in enumerate(self.levels)
            if not 1 <= level <= MOST_GPUS
        ]

    @property
    def scales_durations(self) -> bool:
        """An analytic curve without kinds: each job scales by it from its recorded duration on the GPUs it asks for."""
        return bool(self.analytic) and not self.kinds


class Costs(Spec, frozen=True, kw_only=True):
    """Seconds a job loses: restarting after preemption, growing, shrinking (moving is restarting).

    They are for jobs without a model, and for all where there is no table. A table has seconds by model and change, as
    `1->2`, `16->8`, `migrate`, `restart`: a CSV `file` (`model,1->2,2->1,...`), `models` written here, or the `preset`
    elasticflow (published medians). The row `*` is for all other models.
    """

    restart_s: Seconds = 0.0
    grow_s: Seconds = 0.0
    shrink_s: Seconds = 0.0
    preset: str = ""
    file: Input | None = None
    models: dict[str, dict[str, float]] = {}

    def problems(self) -> list[tuple[str, str]]:
        """One table at most, and one that can be."""
        given = [name for name in ("preset", "file", "models") if getattr(self, name)]
        if len(given) > 1:
            return [("", f"names {' and '.join(given)}; give one table of costs")]
        if self.preset and self.preset not in PRESETS:
            return [("preset", f"no costs {self.preset!r}; {known_names(self.preset, PRESETS)}")]
        return [
            (f"models.{model}", what) for model, changes in self.models.items() for what in faults(changes)
        ]


class Quota(Spec, frozen=True, kw_only=True):
    """GPUs each user may hold (`per: vc`: each virtual cluster or partition). `default`: those not named.

    Names that the log does not have are an error. `borrow`: idle GPUs go beyond quotas, and are taken back on demand.
    """

    gpus: Annotated[dict[str, int], msgspec.Meta(min_length=1)]
    per: Literal["user", "vc"] = "user"
    default: Annotated[int, msgspec.Meta(ge=0)] = 0
    borrow: bool = False


class Slowdown(Spec, frozen=True, kw_only=True):
    """Jobs that turn out slower than their throughput says; policies see it in the work left only.

    A `share` of the jobs, drawn from the scenario's seed, takes between `least` and `most` times as long for its work, each
    job its own factor, drawn evenly. Restarts take what they cost.
    """

    most: Annotated[float, msgspec.Meta(ge=1, le=1000)]
    least: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 1.0
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0

    def problems(self) -> list[tuple[str, str]]:
        """The factors are in order."""
        if self.least > self.most:
            return [("least", f"is {self.least:g}; at most {self.most:g} (`most`) is wanted")]
        return []


class Loading(Spec, frozen=True, kw_only=True):
    """How fast a job's data arrive: a supply profile (see `forerun profile`), for some models (empty: for all)."""

    file: Input
    models: tuple[str, ...] = ()


class PowerOf(Spec, frozen=True, kw_only=True):
    """What GPUs draw: a power profile (see `forerun profile`), at a limit (0: the highest), for some models (empty: all)."""

    file: Input
    limit_w: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    models: tuple[str, ...] = ()


class Bill(Spec, frozen=True, kw_only=True):
    """Joules, money and CO2e of the run.

    A GPU that works draws what its power profile says, `busy_w` where none covers the job, `idle_w` otherwise. `pue`:
    what the building draws for each joule of a GPU. `gpu_usd_per_h`: rent of each GPU, held or free. `price` [$/kWh] and
    `carbon` [g/kWh] over the trace's time.
    """

    idle_w: Annotated[float, msgspec.Meta(ge=0)]
    busy_w: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    power: tuple[PowerOf, ...] = ()
    pue: Annotated[float, msgspec.Meta(ge=1)] = 1.0
    gpu_usd_per_h: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    price: Steps | None = None
    carbon: Steps | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Something says what a working GPU draws, and it is not less than an idle one."""
        if not self.busy_w and not self.power:
            return [("", "says nothing about working GPUs; give busy_w, or power: [{file: power.yaml}]")]
        if self.busy_w and self.busy_w < self.idle_w:
            return [("busy_w", f"{self.busy_w:g} W is below idle_w {self.idle_w:g} W")]
        return []


class Scenario(Spec, frozen=True, kw_only=True):
    """Jobs, machines, throughput, and the policy that decides.

    `slot_s` is the published schedules' slot. `mode` compat keeps the published simulators' accidents, corrected puts
    them right; `compat` overrides single switches (`{marginal_order: corrected}`). Placement, costs, quota and
    `multi_node_penalty` (speed on 1, 2, 3 ... nodes) apply to policies that decide through a view. `loading` slows steps
    down to the data's arrival, `bill` prices the run; both read what another room found. `slowdown` asks what happens if
    jobs are slower than their throughput says: whether ElasticFlow's promises to the others hold.
    """

    added_later: ClassVar[tuple[str, ...]] = ("slowdown",)

    domain: Literal["cluster"] = "cluster"
    spec_version: int = 1
    title: str = ""
    trace: TraceSpec
    machines: Machines
    profile: tuple[ProfileSpec, ...] = ()
    policy: Annotated[Policy, recipe(schedulers)] = ElasticFlow()
    mode: Literal["compat", "corrected"] = "corrected"
    compat: dict[str, Literal["compat", "corrected"]] = {}
    slot_s: Annotated[int, msgspec.Meta(ge=1)] = 60
    placement: Placement = "anywhere"
    costs: Costs = Costs()
    multi_node_penalty: tuple[Annotated[float, msgspec.Meta(gt=0, le=1)], ...] = (1.0,)
    quota: Quota | None = None
    loading: tuple[Loading, ...] = ()
    bill: Bill | None = None
    slowdown: Slowdown | None = None
    seed: int = 0

    def problems(self) -> list[tuple[str, str]]:
        """Switches that exist; profiles of different types."""
        found = [
            (f"compat.{name}", f"no switch {name!r}; {known_names(name, SWITCHES)}")
            for name in self.compat
            if name not in SWITCHES
        ]
        types = [profile.gpu_type for profile in self.profile]
        if len(set(types)) < len(types):
            found.append(("profile", "two profiles are of one gpu_type"))
        if (self.loading or (self.bill and self.bill.power)) and len(self.profile) != 1:
            what = "are of several GPU types" if self.profile else "are absent"
            found.append(("profile", f"profiles {what}; supply and power profiles need exactly one"))
        if any(profile.scales_durations for profile in self.profile):
            if len(self.profile) > 1:
                found.append(
                    ("profile", "a profile without kinds stands alone; give kinds: [[model, batch], ...]")
                )
            if self.loading or (self.bill and self.bill.power):
                found.append(("profile", "has no kinds, which supply and power profiles need"))
        if self.slowdown is not None and not self._replans():
            found.append(
                (
                    "slowdown",
                    f"{member_name(type(self.policy))} ends jobs when their plans say so; slower jobs are simulated under "
                    "ef-accessctrl in mode: corrected, which plans them again",
                )
            )
        if not self.multi_node_penalty:
            found.append(("multi_node_penalty", "is empty; the speed on one node is 1"))
        return found

    def _replans(self) -> bool:
        """Whether the policy goes by the work that is left, not by what it planned."""
        from forerun.domains.cluster.promises import NEEDED  # here: it brings compiled code

        return isinstance(self.policy, ElasticFlow) and self.corrected >= NEEDED | {"overrun"}

    @property
    def corrected(self) -> frozenset[str]:
        """The switches that are off the published behaviour."""
        return frozenset(name for name in SWITCHES if self.compat.get(name, self.mode) == MODES[1])
