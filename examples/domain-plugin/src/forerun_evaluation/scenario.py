"""What a scenario file of this domain contains."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from forerun.core.scenario.spec import Input, NamedSpec, Spec, chosen_from
from forerun_evaluation.policies.longest_first import LongestFirst
from forerun_evaluation.policy import orders


class Scenario(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evaluations on identical GPUs.

    evaluations: a CSV file with the columns `evaluation` and `duration_s`. gpus: how many there are. deadline_s: when the
    last evaluation should have ended. spread: standard deviation of the logarithm of the factor on each duration.
    """

    domain: Literal["evaluation"] = "evaluation"
    spec_version: int = 1
    seed: int = 0
    title: str = ""
    evaluations: Input
    gpus: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    deadline_s: Annotated[float, msgspec.Meta(gt=0)]
    spread: Annotated[float, msgspec.Meta(ge=0, le=3)] = 0.0
    policy: Annotated[NamedSpec, chosen_from(orders)] = LongestFirst()
