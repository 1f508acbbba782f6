"""Three probes, a model, a check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forerun.loading.engine.calibration import StoreProfile, best_within, fit_profile, predict, slower
from forerun.loading.policy import HIDDEN, Ask, Cell, Probe, Tuner, TunerSpec, TunerView

#: width of the residuals' kernel, in doublings of block and threads, and their noise in log time
_WIDTH = 1.5
_NOISE = 0.02


class ThreeProbes(TunerSpec, frozen=True, kw_only=True, tag="three_probes"):
    """Probes (1 x 1), (n x 1), (n x T), fits store and decode, predicts every cell, and checks its choice by one run.

    Stops after the first probe if that shows no stall. Of cells with `blocks_a_thread` blocks a thread it takes the one
    that needs the fewest bytes among those within `margin` of the best, by the model and by one whose store and decode
    are slower by `slack`: a cell that only just hides loading is passed over where another has slack. If the check is
    off by more than `tolerance`, it becomes one more probe: residuals of log time are fitted over the cells (a small
    Gaussian process) and the choice is made anew by the same rule, over all cells, at most `rounds` times. A probe reads
    at most `requests` requests, and no less than `probe_blocks` blocks a thread.
    """

    margin: float = 0.01
    slack: float = 0.15
    tolerance: float = 0.05
    rounds: int = 1
    requests: int = 300
    blocks_a_thread: int = 4
    probe_blocks: int = 2
    probe_block: int = 64

    def build(self, view: TunerView) -> Tuner:
        """A tuner at its first probe."""
        return ModelTuner(self, view)


@dataclass
class ModelTuner:
    """Probes, then predicts every cell.

    Parameters
    ----------
    spec : the tuner's parameters.
    view : the cells, the work, and the memory.
    probes : so far.
    profile : the store as three probes show it (None: there are not three yet).
    predicted : seconds of every cell, residuals included.
    residual : what a check added to the logarithm of the prediction of every cell.
    """

    spec: ThreeProbes
    view: TunerView
    probes: list[Probe] = field(default_factory=list)
    profile: StoreProfile | None = None
    predicted: dict[Cell, float] = field(default_factory=dict)
    residual: dict[Cell, float] = field(default_factory=dict)
    _slow: dict[Cell, float] = field(default_factory=dict)
    _models: dict[tuple[Cell, int], float] = field(default_factory=dict)

    def ask(self) -> Ask | None:
        """The next of the three, then checks of the choice; None if no more are needed."""
        done = len(self.probes)
        if done == 1 and self.probes[0].load_share < HIDDEN:
            return None
        if done < 3:
            return self.sized(self.corners()[done])
        chosen = self.choice()
        checked = any(probe.cell == chosen for probe in self.probes)
        if checked or done - 3 >= self.spec.rounds:
            return None
        if done > 3 and abs(self.error(self.probes[-1])) <= self.spec.tolerance:
            return None
        return self.sized(chosen)

    def corners(self) -> tuple[Cell, Cell, Cell]:
        """No merging; the probe's blocks; the probe's blocks with the most threads."""
        blocks = sorted({cell.block for cell in self.view.cells})
        near = min(blocks, key=lambda block: (abs(math.log(block / self.spec.probe_block)), block))
        block = max(2, near) if near > 1 else max(blocks)
        return Cell(1, 1), Cell(block, 1), Cell(block, max(cell.threads for cell in self.view.cells))

    def sized(self, cell: Cell) -> Ask:
        """A probe long enough to show steady reading, and no longer."""
        load = self.view.load
        least = max(self.spec.probe_blocks * cell.threads * cell.block, 4 * load.batch)
        most = self.spec.requests * cell.block
        return Ask(cell, max(1, min(load.samples, least, most)))

    def tell(self, probe: Probe) -> None:
        """Fit once three are there; from the fourth on, learn residuals."""
        self.probes.append(probe)
        if len(self.probes) < 3:
            return
        a, b, c = self.probes[:3]
        if self.profile is None:
            self.profile = fit_profile(a, b, c, self.view.load)
        elif abs(self.error(probe)) <= self.spec.tolerance:
            return  # the check confirms the choice: it stands
        self.residual = dict(zip(self.view.cells, self.residuals()))
        self.predicted = {
            cell: self.model(cell, self.view.load.samples) * math.exp(residual)
            for cell, residual in self.residual.items()
        }

    def worse(self, cell: Cell) -> float:
        """Seconds of a cell if store and decode are slower than the profile by `slack`."""
        assert self.profile is not None
        if cell not in self._slow:
            self._slow[cell] = predict(slower(self.profile, self.spec.slack), self.view.load, cell)
        return self._slow[cell] * math.exp(self.residual[cell])

    def model(self, cell: Cell, samples: int) -> float:
        """The profile's prediction, without residuals."""
        assert self.profile is not None
        if (cell, samples) not in self._models:
            load = replace(self.view.load, samples=samples)
            self._models[cell, samples] = predict(self.profile, load, cell)
        return self._models[cell, samples]

    def error(self, probe: Probe) -> float:
        """How far the model was off a probe, as a share."""
        return probe.total_s / self.model(probe.cell, probe.samples) - 1

    def residuals(self) -> list[float]:
        """Log of true over predicted at every cell: a Gaussian process through what was probed, none before a check."""
        if len(self.probes) < 4:
            return [0.0] * len(self.view.cells)
        known = [probe.cell for probe in self.probes]
        residuals = np.log([1 + self.error(probe) for probe in self.probes])
        gram = _kernel(known, known) + _NOISE**2 / max(_NOISE**2, float(np.var(residuals))) * np.eye(
            len(known)
        )
        weights = np.linalg.solve(gram, residuals)
        return [float(value) for value in _kernel(self.view.cells, known) @ weights]

    def choice(self) -> Cell:
        """The cell of least memory within the margin of the best, slower stores included; no merging without a gain."""
        if not self.predicted:
            return Cell(1, 1)
        view, spec = self.view, self.spec
        samples_read = {cell: cell.block * cell.threads for cell in self.predicted}
        fitting = [
            cell for cell in samples_read if samples_read[cell] * view.load.sample_bytes <= view.memory_bytes
        ]
        enough_blocks = [
            cell for cell in fitting if samples_read[cell] <= view.load.samples / spec.blocks_a_thread
        ]
        usable = enough_blocks or fitting or list(samples_read)
        # What is further behind than this is near the best in neither case.
        limit_s = min(self.predicted[cell] for cell in usable) * (1 + spec.slack) * (1 + spec.margin)
        near = {cell: self.predicted[cell] for cell in usable if self.predicted[cell] <= limit_s}
        return best_within(
            near,
            view.load,
            margin=spec.margin,
            memory_bytes=view.memory_bytes,
            worse={cell: self.worse(cell) for cell in near},
        )


def _kernel(a: Sequence[Cell], b: Sequence[Cell]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    def place(cells: Sequence[Cell]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return np.log2([[cell.block, cell.threads] for cell in cells])

    apart = place(a)[:, None, :] - place(b)[None, :, :]
    return np.asarray(np.exp(-0.5 * np.sum(apart**2, axis=2) / _WIDTH**2))
