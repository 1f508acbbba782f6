"""Solve linear and integer programs with HiGHS, alike in every process: one thread, one seed, nothing printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import highspy


def new_solver() -> highspy.Highs:
    """An empty `highspy.Highs` that uses one thread and seed 0, and prints nothing."""
    import highspy

    class Silent(highspy.Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:
            # Since 1.16 the first callback prints a banner, before its maker can say that nothing is to be printed.
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    solver = Silent()
    for option, setting in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
        solver.setOptionValue(option, setting)
    return solver


def solve(solver: highspy.Highs) -> highspy.HighsModelStatus:
    """Run the solver and return its model status, a `highspy.HighsModelStatus`.

    HiGHS has one pool of threads per process, sized by its first user. If other code in this process created a pool
    of another size, HiGHS rejects the run before it looks at the program; the pool is then created again.

    Parameters
    ----------
    solver : made by `new_solver`, with a program in it.

    Raises
    ------
    RuntimeError
        HiGHS reports an error, so that its status says nothing about the program.
    """
    import highspy

    if solver.run() == highspy.HighsStatus.kError:
        highspy.Highs.resetGlobalScheduler(True)
        if solver.run() == highspy.HighsStatus.kError:
            raise RuntimeError(f"HiGHS {solver.version()} could not run: {solver.getModelStatus()}")
    status: highspy.HighsModelStatus = solver.getModelStatus()
    return status
