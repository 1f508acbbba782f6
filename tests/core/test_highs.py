"""HiGHS answers alike whatever else in the process uses it."""

import subprocess
import sys

import highspy
import numpy as np
import pytest

from forerun.cluster.policies.gavel_maxmin import fair_shares
from forerun.core.highs import new_solver, solve
from forerun.replication.chronus.lease_program import Limits, Proof, best_plan
from forerun.replication.chronus.leases import Claim


@pytest.fixture(params=[1, 2, 5])
def pool_of_others(request: pytest.FixtureRequest) -> None:
    """Other code in this process has used HiGHS with so many threads."""
    highspy.Highs.resetGlobalScheduler(True)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", request.param)
    solver.addVar(0.0, 1.0)
    assert solver.run() == highspy.HighsStatus.kOk


@pytest.mark.usefixtures("pool_of_others")
def test_lease_plans_are_solved_beside_another_user_of_the_pool() -> None:
    """The optimum grants the two narrow claims both leases; the given plan grants the wide claim one."""
    claims = [Claim(8, 1, 2), Claim(4, 2, 2), Claim(4, 2, 2)]
    planned = best_plan(claims, 8, use_now=True, incumbent=[[0], None, None], limits=Limits())
    assert planned.proof is Proof.SOLVED
    assert planned.leases == (None, (0, 1), (0, 1))


@pytest.mark.usefixtures("pool_of_others")
def test_fair_shares_are_solved_beside_another_user_of_the_pool() -> None:
    """Two jobs of opposite tastes: each has all of the type that suits it."""
    speed = np.array([[1.0, 3.0], [3.0, 1.0]])
    shares = fair_shares(speed, np.array([1, 1]), np.array([1, 1]))
    assert shares == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_a_run_that_highs_rejects_is_an_error_not_an_answer() -> None:
    solver = new_solver()
    solver.run = lambda: highspy.HighsStatus.kError
    with pytest.raises(RuntimeError, match="could not run"):
        solve(solver)


def test_a_solver_prints_nothing() -> None:
    """Not even its banner, which would stand before what a command prints as JSON."""
    code = "from forerun.core.highs import new_solver, solve; s = new_solver(); s.addVar(0, 1); solve(s)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout and not done.stderr
