"""What a run depends on, as data: the records of a scenario file."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from forerun.cluster.engine import engine_of, engines
from forerun.cluster.inputs.costs import PRESETS, faults
from forerun.cluster.inputs.limits import Ignorable, LimitColumn
from forerun.cluster.policies.backfilling.base import BACKFILLING
from forerun.cluster.policies.elasticflow import ElasticFlow
from forerun.cluster.policy import Policy, schedulers
from forerun.cluster.traces.generate import JobGenerator
from forerun.cluster.traces.published import PublishedGenerator
from forerun.cluster.traces.resample import Resample
from forerun.core.errors import known_names
from forerun.core.registry import member_name
from forerun.core.scenario.checks import Checks, failing
from forerun.core.scenario.numbers import Count, NotNegative, Positive, Share, Whole
from forerun.core.scenario.spec import Input, Spec, chosen_from
from forerun.core.slices import members
from forerun.core.trace.reader import format_problems
from forerun.core.trace.steps import Steps

#: a cluster has no more: tables by GPU count have a column for each
MOST_GPUS: Final = 1_000_000
#: the analytic profile of jobs that do not scale
RIGID: Final = "rigid"
#: published schedules with their known bugs corrected, where published systems are installed
_USUAL_MODE: Final = "corrected" if members("forerun.cluster.engine") else "default"
Placement = Literal["anywhere", "first-fit", "best-fit", "consolidated", "buddy", "random"]
Factor = Annotated[float, msgspec.Meta(ge=1, le=1000)]
Instant = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class Edit(Spec, frozen=True, kw_only=True):
    """The same jobs with a few of them changed, by name; all else of the world stays, what is drawn at random included.

    without: jobs that never come. gpus: what a job asks for instead; its work stays, so its duration follows its
    throughput, and so does its requested time. submit_s, deadline_s: when a job comes and is due instead; moving one does
    not move the other.
    """

    without: tuple[str, ...] = ()
    gpus: dict[str, Count] = {}
    submit_s: dict[str, Instant] = {}
    deadline_s: dict[str, Instant] = {}


class TraceSpec(Spec, frozen=True, kw_only=True):
    """Where the jobs come from: one of a file, a description of random jobs, the published generator, or a resampled log.

    file: a job log. format: `native` for our own headers, else the name of a reader (`sacct`, `philly`, ...); empty
    (default): recognised from the content. Foreign logs have no models: such jobs are rigid and run for their recorded
    duration, unless `draw_models` gives them random models as the published conversion does (default: no). generate,
    published, resample: see their types. first: keep only this many jobs (default 0: all). strict: make repairs errors
    (default: no). slack: jobs without a deadline get one, this many durations after submission (default 0: none);
    most_slack: then uniformly between both. larger: whether jobs that ask for more GPUs than the cluster has, or are of a
    partition that it has not, are an error (`refuse`, default) or are left out and counted (`drop`). options: of the
    format, by name, such as `{columns: [requested_s=6]}` of `swf` (default: its own). overestimate: jobs without a requested
    time get one, uniformly from their duration to so many times it (default: none). edit: single jobs left out or changed
    (default: none).
    """

    added_later: ClassVar[tuple[str, ...]] = ("options", "overestimate", "edit")

    file: Input | None = None
    format: str = ""
    generate: JobGenerator | None = None
    published: PublishedGenerator | None = None
    resample: Resample | None = None
    first: Whole = 0
    strict: bool = False
    draw_models: bool = False
    larger: Literal["refuse", "drop"] = "refuse"
    slack: NotNegative = 0.0
    most_slack: NotNegative = 0.0
    options: dict[str, Any] | None = None
    overestimate: Factor | None = None
    edit: Edit | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Exactly one source, of a format that exists."""
        if problems := format_problems(self.format, "native"):
            return problems
        if self.options and (self.file is None or self.format in ("", "native")):
            return [("options", "are of a format; name file and format, as format: swf")]
        if self.most_slack and not 0 < self.slack <= self.most_slack:
            return [("most_slack", f"is {self.most_slack:g}; it wants a slack above 0 and not above it")]
        names = ("file", "generate", "published", "resample")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) == 1:
            return []
        named = " and ".join(given) if given else "none of them"
        return [("", f"names {named}; give one of {', '.join(names)}")]


class Nodes(Spec, frozen=True, kw_only=True):
    """Equal nodes.

    count: how many. gpus: GPUs on each. name: of the group (default: numbered). gpu_type: of its GPUs (default: the
    profile's only type). rack: of the group (default: one of its own).
    """

    name: str = ""
    count: Count
    gpus: Count
    gpu_type: str = ""
    rack: str = ""


class Otherwise(Spec, frozen=True, kw_only=True):
    """What is otherwise than the files of a site say.

    more_nodes: how many nodes more a partition has, each like its last one. moved_nodes: by partition and then by another,
    how many nodes of the first are the other's instead. without_limits: limits that do not hold, by the names that notes
    and results have for them, such as `QOS normal: MaxTRESPU`. more_quota: how many GPUs more a ClusterQueue of Kueue has,
    of its first flavor. moved_quota: by ClusterQueue and then by another, how many GPUs of the first's quota are the other's
    instead, of flavors that both have.
    """

    more_nodes: dict[str, Count] = {}
    moved_nodes: dict[str, dict[str, Count]] = {}
    without_limits: tuple[str, ...] = ()
    more_quota: dict[str, Count] = {}
    moved_quota: dict[str, dict[str, Count]] = {}


class Machines(Spec, frozen=True, kw_only=True):
    """The cluster: a file, or groups of nodes. Exactly one of the two is given.

    file: a published specification (`.csv`, `.txt`), a Slurm configuration (`.conf`), or ClusterQueues of Kueue (`.yaml`,
    `.yml`, `.json`), whose nominal quotas are the GPUs, a node a flavor. nodes: groups of equal nodes.
    partition: of the Slurm configuration, whose nodes count (default: all). included: copies of the files that the
    configuration includes (default: none). site: what Slurm's commands print of limits, partitions, reservations and
    nodes (`sacctmgr show qos -P`, `sacctmgr show assoc -P`, `sacctmgr show event -P`, `scontrol show partition`, `scontrol
    show res`, `scontrol show node`), or ClusterQueues of Kueue for nodes given here (default: none). ignore: what is left
    out of Kueue's files that would change the answer and is not simulated, or is to be tried without (default: nothing).
    otherwise: nodes and limits that differ from the files (default: none). unit: what jobs hold of the Slurm configuration:
    `GPUs` (default), or whole `nodes`, each of which counts as one.
    """

    added_later: ClassVar[tuple[str, ...]] = ("partition", "included", "site", "ignore", "otherwise", "unit")

    file: Input | None = None
    nodes: tuple[Nodes, ...] = ()
    partition: str | None = None
    included: tuple[Input, ...] | None = None
    site: tuple[Input, ...] | None = None
    ignore: tuple[Ignorable, ...] | None = None
    otherwise: Otherwise | None = None
    unit: Literal["GPUs", "nodes"] | None = None

    def problems(self) -> list[tuple[str, str]]:
        """A file or nodes, not both."""
        if (self.file is None) == (not self.nodes):
            return [("", "give either file, or nodes: [{count: 4, gpus: 8}, ...]")]
        for name in () if self.is_slurm else ("partition", "included", "unit"):
            if getattr(self, name) is not None:
                return [(name, "is of a Slurm configuration; give it as file: slurm.conf")]
        quotas = self.otherwise and (self.otherwise.more_quota or self.otherwise.moved_quota)
        kueue = any(one.path.endswith((".yaml", ".yml", ".json")) for one in self._files)
        for name, given in (("ignore", self.ignore), ("otherwise", quotas)):
            if given and not kueue:
                return [(name, "is of Kueue's files; give them as file: queues.yaml, or site: [queues.yaml]")]
        if (total := sum(group.count * group.gpus for group in self.nodes)) > MOST_GPUS:
            return [("nodes", f"have {total:.3g} GPUs; at most {MOST_GPUS:,} are simulated")]
        return []

    @property
    def _files(self) -> tuple[Input, ...]:
        return (*((self.file,) if self.file else ()), *(self.site or ()))

    @property
    def is_slurm(self) -> bool:
        """Whether a Slurm configuration describes the cluster."""
        return self.file is not None and self.file.path.endswith(".conf")


class ProfileSpec(Spec, frozen=True, kw_only=True):
    """Throughput: measured tables (one file per model, named after it), or an analytic preset with its kinds of job.

    tables: CSV files. analytic: a preset (`compute_bound`, `balanced`, `network_bound`). kinds: (model, batch) pairs of
    the preset. A preset without kinds is for logs without models: each job scales by it, from its recorded duration on
    the GPUs it asks for. `analytic: rigid` says that such jobs do not scale; elastic schedules, too, run them on the
    GPUs they ask for or not at all. gpu_type: of the GPUs measured (default: the only type of the machines). levels:
    GPU counts to interpolate to (default: those measured). extrapolate: allow counts beyond the measured range, marked
    in the result (default: no).
    """

    tables: tuple[Input, ...] = ()
    analytic: str = ""
    kinds: tuple[tuple[str, Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]], ...] = ()
    gpu_type: str = ""
    levels: tuple[Annotated[int, msgspec.Meta(ge=1, le=MOST_GPUS)], ...] = ()
    extrapolate: bool = False

    def problems(self) -> list[tuple[str, str]]:
        """Tables or a preset, not both."""
        if bool(self.tables) == bool(self.analytic):
            return [("", "give either tables: [model.csv, ...] or analytic: balanced")]
        if self.analytic == RIGID and self.kinds:
            return [("kinds", "analytic: rigid is for jobs without a model; leave kinds out")]
        return []

    @property
    def scales_durations(self) -> bool:
        """An analytic curve without kinds: each job scales by it from its recorded duration on the GPUs it asks for."""
        return bool(self.analytic) and not self.kinds


class Costs(Spec, frozen=True, kw_only=True):
    """Seconds that a job loses when its GPUs change.

    restart_s: restarting after preemption, or on other GPUs. grow_s, shrink_s: changing to more or fewer GPUs (default
    0 each). These are for jobs without a model, and for all jobs where there is no table. A table has seconds by model
    and change, as `1->2`, `16->8`, `migrate`, `restart`, `start` (the first one), and `drain` (until GPUs given up are
    free, for which others wait; both default 0): a CSV `file` (`model,1->2,2->1,...`), `models` written here, or the
    `preset` elasticflow (published medians). The row `*` is for all other models. checkpoint_s: a job that a failure or its
    scheduler puts back into the queue keeps its work up to the last multiple of so many seconds of it (default: none).
    """

    added_later: ClassVar[tuple[str, ...]] = ("checkpoint_s",)

    restart_s: NotNegative = 0.0
    grow_s: NotNegative = 0.0
    shrink_s: NotNegative = 0.0
    checkpoint_s: Positive | None = None
    preset: str = ""
    file: Input | None = None
    models: dict[str, dict[str, float]] = {}

    def problems(self) -> list[tuple[str, str]]:
        """At most one table, with known models and changes."""
        given = [name for name in ("preset", "file", "models") if getattr(self, name)]
        if len(given) > 1:
            return [("", f"names {' and '.join(given)}; give one table of costs")]
        if self.preset and self.preset not in PRESETS:
            return [("preset", f"no costs {self.preset!r}; {known_names(self.preset, PRESETS)}")]
        return [
            (f"models.{model}", what) for model, changes in self.models.items() for what in faults(changes)
        ]


class Quota(Spec, frozen=True, kw_only=True):
    """The GPUs that each user, or each virtual cluster or partition (`per: vc`), may have at once.

    gpus: by name; a name that is not in the log is an error. default: for names not given (default 0). borrow: whether
    idle GPUs may be used beyond quotas, and are taken back on demand (default: no).
    """

    gpus: Annotated[dict[str, int], msgspec.Meta(min_length=1)]
    per: Literal["user", "vc"] = "user"
    default: Whole = 0
    borrow: bool = False


class Limit(Spec, frozen=True, kw_only=True):
    """What some jobs may have running at once; those beyond it wait, and others go on.

    user, account, qos, partition: whose jobs count, by the names of the log (default: everybody's). per: by which of these
    four columns jobs are grouped, each value with a limit of its own (default: one limit for all). gpus, jobs: at once
    (at least one of the two). gpu_type: of the GPUs that count (default: any).
    """

    user: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    per: tuple[LimitColumn, ...] = ()
    gpus: Instant | None = None
    jobs: Instant | None = None
    gpu_type: str = ""

    def problems(self) -> list[tuple[str, str]]:
        """It limits something."""
        if self.gpus is None and self.jobs is None:
            return [("", "limits nothing; give gpus, jobs or both")]
        return []


class Slowdown(Spec, frozen=True, kw_only=True):
    """Jobs that are slower than their throughput says. Policies see it only in the work that is left.

    share: share of the jobs, chosen at random from the scenario's seed (default 1). least, most: such a job takes this
    many times as long for its work, uniformly between both (default least: 1). Restarts take what they cost.
    """

    most: Factor
    least: Factor = 1.0
    share: Share = 1.0

    def problems(self) -> list[tuple[str, str]]:
        """`least` is not above `most`."""
        if self.least > self.most:
            return [("least", f"is {self.least:g}; at most {self.most:g} (`most`) is required")]
        return []


class Maintenance(Spec, frozen=True, kw_only=True):
    """GPUs that are kept free for a while, by policies that plan by requested times.

    from_s, to_s: from when to when, in seconds of the trace. gpus: how many (default 0: all). announced_s: when the policy
    learns of it; from then on no job starts that would run into it by its requested time (default 0: known all along). Jobs
    that run into it all the same go on.
    """

    from_s: NotNegative
    to_s: NotNegative
    gpus: Whole = 0
    announced_s: NotNegative = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """It ends after it begins."""
        if self.to_s <= self.from_s:
            return [("to_s", f"is {self.to_s:g}; more than {self.from_s:g} (`from_s`) is required")]
        return []


class Failures(Spec, frozen=True, kw_only=True):
    """Nodes that fail at random until the last submission, each for itself, in place of the failures of the site's files.

    What runs on a node then loses its GPUs and its work since the last checkpoint (`costs.checkpoint_s`), and comes again;
    policies learn of it when it happens. node_mtbf_s: mean time from a repair of a node to its next failure, exponential
    (default: that of the log). repair_s: mean time until it is back, exponential (default 3600).
    """

    node_mtbf_s: Positive | None = None
    repair_s: Positive = 3600.0


class Loading(Spec, frozen=True, kw_only=True):
    """How fast a job's data arrive.

    file: a supply profile (see `forerun profile`). models: the models that it limits (default: all).
    """

    file: Input
    models: tuple[str, ...] = ()


class PowerOf(Spec, frozen=True, kw_only=True):
    """The power that GPUs draw.

    file: a power profile (see `forerun profile`). limit_w: the power limit (default 0: the highest measured). models:
    the models that it is for (default: all).
    """

    file: Input
    limit_w: NotNegative = 0.0
    models: tuple[str, ...] = ()


class Bill(Spec, frozen=True, kw_only=True):
    """Energy, money and emissions of the run.

    idle_w: watts of a GPU that is free, restarting or waiting for data. busy_w: watts of a working GPU where no power
    profile covers its job (default 0: all are covered). power: power profiles. pue: joules that the building draws for
    each joule of a GPU (default 1). gpu_usd_per_h: rent of each GPU, used or free (default 0). price [$/kWh] and carbon
    [g/kWh]: over the trace's time (default: none).
    """

    idle_w: NotNegative
    busy_w: NotNegative = 0.0
    power: tuple[PowerOf, ...] = ()
    pue: Annotated[float, msgspec.Meta(ge=1)] = 1.0
    gpu_usd_per_h: NotNegative = 0.0
    price: Steps | None = None
    carbon: Steps | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Something says what a working GPU draws, and it is not less than an idle one."""
        if not self.busy_w and not self.power:
            return [("", "says nothing about working GPUs; give busy_w, or power: [{file: power.yaml}]")]
        if self.busy_w and self.busy_w < self.idle_w:
            return [("busy_w", f"{self.busy_w:g} W is below idle_w {self.idle_w:g} W")]
        return []


class Live(Spec, frozen=True, kw_only=True):
    """How the jobs run as real processes (`forerun live run`); a simulation ignores it.

    command: the program of every job and its arguments; no shell reads it (default: a paced program, which steps as fast
    as the throughput says). commands: by model, before `command`. width: one process a GPU (`ranks`, default), or one
    process that stands for all GPUs of its job (`declared`; paced programs only). checkpoint_s: wall seconds between
    periodic checkpoints (default 60). checkpoints_kept: how many stay on disk (default 2). environment: names of the
    variables that jobs inherit (default: none). retries: how often a job starts again after a failure of its own
    (default 3). All that follows is in wall seconds, under every clock. heartbeat_s: between two heartbeats of a node
    (default 1). lease_s: how long a node runs jobs after its last answered heartbeat (default 10). grace_s: how long
    GPUs stay empty beyond that (default 2). drain_s: how long a job may take to save its state and leave (default 30).
    hang_s: how long it may be silent, or ten of its steps if that is longer (default 60).
    """

    command: tuple[str, ...] = ()
    commands: dict[str, Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]] = {}
    width: Literal["ranks", "declared"] = "ranks"
    checkpoint_s: Positive = 60.0
    checkpoints_kept: Annotated[int, msgspec.Meta(ge=2)] = 2
    environment: tuple[str, ...] = ()
    retries: Whole = 3
    heartbeat_s: Positive = 1.0
    lease_s: Positive = 10.0
    grace_s: Positive = 2.0
    drain_s: Positive = 30.0
    hang_s: Positive = 60.0

    def problems(self) -> list[tuple[str, str]]:
        """Leases outlast two heartbeats, and only paced programs stand for GPUs that they do not use."""
        problems = []
        if self.lease_s <= 2 * self.heartbeat_s:
            problems.append(
                (
                    "lease_s",
                    f"is {self.lease_s:g} s; more than two heartbeats of {self.heartbeat_s:g} s is required",
                )
            )
        if self.width == "declared" and (self.command or self.commands):
            problems.append(("width", "declared is for the paced program; leave command and commands out"))
        return problems


class Scenario(Spec, frozen=True, kw_only=True):
    """Jobs, machines, throughput, and the policy that decides.

    policy: default ElasticFlow with admission control. mode: `compat` repeats the known bugs of the published
    simulators, `corrected` (default) fixes them, `default` has no published schedules; compat: overrides single switches
    (`{marginal_order: corrected}`).
    slot_s: the slot of published schedules (default 60). placement, costs, multi_node_penalty (speed on 1, 2, 3 ...
    nodes), quota and limits apply to policies that decide through a view. loading: slows steps down to the arrival of data;
    bill: prices the run; both read profiles that other domains export. slowdown: some jobs are slower than their
    throughput says. placement_kept: under ElasticFlow and EDF a job keeps its very GPUs while their number stays, and
    moves cost what a table says (default: no, as published; yes where `live` is given). live: how jobs run as real
    processes. maintenance: windows in which GPUs are kept free (default: none). failures: of nodes, at random (default:
    those that the site's files show). limits: of what users, accounts, qualities of service or partitions have running at
    once (default: none). seed: of all random numbers (default 0).
    """

    added_later: ClassVar[tuple[str, ...]] = (
        "slowdown",
        "placement_kept",
        "live",
        "maintenance",
        "failures",
        "limits",
    )

    domain: Literal["cluster"] = "cluster"
    spec_version: int = 1
    title: str = ""
    trace: TraceSpec
    machines: Machines
    profile: tuple[ProfileSpec, ...] = ()
    policy: Annotated[Policy, chosen_from(schedulers)] = ElasticFlow()
    mode: Literal["default", "compat", "corrected"] = _USUAL_MODE
    compat: dict[str, Literal["compat", "corrected"]] = {}
    slot_s: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 60
    placement: Placement = "anywhere"
    costs: Costs = Costs()
    multi_node_penalty: tuple[Annotated[float, msgspec.Meta(gt=0, le=1)], ...] = (1.0,)
    quota: Quota | None = None
    loading: tuple[Loading, ...] = ()
    bill: Bill | None = None
    slowdown: Slowdown | None = None
    placement_kept: bool | None = None
    live: Live | None = None
    maintenance: tuple[Maintenance, ...] | None = None
    failures: Failures | None = None
    limits: tuple[Limit, ...] | None = None
    seed: int = 0

    def problems(self) -> list[tuple[str, str]]:
        """An unknown mode or switch, and sections that do not fit together."""
        if self.mode not in engines():
            return [("mode", f"no mode {self.mode!r}; {known_names(self.mode, engines())}")]
        engine = engine_of(self)
        return [
            *engine.problems(self.policy),
            *failing(self._profile_checks()),
            *failing(self._policy_checks(replans=engine.replans(self.policy))),
            *failing(self._limit_checks()),
        ]

    def _profile_checks(self) -> Checks:
        """One profile a GPU type, and one alone where others multiply with it."""
        types = [profile.gpu_type for profile in self.profile]
        multiplied = bool(self.loading or (self.bill and self.bill.power))
        durations = any(profile.scales_durations for profile in self.profile)
        number = f"profiles {'are of several GPU types' if types else 'are absent'}"
        alone = "a profile without kinds stands alone; give kinds: [[model, batch], ...]"
        return [
            (len(set(types)) < len(types), "profile", "two profiles are of one gpu_type"),
            (
                multiplied and len(types) != 1,
                "profile",
                f"{number}; supply and power profiles need exactly one",
            ),
            (durations and len(types) > 1, "profile", alone),
            (durations and multiplied, "profile", "has no kinds, which supply and power profiles need"),
            (not self.multi_node_penalty, "multi_node_penalty", "is empty; the speed on one node is 1"),
        ]

    def _policy_checks(self, *, replans: bool) -> Checks:
        """What not every policy knows. replans: whether it plans jobs again that are slower than it thought."""
        name, requests = member_name(type(self.policy)), "requested_s" in self.policy.needs
        slower = (
            f"{name} ends jobs when their throughput says so; slower jobs are simulated under ef-accessctrl in mode: "
            "corrected, which plans them again"
        )
        by_requests = (
            f"is for policies that plan by requested times ({', '.join(BACKFILLING)}); {name} does not"
        )
        return [
            (self.slowdown is not None and not replans, "slowdown", slower),
            (bool(self.maintenance) and not requests, "maintenance", by_requests),
            (self.failures is not None and not requests, "failures", by_requests),
        ]

    def _limit_checks(self) -> Checks:
        """Limits, a quota and real jobs do not all go together."""
        live, quota, limits = self.live is not None, self.quota is not None, bool(self.limits)
        site = "has limits, which neither a quota nor real jobs (`live`) go with"
        beside = "stand beside a quota; give one of them (limits: [{per: [user], gpus: 32}])"
        simulated = "are simulated only; where jobs really run (`live`), give a quota"
        moves = "is false; real jobs move only when they must (`live`)"
        return [
            (bool(self.machines.site) and (quota or live), "machines.site", site),
            (limits and quota, "limits", beside),
            (limits and live, "limits", simulated),
            (live and self.placement_kept is False, "placement_kept", moves),
        ]
