"""A live run in which another program decides: the same decisions as by the policy in this process, or a named end."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from forerun.cluster import processes
from forerun.cluster.decider import Decider
from forerun.cluster.scenario import Scenario
from forerun.core.errors import PolicyError, UsageError
from forerun.live.controller import Course
from forerun.live.folder import RunFolder
from forerun.live.journal import Journal
from forerun.live.replay import replay
from forerun.live.run_files import create_run, inputs_of
from forerun.live.runs import run_scenario, stopped_status
from forerun.live.session import Session

from ..conftest import ROOT
from .test_virtual_runs import drawn_scenario, played
from .virtual import IdealEngine, VirtualClock

BUILT_IN = ROOT / "tests" / "cluster" / "deciders" / "built_in.py"
#: answers two views, then dies
SHORT = """
import json, sys
hello = json.loads(sys.stdin.readline())
print(json.dumps({"protocol": hello["protocol"]}), flush=True)
for number in (1, 2):
    sys.stdin.readline()
    print(json.dumps({"view": number}), flush=True)
"""


def decided(scenario: Scenario, *argv: str) -> Scenario:
    return scenario.with_(policy=Decider.of((sys.executable, *argv), scenario.policy))


def answers(folder: Path) -> list[tuple[int, str]]:
    """Every command and decision of a run, without the name of its folder."""
    texts = Journal(RunFolder(folder).journal, read_only=True).answer_texts()
    return [(number, text.replace(str(folder), "")) for number, text in texts]


def test_the_same_policy_decides_the_same_in_another_process(folder: Path) -> None:
    scenario = drawn_scenario(1, "las")
    cache = (os.environ["FORERUN_CACHE_DIR"],) if "FORERUN_CACHE_DIR" in os.environ else ()
    apart = decided(scenario, str(BUILT_IN), "las", *cache)
    for name, one in (("here", scenario), ("apart", apart)):
        played(folder / name, one, VirtualClock(Course(jumps=True)))
    assert answers(folder / "apart") == answers(folder / "here") != []
    assert isinstance(apart.policy, Decider)
    assert replay(RunFolder(folder / "apart", apart.policy)).difference is None


def test_a_program_that_dies_ends_the_run_by_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "decider.py").write_text(SHORT)
    scenario = decided(drawn_scenario(1, "fifo"), "-S", str(tmp_path / "decider.py"))
    run = create_run(folder / "run", scenario)
    clock = VirtualClock()
    session = Session(run, IdealEngine(clock, {"a-0": 4, "a-1": 4}), clock, poll_s=math.inf)
    with pytest.raises(PolicyError, match=r"decider\.py.*ended with exit code 0 before it answered"):
        session.run()
    session.close()
    if sys.platform == "linux":
        assert not processes.marked(f"decider/{os.getpid()}/")
    with pytest.raises(UsageError, match="another program decides in this run"):
        stopped_status(run.path)
    (tmp_path / "decider.py").write_text(SHORT + "\n")
    other = decided(drawn_scenario(1, "fifo"), "-S", str(tmp_path / "decider.py")).policy
    assert isinstance(other, Decider)
    with pytest.raises(UsageError, match="was decided by another program"):
        inputs_of(replace(run, decider=other))


def test_an_answer_takes_less_than_a_lease(tmp_path: Path) -> None:
    scenario = decided(drawn_scenario(1, "fifo"), "-S", str(BUILT_IN))
    policy = scenario.policy.with_(answer_s=2e12)
    with pytest.raises(UsageError, match=r"less than live\.lease_s"):
        run_scenario(scenario.with_(policy=policy), tmp_path / "run")
    assert not (tmp_path / "run").exists()
