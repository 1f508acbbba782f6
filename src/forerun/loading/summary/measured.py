"""`forerun check` of a measurement file: predictions compared with measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from forerun.core.errors import CheckFailed, Problem, StoreError, UsageError, worded

#: allowed errors of the predictions of held-out cells, as shares: the mean, and the worst
MEAN_ERROR: Final = 0.05
WORST_ERROR: Final = 0.10


def check_measured(measured: Mapping[str, Any], name: str) -> str:
    """Compare the predictions of a measurement with what it measured: the run of its choice, and the held-out cells.

    Raises CheckFailed where a run lies outside its interval or cells are off by more than 5 % in the mean or 10 % at
    most, UsageError where nothing was measured beside a prediction, StoreError for a file that is none of ours.

    Parameters
    ----------
    measured : the content of the file.
    name : of the file, for messages.

    Returns the agreement in words; on a machine that was too noisy disagreement is reported and is no error.
    """
    try:
        host, rows = measured["host"], list(measured.get("checked") or ())
        quiet = bool(host["quiet"])
        held_out = [abs(float(row["error"])) for row in rows if not (row["probe"] or row["noisy"])]
        noisy = sum(bool(row["noisy"]) for row in rows)
        error = measured.get("verified_error")
        ends = measured.get("samples_per_s_interval")
        whole, predicted = measured.get("verified_samples_per_s"), measured.get("samples_per_s")
        agreed: list[str] = []
        problems: list[str] = []
        if error is not None and ends is not None and whole is not None and predicted is not None:
            # The run of the choice was shorter than the whole, and pays start-up: the interval is of its own prediction.
            expected = float(whole) / (1 + float(error))
            low, high = (float(end) / float(predicted) * expected for end in ends)
            what = f"the choice ran at {float(whole):.4g} samples/s; {low:.4g} to {high:.4g} were predicted"
            (agreed if low <= float(whole) <= high else problems).append(what)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as broken:
        raise StoreError.at(name, f"is no measurement of loading: {worded(broken)}") from broken
    if held_out:
        mean, worst = math.fsum(held_out) / len(held_out), max(held_out)
        good = mean <= MEAN_ERROR and worst <= WORST_ERROR
        what = (
            f"{len(held_out)} cells held out are predicted within {mean:.1%} in the mean, {worst:.1%} at most"
        )
        (agreed if good else problems).append(
            what if good else f"{what}; {MEAN_ERROR:.0%} and {WORST_ERROR:.0%} are allowed"
        )
    if noisy:
        agreed.append(f"{noisy} cells were too noisy to count")
    if not (held_out or problems or agreed):
        raise UsageError.at(name, "contains no run beside its prediction; measure with --check")
    if problems and not quiet:
        agreed = [f"not judged, the machine was too noisy: {what}" for what in problems] + agreed
        problems = []
    if problems:
        raise CheckFailed(*(Problem(name, what) for what in problems))
    return "; ".join(agreed)
