"""From a scenario to a result: read the inputs, play the world, write down what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.domains.cluster.inputs import (
    JobTable,
    cluster_of,
    jobs_of,
    read_cluster,
    read_jobs,
    read_tables,
)
from forerun.domains.cluster.loop import run
from forerun.domains.cluster.model import (
    BOOL,
    F64,
    I64,
    NO_DEADLINE_S,
    Cluster,
    Jobs,
    NodeGroup,
    Profile,
    World,
)
from forerun.domains.cluster.observer import Observer
from forerun.domains.cluster.policy import Policy, Rules, Schedule
from forerun.domains.cluster.record import Record
from forerun.domains.cluster.scenario import RIGID, ProfileSpec, Quota, Scenario, TraceSpec
from forerun.errors import PolicyError, Problem, ScenarioError, TraceError, UsageError, known_names
from forerun.observers import checked_observers
from forerun.registry import member_name
from forerun.result.run import Result
from forerun.rng import stream
from forerun.scenario.spec import Input
from forerun.trace.jobs import demand
from forerun.trace.readers.cluster_jobs import UNMEETABLE
from forerun.trace.repair import RepairLog

if TYPE_CHECKING:
    from forerun.domains.cluster.bill import Terms as BillTerms
    from forerun.domains.cluster.costs import CostTable


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario's world, and what was noticed on the way to it."""

    world: World
    repairs: RepairLog
    notes: tuple[str, ...]
    terms: BillTerms | None = None


def simulate(scenario: Scenario, *, policy: Policy | None = None, watch: Iterable[Any] = ()) -> Result:
    """Run a scenario and return its result; `policy` replaces the scenario's.

    An observer in `watch` that has a method `instant` is called at every instant at which the policy acts, with the record
    up to then (`instant(now_s, record)`): every row of the events table is one, except where a policy acts in rounds
    (`round_s`) and a job ends between two of them, which the next round shows. If the policy
    decides something impossible, the PolicyError carries the result of the run up to then as `so_far`.
    """
    from forerun.domains.cluster.outcome import result_of

    observers = checked_observers(watch, Observer)
    if policy is not None:
        scenario = replace_policy(scenario, policy)
    prepared = prepare(scenario)
    record = Record(prepared.world)
    rules = rules_of(scenario, prepared.world, record)
    try:
        run(rules, watch=[(observer.instant, record) for observer in observers])
    except PolicyError as error:
        stopped = f"stopped early: {error}"
        error.so_far = result_of(scenario, record, (*prepared.notes, *record.notes, stopped))
        raise
    result = result_of(scenario, record, (*prepared.notes, *record.notes))
    if scenario.loading or scenario.bill is not None:
        from forerun.domains.cluster.bill import with_other_rooms

        result = with_other_rooms(result, scenario, record, prepared.terms)
    return result


def replace_policy(scenario: Scenario, policy: Policy) -> Scenario:
    """The scenario under another policy."""
    if not isinstance(policy, Policy):
        raise UsageError.at(
            "policy", f"{type(policy).__name__} is no scheduling policy; derive it from Allocator"
        )
    return scenario.with_(policy=policy)


def rules_of(scenario: Scenario, world: World, record: Record) -> Rules:
    """The scenario's policy at work on a world, writing into a record."""
    if isinstance(scenario.policy, Schedule):
        return scenario.policy.rules(world, record)
    return rules_for(scenario.policy, world, record, terms_of(scenario, world), scenario.seed)


def rules_for(policy: Policy, world: World, record: Record, terms: Any, seed: int) -> Rules:
    """A policy at work on a world under terms (see `Terms`), writing into a record."""
    from forerun.domains.cluster.allocator import Allocator, AllocatorRules
    from forerun.domains.cluster.priority import PriorityPolicy, PriorityRules

    if isinstance(policy, Schedule):
        return policy.rules(world, record)
    assert isinstance(policy, Allocator), policy
    plain = terms.placement == "anywhere" and terms.quota is None and terms.penalty[1:] == (1.0,)
    plain = plain and world.costs is None
    if isinstance(policy, PriorityPolicy) and plain and not policy.backfill and not policy.round_s:
        return PriorityRules(world, record, policy, terms)
    cook = policy.build(stream(seed, "policy"))
    return AllocatorRules(world, record, policy, cook, terms)


def terms_of(scenario: Scenario, world: World) -> Any:
    """Placement, costs and quotas of a scenario, for a world."""
    from forerun.domains.cluster.allocator import Terms

    quota: I64 | None = None
    if scenario.quota is not None:
        users = tuple(dict.fromkeys(world.jobs.user))
        limits = [scenario.quota.gpus.get(user, scenario.quota.default) for user in users]
        quota = np.array([*limits, int(scenario.quota.borrow)], np.int64)
    return Terms(
        placement=scenario.placement,
        restart_s=scenario.costs.restart_s,
        grow_s=scenario.costs.grow_s,
        shrink_s=scenario.costs.shrink_s,
        penalty=(1.0, *scenario.multi_node_penalty),
        quota=quota,
    )


def prepare(scenario: Scenario) -> Prepared:
    """Read a scenario's inputs and resolve them into a world."""
    repairs = RepairLog(strict=scenario.trace.strict)
    cluster = cluster_from(scenario)
    profiles = tuple(profile_from(spec, cluster) for spec in scenario.profile if not spec.scales_durations)
    _one_order_of_kinds(profiles)
    profile = profiles[0] if profiles else None
    table = table_from(scenario.trace, profile, scenario.seed, repairs)
    if scenario.quota is not None:
        _check_quota_names(scenario.quota, table, scenario.trace)
        table = replace(table, user=getattr(table, scenario.quota.per))
    keeps = _keeps_requests(scenario.policy)
    if profile is not None and keeps and (counts := _unmeasured(table, profile)):
        from forerun.domains.cluster.profile import filled

        extrapolate = scenario.profile[0].extrapolate
        profiles = tuple(filled(each, counts, extrapolate=extrapolate) for each in profiles)
        profile = profiles[0]
    jobs = jobs_of(table, profile, repairs)
    invented: tuple[str, ...] = ()
    if profile is not None:
        jobs, invented = with_iterations(jobs, profile, table)
    if scenario.trace.slack:
        jobs = with_deadlines(jobs, scenario.trace, scenario.seed, repairs)
    if preset := _preset_for(scenario, profile):
        jobs, profile, invented = scaled_from_durations(jobs, preset, cluster, keeps=keeps)
        profiles = (profile,)
    elif not keeps and "iterations" in scenario.policy.needs and (jobs.kind < 0).any():
        jobs, profile, told = on_what_they_ask_for(jobs, profile, cluster)
        profiles, invented = (profile,), (*invented, *told)
    terms: BillTerms | None = None
    slower: tuple[str, ...] = ()
    if profile is not None and (scenario.loading or scenario.bill is not None):
        from forerun.domains.cluster.bill import slowed, stretched

        # Only now: deadlines that are drawn are drawn for jobs whose data arrive in time.
        asked, (profile, terms, slower) = profile, slowed(profile, scenario, cluster)
        jobs, profiles = stretched(jobs, asked, profile), (profile, *profiles[1:])
    if scenario.trace.first:
        jobs = jobs.take(np.arange(min(scenario.trace.first, len(jobs))))
    if profiles or keeps:
        jobs = _fitting(jobs, table, profiles, cluster, scenario, repairs)
    repairs.finish()
    gpu_type = cluster.node_types()[0] or (profile.gpu_type if profile else "")
    world = World(
        jobs=jobs,
        cluster=cluster,
        profile=profile,
        slot_s=scenario.slot_s,
        gpu_type=gpu_type,
        corrected=scenario.corrected,
        seed=scenario.seed,
        profiles=profiles if len(profiles) > 1 else (),
    )
    world = replace(world, costs=costs_of(scenario, jobs), slowness=slowness_of(scenario, len(jobs)))
    notes = (
        *_notes(world, {repair.rule for repair in repairs.repairs}),
        *invented,
        *_unheeded(scenario, world),
        *_log_notes(table, cluster),
        *slower,
        *(str(repair) for repair in repairs.repairs),
    )
    return Prepared(world, repairs, notes, terms)


def _check_quota_names(quota: Quota, table: JobTable, trace: TraceSpec) -> None:
    """Raises ScenarioError for a quota of somebody who has no job in the log."""
    tables = [table]
    if trace.resample is not None and not set(quota.gpus) <= set(getattr(table, quota.per)):
        # Who was not drawn may be in the log all the same.
        tables.append(table_of_file(Path(trace.resample.file.path), trace.resample.format, RepairLog()))
    names = {per: {name for one in tables for name in getattr(one, per)} - {""} for per in ("user", "vc")}
    known, other = names[quota.per], "user" if quota.per == "vc" else "vc"
    words = {"user": "user", "vc": "virtual cluster or partition"}
    problems = []
    for name in quota.gpus:
        if name not in known:
            hint = known_names(name, sorted(known)) if known else "the log names none"
            if name in names[other]:
                hint = f"it is a {words[other]}, whose quotas come with quota.per: {other}"
            problems.append(
                Problem(f"$.quota.gpus.{name}", f"no {words[quota.per]} {name!r} in {table.source}; {hint}")
            )
    if problems:
        raise ScenarioError(*problems[:20])


def with_deadlines(jobs: Jobs, trace: TraceSpec, seed: int, repairs: RepairLog) -> Jobs:
    """The jobs, each without a written deadline due so many durations after its submission."""
    without = jobs.written_deadline_s >= NO_DEADLINE_S
    draws = stream(seed, "deadline slack").random(len(jobs))
    slack = trace.slack + draws * (max(trace.most_slack, trace.slack) - trace.slack)
    due = jobs.submit_s + np.ceil(slack * jobs.duration_s).astype(np.int64)
    deadline_s = np.where(without, due, jobs.deadline_s)
    return replace(
        jobs,
        deadline_s=deadline_s,
        best_effort=jobs.best_effort & ~without,
        written_deadline_s=np.where(without, due, jobs.written_deadline_s),
    )


def _preset_for(scenario: Scenario, profile: Profile | None) -> str:
    """The analytic curve by which jobs of known duration scale; empty: they need none, or are to have none."""
    if scenario.profile and scenario.profile[0].scales_durations:
        preset = scenario.profile[0].analytic
        return "" if preset == RIGID else preset
    elastic = not _keeps_requests(scenario.policy) and "iterations" in scenario.policy.needs
    return "balanced" if elastic and profile is None else ""


def scaled_from_durations(
    jobs: Jobs, preset: str, cluster: Cluster, *, keeps: bool
) -> tuple[Jobs, Profile, tuple[str, ...]]:
    """The jobs with an invented scaling: each takes its recorded duration on the GPUs it asks for, other counts by a curve.

    Elastic schedules scale by powers of two; others (`keeps`) also know the counts asked for.
    """
    from forerun.domains.cluster.profile import anchored

    powers = [1 << at for at in range(max(cluster.gpus.bit_length(), 1)) if 1 << at <= max(cluster.gpus, 1)]
    asked = sorted(set(jobs.gpus.tolist()))
    profile = anchored(
        asked,
        preset,
        [*powers, *asked] if keeps else powers,
        gpus_per_node=cluster.gpus_per_node,
        gpu_type=cluster.node_types()[0] or "",
    )
    kind = np.searchsorted(asked, jobs.gpus).astype(np.int64)
    note = (
        f"no throughput is known: jobs take their recorded duration on the GPUs they ask for, and scale to other counts by "
        f"an invented model (analytic: {preset}; nobody measured it)"
    )
    return replace(jobs, kind=kind, iterations=jobs.duration_s.copy(), batch=64 * jobs.gpus), profile, (note,)


def on_what_they_ask_for(
    jobs: Jobs, profile: Profile | None, cluster: Cluster
) -> tuple[Jobs, Profile, tuple[str, ...]]:
    """The jobs for an elastic schedule, those without a model with a single count on which they take their duration."""
    from forerun.domains.cluster.profile import held_rigid, joined, rigid

    alone = np.flatnonzero(jobs.kind < 0)
    asked = sorted(set(jobs.gpus[alone].tolist()))
    made = rigid(asked, cluster, cluster.node_types()[0] or "")
    kind, iterations, batch = jobs.kind.copy(), jobs.iterations.copy(), jobs.batch.copy()
    known = 0 if profile is None else len(profile.kinds)
    kind[alone] = known + np.searchsorted(asked, jobs.gpus[alone])
    iterations[alone], batch[alone] = jobs.duration_s[alone], jobs.gpus[alone]
    notes = [_rigid_note(len(alone), len(jobs))]
    more = {count: held for count in asked if (held := held_rigid(count, cluster)) > count}
    if more:
        told = ", ".join(f"{held} for {count}" for count, held in more.items())
        notes.append(
            f"elastic schedules place jobs in halves of nodes and in whole nodes: jobs hold {told} GPUs"
        )
    jobs = replace(jobs, kind=kind, iterations=iterations, batch=batch)
    return jobs, made if profile is None else joined(profile, made), tuple(notes)


def with_iterations(jobs: Jobs, profile: Profile, table: JobTable) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs, those with a model and without iterations with what their duration comes to on the GPUs they ask for.

    Raises TraceError where no throughput is known there.
    """
    lacking = np.flatnonzero((jobs.kind >= 0) & (jobs.iterations < 1))
    if not len(lacking):
        return jobs, ()
    from forerun.domains.cluster.profile import filled

    rate = filled(profile, set(jobs.gpus[lacking].tolist())).rate_at()
    rates = rate[jobs.kind[lacking], jobs.gpus[lacking]]
    problems = [
        Problem(
            f"{table.source}:{table.line[int(jobs.file_row[row])]}: job {jobs.id[row]}",
            f"has no iterations, and {jobs.model[row]} no throughput on {jobs.gpus[row]} GPUs to tell them by",
        )
        for row in lacking[~(rates > 0)][:20].tolist()
    ]
    if problems:
        raise TraceError(*problems)
    iterations = jobs.iterations.copy()
    iterations[lacking] = np.maximum(1, np.rint(jobs.duration_s[lacking] * rates)).astype(np.int64)
    note = f"iterations of {len(lacking)} of {len(jobs)} jobs are what their duration comes to on the GPUs they ask for"
    return replace(jobs, iterations=iterations), (note,)


def slowness_of(scenario: Scenario, jobs: int) -> F64 | None:
    """How many times as long as planned each job's work takes, drawn; None where nothing is asked."""
    slowdown = scenario.slowdown
    if slowdown is None:
        return None
    slow, factor = stream(scenario.seed, "slowdown").random((jobs, 2)).T
    drawn = slowdown.least + factor * (slowdown.most - slowdown.least)
    return np.where(slow < slowdown.share, drawn, 1.0)


def costs_of(scenario: Scenario, jobs: Jobs) -> CostTable | None:
    """The costs by model of a scenario, tied to its jobs; None where it has no table."""
    from forerun.domains.cluster.costs import PRESETS, SOURCES, cost_table, plain, read_costs

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


def _keeps_requests(policy: Policy) -> bool:
    """Whether a policy gives jobs the GPUs they ask for (the elastic schedules choose for themselves)."""
    return not isinstance(policy, Schedule) or "gpus" in policy.needs


def _fitting(
    jobs: Jobs,
    table: JobTable,
    profiles: tuple[Profile, ...],
    cluster: Cluster,
    scenario: Scenario,
    repairs: RepairLog,
) -> Jobs:
    """The jobs that can run at all. Raises TraceError naming line and job for those that cannot.

    Under policies that keep to requests that is: not more GPUs than the cluster has of one type, and throughput there;
    under elastic ones: throughput on some count.
    """
    keeps = _keeps_requests(scenario.policy)
    types = cluster.node_types()
    sizes = np.bincount([list(dict.fromkeys(types)).index(name) for name in types], cluster.node_gpus())
    most = int(sizes.max())
    larger = jobs.gpus > most if keeps else _rigid_beyond(jobs, profiles, most)

    def where(row: int) -> str:
        line = table.line[int(jobs.file_row[row])]
        written = scenario.trace.file is not None and not scenario.trace.draw_models and line > 0
        return (
            f"{table.source}:{line}: job {jobs.id[row]}" if written else f"{table.source}: job {jobs.id[row]}"
        )

    rows = np.flatnonzero(larger).tolist()
    if rows and scenario.trace.larger == "drop":
        rule = f"job that asks for more than {most} GPUs left out"
        repairs.note_many(rule, [where(row) for row in rows[:3]], len(rows))
        jobs = jobs.take(np.flatnonzero(~larger))
        larger, rows = np.zeros(len(jobs), np.bool_), []
    there = f"the cluster has {cluster.gpus}" + (f", at most {most} of one type" if len(sizes) > 1 else "")
    problems = [
        Problem(
            where(row), f"asks for {jobs.gpus[row]} GPUs, {there} (trace.larger: drop leaves such jobs out)"
        )
        for row in rows
    ]
    if profiles:
        can = _counts_that_run(profiles, int(jobs.gpus.max(initial=1)), most)
        fit = can[jobs.kind, jobs.gpus] if keeps else larger | can[jobs.kind, 1 : most + 1].any(axis=1)
        for row in np.flatnonzero((jobs.kind >= 0) & ~fit & (jobs.gpus <= most if keeps else True)).tolist():
            wanted = f"{jobs.gpus[row]} GPUs, which it asks for" if keeps else f"up to {most} GPUs"
            known = ", ".join(map(str, np.flatnonzero(can[jobs.kind[row]]).tolist())) or "none"
            what = f"{jobs.model[row]} with batch {jobs.batch[row]} has no throughput on {wanted}"
            problems.append(Problem(where(row), f"{what}; counts with throughput: {known}"))
    if problems:
        more = [Problem("", f"and {len(problems) - 20} jobs more")] if len(problems) > 20 else []
        raise TraceError(*problems[:20], *more)
    if not len(jobs):
        raise TraceError.at(table.source, "no job is left; " + "; ".join(repairs.lines()))
    return jobs


def _rigid_beyond(jobs: Jobs, profiles: tuple[Profile, ...], most: int) -> BOOL:
    """Which jobs without a model run on more GPUs than there are, or not at all."""
    least = profiles[0].levels[np.argmax(np.nan_to_num(profiles[0].rate, nan=0.0) > 0, axis=1)]
    beyond: BOOL = (least[jobs.kind] > most) & np.array([not model for model in jobs.model], np.bool_)
    return beyond


def _counts_that_run(profiles: tuple[Profile, ...], asked: int, most: int) -> BOOL:
    """Whether a kind has throughput on a count, on any GPU type: bool[kinds, counts]."""
    rates = [profile.rate_at() for profile in profiles]
    can = np.zeros((len(rates[0]), max(asked, most, *(rate.shape[1] for rate in rates)) + 1), np.bool_)
    for rate in rates:
        can[:, : rate.shape[1]] |= rate > 0
    return can


def _one_order_of_kinds(profiles: tuple[Profile, ...]) -> None:
    if any(each.kinds != profiles[0].kinds for each in profiles[1:]):
        raise ScenarioError.at(
            "profile", "GPU types are profiled for different models and batches; the same are wanted"
        )


def _unmeasured(table: JobTable, profile: Profile) -> list[int]:
    """Requested counts that interpolation may fill: between the measured levels, or holes at one."""
    if not any(table.model):
        return []
    top, levels = int(profile.levels[-1]), {count: at for at, count in enumerate(profile.levels.tolist())}
    found = {count for count in table.gpus if count not in levels and count < top}
    kinds = {kind: row for row, kind in enumerate(profile.kinds)}
    for model, batch, count in zip(table.model, table.batch, table.gpus, strict=True):
        row = kinds.get((model, batch))
        if row is not None and count in levels and np.isnan(profile.rate[row, levels[count]]):
            found.add(count)
    return sorted(found)


def _notes(world: World, repaired: Set[str]) -> list[str]:
    jobs = world.jobs
    notes = []
    if world.profile is not None:
        notes.append(f"throughput: {world.profile.source}")
        notes += [note for note in world.profile.notes if note != world.profile.source][:8]
    rigid = int(np.count_nonzero(jobs.kind < 0))
    if rigid:
        notes.append(_rigid_note(rigid, len(jobs)))
    if world.costs is not None:
        notes.append(f"costs of restarting, scaling and moving: {world.costs.source}")
    unmeetable = int(np.count_nonzero(jobs.deadline_s <= jobs.submit_s))
    if unmeetable and UNMEETABLE not in repaired:
        notes.append(f"{UNMEETABLE}: {unmeetable} of {len(jobs)}")
    return notes


def _unheeded(scenario: Scenario, world: World) -> list[str]:
    """What a scenario asks for that its published schedule does not know."""
    if not isinstance(scenario.policy, Schedule):
        return []
    name, costs = member_name(type(scenario.policy)), scenario.costs
    asked = {
        "quota": scenario.quota is not None,
        "placement": scenario.placement != "anywhere",
        "multi_node_penalty": scenario.multi_node_penalty != (1.0,),
        "costs": bool(costs.restart_s or costs.grow_s or costs.shrink_s) and world.costs is None,
    }
    given = [key for key, there in asked.items() if there]
    notes = []
    if given:
        notes.append(
            f"{name} plays its published rules, which know no {', '.join(given)}: that is for policies with a view "
            "(fifo, srtf, las, yours)"
        )
    if not world.cluster.is_uniform:
        node = world.cluster.gpus_per_node
        notes.append(
            f"{name} takes all GPUs for alike, and nodes for such of {node} GPUs; these nodes differ"
        )
    return notes


def _rigid_note(rigid: int, jobs: int) -> str:
    return f"{rigid} of {jobs} jobs have no model: they run rigid, at their recorded duration"


def _log_notes(table: JobTable, cluster: Cluster) -> list[str]:
    """How a foreign log was read, and whether it can have run here at all."""
    if not table.read_as:
        return []
    notes = [
        f"{table.source} was read as {table.read_as}; such logs have no deadlines (a time limit is none)"
    ]
    sizes = Counter(vc for vc in table.vc if vc)
    if len(sizes) > 1:
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


def cluster_from(scenario: Scenario) -> Cluster:
    """The machines of a scenario."""
    machines = scenario.machines
    gpu_type = scenario.profile[0].gpu_type if scenario.profile else ""
    if machines.file is not None:
        return read_cluster(Path(machines.file.path), gpu_type)
    return cluster_of(
        NodeGroup(node.name or f"group{at}", node.count, node.gpus, node.gpu_type or gpu_type, node.rack)
        for at, node in enumerate(machines.nodes)
    )


def profile_from(spec: ProfileSpec, cluster: Cluster) -> Profile:
    """One profile of a scenario."""
    from forerun.domains.cluster.profile import analytic, filled

    gpu_type = spec.gpu_type or cluster.node_types()[0]
    if spec.analytic:
        made = analytic(spec.kinds, spec.analytic, gpus_per_node=cluster.gpus_per_node)
        made = replace(made, gpu_type=gpu_type)
    else:
        made = read_tables([Path(table.path) for table in spec.tables], gpu_type)
    return filled(made, spec.levels, extrapolate=spec.extrapolate) if spec.levels else made


def table_from(trace: TraceSpec, profile: Profile | None, seed: int, repairs: RepairLog) -> JobTable:
    """The jobs of a scenario's trace, before they meet the profile."""
    if trace.generate is not None:
        from forerun.domains.cluster.generate import generate

        return generate(trace.generate, profile, seed).table()
    if trace.published is not None:
        from forerun.domains.cluster.generate import published

        made = trace.published
        return published(
            made.jobs,
            made.mean_gap_s,
            _needed(profile),
            least_slack=made.least_slack,
            most_slack=made.most_slack,
            best_effort_share=made.best_effort_share,
            seed=seed,
            slack_seed=made.slack_seed,
        ).table()
    if trace.resample is not None:
        from forerun.domains.cluster.generate import resampled

        again = trace.resample
        whole = table_of_file(Path(again.file.path), again.format, repairs)
        return resampled(whole, block_s=again.block_s, blocks=again.blocks, seed=seed)
    assert isinstance(trace.file, Input)
    path = Path(trace.file.path)
    if trace.draw_models:
        from forerun.domains.cluster.generate import from_log
        from forerun.trace.reader import read_trace

        log = read_trace(path, "cluster_jobs" if trace.format == "native" else trace.format, repairs=repairs)
        return from_log(log, _needed(profile), seed=seed, repairs=repairs).table(path.name)
    return table_of_file(path, trace.format, repairs)


def table_of_file(path: Path, format: str, repairs: RepairLog) -> JobTable:
    """The jobs of a file: the room's own headers for `native`, else by a reader; empty: what the content shows.

    What no reader recognises is read as the room's own, so that its header is judged by name.
    """
    from forerun.trace.reader import head_of, readers

    if not format:
        head, known = head_of(path), readers()
        found = [name for name in known.names() if known.get(name).recognises(head)]
        format = found[0] if len(found) == 1 and found[0] != "cluster_jobs" else "native"
    if format == "native":
        return read_jobs(path, repairs)
    from forerun.trace.reader import read_trace

    return table_of_log(read_trace(path, format, repairs=repairs), path.name, repairs)


def table_of_log(log: Any, source: str, repairs: RepairLog) -> JobTable:
    """A foreign job log as rigid jobs without deadlines: whole seconds, whole GPUs (fractions rounded up, counted).

    Raises TraceError for a log of another kind and for counts and times that no integer holds exactly.
    """
    if log.kind != "jobs":
        raise TraceError.at(source, f"holds {log.kind}; a job log is wanted")
    for column in ("gpus", "submit_s", "duration_s"):
        values = np.asarray(log[column], np.float64)
        if len(rows := np.flatnonzero(~(np.abs(values) <= 2**53))):
            place = f"{source}:{log.lines[rows[0]]}" if log.lines is not None else source
            raise TraceError.at(f"{place}:{column}", f"{values[rows[0]]:g} is more than {2**53:g}")
    gpus = np.asarray(log["gpus"], np.float64)
    whole = np.ceil(gpus - 1e-9).astype(np.int64)
    fractions = np.flatnonzero(whole != gpus)
    places = [f"{source}:{log.lines[row]}" if log.lines is not None else source for row in fractions[:3]]
    repairs.note_many("fraction of a GPU rounded up", places, len(fractions))
    submit = np.floor(np.asarray(log["submit_s"], np.float64)).astype(np.int64)
    duration = np.maximum(1, np.rint(np.asarray(log["duration_s"], np.float64))).astype(np.int64)
    count = len(submit)
    vcs = tuple(str(vc or "") for vc in log["vc"].tolist()) if "vc" in log else ("",) * count
    users = tuple(str(user or "") for user in log["user"].tolist()) if "user" in log else ("",) * count
    return JobTable(
        source=source,
        job_id=tuple(str(name) for name in log["job_id"]),
        submit_s=tuple(submit.tolist()),
        iterations=(0,) * count,
        model=("",) * count,
        deadline_s=(NO_DEADLINE_S,) * count,
        batch=(0,) * count,
        gpus=tuple(whole.tolist()),
        duration_s=tuple(duration.tolist()),
        best_effort=(True,) * count,
        user=users if any(users) else vcs,
        vc=vcs,
        written_deadline_s=(NO_DEADLINE_S,) * count,
        line=(0,) * count if log.lines is None else tuple(log.lines.tolist()),
        read_as=str(log.provenance.format),
        most_held=float(demand(log)[1].max(initial=0.0)) if "start_s" in log else 0.0,
    )


def _needed(profile: Profile | None) -> Profile:
    if profile is None:
        raise ScenarioError.at(
            "profile", "drawing jobs with models needs throughput: give tables or analytic: balanced"
        )
    return profile
