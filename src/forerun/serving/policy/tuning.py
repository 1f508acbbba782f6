"""What tuners see, and what they may decide: every control period, how many replicas every stage should have."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec

from forerun.core.registry import Registry
from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.core.scenario.spec import NamedSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from forerun.serving.policy.handover import Handover


#: bins that a tuner counts arrivals in
MOST_BINS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ModelView:
    """What a tuner may know of a stage with a language model, just before a control instant.

    Parameters
    ----------
    waiting : requests that wait for a seat, or for a replica.
    running : requests that run.
    kv_share : share of the blocks of active replicas that are in use (0 where there is none).
    ttft_ms : float64[n], time to first token of the requests that had theirs since the last control instant.
    tpot_ms : float64[m], mean time between tokens of the requests that ended since then.
    """

    waiting: int
    running: int
    kv_share: float
    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FleetView:
    """What a tuner may know at a control instant, stages in topological order.

    Parameters
    ----------
    now_ms : the instant.
    arrivals_ms : float64[n], every arrival from outside up to now, not to be written to.
    replicas : decided for, paid since then.
    active : at work or idle; those decided for lately are still coming up.
    ongoing : per stage the queries queued or in service just before now; empty unless the tuner says `sees="queues"`.
    working : per stage the replicas serving just before now; empty unless the tuner says `sees="queues"`.
    models : per stage what its requests experience, None where it serves no language model; empty unless the tuner says
        `sees="requests"`, which has the queues, too.
    """

    now_ms: float
    arrivals_ms: NDArray[np.float64]
    replicas: tuple[int, ...]
    active: tuple[int, ...]
    ongoing: tuple[int, ...] = ()
    working: tuple[int, ...] = ()
    models: tuple[ModelView | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """No stage changes."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From now on stages have other numbers of replicas; where that is more, they are active after a while.

    Parameters
    ----------
    replicas : per stage, 1 or more; where a language model is served and the tuner sees requests, 0 or more.
    rate_rps : the rate that the decision is made for (NaN: none).
    why : one clause for people.
    """

    replicas: tuple[int, ...]
    rate_rps: float = float("nan")
    why: str = ""


Tuning: TypeAlias = Keep | Scale


class TunerPolicy(Protocol):
    """Decides how many replicas there are. A fresh one is built for every run."""

    def decide(self, view: FleetView) -> Tuning:
        """What changes now."""
        ...


def bin_problems(look_s: float, bin_s: float) -> list[tuple[str, str]]:
    """The problem, if a tuner would count arrivals in more bins than there can be queries of interest.

    Parameters
    ----------
    look_s : how far back the tuner looks, in seconds.
    bin_s : length of a bin, in seconds.
    """
    bins = look_s / bin_s
    if bins <= MOST_BINS:
        return []
    return [
        (
            "bin_s",
            f"{bin_s:g} s cuts look_s, {look_s:g} s, into {bins:.3g} bins; at most {MOST_BINS:,} are counted",
        )
    ]


class Tuner(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """The spec of a tuner: its parameters. Files name it by its tag: `tuner: {name: inferline, activation: 5s}`.

    It is asked at every whole multiple of a period up to the last arrival.

    period_s: the period (default 1 s).
    activation_s: replicas that it adds are active so much later, and paid from the decision on; those that it takes away go
        at once (default 5 s).
    max_replicas: of one stage (default 60).
    """

    #: what the view contains: arrivals alone, so that the whole schedule can be computed first, queues too, or also what the
    #: requests of language models experience
    sees: ClassVar[Literal["arrivals", "queues", "requests"]] = "arrivals"
    #: whether it compares with the traffic that the configuration was planned for
    needs_sample: ClassVar[bool] = False

    period_s: Positive = 1.0
    activation_s: NotNegative = 5.0
    max_replicas: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 60

    def build(self, handover: Handover, rng: np.random.Generator) -> TunerPolicy:
        """A fresh policy for one run.

        Parameters
        ----------
        handover : the pipeline as planned and, where the tuner asks for it, the traffic that it was planned for.
        rng : the policy's own random stream.
        """
        raise TypeError(f"{type(self).__name__} must say how its policy is built")


@functools.cache
def tuner_policies() -> Registry[Any]:
    """All tuners: the files of `policies/` and what installed packages announce."""
    return Registry(
        "tuner",
        "forerun.serving.policies",
        base=Tuner,
        group="forerun.serving.tuner",
    )
