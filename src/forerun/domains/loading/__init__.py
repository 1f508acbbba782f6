"""Training-data loading: does it hide behind the step, what binds if not, and what would cure it.

A data set of samples lies in a store as single files or merged into blocks. A loader reads blocks, decodes samples and
hands batches to a training loop that alternates between waiting and stepping. The store answers a request after a
latency, through slots, a request rate, a connection's and a shared link's bandwidth; it may fail and be asked again;
caches may answer in its place. Loaders are threads with a buffer, workers like torch's, or workers that decode with a
pool of threads; cores are shared. Threads are simulated event by event in compiled code, workers by an exact
recursion, and closed-form laws bound both from above. Every epoch's time is split into compute, preparation and fetch
by differential runs. Tuners choose block size and threads from a few probes, pace policies change them while a loader
runs; placement policies put jobs and their
data on nodes. Packing, a latency store and a runner make the same quantities measurable on a real machine. Not
modelled: the kernel's page cache, network file system clients, and what shuffling does to accuracy.
"""

from __future__ import annotations

from typing import Any, Final

from forerun.domains.loading.policy import paces, placements, tuners
from forerun.domains.loading.scenario import Scenario
from forerun.domains.loading.simulate import simulate
from forerun.registry import Registry
from forerun.study.objective import Objective

__all__ = ["GIVEN", "OBJECTIVES", "POLICIES", "Scenario", "simulate"]

#: kinds of policy in this room
POLICIES: Final[dict[str, Registry[Any]]] = {
    "placement": placements(),
    "tuner": tuners(),
    "pace": paces(),
}

#: by what runs of this room are ranked, first the default
OBJECTIVES: Final = (
    Objective("samples_per_s", "higher", "samples a second"),
    Objective("stall_share", "lower", "share of the time that the loop waits", 0.0, 1.0),
    Objective("peak_memory_bytes", "lower", "memory in bytes"),
    Objective("cost_usd", "lower", "cost in $"),
)

#: the sections of a scenario that describe the environment: axes of a study in them are no choices
GIVEN: Final = ("dataset", "store")
