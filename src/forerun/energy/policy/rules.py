"""The known bugs of the published simulator, and which of them a run fixes."""

from __future__ import annotations

from typing import Final, Literal

from forerun.core.scenario.spec import Spec

Mode = Literal["compat", "corrected"]


class Rules(Spec, frozen=True, kw_only=True):
    """The known bugs of the published simulator, one switch each: true (the default) fixes it, false keeps it.

    `Rules.of("compat")` has all off and repeats that simulator exactly, `Rules.of("corrected")` has all on. The letter
    and number beside a switch lead to its row in `KNOWN_BUGS`.
    """

    never_ran_censored: bool = True  # B1
    retries_limited: bool = True  # B2
    best_by_mean: bool = True  # B3
    bound_tolerant: bool = True  # B4
    bound_by_mean: bool = True  # B5
    one_max_power: bool = True  # B6
    profiling_charged: bool = True  # B7
    window_pooled: bool = True  # B8
    duplicates_dropped: bool = True  # B14
    blame_what_ran: bool = True  # B16
    unmeasured_left_out: bool = True  # B17
    first_may_retry: bool = True  # B18
    least_by_attempt: bool = True  # B19
    censored_costs: bool = True  # B20
    profile_on_demand: bool = True  # B21
    pooled_variance: bool = True  # B22
    precision_learned: bool = True  # B23
    named_streams: bool = True  # paths and policies draw from random streams of their own

    @classmethod
    def of(cls, mode: Mode) -> Rules:
        """All switches off (compat) or on (corrected)."""
        return cls(**dict.fromkeys(cls.__struct_fields__, mode == "corrected"))


#: every known bug: what the situation is in which the published simulator and the corrected rules differ
KNOWN_BUGS: Final[dict[str, str]] = {
    "B1": "an attempt whose first epoch would have crossed its bound never ran",
    "B2": "a submission of a group used up 20 attempts",
    "B3": "the batch size with the cheapest single run differs from the one with the lowest mean cost, or was pruned",
    "B4": "a bound was an exact multiple of an epoch's cost, so that rounding decides one epoch",
    "B5": "the lowest single cost, not the lowest mean, bounds attempts",
    "B6": "the job's own top limit differs from the trace's",
    "B7": "a profiling epoch fell outside the bound, or was learned without having run",
    "B8": "a window left fewer than two observations for an arm",
    "B12": "a measured power exceeds its limit",
    "B14": "power rows are duplicated",
    "B16": "the first attempt failed at another batch size than the default",
    "B17": "a batch size has no rows for the target",
    "B18": "the first recurrence failed at first",
    "B19": "failed tries were added to the cost that sets the bound",
    "B20": "a stopped attempt's cost, which is only a lower limit, entered the beliefs",
    "B21": "a concurrent submission met a batch size without a known limit",
    "B22": "an arm's costs did not vary",
    "B23": "gts was given no reward precision, without which costs teach it nothing",
    "holes": "a batch size was not measured at all limits",
}
