"""How long a step of data-parallel training takes.

T_c = alpha_c + beta_c b for the gradients of a local batch b; T_n = alpha + beta max(r - 2, 0) for the exchange among
r replicas, with (alpha_n, beta_n) across nodes, (alpha_r, beta_r) within one, 0 for one replica; together
T = (T_c^gamma + T_n^gamma)^(1/gamma), gamma 1 (one after the other) to 10 (overlapped) [Qiao et al., OSDI'21, section 3].
"""

from __future__ import annotations

from forerun.cluster.engine.kernels.arrays import F64
from forerun.core.kernels.jit import kernel

ALPHA_C, BETA_C, ALPHA_N, BETA_N, ALPHA_R, BETA_R, GAMMA = range(7)

#: stands for "no time at all" in a network term, so that it can be raised to a power
NO_TIME_S = 1e-8


@kernel
def gradient_s(params: F64, local_batch: float) -> float:
    """Seconds for the gradients of one local batch."""
    return float(params[ALPHA_C] + params[BETA_C] * local_batch)


@kernel
def exchange_s(params: F64, nodes: float, replicas: float) -> float:
    """Seconds for the exchange of gradients; a tiny number for one replica."""
    if replicas <= 1.0:
        return NO_TIME_S
    beyond = max(replicas - 2.0, NO_TIME_S)
    if nodes > 1.0:
        return float(params[ALPHA_N] + params[BETA_N] * beyond)
    return float(params[ALPHA_R] + params[BETA_R] * beyond)


@kernel
def together_s(first_s: float, second_s: float, gamma: float) -> float:
    """Seconds of two phases that overlap the more the larger gamma is."""
    large, small = max(first_s, second_s), min(first_s, second_s)
    return float(large * (1.0 + (small / large) ** gamma) ** (1.0 / gamma))


@kernel
def step_s(params: F64, nodes: float, replicas: float, local_batch: float, accumulated: float) -> float:
    """Seconds of a whole step: `accumulated` passes of gradients alone, then one with the exchange."""
    compute = gradient_s(params, local_batch)
    return accumulated * compute + together_s(compute, exchange_s(params, nodes, replicas), params[GAMMA])
