"""The known bugs of the published simulators, each a switch.

A schedule runs as published (`compat`) unless a switch says `corrected`. `SWITCHES` gives, per switch, the schedules
it touches and what changes. `mode: corrected` turns all of them; each also works alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Switch:
    """One difference between the published code and what its paper says: who it touches, before and after."""

    touches: tuple[str, ...]
    published: str
    corrected: str


_EF: Final = ("ef", "ef-accessctrl")
_EDF: Final = ("edf", "edf-accessctrl")

SWITCHES: Final[dict[str, Switch]] = {
    "marginal_order": Switch(
        _EF, "spare GPUs go first to the job that wastes most GPU time", "to the one that wastes least"
    ),
    "admission": Switch(
        ("ef-accessctrl",),
        "jobs that arrive together are admitted all or none",
        "one by one, earliest deadline first",
    ),
    "late_incumbent": Switch(
        ("ef-accessctrl", "edf-accessctrl"),
        "one running job predicted late blocks every newcomer",
        "only lateness that the newcomer causes counts",
    ),
    "admission_overhead": Switch(
        ("ef-accessctrl", "edf-accessctrl"),
        "plans ignore scaling overhead",
        "plans reserve it before the deadline",
    ),
    "promises_kept": Switch(
        ("ef-accessctrl",),
        "everybody is planned afresh at every event, whoever is late then",
        "a plan is replaced only by one in time (with the schedule's other switches about time and overhead)",
    ),
    "overrun": Switch(
        ("ef-accessctrl",),
        "a job with work left at its planned end keeps its GPUs beside the plans of others",
        "it is planned again beside the promises of others: to its deadline, else without one, as best effort",
    ),
    "late_test": Switch(("ef-accessctrl",), "a job is late by its planned end", "by the end it really had"),
    "max_gpus_rule": Switch(
        (*_EDF, *_EF), "a job may grow to the largest measured count", "to the count of greatest throughput"
    ),
    "edf_overhead": Switch(("edf",), "scaling is free", "scaling costs what others pay"),
    "edf_key_overwrite": Switch(
        _EDF, "a plan may overwrite the free count at its aligned end", "the free count stays exact"
    ),
    "gandiva_strict": Switch(
        ("gandiva",), "a GPU set takes one job fewer than its capacity", "as many as its capacity"
    ),
    "gandiva_util": Switch(("gandiva",), "sets are ranked by jobs ever added", "by jobs present"),
    "gandiva_between_arrivals": Switch(
        ("gandiva",), "nothing happens between arrivals", "the schedule acts at each end and slot"
    ),
    "gandiva_loop_variable": Switch(
        ("gandiva",), "growth of a class is counted with a reused loop variable", "each missing set is opened"
    ),
    "gandiva_pending_scan": Switch(
        ("gandiva",),
        "the waiting list is changed while it is scanned, skipping jobs",
        "every waiting job is tried",
    ),
    "themis_unit": Switch(("themis",), "a fair share counts as throughput", "share times throughput"),
    "themis_now": Switch(("themis",), "fairness is judged at the last event", "at the present"),
    "themis_overhead": Switch(("themis",), "restarts are free", "restarts cost what others pay"),
    "tiresias_promotion": Switch(
        ("dlas-gpu",), "a demoted job never rises again", "a job that waits long returns to the first queue"
    ),
    "tiresias_overhead_in_end": Switch(
        ("dlas-gpu",), "predicted ends leave out restart overhead", "predicted ends include it"
    ),
    "queue_limits": Switch(
        ("dlas-gpu",), "queue limits 3,250 and 7,200 GPU-seconds", "limits fitted to the trace"
    ),
    "grid_anchor": Switch(_EF, "the slot grid hangs on the current time", "on time 0"),
    "overhead_when_unchanged": Switch(
        (*_EF, "edf-accessctrl", "gandiva"), "overhead at every event", "only when a job's GPUs change"
    ),
    "rank_cache": Switch(
        (*_EF, "edf-accessctrl"),
        "a communication group is known by first rank and size",
        "by its real set of GPUs",
    ),
    "buddy_only": Switch(
        (*_EF, *_EDF),
        "a planned job that fits neither in halves of nodes nor in whole nodes ends the run",
        "all jobs are then placed by their number of GPUs alone, on several nodes where need be",
    ),
    "cost_table": Switch(
        (*_EF, *_EDF, "dlas-gpu", "gandiva", "themis"),
        "restarts cost what a formula of the published simulator says",
        "what the scenario's table of costs says for model and change, where it has one",
    ),
    "chronus_refused_stay": Switch(
        ("chronus",), "a refused job still weighs on its batch", "a refused job leaves the batch"
    ),
    "chronus_best_effort_lost": Switch(
        ("chronus",), "best-effort jobs are treated as deadline jobs", "they stay best effort"
    ),
    "chronus_waiting_counts": Switch(
        ("chronus",),
        "the slot a job waits before its first lease counts as work",
        "only time with GPUs counts",
    ),
    "chronus_slot_constant": Switch(
        ("chronus",), "the backfill slot is 240 s always", "it follows the scenario's slot"
    ),
}

#: what each switch is called when it keeps the published behaviour, and when not
MODES: Final = ("compat", "corrected")


def touching(schedule: str) -> tuple[str, ...]:
    """The switches that can change a schedule's outcome."""
    return tuple(name for name, switch in SWITCHES.items() if schedule in switch.touches)
