"""What schedulers of language-model replicas decide, as data that both engines read.

A *scheduler* says which requests each iteration of a replica works on. It is asked nothing while a run is simulated: a
replica makes thousands of iterations a second of computing time, so a scheduler states its rules once, and the compiled
replicas follow them as the plain ones do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

#: which tokens an iteration processes: prompts and decodes together, or one kind alone, the named one if there is any
Tokens: TypeAlias = Literal["together", "prefills first", "decodes first"]
#: for how much of an answer a request has blocks from its admission on
Reserved: TypeAlias = Literal["nothing", "own answer", "longest answer"]


@dataclass(frozen=True, slots=True)
class Classes:
    """Where the classes of requests come from; without both, from the trace's column `priority`. Lower ones go first.

    Parameters
    ----------
    shares : of classes 0, 1, ...; each request draws its own, with probabilities in these proportions.
    listed : the class of each request, in order of arrival.
    """

    shares: tuple[float, ...] = ()
    listed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a scheduler does.

    Parameters
    ----------
    tokens : which tokens an iteration processes (default: prompts and decodes together).
    whole_prompts : a prompt is processed in one iteration, with blocks for all of it, and the budget limits prompt tokens
        alone; one above the budget is cut into pieces of it. Otherwise decodes count, and prompts are cut where the budget
        ends (default).
    reserved : blocks for how much of an answer a request has from its admission on (default: they are added one by one).
    classes : requests queue, are given tokens and keep their blocks by class (default: there is one class).
    ahead : an iteration is composed when the one before it begins: while requests run, one that joins the queue later waits
        for the iteration behind (default: composed when it begins).
    """

    tokens: Tokens = "together"
    whole_prompts: bool = False
    reserved: Reserved = "nothing"
    classes: Classes | None = None
    ahead: bool = False


class Scheduler(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """The spec of a scheduler: its parameters. Files name it by its tag: `scheduler: prefill-first`."""

    def rules(self) -> Rules:
        """What it does, as data."""
        raise TypeError(f"{type(self).__name__} must say which rules it follows")


@functools.cache
def scheduler_policies() -> Registry[Scheduler]:
    """All schedulers: the files of `policies/` and what installed packages announce."""
    return Registry(
        "scheduler of language models",
        "forerun.serving.policies",
        base=Scheduler,
        group="forerun.serving.scheduler",
    )
