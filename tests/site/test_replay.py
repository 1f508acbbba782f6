"""Replays: histories that our own policies made are reproduced exactly, and what-ifs on them know the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.core.cli.main import run
from forerun.core.errors import InputError, ScenarioError
from forerun.core.result.numbers import shown_instant
from forerun.site.cases import Case, case_of
from forerun.site.history import F64, History, Names
from forerun.site.inference import infer
from forerun.site.machine import Outage, Pool, System, read_system
from forerun.site.replay.play import CANDIDATES, one_step, policy_name, replayed, with_holds
from forerun.site.replay.replay import replay_log
from forerun.site.replay.stored import beside_of, identified_of, replay_figures
from forerun.site.replay.whatif import Counterfactual, what_if
from forerun.site.shown import small_pool

from ..conftest import cases

DAY_S = 86_400.0
NODES = 100
#: of a replay, where the machine is given
OFF = ("pools", "windows", "latencies", "limits")


def history(start_s: F64, jobs: dict[str, F64], until_s: float) -> History:
    """A log of jobs with the starts that a policy gave them."""
    count = len(start_s)
    none = Names.of([""] * count)
    return History(
        job_id=np.arange(count).astype(str),
        submit_s=jobs["submit_s"].copy(),
        eligible_s=jobs["submit_s"].copy(),
        start_s=start_s.copy(),
        end_s=start_s + jobs["run_s"],
        gpus=jobs["nodes"].astype(np.int64),
        nodes=jobs["nodes"].astype(np.int64),
        exclusive=np.zeros(count, np.bool_),
        requested_s=jobs["requested_s"].copy(),
        user=Names.of([f"u{at % 7}" for at in range(count)]),
        account=none,
        partition=none,
        qos=none,
        state=none,
        gpu_type=none,
        on_nodes=none,
        array=none,
        origin_s=1.6e9,
        clock="UTC",
        selection="submit",
        complete_from_s=0.0,
        complete_until_s=until_s,
        source="made.csv",
    )


def drawn(seed: int, days: int = 60, jobs: int = 1500) -> dict[str, F64]:
    """Jobs on 100 nodes that queue for hours; whole seconds; some overrun their request."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(np.floor(rng.uniform(0, days * DAY_S, jobs)))
    submit_s[0] = 0
    nodes = rng.choice([4, 8, 16, 32, 64], jobs, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    run_s = np.ceil(rng.lognormal(8.6, 1.0, jobs)).clip(60, 2 * DAY_S)
    run_s *= 0.92 * days * DAY_S * NODES / (run_s * nodes).sum()
    run_s = np.ceil(run_s)
    requested_s = np.ceil(run_s * rng.uniform(0.97, 4.0, jobs) / 600) * 600
    return {"submit_s": submit_s, "nodes": nodes.astype(float), "run_s": run_s, "requested_s": requested_s}


def machine(
    pool: Pool | None = None, windows: tuple[Outage, ...] = (), held_after_s: float = 2 * DAY_S
) -> System:
    return System(pools=(pool or Pool(name="all", nodes=NODES),), windows=windows, held_after_s=held_after_s)


def made_by(policy: BackfillPolicy, jobs: dict[str, F64], system: System) -> History:
    """The history that a policy makes of jobs, from an empty machine on."""
    blank = history(jobs["submit_s"] + 1e7, jobs, jobs["submit_s"].max() + 2e7)
    case = replace(case_of(blank, msgspec.structs.replace(system, held_after_s=0), 0), begin_s=-1.0)
    start_s = replayed(case, policy)
    assert np.isfinite(start_s).all()
    return history(start_s, jobs, float(jobs["submit_s"].max()))


OUTAGES = (
    Outage(from_s=1.6e9 + 20 * DAY_S, to_s=1.6e9 + 20.4 * DAY_S, announced_s=1.6e9 + 18 * DAY_S),
    Outage(from_s=1.6e9 + 40 * DAY_S, to_s=1.6e9 + 40.3 * DAY_S, announced_s=1.6e9 + 40 * DAY_S),
)


def earlier(outages: tuple[Outage, ...], days: float) -> tuple[Outage, ...]:
    """The same outages so many days earlier."""
    names = ("from_s", "to_s", "announced_s")
    return tuple(
        msgspec.structs.replace(one, **{name: getattr(one, name) - days * DAY_S for name in names})
        for one in outages
    )


#: with users' limits, latencies and outages
BUSY = Pool(name="all", nodes=NODES, launch_s=30.0, turnover_s=60.0, running_per_user=4)


@pytest.mark.parametrize("policy", CANDIDATES, ids=policy_name)
@pytest.mark.parametrize(
    "system", [machine(held_after_s=0), machine(BUSY, OUTAGES, held_after_s=0)], ids=["plain", "busy"]
)
def test_a_policy_reproduces_its_own_run(policy: BackfillPolicy, system: System) -> None:
    log = made_by(policy, drawn(1), system)
    case = case_of(log, system, 0)
    np.testing.assert_array_equal(replayed(replace(case, begin_s=-1.0), policy), log.start_s)
    step = one_step(case, policy, 0.0, 60 * DAY_S)
    assert step.f1 == 1.0
    assert step.hits > 1000
    assert not with_holds(case, policy, 1.0).held.any(), "whom the policy itself makes wait is not held"


@pytest.mark.parametrize("policy", [one for one in CANDIDATES if not one.keeps_promises], ids=policy_name)
def test_a_run_goes_on_from_history_at_any_instant(policy: BackfillPolicy) -> None:
    system = machine(BUSY, OUTAGES)
    log = made_by(policy, drawn(2), system)
    case = replace(case_of(log, system, 0), begin_s=25.3 * DAY_S)
    start_s = replayed(case, policy)
    later = np.isfinite(start_s)
    np.testing.assert_array_equal(start_s[later], log.start_s[later])
    assert (later | (case.end_s <= 25.4 * DAY_S)).all()


def test_nobody_runs_more_than_the_machine_or_a_limit_allows() -> None:
    for policy in CANDIDATES:
        log = made_by(policy, drawn(3), machine(BUSY, OUTAGES))
        assert log.busy()[1].max() <= NODES
        for user in range(len(log.user.names)):
            own = log.of(log.user.codes == user)
            alone = replace(own, gpus=np.ones(len(own), np.int64))
            assert alone.busy()[1].max() <= BUSY.running_per_user
        for window in OUTAGES:
            inside = (log.start_s > window.from_s - log.origin_s) & (
                log.start_s - 30 < window.to_s - log.origin_s
            )
            assert not inside.any()


def test_what_the_machine_has_is_inferred() -> None:
    policy = CANDIDATES[0]
    jobs = drawn(4, jobs=2500)
    announced = tuple(msgspec.structs.replace(one, announced_s=one.from_s - 3 * DAY_S) for one in OUTAGES)
    log = made_by(policy, jobs, machine(msgspec.structs.replace(BUSY, launch_s=0.0), announced))
    found, findings = infer(log, 50 * DAY_S)
    (pool,) = found.pools
    assert abs(pool.gpus - NODES) <= 4
    assert len(found.windows) <= 4, "idle hours while the machine is drained are apart from the outage"
    for real in announced:
        (window,) = (one for one in found.windows if abs(one.to_s - real.to_s) <= 3600)
        assert window.from_s <= real.from_s + 1
        assert window.announced_s < real.from_s - DAY_S
    assert {finding.about for finding in findings} >= {"pools", "windows", "limits"}
    assert abs(pool.turnover_s + pool.launch_s - 60) <= 10
    assert pool.running_per_user == BUSY.running_per_user
    nothing, findings = infer(log, 50 * DAY_S, off=("pools", "windows", "latencies", "limits", "holds"))
    assert nothing.windows == ()
    assert nothing.held_after_s == 0
    assert findings == ()


@pytest.mark.parametrize("policy", CANDIDATES, ids=policy_name)
def test_small_jobs_on_the_nodes_of_all_are_no_pool(policy: BackfillPolicy) -> None:
    """Backfilling makes small jobs wait beside free nodes, too."""
    jobs, rng = drawn(6, jobs=2500), np.random.default_rng(6)
    small = rng.random(2500) < 0.5
    jobs["nodes"] = np.where(small, rng.choice([1, 2, 3], 2500), rng.choice([12, 24, 48], 2500)).astype(float)
    assert small_pool(made_by(policy, jobs, machine())) is None


def test_held_jobs_are_seen_by_what_the_policy_would_have_done() -> None:
    policy, system = CANDIDATES[0], machine()
    log = made_by(policy, drawn(5), system)
    late = np.flatnonzero((log.submit_s < 40 * DAY_S) & (log.gpus <= 8))[::40]

    def held_by(days: float, *, one_more: float = 0.0) -> Case:
        start_s = log.start_s.copy()
        start_s[late] += days * DAY_S
        start_s[late[5]] += one_more * DAY_S
        return with_holds(
            case_of(replace(log, start_s=start_s, end_s=start_s + log.run_s), system, 0), policy, 2 * DAY_S
        )

    case = held_by(10)
    assert case.held[late].all()
    # their nodes are given to others, who come in a little later or sooner, hardly anybody by two days
    assert case.held.sum() <= 1.1 * len(late)
    assert (case.released_s[late] > case.held_s[late]).all(), "they were asked about again and again"
    assert (case.released_s[late] < case.start_s[late]).all()
    # when one of them starts in the end plays no part in when it is seen
    assert held_by(10, one_more=7).held_s[late[5]] == case.held_s[late[5]]
    assert not held_by(1).held[late].any(), "a day is not long enough"


def test_an_outage_in_which_some_jobs_run_on() -> None:
    """Nodes are out although a few jobs run on, and somebody waits who would fit; a drain for a wide job is no outage."""
    policy, jobs = CANDIDATES[0], drawn(6, jobs=2500)
    outages = tuple(
        msgspec.structs.replace(one, announced_s=one.from_s - 3 * DAY_S, gpus={"all": NODES - 8})
        for one in OUTAGES
    )
    jobs["nodes"][0], jobs["run_s"][0], jobs["requested_s"][0] = 8.0, 59 * DAY_S, 59 * DAY_S
    log = made_by(policy, jobs, machine(windows=outages))
    found, _ = infer(log, 50 * DAY_S)
    for real in outages:
        (window,) = (one for one in found.windows if abs(one.to_s - real.to_s) <= 3600)
        assert window.gpus == {"all": NODES - 8}
    for number in range(len(log)):
        inside = [
            one.from_s - log.origin_s < log.start_s[number] < one.to_s - log.origin_s for one in outages
        ]
        assert not any(inside)
    alone, _ = infer(made_by(policy, jobs, machine()), 50 * DAY_S)
    assert alone.windows == ()


def test_what_if_knows_the_answer() -> None:
    """On histories whose policy is known: the interval contains the true difference, and its sign is never wrong."""
    covered = wrong = 0
    histories = 20 if cases(0) else 2
    for seed in range(histories):
        policy = CANDIDATES[(0, 2, 6, 3)[seed % 4]]
        system, jobs = machine(), drawn(100 + seed, days=90)
        replay = replay_log(made_by(policy, jobs, system), system=system, off=OFF, identify=False)
        assert policy in replay.card.alike
        change = Counterfactual(nodes=(32, 64, -20, 16)[seed % 4])
        answer = what_if(replay, change)
        other = msgspec.structs.replace(system.pools[0], nodes=NODES + change.nodes)
        truth = made_by(policy, jobs, machine(other)).wait_s.mean() - replay.log.wait_s.mean()
        covered += answer.low_s <= truth <= answer.high_s
        wrong += (answer.verdict == "shorter" and truth > 0) or (answer.verdict == "longer" and truth < 0)
    assert covered >= 0.9 * histories - 0.5
    assert wrong == 0


@pytest.mark.parametrize("policy", CANDIDATES[::4] if cases(0) else CANDIDATES[4:5], ids=policy_name)
def test_a_log_of_the_chosen_policy_shows_how_well_policies_can_be_told_apart(policy: BackfillPolicy) -> None:
    """On a log that a policy made, its own log is that log; in another the chosen one is known, whatever made it."""
    system = machine(BUSY, OUTAGES, held_after_s=0)
    log = made_by(policy, drawn(6, jobs=700), system)
    replay = replay_log(log, system=system, off=OFF)
    assert replay.card.policy == policy
    # all but what waited when the first part ended
    assert [one.own for one in replay.card.tried] == pytest.approx(
        [one.step.f1 for one in replay.card.tried], abs=0.03
    )
    assert "would reach F1 1.00" in identified_of(replay)
    (beside,) = beside_of(replay)
    assert beside.jobs == replay.card.jobs
    assert beside.recorded_mean_s == pytest.approx(replay.card.history_s)
    assert beside.first_s >= replay.calibrated_s
    start_s = log.start_s + np.where(np.arange(len(log)) % 3 == 0, 7200.0, 0.0)
    other = replay_log(replace(log, start_s=start_s, end_s=start_s + log.run_s), system=system, off=OFF)
    (chosen,) = (one for one in other.card.tried if one.policy == other.card.policy)
    assert chosen.step.f1 < 0.9
    assert chosen.own is not None
    assert chosen.own > 0.99
    quick = replay_log(log, system=system, off=OFF, identify=False)
    assert identified_of(quick) == ""
    assert quick.card == replace(
        replay.card, tried=tuple(replace(one, own=None) for one in replay.card.tried)
    )


def test_rows_that_overlap_beyond_the_machine() -> None:
    """For a moment they are a note. A log whose jobs share nodes is refused at once, with how many, from when on."""
    log = made_by(CANDIDATES[0], drawn(10), machine())
    log = replace(log, gpus=np.ones_like(log.gpus))
    at, busy = log.busy()
    seconds = np.diff(at, append=at[-1])
    most = next(n for n in range(int(busy.max()), 0, -1) if seconds[busy >= n].sum() > 0.001 * seconds.sum())
    replay = replay_log(
        log,
        system=machine(Pool(name="all", nodes=most - 1)),
        off=("windows", "latencies", "limits"),
        identify=False,
    )
    assert busy.max() > most - 1
    assert any("rows overlap" in note for note in replay.notes)
    first = shown_instant(float(at[busy > 2][0]) + log.origin_s)
    said = f"hold up to {busy.max()} of its 2 nodes, more than there are for [0-9.]+ h, first at {first}"
    with pytest.raises(InputError, match=said):
        replay_log(log, system=machine(Pool(name="all", nodes=2)))


def test_strays_between_their_sizes_hide_no_pool() -> None:
    """Jobs of up to 4 nodes have 8 of their own; three of 8 nodes and three short ones ran on the 64 of the others."""
    policy, rng = CANDIDATES[0], np.random.default_rng(8)
    small, large = drawn(8, jobs=3000), drawn(9, jobs=1500)
    small["nodes"] = rng.choice([1.0, 2.0, 4.0], 3000)
    large["nodes"] = rng.choice([16.0, 24.0, 32.0], 1500)
    for part, nodes in ((small, 8), (large, 64)):
        part["run_s"] = np.ceil(
            part["run_s"] * 0.9 * 60 * DAY_S * nodes / (part["run_s"] * part["nodes"]).sum()
        )
        part["requested_s"] = np.ceil(part["run_s"] * 1.5 / 600) * 600
    one = made_by(policy, small, machine(Pool(name="all", nodes=8), held_after_s=0))
    two = made_by(policy, large, machine(Pool(name="all", nodes=64), held_after_s=0))
    jobs = {name: np.concatenate([small[name], large[name]]) for name in small}
    start_s = np.concatenate([one.start_s, two.start_s])
    order = np.argsort(jobs["submit_s"], kind="stable")
    between, short = {3300: 8, 3700: 8, 4100: 8}, {3301: 4, 3701: 4, 4101: 4}
    jobs["run_s"][list(short)] = 1200.0
    for strays in ({}, between, between | short):
        nodes = jobs["nodes"].copy()
        for row, size in strays.items():
            nodes[row] = size
        columns = {name: column[order] for name, column in (jobs | {"nodes": nodes}).items()}
        found = small_pool(history(start_s[order], columns, float(jobs["submit_s"].max())))
        assert found is not None, strays
        assert (found[0].nodes, found[0].most_gpus) == (8, 4), strays


def test_changes_that_cannot_be(tmp_path: Path) -> None:
    log = made_by(CANDIDATES[0], drawn(7, jobs=400), machine())
    replay = replay_log(log, system=machine(), off=("windows",), identify=False)
    with pytest.raises(ValueError, match="3 is none of them"):
        what_if(replay, Counterfactual(without_window=3))
    with pytest.raises(ValueError, match="a job asks for 64"):
        what_if(replay, Counterfactual(nodes=-50))
    same = what_if(replay, Counterfactual(policy=replay.card.policy))
    assert same.verdict == "cannot tell"
    with pytest.raises(InputError, match="no requested times"):
        replay_log(replace(log, requested_s=np.full(len(log), np.nan)))
    with pytest.raises(InputError, match="at least 200"):
        replay_log(log.of(np.arange(50)))
    with pytest.raises(InputError, match="outside of what can be scored"):
        replay_log(log, calibrate_until_s=5.0)
    with pytest.raises(InputError, match="no job fits"):
        replay_log(log, system=machine(Pool(name="all", nodes=1)))
    path = tmp_path / "machine.yaml"
    path.write_text("pools: [{name: all, nodes: 100}]\nwindows: [{from_s: 5, to_s: 4, announced_s: 1}]\n")
    with pytest.raises(ScenarioError, match=r"machine.yaml:2: at \$.windows\[0\]: a window"):
        read_system(path)


def written(log: History, path: Path) -> Path:
    rows = ["id,submit_s,start_s,end_s,nodes,requested_s,user"]
    columns = (log.submit_s, log.start_s, log.end_s, log.gpus, log.requested_s)
    for at, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        submit_s, start_s, end_s, nodes, requested_s = row
        times = ",".join(f"{log.origin_s + value:.3f}" for value in (submit_s, start_s, end_s))
        rows.append(f"{at},{times},{nodes},{requested_s},u{at % 7}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = made_by(CANDIDATES[2], drawn(8, days=20, jobs=500), machine(windows=earlier(OUTAGES, 12)))
    log = written(made, tmp_path / "log.csv")
    kept, page = tmp_path / "kept.json", tmp_path / "page.html"
    assert run(["replay", str(log), "-o", str(kept), "--report", str(page), "--without", "limits"]) == 0
    shown = capsys.readouterr().out
    assert "Report card" in shown and shown.startswith("Waits beside history")
    assert "outages" in shown
    assert "one-step F1" in page.read_text()
    content = kept.read_bytes()
    assert run(["replay", str(log), "-o", str(kept), "--without", "limits", "--json"]) == 0
    assert kept.read_bytes() == content, "the same log, the same bytes"
    assert json.loads(capsys.readouterr().out) == json.loads(content)
    *_, waits = replay_figures(json.loads(content))
    assert set(waits.data[waits.series]) == {"history", "replay"}, "two colours"
    assert run(["report", str(kept), "-o", str(tmp_path / "again.html")]) == 0
    capsys.readouterr()
    for change in (
        ["--nodes", "+64"],
        ["--policy", "conservative"],
        ["--no-window", "1"],
        ["--limit", "user.running=2"],
    ):
        assert run(["replay", "whatif", str(kept), *change, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["verdict"] in ("shorter", "longer", "cannot tell")
        assert answer["low_s"] <= answer["difference_s"] <= answer["high_s"]
    assert run(["replay", "whatif", str(kept), "--nodes", "+64"]) == 0
    assert "Mean wait" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(made_by(CANDIDATES[0], drawn(9, jobs=300), machine()), tmp_path / "log.csv")
    kept = tmp_path / "kept.json"
    assert run(["replay", str(log), "-o", str(kept), "-q"]) == 0
    capsys.readouterr()
    cases: list[tuple[list[str], str]] = [
        (["whatif", str(kept)], "say what is otherwise"),
        (["whatif", str(kept), "--policy", "esay"], "did you mean"),
        (["whatif", str(kept), "--nodes", "many"], "not a valid integer"),
        (["whatif", str(kept), "--nodes=-90"], "a job asks for 64"),
        (["whatif", str(kept), "--no-window", "9"], "none of them"),
        (["whatif", str(kept), "--limit", "running=3"], "user.running=20"),
        (["whatif", str(log), "--nodes", "+1"], "log.csv"),
        ([str(log), "--without", "pool"], "did you mean"),
        ([str(log), "--zone", "Nowhere/Atall"], "time zone"),
        ([str(log), "--calibrate-until", "soon"], "is no instant"),
        ([str(tmp_path / "gone.csv")], "no such file"),
    ]
    for words, what in cases:
        assert run(["replay", *words]) == 2, words
        error = capsys.readouterr().err
        assert what in error, (words, error)
        assert "Traceback" not in error
    log.write_text(log.read_text() + "# more\n")
    assert run(["replay", "whatif", str(kept), "--nodes", "+1"]) == 2
    assert "has changed" in capsys.readouterr().err
    text = log.read_text().splitlines()
    log.write_text("\n".join(",".join(line.split(",")[:5]) for line in text[:-1]))
    assert run(["replay", str(log)]) == 2
    assert "no requested times" in capsys.readouterr().err
