"""Every law after every event, under every policy, in hundreds of random settings; and laws that can fail."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.cluster import testing as contract
from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import Cluster
from forerun.cluster.policy import Schedule, schedulers
from forerun.cluster.testing import Scene, Witness, drawn_world
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.known_bugs import SWITCHES, touching

from ..conftest import cases
from .conftest import lawful, rules_of, switched

NAMES = schedulers().names()
WORLDS = cases(12)


def scene_for(name: str, number: int) -> Scene:
    """A setting for a policy; published schedules run as published, with every known bug fixed, or with one."""
    policy = schedulers().get(name)
    if not issubclass(policy, Schedule):
        return drawn_world(number)
    switches = sorted(touching(name))
    chosen = [[], switches, switches[number % len(switches) :][:1] if switches else []][number % 3]
    made = drawn_world(number, published=True)
    return replace(made, setting=switched(made.setting, chosen))


@pytest.mark.parametrize("name", NAMES)
def test_laws_hold_after_every_event(name: str) -> None:
    """No GPU held twice, capacity never exceeded, work conserved, quotas kept, waits and ledger sum."""
    events = 0
    for number in range(WORLDS):
        _, seen = lawful(schedulers().get(name)(), scene_for(name, number))
        events += seen
    assert events > 3 * WORLDS


def test_the_random_settings_are_many_and_different() -> None:
    scenes = [drawn_world(number) for number in range(60)]
    assert {scene.terms.placement for scene in scenes} == set(contract._PLACEMENTS)
    assert sum(len(scene.setting.profiles) > 1 for scene in scenes) >= 5, "nodes of two types"
    assert sum(len(set(scene.setting.cluster.node_gpus().tolist())) > 1 for scene in scenes) >= 20, (
        "unequal nodes"
    )
    assert sum(scene.terms.quota is not None for scene in scenes) >= 10
    assert sum(bool(scene.terms.quota is not None and scene.terms.quota[-1]) for scene in scenes) >= 3, (
        "borrowing"
    )
    assert sum(scene.terms.restart_s > 0 for scene in scenes) >= 20
    both = [scene.setting.jobs.has_deadline for scene in scenes]
    assert sum(bool(has.any() and not has.all()) for has in both) >= 30, "best effort beside deadlines"
    assert sum(bool((scene.setting.jobs.kind < 0).any()) for scene in scenes) >= 30, "rigid beside elastic"
    assert (
        sum(len(set(scene.setting.jobs.submit_s.tolist())) < len(scene.setting.jobs) for scene in scenes)
        >= 30
    )
    touched = {switch for name in NAMES for switch in touching(name)}
    assert touched == set(SWITCHES), "every switch is put right somewhere"


# -- the laws can fail ---------------------------------------------------------------------------------------------


def broken(scene: Scene, damage: Any, policy: str = "srtf") -> None:
    """A run in which the setting is damaged by hand as soon as GPUs are held, under a witness."""
    record = Record(scene.setting)
    rules = rules_of(schedulers().get(policy)(), scene.setting, record, scene.terms)
    if not hasattr(rules, "state") and not isinstance(schedulers().get(policy)(), Schedule):
        from forerun.cluster.engine.allocator import AllocatorRules

        recipe = schedulers().get(policy)()
        rules = AllocatorRules(
            scene.setting, record, recipe, recipe.build(np.random.default_rng(0)), scene.terms
        )
    witness = Witness(scene, rules, record)
    hurt_yet = False

    def hurt(now_s: float, _: Any) -> None:
        nonlocal hurt_yet
        if not hurt_yet and record.held.any():
            hurt_yet = True
            damage(rules, record, now_s)

    run_rules(rules, [lambda now_s: hurt(now_s, record), lambda now_s: witness.instant(now_s, record)])
    witness.close()


def placed(number: int = 0) -> Scene:
    """A random setting with first-fit placement and no other terms, with several jobs on nodes at its second event."""
    made = drawn_world(number)
    return replace(made, terms=replace(made.terms, placement="first-fit", quota=None))


def whole(number: int = 0) -> Scene:
    """A random setting of one GPU type and no terms."""
    found = next(n for n in range(number, number + 50) if not drawn_world(n).setting.profiles)
    made = drawn_world(found)
    from forerun.cluster.engine.allocator import Terms

    return replace(made, terms=Terms())


def test_a_gpu_with_two_jobs_is_noticed() -> None:
    def damage(rules: Any, record: Record, now_s: float) -> None:
        held = np.flatnonzero(rules.state.owner >= 0)
        rules.state.owner[held[0]] = (rules.state.owner[held[0]] + 1) % len(record.setting.jobs)

    with pytest.raises(AssertionError, match="a GPU counts for two jobs, or for none"):
        broken(placed(), damage)


def test_more_gpus_than_there_are_is_seen() -> None:
    def damage(rules: Any, record: Record, now_s: float) -> None:
        record.add_event(now_s, np.array([0]), np.array([99]), 0)

    with pytest.raises(AssertionError, match=r"GPUs are held, .* are there"):
        broken(whole(), damage)


def test_work_that_vanishes_is_seen() -> None:
    def damage(rules: Any, record: Record, now_s: float) -> None:
        holding = np.flatnonzero(rules.state.i[ak.HELD])
        rules.state.f[ak.LEFT, holding[0]] -= 1.0

    with pytest.raises(AssertionError, match="work done and left is not all work"):
        broken(whole(), damage)


def test_a_finished_job_that_holds_gpus_is_seen() -> None:
    def damage(rules: Any, record: Record, now_s: float) -> None:
        rules.state.i[ak.STATE, np.flatnonzero(rules.state.i[ak.HELD])[0]] = ak.DONE

    with pytest.raises(AssertionError, match="a job that ended holds GPUs"):
        broken(whole(), damage)


def test_a_node_in_two_sets_is_seen() -> None:
    """The published machine's sets of nodes, under ElasticFlow: a job's GPUs counted in a set that does not have them."""

    def damage(rules: Any, record: Record, now_s: float) -> None:
        which = int(rules.places.node_set[rules.places.node_set >= 0][0])
        rules.places.sets[mk.USED, which] += 1

    with pytest.raises(AssertionError, match="GPUs"):
        broken(drawn_world(3, published=True), damage, policy="ef")


def test_seconds_that_get_lost_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from forerun.cluster.summary.waits import waits_of

    def forgetful(record: Record, stretches: Any) -> Any:
        waits = waits_of(record, stretches)
        return replace(waits, running=waits.running * 0.5)

    monkeypatch.setattr(contract, "waits_of", forgetful)
    with pytest.raises(AssertionError, match="do not sum"):
        lawful(schedulers().get("fifo")(), whole())


def test_a_ledger_that_does_not_sum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from forerun.cluster.summary.ledgers import ledger_of
    from forerun.core.errors import CheckFailed

    def short(record: Record, stretches: Any, waits: Any) -> Any:
        ledger = ledger_of(record, stretches, waits)
        return replace(ledger, parts={**ledger.parts, "useful": ledger.parts["useful"] + 1.0})

    monkeypatch.setattr(contract, "ledger_of", short)
    with pytest.raises(CheckFailed):
        lawful(schedulers().get("fifo")(), whole())


def test_two_jobs_on_one_track_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_on_the_first(record: Record, stretches: Any) -> Any:
        return [[(0, int(count))] for count in stretches.gpus]

    monkeypatch.setattr(contract, "nodes_of", all_on_the_first)
    with pytest.raises(AssertionError, match="is held twice at"):
        for number in range(10):
            lawful(schedulers().get("fifo")(), whole(number))


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ef-accessctrl", "edf-accessctrl"])
def test_each_refusal_names_what_binds_and_its_wait_is_for_admission(name: str) -> None:
    """Own speed exactly where no count up to the job's limit could make the deadline from the moment of the decision; a
    job named stands in the trace; all seconds until the refusal are admission."""
    from forerun.cluster.summary.waits import stretches_of, waits_of

    told: dict[str, int] = {}
    for number in range(worlds := cases(40)):
        scene = scene_for(name, number)
        record, _ = lawful(schedulers().get(name)(), scene, watch=False)
        jobs, setting = scene.setting.jobs, scene.setting
        assert setting.profile is not None
        rate = setting.profile.rate_at()[:, : setting.cluster.gpus + 1]
        waits = waits_of(record, stretches_of(record))
        for row in np.flatnonzero(record.admitted == 0).tolist():
            because = record.refusals[row]
            kind = next(
                k
                for k in ("own speed", "capacity in", "job ", "it would make", "with it in one")
                if because.startswith(k)
            )
            told[kind] = told.get(kind, 0) + 1
            at_s = record.judged_s[row]
            assert at_s >= jobs.submit_s[row]
            assert waits.admission[row] == at_s - jobs.submit_s[row] == waits.total()[row]
            best_s = at_s + jobs.iterations[row] / rate[jobs.kind[row]].max()
            if kind == "own speed":
                assert best_s > jobs.deadline_s[row]
            if " job " in f" {because}" and "job j" in because:
                assert because.split("job j")[1].split()[0].strip(",").isdigit()
    assert told.get("own speed", 0) >= worlds / 6 and len(told) >= 3, told


def one_by_one(number: int, corrected: frozenset[str]) -> Scene:
    """A random setting whose jobs come two minutes apart, each alone in its batch, and take five times as long."""
    made = drawn_world(number, published=True)
    jobs = made.setting.jobs
    submit_s = 120 * np.arange(len(jobs))
    slack_s = 5 * (jobs.deadline_s - jobs.submit_s)
    jobs = replace(
        jobs,
        submit_s=submit_s,
        deadline_s=np.where(jobs.has_deadline, submit_s + slack_s, jobs.deadline_s),
        iterations=5 * jobs.iterations,
        duration_s=5 * jobs.duration_s,
    )
    return replace(made, setting=switched(replace(made.setting, jobs=jobs, slot_s=30), corrected))


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("name", ["ef-accessctrl", "edf-accessctrl"])
def test_the_deadline_that_is_said_to_admit_a_job_admits_it(name: str, corrected: bool) -> None:
    """With the deadline moved as the refusal says, the same run takes the job in."""
    tried = 0
    for number in range(cases(30)):
        scene = one_by_one(number, frozenset(touching(name)) if corrected else frozenset())
        record, _ = lawful(schedulers().get(name)(), scene, watch=False)
        jobs = scene.setting.jobs
        for row in np.flatnonzero(record.admitted == 0).tolist():
            said = re.search(r"with a deadline (\d+) s later", record.refusals[row])
            if said is None:
                continue
            later = jobs.deadline_s.copy()
            later[row] += int(said[1])
            moved = replace(scene, setting=replace(scene.setting, jobs=replace(jobs, deadline_s=later)))
            again, _ = lawful(schedulers().get(name)(), moved, watch=False)
            assert again.admitted[row] == 1, f"{scene}: job {jobs.id[row]}, {record.refusals[row]}"
            tried += 1
    assert tried >= 2


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("name", ["ef-accessctrl", "edf-accessctrl"])
def test_the_gpus_that_are_said_to_admit_a_job_admit_it(name: str, corrected: bool) -> None:
    """The first job of a setting, alone, refused on eight GPUs for its deadline: with as many more as said it is taken."""
    tried = 0
    for number in range(cases(80)):
        scene = drawn_world(number, published=True)
        corrects = frozenset(touching(name)) if corrected else frozenset()
        jobs = scene.setting.jobs.take([0])
        if not jobs.has_deadline[0]:
            continue
        best = scene.setting.profile.rate_at()[jobs.kind[0]]  # type: ignore[union-attr]
        need_s = np.array([jobs.iterations[0] / best[1] * 0.4 + 60], np.int64)
        jobs = replace(jobs, deadline_s=jobs.submit_s + need_s)
        two = Cluster.uniform(1, 1, 2, "slow")
        record, _ = lawful(
            schedulers().get(name)(),
            replace(
                scene, setting=switched(replace(scene.setting, jobs=jobs, cluster=two, slot_s=30), corrects)
            ),
            watch=False,
        )
        said = re.search(r"with (\d+) more GPUs", record.refusals.get(0, ""))
        if said is None:
            continue
        more = Cluster.uniform(1, 1 + int(said[1]) // 2, 2, "slow")
        again, _ = lawful(
            schedulers().get(name)(),
            replace(
                scene, setting=switched(replace(scene.setting, jobs=jobs, cluster=more, slot_s=30), corrects)
            ),
            watch=False,
        )
        assert again.admitted[0] == 1, f"{scene}: {record.refusals[0]}"
        tried += 1
    assert tried >= 2


def test_waiting_for_themis_next_slot_is_waiting_for_admission() -> None:
    """A job is taken in at the slot that sees it; until then it waits for admission, not for GPUs."""
    from forerun.cluster.summary.waits import stretches_of, waits_of

    for number in range(5):
        scene = drawn_world(number, published=True)
        record, _ = lawful(schedulers().get("themis")(), scene)
        jobs, slot_s = scene.setting.jobs, scene.setting.slot_s
        first_s = int(jobs.submit_s[0])
        slot = first_s + -(-(jobs.submit_s - first_s) // slot_s) * slot_s
        waits = waits_of(record, stretches_of(record))
        assert waits.admission.tolist() == (slot - jobs.submit_s).tolist()


# -- cut anywhere --------------------------------------------------------------------------------------------------

ASKED = sorted(name for name in NAMES if not issubclass(schedulers().get(name), Schedule))


def asked_rules(name: str, scene: Scene, record: Record, round_s: float) -> Any:
    """A policy asked at every decision, also where a compiled queue could play the whole run."""
    from forerun.cluster.engine.allocator import AllocatorRules

    recipe = schedulers().get(name)(round_s=round_s)
    return AllocatorRules(scene.setting, record, recipe, recipe.build(np.random.default_rng(0)), scene.terms)


@pytest.mark.parametrize("name", ASKED)
def test_a_run_played_in_pieces_is_the_same_run(name: str) -> None:
    """Time is advanced to drawn instants between the policy's decisions; nothing but the pieces differs."""
    for number in range(cases(2)):
        scene = drawn_world(100 + number)
        turns = (0.0, 45.0) if cases(0) else ((0.0, 45.0)[number % 2],)
        for round_s in (45.0,) if name == "gavel-maxmin" else turns:
            whole, pieces = Record(scene.setting), Record(scene.setting)
            run_rules(asked_rules(name, scene, whole, round_s))
            rules = asked_rules(name, scene, pieces, round_s)
            cuts = np.sort(np.random.default_rng(number).uniform(0, 4000, 60)).tolist()
            while (now_s := rules.next_moment()) is not None:
                while cuts and cuts[0] <= now_s:
                    if cuts[0] > rules.now_s:
                        rules.advance(cuts[0])
                    cuts.pop(0)
                rules.advance(now_s)
                rules.decide(now_s)
            np.testing.assert_allclose(pieces.end_s, whole.end_s, rtol=1e-12, err_msg=str(scene))
            for one, other in zip(pieces.changes(), whole.changes(), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=str(scene))


def test_themis_in_small_blocks_is_the_same_run() -> None:
    """The kernel hands events over in blocks; how many fit one changes nothing."""
    recipe = schedulers().get("themis")
    for number in range(cases(4)):
        scene = drawn_world(number, published=True)
        runs = [lawful(recipe(block_events=size), scene, watch=False)[0] for size in (1, 3, 4096)]
        assert all(contract.same_run(runs[0], other) for other in runs[1:])
