"""Replicas of a language model under a client that holds requests back while many are under way.

(Part of the digest that names the compiled code's folder: forerun.core.kernels.)
"""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.serving.llm.engine.kernels.requests import Floats, Model, State, run_requests


@kernel(allocates=False)
def run_held_back(
    model: Model, state: State, planned_ms: Floats, sent_ms: Floats, request_ms: float, most: int, at: Floats
) -> bool:
    """Send every request when it is planned, but never while `most` are under way, and handle everything that follows.

    planned_ms: float64[n], ascending. sent_ms: float64[n], when each is sent, written. request_ms: from then until it joins
    the queue. most: requests under way at most. at: float64[2], where the run is: the latest instant, and the one before
    which everything is to be handled; 0 at first. False if `iterations` is full and there is more to do.
    """
    whole, requests, replicas = state.whole[0], state.requests, state.replicas
    while True:
        if at[1] > 0.0:
            # Nothing ends before this instant but what ends at it, so whoever left freed a place then.
            if not run_requests(model, state, at[1]):
                return False
            if at[1] == np.inf:
                return True
            if whole.fed - whole.done < most:
                at[0] = max(at[0], np.nextafter(at[1], 0.0))
            at[1] = 0.0
        while whole.fed < planned_ms.shape[0] and whole.fed - whole.done < most:
            at[0] = max(at[0], planned_ms[whole.fed])
            sent_ms[whole.fed] = at[0]
            requests[whole.fed].enter_ms = at[0] + request_ms
            whole.fed += 1
        next_ms = np.inf
        if whole.fed < planned_ms.shape[0]:
            if whole.entered < whole.fed:
                next_ms = requests[whole.entered].enter_ms
            for r in range(replicas.shape[0]):
                next_ms = min(next_ms, replicas[r].due_ms)
        at[1] = np.nextafter(next_ms, np.inf)
