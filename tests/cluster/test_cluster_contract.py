"""The contract classes of clusters: the documented example passes, and each kind of broken scheduler is caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import forerun
from forerun.cluster.policies.priority import Srtf
from forerun.cluster.policy import Allocation, Allocator, View
from forerun.cluster.testing import SchedulerContract
from forerun.core.errors import PolicyError
from forerun.core.scenarios import loads

ROOT = Path(__file__).parents[2]
LAWS = [name for name in dir(SchedulerContract) if name.startswith("test_")]


def made_by(answer: Any, *, memory: dict[str, Any] | None = None, round_s: float = 0.0) -> Allocator:
    """A policy that answers a view with `answer(view, memory)`; a fresh memory a run, unless one is shared."""

    class Scheduler:
        def __init__(self) -> None:
            self.memory = {} if memory is None else memory

        def allocate(self, view: View) -> Allocation:
            return answer(view, self.memory)

    class Made(Allocator, tag="made-here", frozen=True):
        """A policy for a test."""

        def build(self, rng: np.random.Generator) -> Any:
            return Scheduler()

    return Made(round_s=round_s)


def broken_laws(policy: Allocator) -> dict[str, BaseException]:
    """The laws that a policy breaks, and how each says so."""

    class Contract(SchedulerContract):
        worlds: ClassVar[int] = 12

    Contract.policy = policy
    found: dict[str, BaseException] = {}
    for law in LAWS:
        try:
            getattr(Contract(), law)()
        except (AssertionError, PolicyError) as error:
            found[law] = error
    return found


def in_order(view: View, memory: dict[str, Any]) -> Allocation:
    return view.take(np.arange(view.count))


def over_allocates(view: View, memory: dict[str, Any]) -> Allocation:
    return Allocation(view.gpus.copy())


def serves_the_dead(view: View, memory: dict[str, Any]) -> Allocation:
    memory.setdefault("favourite", int(view.job[0]))
    return view.give({memory["favourite"]: 1 if view.kind[0] >= 0 else int(view.gpus[0])})


def raises(view: View, memory: dict[str, Any]) -> Allocation:
    return Allocation(view.gpus[view.count + 7])


def starves(view: View, memory: dict[str, Any]) -> Allocation:
    return Allocation(np.zeros(view.count, np.int64))


def gambles(view: View, memory: dict[str, Any]) -> Allocation:
    return view.take(np.random.default_rng().permutation(view.count))


def remembers_other_runs(view: View, memory: dict[str, Any]) -> Allocation:
    memory["asked"] = memory.get("asked", 0) + 1
    order = np.arange(view.count)
    return view.take(order if memory["asked"] % 7 < 3 else order[::-1])


def test_a_good_policy_breaks_nothing() -> None:
    assert broken_laws(made_by(in_order)) == {}


@pytest.mark.parametrize(
    ("answer", "law", "said"),
    [
        (
            over_allocates,
            "test_laws_hold_after_every_event",
            r"t=\d+ s, job j\d: was given \d GPUs, which with the jobs",
        ),
        (
            serves_the_dead,
            "test_laws_hold_after_every_event",
            r"job j\d: was given \d GPUs, but ended at [\d.]+ s",
        ),
        (raises, "test_laws_hold_after_every_event", r"t=\d+ s: the policy raised IndexError"),
        (
            starves,
            "test_everybody_ends_or_is_refused",
            r"random setting 0: j0, .* never end; at .* gives GPUs to none of",
        ),
        (gambles, "test_the_same_world_gives_the_same_run", r"a second run differs"),
    ],
)
def test_each_kind_of_broken_policy_is_caught(answer: Any, law: str, said: str) -> None:
    found = broken_laws(made_by(answer))
    assert law in found, found
    assert re.search(said, str(found[law])), found[law]


def test_state_left_behind_by_a_run_is_caught() -> None:
    found = broken_laws(made_by(remembers_other_runs, memory={}))
    assert "test_the_same_world_gives_the_same_run" in found


def test_a_policy_without_a_name_is_caught() -> None:
    class Nameless(Srtf, frozen=True, tag=""):
        pass

    assert "has no tag" in str(broken_laws(Nameless())["test_the_spec_can_be_written_to_a_file"])


def test_the_example_of_the_page_passes_every_law() -> None:
    """CONTRIBUTING.md: the block is read, and each test that pytest would collect from it passes."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    block = next(
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "SchedulerContract" in text
    )
    scheduler = block[: block.index("class Test")]
    body = [line for line in scheduler.split("class ", 1)[1].splitlines() if line.strip()]
    assert len(body) <= 12, "twelve lines of Python"
    names: dict[str, Any] = {}
    exec(block, names)
    collected = [made for name, made in names.items() if name.startswith("Test") and isinstance(made, type)]
    assert len(collected) == 1 and len(LAWS) >= 6
    for law in LAWS:
        getattr(collected[0](), law)()
    listed = " ".join(page[page.index("collects one test per law") :].split())
    for word in (
        "used twice",
        "quotas",
        "work is conserved",
        "for ever",
        "same run",
        "names",
        "future",
        "parameters can be written to a file",
    ):
        assert word in listed


# -- what becomes of a run that a policy spoils ------------------------------------------------------------------------

SCENARIO = (
    "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: fifo\n"
    "costs: {restart_s: 90}\n"
)
JOBS = "job_id,submission_time,duration,num_gpu\nfirst,0,100,2\nsecond,10,50,2\nthird,400,80,4\n"


def test_the_run_so_far_stays_readable(tmp_path: Path) -> None:
    """Two jobs end, then the policy names one of them: the error says so, and their ends can be read."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    scenario = loads(SCENARIO, base=tmp_path)
    policy = made_by(
        lambda view, memory: view.give({0: 2, 1: 2}) if view.now_s >= 400 else in_order(view, memory)
    )
    with pytest.raises(
        PolicyError, match="t=400 s, job first: was given 2 GPUs, but ended at 100 s"
    ) as found:
        forerun.simulate(scenario, policy=policy)
    so_far = found.value.so_far
    assert so_far.tables["jobs"]["end_s"][:2].tolist() == [100.0, 60.0]
    assert np.isnan(so_far.tables["jobs"]["end_s"][2])
    assert any("stopped early: t=400 s" in note for note in so_far.notes)
    so_far.check().save(tmp_path / "kept")
    assert (tmp_path / "kept" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("number", "said"),
    [(2, "is not submitted before 400 s"), (77, "job number 77: .* does not exist; there are 3")],
)
def test_jobs_that_are_not_there_are_named(tmp_path: Path, number: int, said: str) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    policy = made_by(lambda view, memory: view.give({number: 1}))
    with pytest.raises(PolicyError, match=said):
        forerun.simulate(loads(SCENARIO, base=tmp_path), policy=policy)


def test_restarting_for_ever_ends_with_a_word(tmp_path: Path) -> None:
    """Two jobs of four GPUs take turns each minute, and a restart takes ninety seconds: nothing ever ends."""
    (tmp_path / "jobs.csv").write_text("job_id,submission_time,duration,num_gpu\na,0,100,4\nb,0,100,4\n")

    def turns(view: View, memory: dict[str, Any]) -> Allocation:
        memory["turn"] = memory.get("turn", 0) + 1
        return view.take(np.roll(np.arange(view.count), memory["turn"]))

    result = forerun.simulate(loads(SCENARIO, base=tmp_path), policy=made_by(turns, round_s=60.0))
    assert result.summary["unfinished_jobs"] == 2
    assert any(
        "restarted jobs at 1000 decisions in a row before any of them did any work" in n for n in result.notes
    )


def test_waking_for_nothing_ends_with_a_word(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)

    def dozes(view: View, memory: dict[str, Any]) -> Allocation:
        return Allocation(np.zeros(view.count, np.int64), wake_s=view.now_s + 1e-9)

    with pytest.raises(PolicyError, match="decided 1000 times within a second in which no job came or ended"):
        forerun.simulate(loads(SCENARIO, base=tmp_path), policy=made_by(dozes))


def test_a_wake_up_is_kept_where_gpus_are_of_several_types(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)

    def late(view: View, memory: dict[str, Any]) -> Allocation:
        if "seen" not in memory:
            memory["seen"] = True
            return Allocation(np.zeros(view.count, np.int64), wake_s=view.now_s + 1.0)
        return view.take(np.arange(view.count))

    nodes = "[{name: a, count: 1, gpus: 4, gpu_type: a100}, {name: b, count: 1, gpus: 4, gpu_type: v100}]"
    scenario = loads(SCENARIO, [f"machines.nodes={nodes}"], base=tmp_path)
    result = forerun.simulate(scenario, policy=made_by(late))
    jobs = result.tables["jobs"]
    assert jobs["first_start_s"].min() == jobs["submit_s"].min() + 1.0
