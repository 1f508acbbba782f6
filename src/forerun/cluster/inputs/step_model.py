"""The step-time model of data-parallel training [Qiao et al., OSDI'21, section 3]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.cluster.inputs.arrays import F64


@dataclass(frozen=True, slots=True)
class StepModel:
    """Parameters of a step's duration; the formula is in `engine.kernels.step_model`.

    Parameters
    ----------
    alpha_c, beta_c : seconds of a pass of gradients, and seconds more for each sample.
    alpha_n, beta_n : seconds of an exchange across nodes, and seconds more for each replica beyond two.
    alpha_r, beta_r : the same among replicas of one node.
    gamma : 1 (gradients and exchange one after the other) to 10 (overlapped).
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def array(self) -> F64:
        """The parameters in the kernels' order."""
        return np.array(
            [self.alpha_c, self.beta_c, self.alpha_n, self.beta_n, self.alpha_r, self.beta_r, self.gamma]
        )

    def step_s(self, nodes: int, replicas: int, local_batch: float, accumulated: int = 0) -> float:
        """Seconds of a step on `replicas` GPUs of `nodes` nodes with `local_batch` samples a pass and GPU."""
        from forerun.cluster.engine.kernels.step_model import step_s

        return float(
            step_s(self.array(), float(nodes), float(replicas), float(local_batch), float(accumulated))
        )
