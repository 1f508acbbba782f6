"""Replays out of time: what is known before a part of a log decides, and the part itself only scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.core.cli.main import run
from forerun.core.errors import InputError
from forerun.site.cases import held_of
from forerun.site.history import History
from forerun.site.machine import Pool
from forerun.site.replay.backtest import BackTest, back_test
from forerun.site.replay.calibration import CHANGED, HOLDS, OVERLAP, TOO_FEW, UNIDENTIFIED
from forerun.site.replay.play import CANDIDATES, policy_name

from .test_replay import DAY_S, NODES, OFF, OUTAGES, drawn, machine, made_by, written

pytestmark = pytest.mark.filterwarnings("error")
EVERY_S = 14 * DAY_S


def reasons(found: BackTest) -> set[str]:
    return {one.reason for split in found.splits for one in split.refusals}


def shifted(log: History, rows: np.ndarray, by_s: float) -> History:
    """The log with some jobs later."""
    start_s = np.where(rows, log.start_s + by_s, log.start_s)
    return replace(log, start_s=start_s, end_s=start_s + log.run_s)


@pytest.mark.parametrize("at", [0, 2])
def test_the_log_of_a_policy_is_answered_for(at: int) -> None:
    system = machine(windows=OUTAGES)
    found = back_test(
        made_by(CANDIDATES[at], drawn(20 + at), system), system=system, off=OFF, every_s=EVERY_S
    )
    assert [one.name for one in found.splits] == ["2020-09-27", "2020-10-11", "2020-10-25"]
    for split in found.splits:
        assert split.policy == policy_name(CANDIDATES[at])
        assert split.past_mean < 0.05, "only of running jobs the end is not known yet"
        assert not split.refusals
        assert split.near
    assert "3 of 3 parts of the log are answered for, 3 of them within 10%" in found.why


def test_nothing_of_a_part_is_looked_at_before_it_is_scored() -> None:
    """What happens after a part began changes neither its policy nor its refusal, nor the errors of its past by a bit."""
    log = made_by(CANDIDATES[3], drawn(23), machine())
    was = back_test(log, every_s=EVERY_S).splits[1]
    rng = np.random.default_rng(3)
    later = log.start_s > was.from_s
    start_s = np.where(later, log.start_s + rng.uniform(0, 9 * DAY_S, len(log)), log.start_s)
    end_s = np.where(log.end_s > was.from_s, start_s + rng.permutation(log.run_s), log.end_s)
    end_s = np.maximum(np.where(log.end_s > was.from_s, np.maximum(end_s, was.from_s + 1), end_s), start_s)
    now = back_test(replace(log, start_s=start_s, end_s=end_s), every_s=EVERY_S).splits[1]
    names = ("name", "from_s", "policy", "past_mean", "past_worst", "refusals")
    assert [getattr(was, name) for name in names] == [getattr(now, name) for name in names]
    assert was.rows[0].simulated_mean_s != now.rows[0].simulated_mean_s


def test_each_reason_where_it_is_the_true_one() -> None:
    log = made_by(CANDIDATES[0], drawn(24), machine())
    few = log.of(np.sort(np.random.default_rng(1).choice(len(log), 300, replace=False)))
    assert TOO_FEW in reasons(back_test(few, system=machine(), off=OFF, every_s=7 * DAY_S))
    less = machine(Pool(name="all", nodes=NODES - 20))
    assert reasons(back_test(log, system=less, off=OFF, every_s=EVERY_S)) == {OVERLAP}
    # nobody's order
    rng = np.random.default_rng(4)
    delayed = shifted(log, rng.random(len(log)) < 0.4, 1.5 * DAY_S)
    assert UNIDENTIFIED in reasons(back_test(delayed, every_s=EVERY_S))
    # jobs that wait for something that is not the queue, while later ones of their users start
    small = (log.gpus <= 8) & (np.arange(len(log)) % 9 == 0)
    held = shifted(log, small, 8 * DAY_S)
    assert HOLDS in reasons(back_test(held, system=machine(), off=OFF, every_s=EVERY_S))
    # launches that take minutes at times: replays are near without any hold
    late = shifted(log, rng.random(len(log)) < 0.4, 600.0)
    found = reasons(back_test(late, system=machine(), off=OFF, every_s=EVERY_S))
    assert UNIDENTIFIED in found and HOLDS not in found


def test_no_case_has_no_holds() -> None:
    assert held_of([]) == (0, 0, 0.0)


def test_a_machine_that_grew_is_refused() -> None:
    """On half of the nodes for 40 days, and on all since."""
    jobs = drawn(25, jobs=1200)
    jobs["nodes"] = np.minimum(jobs["nodes"], 32)
    half = made_by(CANDIDATES[0], jobs, machine(Pool(name="all", nodes=NODES // 2)))
    late = half.submit_s > 40 * DAY_S
    whole = made_by(CANDIDATES[0], jobs, machine())
    log = replace(half, start_s=np.where(late, whole.start_s, half.start_s))
    log = replace(log, end_s=log.start_s + half.run_s, complete_until_s=58 * DAY_S)
    parts = back_test(log, every_s=7 * DAY_S).splits
    changed = [one.name for one in parts if CHANGED in {each.reason for each in one.refusals}]
    assert changed
    assert all(one.from_s > 40 * DAY_S for one in parts if one.name in changed)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(made_by(CANDIDATES[0], drawn(26, days=45, jobs=700), machine()), tmp_path / "log.csv")
    kept = tmp_path / "kept.json"
    assert run(["replay", "backtest", str(log), "--every", "14d", "-o", str(kept)]) == 0
    said = capsys.readouterr().out
    assert "parts of the log are answered for" in said
    content = json.loads(kept.read_text())
    assert [row["split"] for row in content["splits"]] == ["2020-09-29", "2020-10-13"]
    assert {row["split"] for row in content["classes"]} <= {row["split"] for row in content["splits"]}
    assert run(["replay", "backtest", str(log), "--every", "14d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == content, "the same log, the same answer"
    assert run(["report", str(kept), "-o", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    for words, what in (
        (["--every", "soon"], "--every soon"),
        (["--every", "3h"], "a day at least"),
        (["--every", "60d"], "too short to be divided"),
        (["--without", "pool"], "did you mean"),
    ):
        assert run(["replay", "backtest", str(log), *words]) == 2
        error = capsys.readouterr().err
        assert what in error and "Traceback" not in error
    with pytest.raises(InputError, match="no requested times"):
        history = made_by(CANDIDATES[0], drawn(27, jobs=300), machine())
        back_test(replace(history, requested_s=np.full(len(history), np.nan)))
