"""What schedulers of language-model replicas decide, as data that both engines read.

A *scheduler* says which requests each iteration of a replica works on. It is asked nothing while a run is simulated: a
replica makes thousands of iterations a second of computing time, so a scheduler states its rules once, and the compiled
replicas follow them as the plain ones do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

#: the number of a class of requests; lower ones go first
Class: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
#: how often something is drawn, in proportion to others
Proportion: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
#: which tokens an iteration processes: prompts and decodes together, or one kind alone, the named one if there is any
Tokens: TypeAlias = Literal["together", "prefills first", "decodes first"]
#: how prompts are processed: cut where the budget ends; whole, with blocks for all of them, while only they count in the
#: budget and one above it is cut into pieces of it; or whole within what the decodes leave of the budget
Prompts: TypeAlias = Literal["in chunks", "whole", "whole beside decodes"]
#: who loses its blocks if there are too few: who was admitted last, or, of the lowest class, who came last
Victim: TypeAlias = Literal["last of the running", "last of the lowest class"]
#: how many tokens a draft proposes: those that the answer can take, or always all
Drafted: TypeAlias = Literal["what the answer takes", "all"]
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
    prompts : how prompts are processed (default: in chunks).
    reserved : blocks for how much of an answer a request has from its admission on (default: they are added one by one).
    whole_must_fit : a request is admitted only if there are blocks for all of its tokens so far (default: for those that it
        is given).
    longest_chunk : tokens that an iteration gives one request at most; 0: as many as there are (default).
    alone_unlimited : except to one that is the only one on its replica (default: to that, too).
    classes : requests queue, are given tokens and keep their blocks by class (default: there is one class).
    victim : who loses its blocks. With classes, the running are in order of classes where it is the last of them, else in
        order of admission (default: the last of the running).
    drafts : how many tokens a draft proposes (default: what the answer takes).
    pads_drafts : a request that is admitted with a single token to process is given as many as those that a draft serves,
        while no running request is in the middle of its prompt (default: no).
    blank_first : with a prefix cache, blocks that no prompt can begin with are given out before any that one can; otherwise
        in the order in which they became free (default: first).
    ahead : an iteration is composed when the one before it begins, so what is not known then does not count: who comes
        later, and who leaves with that one (default: composed when it begins).
    """

    tokens: Tokens = "together"
    prompts: Prompts = "in chunks"
    reserved: Reserved = "nothing"
    whole_must_fit: bool = False
    longest_chunk: int = 0
    alone_unlimited: bool = False
    classes: Classes | None = None
    victim: Victim = "last of the running"
    drafts: Drafted = "what the answer takes"
    pads_drafts: bool = False
    blank_first: bool = True
    ahead: bool = False

    @property
    def counts_decodes(self) -> bool:
        """Decodes count in the token budget."""
        return self.prompts != "whole"


class Scheduler(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """The spec of a scheduler: its parameters. Files name it by its tag: `scheduler: prefill-first`."""

    #: the parameter that says whether iterations are composed ahead; left out, it is None (empty: there is none)
    composing: ClassVar[str] = ""

    @property
    def compared(self) -> str:
        """The program, with its version, that it was compared with and equals step for step; empty: with none."""
        return ""

    def rules(self) -> Rules:
        """What it does, as data."""
        raise TypeError(f"{type(self).__name__} must say which rules it follows")

    def vllm_flags(self) -> tuple[str, ...] | None:
        """Flags of `vllm serve` with which vLLM schedules so (default None: none do)."""
        return None


def class_problems(shares: tuple[float, ...], classes: tuple[int, ...]) -> list[tuple[str, str]]:
    """What is wrong with where classes come from, as (field, what)."""
    if shares and classes:
        return [("shares", "classes are drawn by shares or listed as classes, not both")]
    return []


@functools.cache
def scheduler_policies() -> Registry[Scheduler]:
    """All schedulers: the files of `policies/` and what installed packages announce."""
    return Registry(
        "scheduler of language models",
        "forerun.serving.policies",
        base=Scheduler,
        group="forerun.serving.scheduler",
    )
