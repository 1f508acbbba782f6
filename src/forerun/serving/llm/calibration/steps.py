"""Coefficients from a table of iterations: the least squares of relative errors, none negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.experiment import Steps
from forerun.serving.llm.calibration.replay import COEFFICIENTS

#: the coefficients that a table of iterations can say
SAID: Final = COEFFICIENTS[:4]
#: iterations that a fit needs at least
LEAST_ROWS: Final = 20


@dataclass(frozen=True)
class StepFit:
    """Coefficients of iterations, and how far off they are.

    Parameters
    ----------
    values : float64[4], in the order of `SAID`; 0 where the best is at the bound.
    error : float64[4], standard error of each; NaN where it is 0.
    """

    values: Floats
    error: Floats = field(repr=False)

    def times_ms(self, steps: Steps) -> Floats:
        """What the iterations of a table should take."""
        return np.asarray(_columns(steps) @ self.values)

    def mean_error(self, steps: Steps) -> float:
        """Mean of the absolute relative errors over a table."""
        return float(np.abs(self.times_ms(steps) / steps.took_ms - 1).mean())

    def supported(self) -> dict[str, bool]:
        """Whether the table says what each coefficient is: it is over twice its standard error."""
        with np.errstate(invalid="ignore"):
            clear = self.values > 2 * self.error
        return {name: bool(one) for name, one in zip(SAID, clear)}


def fit_steps(tables: Sequence[Steps]) -> StepFit:
    """The coefficients that make relative errors least, none negative: of every choice of coefficients that are 0, the
    best whose others come out positive, which is exact for so few.

    Parameters
    ----------
    tables : of iterations, all counted alike.

    Raises TraceError for fewer iterations than a fit needs.
    """
    rows = np.concatenate([_columns(table) / table.took_ms[:, None] for table in tables])
    if len(rows) < LEAST_ROWS:
        names = ", ".join(table.name for table in tables)
        raise TraceError.at(names, f"has {len(rows)} usable iterations; a fit needs at least {LEAST_ROWS}")
    ones = np.ones(len(rows))
    scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    best: tuple[float, tuple[int, ...], Floats] | None = None
    for size in range(len(SAID)):
        for others in combinations(range(1, len(SAID)), size):
            chosen = (0, *others)
            if not (np.ptp(rows[:, list(chosen)], axis=0) > 0).all() and len(chosen) > 1:
                continue
            found, *_ = np.linalg.lstsq(rows[:, chosen] / scale[list(chosen)], ones, rcond=None)
            loss = float(((rows[:, chosen] / scale[list(chosen)] @ found - ones) ** 2).sum())
            if (found > 0).all() and (best is None or loss < best[0]):
                best = loss, chosen, found / scale[list(chosen)]
    assert best is not None, "a constant alone is always positive"
    loss, chosen, found = best
    values, error = np.zeros(len(SAID)), np.full(len(SAID), np.nan)
    values[list(chosen)] = found
    own = rows[:, chosen] / scale[list(chosen)]
    noise = loss / max(len(rows) - len(chosen), 1)
    spread = np.sqrt(np.maximum(np.diag(np.linalg.pinv(own.T @ own)) * noise, 0.0))
    error[list(chosen)] = spread / scale[list(chosen)]
    return StepFit(values, error)


def _columns(steps: Steps) -> Floats:
    """float64[n, 4]: what the coefficients are multiplied by."""
    return np.stack([np.ones(len(steps)), steps.prefill, steps.decodes, steps.kv], axis=1)
