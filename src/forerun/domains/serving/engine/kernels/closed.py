"""Replicas of a language model under a client that holds requests back while many are under way.

(Part of the digest that names the compiled code's folder: forerun.kernels.)
"""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.engine.kernels.requests import Floats, Model, State, run_requests
from forerun.kernels.jit import kernel


@kernel(allocates=False)
def run_held_back(
    model: Model,
    state: State,
    planned_ms: Floats,
    sent_ms: Floats,
    request_ms: float,
    most: int,
    now_ms: float,
) -> float:
    """Send every request when it is planned, but never while `most` are under way, and handle everything that follows.

    planned_ms: float64[n], ascending. sent_ms: float64[n], when each is sent, written. request_ms: from then until it joins
    the queue. most: requests under way at most. now_ms: where an earlier call stopped, 0 at first. Returns inf, or where it
    stopped because `iterations` was full.
    """
    whole, requests, replicas = state.whole[0], state.requests, state.replicas
    while whole.fed < planned_ms.shape[0]:
        while whole.fed < planned_ms.shape[0] and whole.fed - whole.done < most:
            now_ms = max(now_ms, planned_ms[whole.fed])
            sent_ms[whole.fed] = now_ms
            requests[whole.fed].enter_ms = now_ms + request_ms
            whole.fed += 1
        if whole.fed == planned_ms.shape[0]:
            break
        next_ms = requests[whole.entered].enter_ms if whole.entered < whole.fed else np.inf
        for r in range(replicas.shape[0]):
            next_ms = min(next_ms, replicas[r].due_ms)
        before = whole.done
        if not run_requests(model, state, np.nextafter(next_ms, np.inf)):
            return now_ms
        if whole.done > before:
            now_ms = max(now_ms, next_ms)
    return np.inf if run_requests(model, state, np.inf) else now_ms
