"""From a scenario to the inputs of its run: every file is read here, once, and every problem of a file is reported here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np

from forerun.cluster.inputs.arrays import (
    F64,
    NO_REQUEST_S,
    Cluster,
    JobLabels,
    Jobs,
    NodeGroup,
    ThroughputTable,
)
from forerun.cluster.inputs.costs import PRESETS, SOURCES, CostTable, cost_table, plain, read_costs
from forerun.cluster.inputs.edit import edited
from forerun.cluster.inputs.files import JobTable, cluster_of, jobs_of, read_cluster, read_tables
from forerun.cluster.inputs.jobs import (
    fitting,
    on_what_they_ask_for,
    require_requests,
    rigid_note,
    sampled,
    scaled_from_durations,
    whole_table_from,
    with_deadlines,
    with_iterations,
    with_requests,
)
from forerun.cluster.inputs.kueue import Queues, is_kueue, read_kueue
from forerun.cluster.inputs.limits import (
    LIMIT_COLUMNS,
    RULE_COLUMNS,
    UNLIMITED,
    LimitRule,
    Limits,
    QueuesOfJobs,
    RuleColumn,
    array_rules,
    resolved,
)
from forerun.cluster.inputs.node_failures import with_drawn_failures
from forerun.cluster.inputs.otherwise import with_other_nodes, with_other_quotas, without_limits
from forerun.cluster.inputs.reach import as_far_as_known
from forerun.cluster.inputs.setting import REQUEUE_S, Failure, Setting, Window
from forerun.cluster.inputs.site import Site, with_greatest_request, with_time_limits
from forerun.cluster.inputs.slurm_conf import (
    SlurmPriorities,
    partition_limits,
    read_slurm_nodes,
    read_slurm_priorities,
)
from forerun.cluster.inputs.slurm_preemption import preemption_of
from forerun.cluster.inputs.slurm_priority import with_scheduler_parameters, with_site_priorities
from forerun.cluster.inputs.slurm_site import nodes_of_partitions, read_slurm_site
from forerun.cluster.inputs.step_use import StepUse, slowed, stretched
from forerun.cluster.inputs.throughput import analytic, filled
from forerun.cluster.inputs.usage import begun, failed_with, joined, overlaps
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.kueue import Kueue
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.slurm_backfill import DAY_S, SlurmBackfill
from forerun.cluster.policy import Allocator, Policy, Schedule
from forerun.cluster.readers.cluster_jobs import UNMEETABLE
from forerun.cluster.scenario import (
    MOST_GPUS,
    RIGID,
    Limit,
    Machines,
    ProfileSpec,
    Quota,
    Scenario,
)
from forerun.cluster.summary.past import Known, Recorded
from forerun.core.errors import Problem, ScenarioError, TraceError, known_names
from forerun.core.registry import member_name
from forerun.core.rng import stream
from forerun.core.trace.repair import RepairLog


@dataclass(frozen=True, slots=True)
class Inputs:
    """A scenario whose files are read.

    setting: jobs, cluster and throughput as arrays. notes: what was assumed, repaired or ignored, for the result.
    step_use: what a step is made of, where the scenario limits power, loads data or has a bill; None otherwise. policy: that
    of the scenario, with what it leaves to the files of the site. resampled: as of a `JobTable`. past: what happened to the
    jobs, or why that is not known; None: jobs that really run. known: what is given of the site. origin_s: as of a
    `JobTable`.
    """

    scenario: Scenario
    setting: Setting
    notes: tuple[str, ...]
    policy: Policy
    step_use: StepUse | None = None
    resampled: tuple[int, float] | None = None
    past: Recorded | str | None = None
    known: Known = field(default_factory=Known)
    origin_s: float | None = None


#: before anything is read
_NO_MACHINES: Final = Cluster(())
_NO_LOG: Final = JobTable("", Jobs.of((), (), ()))
_NO_SITE: Final = Site()


@dataclass(frozen=True, slots=True)
class _World:
    """A scenario on its way to its inputs: each step takes one world and returns the next, in the order of `_STEPS`.

    What no step has made yet is empty. policy: with what it leaves to the files of the site. table: the log as read.
    profiles: one a GPU type. jobs: of the run so far, rows of the log. requeue_s: after how long jobs come again that
    are put back into the queue. notes: by the step that makes them.
    """

    scenario: Scenario
    repairs: RepairLog
    policy: Policy
    cluster: Cluster = _NO_MACHINES
    profiles: tuple[ThroughputTable, ...] = ()
    table: JobTable = _NO_LOG
    jobs: Jobs = _NO_LOG.jobs
    site: Site = _NO_SITE
    step_use: StepUse | None = None
    slowness: F64 | None = None
    requeue_s: float = REQUEUE_S
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def profile(self) -> ThroughputTable | None:
        """That of the first GPU type."""
        return self.profiles[0] if self.profiles else None

    def noting(self, step: str, notes: Sequence[str]) -> _World:
        """With notes of a step."""
        return replace(self, notes={**self.notes, step: (*self.notes.get(step, ()), *notes)})

    def limits(self) -> Limits | None:
        """Those of the jobs so far."""
        return limits_of(self.scenario, self.site, self.table, self.jobs, self.cluster)


def prepare(scenario: Scenario, log: JobTable = _NO_LOG) -> Inputs:
    """Read the files that a scenario names and resolve it into arrays.

    Raises TraceError, ProfileError or ScenarioError, each naming everything that is wrong with a file.

    Parameters
    ----------
    scenario : what is run.
    log : its jobs, where they have been read (default: they are read from its trace).
    """
    world = _World(scenario, RepairLog(strict=scenario.trace.strict), scenario.policy, table=log)
    for step in _STEPS:
        world = step(world)
    return _resolved(world)


def _with_machines(world: _World) -> _World:
    """The machines, and their throughput."""
    cluster = cluster_from(world.scenario)
    given = [spec for spec in world.scenario.profile if not spec.scales_durations]
    profiles = tuple(profile_from(spec, cluster) for spec in given)
    _one_order_of_kinds(profiles)
    return replace(world, cluster=cluster, profiles=profiles)


def _with_log(world: _World) -> _World:
    """The whole log as its file has it, each job with whose quota it counts against."""
    scenario, table = world.scenario, world.table
    if not len(table):
        table = whole_table_from(scenario.trace, world.profile, scenario.seed, world.repairs)
    if scenario.quota is not None:
        _check_quota_names(scenario.quota, table)
        table = replace(table, jobs=replace(table.jobs, user=_owners(table, scenario.quota.per)))
    return replace(world, table=table)


def _sampled(world: _World) -> _World:
    """The jobs of the log that the run takes.

    Only now: who has no job in the blocks that are drawn may still have a quota.
    """
    return replace(world, table=sampled(world.table, world.scenario.trace, world.scenario.seed))


def _with_use(world: _World) -> _World:
    """A log of a site whose machines are given: it fits on them, and all is known of what runs from some instant on."""
    machines = world.scenario.machines
    if machines.file is None or machines.partition is not None or world.table.resampled is not None:
        return world
    if is_kueue(Path(machines.file.path)):
        overlaps(world.table, world.cluster, {})
    if not machines.is_slurm:
        return world
    node_gpus = _slurm_nodes(machines, "")[1]
    over = overlaps(world.table, world.cluster, node_gpus)
    table, began = begun(world.table, world.cluster, list(node_gpus))
    return replace(world, table=table).noting("use", (*over, *began))


def _with_policy(world: _World) -> _World:
    """The policy with what it leaves to the files of the site."""
    policy, configured = _configured(world.scenario, world.table)
    return replace(world, policy=policy).noting("policy", configured)


def _with_site(world: _World) -> _World:
    """What the site's files say, and the log as one of jobs that fail and are stopped in the run as in the log."""
    scenario, table = world.scenario, world.table
    site = site_of(scenario, table, world.cluster)
    if scenario.failures is not None:
        site = with_drawn_failures(site, scenario.failures, table, world.cluster, scenario.seed)
    world = replace(world, site=site)
    if table.recorded is None or not isinstance(world.policy, BackfillPolicy):
        return world
    names = list(_slurm_nodes(scenario.machines, "")[1]) if scenario.machines.is_slurm else []
    again = failed_with(
        table, {at_s - (table.origin_s or 0.0): nodes for at_s, nodes in site.failures.items()}, names
    )
    if scenario.failures is not None:
        again |= np.array([text.startswith("NODE_FAIL") for text in table.recorded.jobs.state], np.bool_)
    if isinstance(world.policy, SlurmBackfill) and world.policy.preemption is not None:
        again |= np.array([text.startswith("PREEMPTED") for text in table.recorded.jobs.state], np.bool_)
    delays_s = _delays_s(table)
    table, said = joined(table, again, scenario.costs.checkpoint_s or 0.0)
    return replace(world, table=table, requeue_s=delays_s).noting("use", said)


def _delays_s(table: JobTable) -> float:
    """How long after its end a run of the log that is put back into the queue comes again, in the middle of all."""
    labels = table.jobs.labels
    known = [] if labels is None else labels.after_delay_s[labels.attempt > 1].tolist()
    return float(np.median(known)) if known else REQUEUE_S


def _with_jobs(world: _World) -> _World:
    """The jobs of the log, tied to a profile that knows what they ask for."""
    profiles = world.profiles
    if profiles and world.policy.keeps_requests and (counts := _unmeasured(world.table, profiles[0])):
        extrapolate = world.scenario.profile[0].extrapolate
        profiles = tuple(filled(each, counts, extrapolate=extrapolate) for each in profiles)
    jobs = jobs_of(world.table, profiles[0] if profiles else None, world.repairs)
    if isinstance(world.policy, Schedule) and jobs.censored.any():
        left = f"left out: {int(jobs.censored.sum())} jobs cancelled while pending, as its published rules know none"
        world = world.noting("work", (left,))
        jobs = jobs.take(np.flatnonzero(~jobs.censored))
    return replace(world, profiles=profiles, jobs=jobs)


def _with_work(world: _World) -> _World:
    """Jobs with a model have iterations, and deadlines if the scenario draws some."""
    jobs, trace = world.jobs, world.scenario.trace
    if world.profile is not None:
        jobs, assumed = with_iterations(jobs, world.profile, world.table)
        world = world.noting("work", assumed)
    if trace.slack:
        jobs = with_deadlines(jobs, trace, world.scenario.seed)
    return replace(world, jobs=jobs)


def _with_requests(world: _World) -> _World:
    """Jobs have the requested times that the site or the scenario gives them."""
    jobs, filled_in = with_time_limits(world.jobs, world.site.longest, _columns_of(world.table, world.jobs))
    if (most := world.scenario.trace.overestimate) is not None:
        jobs = with_requests(jobs, most, world.scenario.seed)
    if "requested_s" in world.policy.needs:
        jobs, greatest = with_greatest_request(jobs)
        filled_in = (*filled_in, *greatest)
    past = world.table.recorded
    if past is not None and past.jobs.unfinished is not None:  # they run for as long as they asked for
        asked = past.jobs.unfinished[jobs.file_row] & (jobs.requested_s < NO_REQUEST_S)
        longer_s = np.maximum(jobs.duration_s, jobs.requested_s)
        jobs = replace(jobs, duration_s=np.where(asked, longer_s, jobs.duration_s))
    return replace(world, jobs=jobs).noting("time limits", filled_in)


def _with_throughput(world: _World) -> _World:
    """Jobs without throughput have what the policy needs: a curve, or the speed on what they ask for."""
    policy = world.policy
    if preset := _preset_for(world.scenario, world.profile):
        jobs, profile, assumed = scaled_from_durations(
            world.jobs, preset, world.cluster, keeps=policy.keeps_requests
        )
    elif not policy.keeps_requests and "iterations" in policy.needs and (world.jobs.kind < 0).any():
        jobs, profile, assumed = on_what_they_ask_for(world.jobs, world.profile, world.cluster)
    else:
        return world
    return replace(world, jobs=jobs, profiles=(profile,)).noting("work", assumed)


def _slowed(world: _World) -> _World:
    """A profile whose steps wait for data or run under a power limit.

    Only now: random deadlines are drawn for jobs whose data arrive in time.
    """
    scenario, before = world.scenario, world.profile
    if before is None or (not scenario.loading and scenario.bill is None):
        return world
    profile, step_use, slower = slowed(before, scenario, world.cluster)
    jobs = stretched(world.jobs, before, profile)
    world = replace(world, jobs=jobs, profiles=(profile, *world.profiles[1:]), step_use=step_use)
    return world.noting("steps", slower)


def _that_can_run(world: _World) -> _World:
    """The jobs of the run, each of which can run: with a requested time where the policy plans by it, on GPUs there are."""
    scenario, policy, jobs = world.scenario, world.policy, world.jobs
    if scenario.trace.first:
        jobs = jobs.take(np.arange(min(scenario.trace.first, len(jobs))))
    order = policy.order if isinstance(policy, BackfillPolicy) else None
    if isinstance(order, Multifactor) and not order.ranks(jobs.labels):
        what = "multifactor without weights is the order of submission; give it some, such as {age: 1000, job_size: 1000}"
        raise ScenarioError.at("$.policy.order.weights", f"{what}, or machines.file: a slurm.conf with some")
    if "requested_s" in policy.needs:
        require_requests(jobs, world.table, member_name(type(policy)))
    jobs = _of_partitions(jobs, world)
    places = isinstance(policy, Allocator) and policy.places
    jobs, shapeless = as_far_as_known(
        jobs,
        world.cluster,
        lambda row: world.table.place(int(jobs.file_row[row])),
        shaped=places or scenario.placement != "anywhere" or bool(world.cluster.partitions),
    )
    world = world.noting("shapes", shapeless)
    if world.profiles or policy.keeps_requests:
        jobs = fitting(jobs, world.table, world.profiles, world.cluster, scenario, world.repairs)
    world = replace(world, jobs=jobs)
    jobs = _within_limits(jobs, world.limits(), world.table, scenario, world.repairs)
    world.repairs.finish()
    return replace(world, jobs=jobs)


def _of_partitions(jobs: Jobs, world: _World) -> Jobs:
    """The jobs of partitions that there are. Raises TraceError for others, unless the scenario drops and counts them."""
    partitions, table = world.cluster.partitions, world.table
    if not partitions or jobs.labels is None:
        return jobs
    lost = {
        name for name in set(jobs.labels.partition) if name and not partitions.keys() & set(name.split(","))
    }
    rows = [row for row, name in enumerate(jobs.labels.partition) if name in lost]
    if not rows:
        return jobs
    places = [table.place(row) for row in sorted(jobs.file_row[rows].tolist())[:3]]
    if world.scenario.trace.larger == "drop" and len(rows) < len(jobs):
        world.repairs.note_many(
            "job of a partition that the configuration has not left out", places, len(rows)
        )
        return jobs.take(np.delete(np.arange(len(jobs)), rows))
    first, *others = sorted(lost)
    more = f" and {len(others)} partitions more" if others else ""
    what = f"partition {first!r}{more} of {len(rows)} jobs is not in the configuration; {known_names(first, partitions)}"
    left_out = " (trace.larger: drop leaves such jobs out)" if len(rows) < len(jobs) else ""
    raise TraceError.at(places[0], what + left_out)


def _edited(world: _World) -> _World:
    """Jobs left out or changed.

    Only now: whatever is drawn for jobs at random is that of the jobs as they were.
    """
    slowness = slowness_of(world.scenario, len(world.jobs))
    if (edit := world.scenario.trace.edit) is None:
        return replace(world, slowness=slowness)
    keeps = world.policy.keeps_requests
    jobs, rows = edited(world.jobs, edit, world.profile, world.cluster, keeps=keeps)
    return replace(world, jobs=jobs, slowness=None if slowness is None else slowness[rows])


_STEPS: Final = (
    _with_machines,
    _with_log,
    _sampled,
    _with_use,
    _with_policy,
    _with_site,
    _with_jobs,
    _with_work,
    _with_requests,
    _with_throughput,
    _slowed,
    _that_can_run,
    _edited,
)


def _resolved(world: _World) -> Inputs:
    """The inputs of a world to which no step is left."""
    scenario, cluster, jobs, profile = world.scenario, world.cluster, world.jobs, world.profile
    limits, site = world.limits(), world.site
    outages, unplanned = _outages_of(scenario, site, world.table, jobs, cluster)
    setting = Setting(
        jobs=jobs,
        cluster=cluster,
        profile=profile,
        slot_s=scenario.slot_s,
        gpu_type=cluster.node_types()[0] or (profile.gpu_type if profile else ""),
        seed=scenario.seed,
        profiles=world.profiles if len(world.profiles) > 1 else (),
        costs=costs_of(scenario, jobs),
        slowness=world.slowness,
        own=world.policy.read(),
        placement_kept=scenario.live is not None
        if scenario.placement_kept is None
        else scenario.placement_kept,
        maintenance=(*maintenance_of(scenario, cluster), *outages),
        failures=_failures_of(world),
        limits=limits,
        origin_s=world.table.origin_s or 0.0,
    )
    repairs = world.repairs.repairs
    apart = any(len(nodes) < cluster.nodes for nodes in cluster.partitions.values())
    apart |= any("partition" in rule.of for rule in site.rules)
    notes = (
        *_notes(setting, {repair.rule for repair in repairs}),
        *world.notes.get("work", ()),
        *_ignored(scenario, setting),
        *_log_notes(world.table, cluster, apart=apart),
        *site.notes,
        *world.notes.get("use", ()),
        *world.notes["time limits"],
        *world.notes["shapes"],
        *world.notes["policy"],
        *unplanned,
        *world.notes.get("steps", ()),
        *(str(repair) for repair in repairs),
    )
    return Inputs(
        scenario,
        setting,
        notes,
        world.policy,
        world.step_use,
        world.table.resampled,
        _past_of(world),
        Known(
            apart,
            _knows_shares(scenario.machines, world.policy),
            declared_policy(scenario.machines),
            tuple(_slurm_nodes(scenario.machines, "")[1]) if scenario.machines.is_slurm else (),
        ),
        world.table.origin_s,
    )


def _knows_shares(machines: Machines, policy: Policy) -> bool:
    """Whether a policy has shares, or the site's configuration says that they weigh nothing."""
    order = policy.order if isinstance(policy, BackfillPolicy) else None
    if isinstance(order, Multifactor) and order.weights.fairshare > 0:
        return True
    settings = _conf(machines).settings if machines.is_slurm else {}
    return bool(settings) and settings.get("priorityweightfairshare", ("", "0"))[1] == "0"


def _past_of(world: _World) -> Recorded | str | None:
    """What happened to the jobs of a world to which no step is left, or why that is not known."""
    trace, recorded = world.scenario.trace, world.table.recorded
    if world.scenario.live is not None:
        return None
    if trace.generate is not None or trace.published is not None:
        return "the jobs are generated"
    if trace.resample is not None:
        return "the jobs are resampled from a log"
    if trace.edit is not None:
        return "jobs of the log are left out or changed"
    return recorded.take(world.jobs.file_row) if recorded is not None else "the log has no starts"


def declared_policy(machines: Machines) -> str:
    """The policy that the files of a site say it has; empty: they do not."""
    if machines.file is None:
        return ""
    path = Path(machines.file.path)
    if is_kueue(path):
        return "kueue"
    if not machines.is_slurm:
        return ""
    plugin = _conf(machines).settings.get("schedulertype", ("", "sched/backfill"))[
        1
    ]  # as Slurm has it by default
    return "slurm-builtin" if plugin == "sched/builtin" else "slurm-backfill"


def cluster_from(scenario: Scenario) -> Cluster:
    """The machines of a scenario, with nodes that are otherwise than its files say."""
    return with_other_nodes(_as_given(scenario), scenario.machines.otherwise)


def _as_given(scenario: Scenario) -> Cluster:
    """The machines of a scenario as its files, or its lines, have them."""
    machines = scenario.machines
    gpu_type = scenario.profile[0].gpu_type if scenario.profile else ""
    if machines.is_slurm:
        return _slurm_nodes(machines, gpu_type)[0]
    if machines.file is not None and is_kueue(path := Path(machines.file.path)):
        return _kueue(scenario, [path, *_site_files(machines)]).cluster(gpu_type, MOST_GPUS)
    if machines.file is not None:
        return read_cluster(Path(machines.file.path), gpu_type)
    return cluster_of(
        NodeGroup(node.name or f"group{at}", node.count, node.gpus, node.gpu_type or gpu_type, node.rack)
        for at, node in enumerate(machines.nodes)
    )


def _site_files(machines: Machines) -> list[Path]:
    return [Path(one.path) for one in machines.site or ()]


def _kueue(scenario: Scenario, paths: Sequence[Path]) -> Queues:
    """The queues in such of some files as are of Kueue."""
    resources = (scenario.trace.options or {}).get("resources", ())
    machines = scenario.machines
    queues = read_kueue([path for path in paths if is_kueue(path)], machines.ignore or (), resources)
    return with_other_quotas(queues, machines.otherwise)


def _slurm_nodes(machines: Machines, gpu_type: str) -> tuple[Cluster, dict[str, int]]:
    """The machines of a Slurm configuration, and the GPUs of each node by its name."""
    assert machines.file is not None
    return read_slurm_nodes(
        Path(machines.file.path),
        gpu_type,
        partition=machines.partition or "",
        included=[Path(one.path) for one in machines.included or ()],
        printed=nodes_of_partitions(path for path in _site_files(machines) if not is_kueue(path)),
        most_gpus=MOST_GPUS,
        whole=machines.unit == "nodes",
    )


def _conf(machines: Machines) -> SlurmPriorities:
    """What a Slurm configuration says besides its nodes."""
    assert machines.file is not None
    return read_slurm_priorities(
        Path(machines.file.path), [Path(one.path) for one in machines.included or ()]
    )


def _configured(scenario: Scenario, table: JobTable) -> tuple[Policy, tuple[str, ...]]:
    """The policy of a scenario, with what it leaves to the files of the site; and notes on that. table: the log."""
    policy, machines = scenario.policy, scenario.machines
    notes: tuple[str, ...] = ()
    if isinstance(policy, SlurmBackfill) and policy.backfills and machines.is_slurm:
        policy, notes = with_scheduler_parameters(policy, _conf(machines))
    if machines.is_slurm and not machines.partition and isinstance(policy, Allocator):
        files = [path for path in _site_files(machines) if not is_kueue(path)]
        rule, said = preemption_of(_conf(machines), files, table.jobs.labels)
        if isinstance(policy, SlurmBackfill):
            policy = policy.with_(preemption=policy.preemption or rule)
            notes = (*notes, *said)
        elif rule is not None:
            notes = (*notes, f"not simulated: preemption by {rule.by}, which slurm-backfill knows")
    order = policy.order if isinstance(policy, BackfillPolicy) else None
    if not isinstance(order, Multifactor) or (not machines.is_slurm and not machines.site):
        return policy, notes
    files = [path for path in _site_files(machines) if not is_kueue(path)]
    order, ranked = with_site_priorities(
        order,
        _conf(machines) if machines.is_slurm else None,
        files,
        table.jobs.labels,
    )
    return policy.with_(order=order), (*notes, *ranked)


def site_of(scenario: Scenario, table: JobTable, cluster: Cluster) -> Site:
    """What the files of a scenario's site say besides its nodes, without limits that do not hold.

    Raises ScenarioError with all that is wrong with the files, and for a limit that there is not.
    """
    return without_limits(_site_as_given(scenario, table, cluster), scenario.machines.otherwise)


def _site_as_given(scenario: Scenario, table: JobTable, cluster: Cluster) -> Site:
    machines = scenario.machines
    files = _site_files(machines)
    if machines.file is not None and is_kueue(path := Path(machines.file.path)):
        files.insert(0, path)
    if kueue := [path for path in files if is_kueue(path)]:
        if len(kueue) < len(files):
            raise ScenarioError.at(
                "$.machines.site", "has files of Slurm beside Kueue's; give those of one of them"
            )
        return _kueue(scenario, kueue).site(cluster, table.vc)
    conf = _conf(machines) if machines.is_slurm else None
    if not files and conf is None:
        return Site()
    zone = "" if table.recorded is None else table.recorded.zone
    until_s = np.inf if table.origin_s is None else table.origin_s + float(table.jobs.submit_s.max(initial=0))
    site = read_slurm_site(
        files,
        cluster,
        _slurm_nodes(machines, "")[1] if machines.is_slurm else None,
        timezone=str((scenario.trace.options or {}).get("timezone", "")) or zone,
        until_s=until_s,
        conf=conf,
    )
    return site if conf is None else replace(site, longest=(*site.longest, *partition_limits(conf)))


def _outages_of(
    scenario: Scenario, site: Site, table: JobTable, jobs: Jobs, cluster: Cluster
) -> tuple[tuple[Window, ...], tuple[str, ...]]:
    """The maintenance of a site's calendar in the time of the jobs, and notes on what is not simulated.

    Raises ScenarioError for GPUs of several types.
    """
    if not site.outages:
        return (), ()
    name, count = member_name(type(scenario.policy)), len(site.outages)
    origin_s = 0.0 if table.origin_s is None and scenario.failures is not None else table.origin_s
    if origin_s is None:
        return (), (f"not simulated: {count} windows of maintenance, whose dates the log's times have not",)
    if "requested_s" not in scenario.policy.needs:
        return (), (
            f"not simulated: {count} windows of maintenance; {name} does not plan by requested times",
        )
    types = tuple(dict.fromkeys(cluster.node_types()))
    if len(types) > 1 and not all(one.nodes for one in site.outages):
        raise ScenarioError.at(
            "$.machines.site", "maintenance of GPUs of several types needs a slurm.conf that names the nodes"
        )
    size, node_types = cluster.node_gpus(), cluster.node_types()
    until_s = float(jobs.submit_s.max(initial=0))
    windows = tuple(
        Window(
            one.from_s - origin_s,
            min(one.to_s - origin_s, until_s + DAY_S),
            one.gpus,
            max(one.announced_s - origin_s, 0.0),
            one.nodes,
            tuple(
                sum(int(size[node]) for node in one.nodes if node_types[node] == gpu_type)
                for gpu_type in types[: len(types) if len(types) > 1 else 0]
            ),
        )
        for one in site.outages
        if one.to_s > origin_s and one.from_s - origin_s <= until_s
    )
    away = count - len(windows)
    return windows, (f"{away} of {count} windows of maintenance are outside the time of the jobs",) * (
        away > 0
    )


def _failures_of(world: _World) -> tuple[Failure, ...]:
    """The failures of a site's nodes in the time of the jobs, under policies that know which nodes are away."""
    origin_s, last_s = world.table.origin_s or 0.0, float(world.jobs.submit_s.max(initial=0))
    if not isinstance(world.policy, BackfillPolicy):
        return ()
    return tuple(
        Failure(at_s - origin_s, nodes, world.requeue_s)
        for at_s, nodes in world.site.failures.items()
        if 0 <= at_s - origin_s <= last_s
    )


def profile_from(spec: ProfileSpec, cluster: Cluster) -> ThroughputTable:
    """One profile of a scenario."""
    gpu_type = spec.gpu_type or cluster.node_types()[0]
    if spec.analytic:
        made = analytic(spec.kinds, spec.analytic, gpus_per_node=cluster.gpus_per_node)
        made = replace(made, gpu_type=gpu_type)
    else:
        made = read_tables([Path(table.path) for table in spec.tables], gpu_type)
    return filled(made, spec.levels, extrapolate=spec.extrapolate) if spec.levels else made


def costs_of(scenario: Scenario, jobs: Jobs) -> CostTable | None:
    """The costs by model of a scenario, tied to its jobs; None where it has no table."""
    costs = scenario.costs
    otherwise = plain(costs.restart_s, costs.grow_s, costs.shrink_s)
    if costs.preset:
        return cost_table(PRESETS[costs.preset], jobs, otherwise, "$.costs.preset", SOURCES[costs.preset])
    if costs.file is not None:
        path = Path(costs.file.path)
        return cost_table(read_costs(path), jobs, otherwise, path.name, path.name)
    if costs.models:
        return cost_table(costs.models, jobs, otherwise, "$.costs.models", "the scenario's own")
    return None


def slowness_of(scenario: Scenario, jobs: int) -> F64 | None:
    """How many times as long as planned each job's work takes, at random; None without a `slowdown`."""
    slowdown = scenario.slowdown
    if slowdown is None:
        return None
    slow, factor = stream(scenario.seed, "slowdown").random((jobs, 2)).T
    drawn = slowdown.least + factor * (slowdown.most - slowdown.least)
    return np.where(slow < slowdown.share, drawn, 1.0)


def maintenance_of(scenario: Scenario, cluster: Cluster) -> tuple[Window, ...]:
    """The windows of a scenario. Raises ScenarioError for more GPUs than there are, or GPUs of several types."""
    given = scenario.maintenance or ()
    if given and len(set(cluster.node_types())) > 1:
        raise ScenarioError.at("$.maintenance", "needs a cluster whose GPUs are of one type")
    problems = [
        Problem(f"$.maintenance[{at}].gpus", f"is {each.gpus}; the cluster has {cluster.gpus}")
        for at, each in enumerate(given)
        if each.gpus > cluster.gpus
    ]
    if problems:
        raise ScenarioError(*problems)
    return tuple(
        Window(each.from_s, each.to_s, each.gpus or cluster.gpus, min(each.announced_s, each.from_s))
        for each in given
    )


def limits_of(scenario: Scenario, site: Site, table: JobTable, jobs: Jobs, cluster: Cluster) -> Limits | None:
    """The limits of a scenario and its site, tied to its jobs; None where there are none.

    Raises ScenarioError for names in the scenario that are not in the log.

    Parameters
    ----------
    scenario, site, cluster : with the limits, and the GPU types.
    table : the log.
    jobs : of the run, rows of the log.
    """
    columns = _columns_of(table, jobs)
    arrays = () if scenario.quota or scenario.live else dict.fromkeys(columns["array"])
    if not scenario.limits and not site.rules and not any(arrays):
        return None
    _check_limit_names(scenario, _limit_columns(table), table.source)
    rules = [rule_of(at, limit) for at, limit in enumerate(scenario.limits or ())]
    rules += array_rules(arrays)
    types = tuple(dict.fromkeys(cluster.node_types()))
    known = frozenset().union(*(queue.partitions for queue in site.queues))
    if site.queues:
        unknown = sorted(set(columns["partition"]) - known)
        rules += [
            LimitRule(f"no ClusterQueue {name!r}: it", {"partition": frozenset({name})}, gpus=0)
            for name in unknown
        ]
    limits = resolved((*rules, *site.rules), site.pools, columns, types)
    if jobs.labels is not None:
        asked = jobs.labels.asked_gpus
        limits = replace(limits, asks=np.where(asked > 0, asked, jobs.gpus))
    return (
        replace(limits, queues=_queues_of(site, table, jobs, columns["partition"], types))
        if site.queues
        else limits
    )


def _queues_of(
    site: Site, table: JobTable, jobs: Jobs, partitions: list[str], types: tuple[str, ...]
) -> QueuesOfJobs:
    """Which queue each job is in, and how the queues admit. partitions: of the jobs."""
    number = {name: at for at, queue in enumerate(site.queues) for name in queue.partitions}
    given = table.priority or (0.0,) * len(table)
    numbers = {name.lower(): at for at, name in enumerate(types)}
    return QueuesOfJobs(
        of=tuple(number.get(name, -1) for name in partitions),
        priority=tuple(0.0 if np.isnan(given[row]) else given[row] for row in jobs.file_row.tolist()),
        terms=tuple(queue.terms for queue in site.queues),
        names=tuple(queue.name for queue in site.queues),
        nominal_gpus=tuple(
            {numbers[name.lower()]: gpus for name, gpus in queue.nominal_gpus.items()}
            for queue in site.queues
        ),
    )


def _columns_of(table: JobTable, jobs: Jobs) -> dict[RuleColumn, list[str]]:
    """What jobs of a run may be limited by."""
    rows = jobs.file_row.tolist()
    return {name: [values[row] for row in rows] for name, values in _limit_columns(table).items()}


def _limit_columns(table: JobTable) -> dict[RuleColumn, tuple[str, ...]]:
    """What jobs of a log may be limited by."""
    none = ("",) * len(table)
    labels = table.jobs.labels or JobLabels.of(len(table))
    given = (table.jobs.user, labels.account, labels.qos, table.vc, labels.array)
    return {name: column or none for name, column in zip(RULE_COLUMNS, given, strict=True)}


def rule_of(at: int, limit: Limit) -> LimitRule:
    """A limit of a scenario file as a rule. at: its place there."""
    of: dict[RuleColumn, frozenset[str]] = {
        name: frozenset(names) for name in LIMIT_COLUMNS if (names := getattr(limit, name))
    }
    return LimitRule(
        f"limits[{at}]",
        of,
        limit.per,
        gpus=UNLIMITED if limit.gpus is None else limit.gpus,
        jobs=UNLIMITED if limit.jobs is None else limit.jobs,
        gpu_type=limit.gpu_type,
    )


def _check_limit_names(
    scenario: Scenario, columns: Mapping[RuleColumn, tuple[str, ...]], source: str
) -> None:
    """Raises ScenarioError for a limit of somebody who has no job in the log."""
    problems = []
    for at, limit in enumerate(scenario.limits or ()):
        for column in LIMIT_COLUMNS:
            known = sorted(set(columns[column]) - {""})
            hint = "" if known else "the log names none"
            problems += [
                Problem(
                    f"$.limits[{at}].{column}",
                    f"no {column} {name!r} in {source}; {hint or known_names(name, known)}",
                )
                for name in getattr(limit, column)
                if name not in known
            ]
    if problems:
        raise ScenarioError(*problems[:20])


def _within_limits(
    jobs: Jobs, limits: Limits | None, table: JobTable, scenario: Scenario, repairs: RepairLog
) -> Jobs:
    """The jobs that limits allow to run at all.

    Raises TraceError naming the others, unless the scenario drops and counts jobs that are too large.
    """
    forbidden = {} if limits is None else limits.forbidding(jobs)
    if not forbidden:
        return jobs
    where = [f"{table.place(int(jobs.file_row[row]))}: job {jobs.id[row]}" for row in list(forbidden)[:20]]
    if scenario.trace.larger == "drop" and len(forbidden) < len(jobs):
        repairs.note_many("job that a limit never lets run left out", where, len(forbidden))
        stays = np.ones(len(jobs), np.bool_)
        stays[list(forbidden)] = False
        return jobs.take(np.flatnonzero(stays))
    problems = [
        Problem(place, f"asks for {jobs.gpus[row]} GPUs; {what} (trace.larger: drop leaves such jobs out)")
        for place, (row, what) in zip(where, forbidden.items(), strict=False)
    ]
    more = [Problem("", f"and {len(forbidden) - 20} jobs more")] if len(forbidden) > 20 else []
    raise TraceError(*problems, *more)


def _owners(table: JobTable, per: Literal["user", "vc"]) -> tuple[str, ...]:
    """Whose quota each job counts against."""
    return table.jobs.user if per == "user" else table.vc or ("",) * len(table)


def _check_quota_names(quota: Quota, table: JobTable) -> None:
    """Raises ScenarioError for a quota of somebody who has no job in the log."""
    users, vcs = (set(_owners(table, per)) - {""} for per in ("user", "vc"))
    known, others = (users, vcs) if quota.per == "user" else (vcs, users)
    other = "user" if quota.per == "vc" else "vc"
    words = {"user": "user", "vc": "virtual cluster or partition"}
    problems = []
    for name in quota.gpus:
        if name not in known:
            hint = known_names(name, sorted(known)) if known else "the log names none"
            if name in others:
                hint = f"it is a {words[other]}, whose quotas come with quota.per: {other}"
            problems.append(
                Problem(f"$.quota.gpus.{name}", f"no {words[quota.per]} {name!r} in {table.source}; {hint}")
            )
    if problems:
        raise ScenarioError(*problems[:20])


def _preset_for(scenario: Scenario, profile: ThroughputTable | None) -> str:
    """The analytic curve by which jobs of known duration scale; empty: they need none, or are to have none."""
    if scenario.profile and scenario.profile[0].scales_durations:
        preset = scenario.profile[0].analytic
        return "" if preset == RIGID else preset
    elastic = not scenario.policy.keeps_requests and "iterations" in scenario.policy.needs
    return "balanced" if elastic and profile is None else ""


def _one_order_of_kinds(profiles: tuple[ThroughputTable, ...]) -> None:
    if any(each.kinds != profiles[0].kinds for each in profiles[1:]):
        raise ScenarioError.at(
            "profile", "GPU types are profiled for different models and batches; the same are required"
        )


def _unmeasured(table: JobTable, profile: ThroughputTable) -> list[int]:
    """Requested counts that interpolation may fill: between the measured levels, or holes at one."""
    jobs = table.jobs
    if not any(jobs.model):
        return []
    top, levels = int(profile.levels[-1]), {count: at for at, count in enumerate(profile.levels.tolist())}
    counts = {count for count in jobs.gpus.tolist() if count not in levels and count < top}
    kinds = {kind: row for row, kind in enumerate(profile.kinds)}
    for model, batch, count in zip(jobs.model, jobs.batch.tolist(), jobs.gpus.tolist(), strict=True):
        row = kinds.get((model, batch))
        if row is not None and count in levels and np.isnan(profile.rate[row, levels[count]]):
            counts.add(count)
    return sorted(counts)


def _notes(setting: Setting, repaired: Set[str]) -> list[str]:
    """What was assumed about throughput, models, costs and deadlines. repaired: rules of repairs that say it already."""
    jobs = setting.jobs
    notes = []
    if setting.profile is not None:
        notes.append(f"throughput: {setting.profile.source}")
        notes += [note for note in setting.profile.notes if note != setting.profile.source][:8]
    rigid = int(np.count_nonzero(jobs.kind < 0))
    if rigid:
        notes.append(rigid_note(rigid, len(jobs)))
    if setting.costs is not None:
        notes.append(f"costs of restarting, scaling and moving: {setting.costs.source}")
    unmeetable = int(np.count_nonzero(jobs.deadline_s <= jobs.submit_s))
    if unmeetable and UNMEETABLE not in repaired:
        notes.append(f"{UNMEETABLE}: {unmeetable} of {len(jobs)}")
    return notes


def _ignored(scenario: Scenario, setting: Setting) -> list[str]:
    """What a scenario asks for that its published schedule ignores."""
    name, costs = member_name(type(scenario.policy)), scenario.costs
    if isinstance(scenario.policy, Kueue) and (setting.limits is None or setting.limits.queues is None):
        return ["no ClusterQueue is given (machines.file: queues.yaml): kueue has all jobs in one queue"]
    if isinstance(scenario.policy, BackfillPolicy) and scenario.quota is not None and scenario.quota.borrow:
        return [f"{name} stops no job, so nobody borrows GPUs beyond a quota"]
    if not isinstance(scenario.policy, Schedule):
        return []
    asked = {
        "quota": scenario.quota is not None,
        "limits": bool(scenario.limits),
        "placement": scenario.placement != "anywhere",
        "multi_node_penalty": scenario.multi_node_penalty != (1.0,),
        "costs": bool(costs.restart_s or costs.grow_s or costs.shrink_s) and setting.costs is None,
        "ends after which jobs come": bool((setting.jobs.predecessor() >= 0).any()),
    }
    given = [key for key, there in asked.items() if there]
    notes = []
    if given:
        notes.append(
            f"{name} plays its published rules, which know no {', '.join(given)}: that is for policies with a view "
            "(fifo, srtf, las, yours)"
        )
    if not setting.cluster.is_uniform:
        node = setting.cluster.gpus_per_node
        notes.append(
            f"{name} takes all GPUs for alike, and nodes for such of {node} GPUs; these nodes differ"
        )
    return notes


def _log_notes(table: JobTable, cluster: Cluster, *, apart: bool) -> list[str]:
    """How a foreign log was read, and whether it can have run here at all. apart: partitions have limits of their own."""
    notes, labels = [], table.jobs.labels
    if labels is not None and (later := int(np.count_nonzero(labels.eligible_after_s))):
        mean_s = float(labels.eligible_after_s.sum() / later)
        when = f"{mean_s:,.0f} s after their submission in the mean"
        notes.append(f"{later} of {len(table)} jobs arrive when they become eligible, {when}")
    arrays = () if labels is None else dict.fromkeys(labels.array)
    if named := [array for array in arrays if array]:
        notes.append(
            f"arrays of which so many tasks run at once: {', '.join(named[:5])}, {len(named)} in all"
        )
    notes += cluster.notes
    if not table.read_as:
        return notes
    notes.append(
        f"{table.source} was read as {table.read_as}; such logs have no deadlines (a time limit is none)"
    )
    sizes = Counter(vc for vc in table.vc if vc)
    if len(sizes) > 1 and not apart:
        largest = ", ".join(f"{vc}: {count}" for vc, count in sizes.most_common(3))
        more = f" and {len(sizes) - 3} more" if len(sizes) > 3 else ""
        notes.append(
            f"{table.source} has jobs of {len(sizes)} partitions or virtual clusters ({largest}{more}): here they share one "
            "cluster"
        )
    if table.most_held > cluster.gpus:
        notes.append(
            f"this trace cannot have run on this cluster: it held up to {table.most_held:g} GPUs at once, "
            f"{cluster.gpus} are there"
        )
    return notes
