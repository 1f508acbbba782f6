"""A live run that nothing disturbs equals the simulation, job by job, to the second; and so does its replay."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

import forerun
from forerun.cluster.domain import DOMAIN
from forerun.cluster.inputs.arrays import NO_DEADLINE_S
from forerun.cluster.scenario import Scenario
from forerun.core.errors import StoreError
from forerun.core.scenarios import from_data
from forerun.live.controller import Course
from forerun.live.engines.engine import Heartbeat, Pace, Start
from forerun.live.folder import RunFolder
from forerun.live.observation import Left, Observation
from forerun.live.replay import replay
from forerun.live.run_files import create_run, inputs_of, job_specs, node_names
from forerun.live.session import Session

from ..conftest import cases
from .virtual import IdealEngine, VirtualClock

#: worlds for each policy in a run of the suite; FORERUN_CASES asks for more
WORLDS = max(2, cases(0) // 100)
#: runs of the law of promises; all with FORERUN_CASES=1000
PROMISES = cases(6)
#: a job does so many steps for each of its iterations, so that whole steps are a fine grain (no need where the clock jumps)
FINE = 1_000_000
#: simulations of these forgive what is left of a restart when another job comes or goes, as real jobs cannot
FORGIVING = ("edf", "edf-accessctrl", "ef")
#: simulations of these end jobs with their slots, real jobs when they are done
ENDS_WITH_SLOTS = ("ef",)
#: these act at every slot, so theirs are not of a second
EVERY_SLOT = ("gandiva", "themis", "chronus")
ELASTIC = ["ef-accessctrl", "ef", "edf", "edf-accessctrl"]
POLICIES = [*ELASTIC, "gandiva", "dlas-gpu", "themis", "chronus", "fifo", "srtf", "las", "gavel-maxmin"]
#: what changes cost in every second world: restarts longer than some slots, first starts and drains
COSTS = {"1->2": 7.0, "2->1": 5.0, "migrate": 45.0, "start": 11.0, "drain": 2.0}


def drawn_scenario(seed: int, policy: str, costs: dict[str, float] | None = None) -> Scenario:
    """Twenty jobs on two nodes, many of them at the same time."""
    rng = np.random.default_rng([11, seed])
    if costs is None and policy in FORGIVING:
        costs = {"1->2": 0.0, "2->1": 0.0, "migrate": 0.0}
    slots_s = [30, 30, 60] if policy in EVERY_SLOT else [1, 30, 60]
    data = {
        "domain": "cluster",
        "seed": seed,
        "trace": {
            "generate": {
                "jobs": 20,
                "mean_gap_s": float(rng.choice([60, 200, 600])),
                "durations": [{"weight": 1, "median_s": 900, "log_spread": 0.8}],
                "least_slack": 0.8,
                "most_slack": 2.5,
                "best_effort_share": 0.2,
                "sizes": [{"gpus": 1, "share": 0.5}, {"gpus": 2, "share": 0.3}, {"gpus": 4, "share": 0.2}],
            }
        },
        "machines": {"nodes": [{"name": "a", "count": 2, "gpus": 4}]},
        "profile": [{"analytic": "balanced", "kinds": [["vision", 64], ["language", 128]]}],
        "policy": policy,
        "costs": {"models": {"*": costs}} if costs else {},
        "slot_s": 1 if policy in ENDS_WITH_SLOTS else int(rng.choice(slots_s)),
        "live": {"lease_s": 1e12, "heartbeat_s": 1e11, "hang_s": 1e12},
    }
    return from_data(data)  # type: ignore[no-any-return]


def played(
    folder: Path,
    scenario: Scenario,
    clock: VirtualClock | None = None,
    engine: Callable[[VirtualClock, Mapping[str, int]], IdealEngine] = IdealEngine,
    made: Callable[[Session], None] = lambda session: None,
) -> Session:
    """The run, to its end; `made` gets it at its beginning."""
    inputs = DOMAIN.prepare(scenario)
    jumps = clock is not None and clock.course.jumps
    fine = 1 if jumps else FINE
    specs = [
        msgspec.structs.replace(spec, iterations=spec.iterations * fine) for spec in job_specs(inputs, folder)
    ]
    run = create_run(folder, scenario, specs=specs, clock="fast-forward" if jumps else "wall")
    names = node_names(inputs_of(run))
    clock = clock or VirtualClock()
    nodes = dict(zip(names, inputs.setting.cluster.node_gpus().tolist(), strict=True))
    session = Session(run, engine(clock, nodes), clock, poll_s=math.inf)
    made(session)
    for _ in range(1_000_000):
        if session.is_over:
            break
        session.step()
    assert session.is_over, session.controller.status()
    session.close()
    return session


@pytest.mark.parametrize(
    ("policy", "jumps"),
    [
        (policy, jumps)
        for number, policy in enumerate(POLICIES)
        for jumps in (bool(number % 2), not number % 2)[: cases(1, 2)]
    ],
)
def test_a_run_without_disturbance_equals_the_simulation(policy: str, jumps: bool, folder: Path) -> None:
    for seed in range(WORLDS):
        costs = COSTS if seed % 2 and policy not in FORGIVING else None
        scenario = drawn_scenario(seed, policy, costs)
        session = played(folder / f"{seed}", scenario, VirtualClock(Course(jumps=jumps)))
        jobs = forerun.simulate(scenario).tables["jobs"]
        record = session.controller.online.record
        count = len(session.controller.rows)
        np.testing.assert_array_equal(
            record.admitted[:count] == 1, jobs["admitted"] == 1, err_msg=f"world {seed}"
        )
        ends_s = np.array(
            [math.nan if job.state.name == "refused" else job.end_s for job in session.controller.rows]
        )
        np.testing.assert_allclose(ends_s, jobs["end_s"], rtol=0, atol=1.0, err_msg=f"world {seed}")
        assert {job.state.name for job in session.controller.rows} <= {"finished", "refused"}
        replayed = replay(RunFolder(folder / f"{seed}"))
        assert replayed.difference is None and replayed.decisions > 20


class PromptEngine(IdealEngine):
    """Ranks that start and work as fast as planned, or faster.

    Parameters
    ----------
    clock, nodes : as of the ideal one.
    rng : draws by how much.
    slowest : speed of the slowest job, in shares of its profile (default: its profile).
    """

    def __init__(
        self, clock: VirtualClock, nodes: Mapping[str, int], rng: np.random.Generator, slowest: float = 1.0
    ) -> None:
        super().__init__(clock, nodes)
        self.rng, self.slowest = rng, slowest
        self.speeds: dict[str, float] = {}

    def _start(self, start: Start, now_s: float) -> None:
        assert start.pace is not None
        speed = self.speeds.setdefault(start.job, float(self.rng.uniform(self.slowest, self.slowest + 0.5)))
        pace = Pace(start.pace.rate_per_s * speed, start.pace.start_s * float(self.rng.uniform(0, 1)))
        super()._start(msgspec.structs.replace(start, pace=pace), now_s)


def promises(folder: Path, seed: int, slowest: float = 1.0) -> tuple[int, int, int]:
    """How many jobs with deadlines were admitted and refused in a drawn run, and how many of the admitted were late."""
    rng = np.random.default_rng([23, seed])
    kinds = ("start", "drain", "1->2", "2->1", "migrate")
    costs = {kind: float(rng.uniform(0, 30)) for kind in kinds}
    scenario = drawn_scenario(seed, "ef-accessctrl", costs)
    session = played(folder, scenario, engine=lambda clock, nodes: PromptEngine(clock, nodes, rng, slowest))
    setting, record = session.controller.online.setting, session.controller.online.record
    admitted = late = refused = 0
    for row, job in enumerate(session.controller.rows):
        due_s = int(setting.jobs.deadline_s[row])
        if due_s < NO_DEADLINE_S:
            refused += job.state.name == "refused"
            if record.admitted[row] == 1:
                admitted += 1
                late += job.end_s is None or job.end_s > due_s
    return admitted, refused, late


def test_admitted_jobs_meet_their_deadlines_where_work_is_as_fast_as_planned(folder: Path) -> None:
    """However much faster some of it is, and however early others therefore start, end and change.

    ElasticFlow promises that; EDF with admission control promises a plan, and others may still cost it a restart.
    """
    contended = admitted = 0
    for seed in range(PROMISES):
        kept, refused, late = promises(folder / str(seed), seed)
        assert not late, f"run {seed}: {late} of {kept} admitted jobs are late"
        contended += refused > 0
        admitted += kept
    print(f"{contended} of {PROMISES} runs refused jobs; {admitted} jobs were admitted, none was late")
    assert contended > PROMISES / 4


def test_jobs_that_are_slower_than_their_profile_are_late(folder: Path) -> None:
    """The law is able to fail."""
    assert any(promises(folder / str(seed), seed, slowest=0.5)[2] for seed in range(2, 5))


class EarlyEngine(IdealEngine):
    """Programs of which some end by themselves, in good order, before their last step."""

    def __init__(self, clock: VirtualClock, nodes: Mapping[str, int], rng: np.random.Generator) -> None:
        super().__init__(clock, nodes)
        self.rng, self.reached = rng, dict[str, int]()

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        seen = super().poll(timeout_s)
        self.reached |= {one.job: one.step for one in seen if isinstance(one, Left)}
        return seen

    def _start(self, start: Start, now_s: float) -> None:
        super()._start(start, now_s)
        if self.rng.random() < 0.6:
            step = int(self.rng.integers(0, start.spec.iterations))
            at_s = now_s + float(self.rng.uniform(0, 300))
            self._at(at_s, Left(job=start.job, epoch=start.epoch, why="finished", step=step))


@pytest.mark.parametrize("policy", ["ef-accessctrl", "fifo"])
def test_a_job_has_finished_only_if_its_own_progress_reached_the_end(policy: str, folder: Path) -> None:
    """However often it is resized, and whatever its program says when it ends early."""
    names: set[str] = set()
    for seed in range(WORLDS):
        rng = np.random.default_rng([29, seed])
        session = played(
            folder / str(seed), drawn_scenario(seed, policy), engine=functools.partial(EarlyEngine, rng=rng)
        )
        engine = session.engine
        assert isinstance(engine, EarlyEngine)
        for job in session.controller.rows:
            names.add(job.state.name)
            done = engine.reached.get(job.name, 0) == job.spec.iterations
            assert (job.state.name == "finished") == done, job
            if job.state.name == "failed":
                assert f" of {job.spec.iterations} steps" in job.state.why  # type: ignore[union-attr]
    assert names >= {"finished", "failed"}


def test_status_says_what_failed_while_a_job_waits_to_start_again(folder: Path) -> None:
    seen: set[str] = set()

    class Watching(EarlyEngine):
        """Looks at the status whenever the controller waits."""

        def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
            for job in sessions[-1].controller.status().jobs if sessions else ():
                seen.update([job.why] if "starts again" in job.why else ())
            return super().poll(timeout_s)

    sessions: list[Session] = []
    engine = functools.partial(Watching, rng=np.random.default_rng(7))
    played(folder / "run", drawn_scenario(0, "fifo"), engine=engine, made=sessions.append)
    pattern = r"starts again at \d+ s after a failure: ended after \d+ of \d+ steps"
    assert seen and all(re.fullmatch(pattern, why) for why in seen), seen


def test_a_run_whose_nodes_never_come_ends_with_a_line(folder: Path) -> None:
    run = create_run(folder / "run", drawn_scenario(0, "fifo"))
    clock = VirtualClock()
    session = Session(run, IdealEngine(clock, {}), clock, poll_s=1.0)
    with pytest.raises(StoreError, match=r"no node came within 60 s; a-0\.log, a-1\.log may say why"):
        session.run()


def test_status_says_when_each_job_is_planned_to_end(folder: Path) -> None:
    """Nothing disturbs this run, so jobs end by their last plan, which holds some seconds for costs."""
    scenario = drawn_scenario(1, "ef-accessctrl")
    planned: dict[str, float] = {}

    class Watching(IdealEngine):
        """Looks at the status whenever the controller waits."""

        def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
            for job in sessions[-1].controller.status().jobs if sessions else ():
                if job.promise_s is not None:
                    planned[job.job] = job.promise_s
            return super().poll(timeout_s)

    sessions: list[Session] = []
    done = played(folder / "run", scenario, engine=Watching, made=sessions.append)
    ends_s = {job.name: job.end_s for job in done.controller.rows if job.state.name == "finished"}
    assert planned.keys() == ends_s.keys() and len(ends_s) > 5
    assert all(-1.0 <= planned[name] - end_s <= 30.0 for name, end_s in ends_s.items()), (planned, ends_s)


def test_jobs_without_a_model_have_no_batch_that_their_ranks_could_fail_to_share(folder: Path) -> None:
    """The rigid profile counts GPUs in place of samples, and a policy may give a job one more than it asks for."""
    (folder / "jobs.csv").write_text("job_id,submission_time,duration,num_gpu,deadline\na,0,20,3,500\n")
    data = {
        "domain": "cluster",
        "trace": {"file": str(folder / "jobs.csv")},
        "machines": {"nodes": [{"name": "a", "count": 2, "gpus": 4}]},
        "profile": [{"analytic": "rigid"}],
        "policy": "ef-accessctrl",
    }
    [spec] = job_specs(DOMAIN.prepare(from_data(data)), folder)
    assert (spec.slots, spec.model, spec.batch) == (3, "", 0)
