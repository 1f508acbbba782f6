"""How the seeds of a comparison belong together: independent draws of a world, or resamples of one recorded log.

Student's t over independent seeds narrows with their number. Resamples of one log are no replications: they show how far
a figure varies from log to log, as far as this log can show it, and their number says nothing about the world. Their
spread is the interval, and none is given where it would be wrong too often, by a rule that was fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from forerun.core.domain import find_domain
from forerun.core.result.numbers import is_number
from forerun.core.result.objective import Objective
from forerun.core.result.stats import (
    Interval,
    mean_interval,
    paired_interval,
    paired_p,
    resample_interval,
    resample_p,
)

#: summary figures of a run on a resampled log: its blocks, and the load that the log offers the machines; of one on
#: resampled recorded runs: how many there are of each setting, at least
BLOCKS: Final = "resampled_blocks"
LOAD: Final = "resampled_load"
RUNS: Final = "resampled_runs"
#: logs of fewer blocks, or of less load, have no interval: queues are rarer in them than such a log can show
LEAST_BLOCKS: Final = 14
LEAST_LOAD: Final = 0.65
#: settings of fewer recorded runs have no interval: so few hardly say how far runs differ
LEAST_RUNS: Final = 4


@dataclass(frozen=True, slots=True)
class Replicates:
    """What an interval over seeds is of. blocks: of the one log that the seeds resample; 0: they are independent.

    why_not: why there is no interval and no p value; empty where there is. of_runs: whether the blocks are recorded runs.
    """

    blocks: int = 0
    why_not: str = ""
    of_runs: bool = False

    @classmethod
    def of(cls, summaries: Iterable[Mapping[str, Any]]) -> Replicates:
        """Those of runs with these summaries. The shortest log and the least load decide where they differ."""
        given = list(summaries)
        if runs := [int(one[RUNS]) for one in given if is_number(one.get(RUNS))]:
            few = f"some setting was recorded fewer than {LEAST_RUNS} times"
            return cls(min(runs), few if min(runs) < LEAST_RUNS else "", of_runs=True)
        resampled = [one for one in given if is_number(one.get(BLOCKS))]
        if not resampled:
            return cls()
        blocks = min(int(one[BLOCKS]) for one in resampled)
        loads = [float(one[LOAD]) for one in resampled if is_number(one.get(LOAD))]
        why_not = ""
        if not loads:
            why_not = "how often an interval from one trace is right was measured for logs of jobs only"
        elif blocks < LEAST_BLOCKS:
            why_not = f"the log has {blocks} blocks, and at least {LEAST_BLOCKS} are required"
        elif min(loads) < LEAST_LOAD:
            why_not = (
                f"the log asks for {100 * min(loads):.0f} % of the GPUs, and below {100 * LEAST_LOAD:.0f} % queues are "
                "rarer than one log shows"
            )
        return cls(blocks, why_not)

    @property
    def sample(self) -> str:
        """What the seeds resample, in words."""
        return f"{self.blocks} recorded runs" if self.of_runs else f"one log in {self.blocks} blocks"

    @property
    def caution(self) -> str:
        """What a reader must know of seeds that resample; empty for independent ones."""
        if not self.blocks:
            return ""
        what = ("the recorded runs", "runs") if self.of_runs else ("one log", "logs")
        text = f"seeds resample {what[0]}, so more of them say no more about other {what[1]}"
        return text + (f": no interval and no p value, as {self.why_not}" if self.why_not else "")

    def mean(self, values: ArrayLike, objective: Objective | None = None) -> Interval | None:
        """The interval of a figure's mean, within the bounds of its objective; None where there is none."""
        interval = self._interval(values)
        if interval is None or objective is None:
            return interval
        return objective.cut(interval, self.blocks or np.size(values))

    def difference(self, gaps: ArrayLike, objective: Objective | None = None) -> Interval | None:
        """The interval of the mean of paired differences of a figure; None where there is none."""
        count = int(np.size(gaps))
        alone = not self.blocks and count > 1
        interval = paired_interval(gaps, np.zeros(count)) if alone else self._interval(gaps)
        if interval is None or objective is None:
            return interval
        return objective.cut_difference(interval, self.blocks or count)

    def p(self, gaps: ArrayLike) -> float | None:
        """Two-sided p value of no mean difference; None where there is none."""
        if self.blocks:
            return None if self.why_not else resample_p(gaps, self.blocks, linear=self.of_runs)
        return paired_p(gaps, np.zeros(np.size(gaps))) if np.size(gaps) > 1 else None

    def _interval(self, values: ArrayLike) -> Interval | None:
        if self.blocks:
            return None if self.why_not else resample_interval(values, self.blocks, linear=self.of_runs)
        return mean_interval(values) if np.size(values) > 1 else None


#: seeds that are independent draws
INDEPENDENT: Final = Replicates()


def of_a_fit(base: Mapping[str, Any]) -> str:
    """What intervals over seeds leave out where a scenario draws from a description; empty where it draws from none.

    base: the scenario as plain data.
    """
    for path in getattr(find_domain(str(base.get("domain", ""))), "fitted", ()):
        section, _, key = path.partition(".")
        if isinstance(given := base.get(section), Mapping) and given.get(key) is not None:
            return f"seeds draw what {path} describes: if it was fitted to a log, how far the fit is off is left out"
    return ""
