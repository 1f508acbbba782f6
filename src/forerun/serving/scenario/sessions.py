"""How requests of a user or of an agent follow each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

import msgspec

from forerun.core.errors import known_names
from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.core.scenario.spec import Spec

Spread = Annotated[float, msgspec.Meta(ge=0, le=1e3)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
SystemTokens = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]


class RecordedSessions(Spec, frozen=True, kw_only=True):
    """Requests follow each other as the trace says: one is sent at its recorded time, but not before it has the answers that
    it follows; where the trace says how long after these it came, so long after them.

    follow: `recorded`.
    missing: what becomes of a request that follows one which the trace does not have: `refuse` (default) the trace, or
        `begin` a session with it.
    patience_s: a user who waits longer for an answer sends nothing more (left out: no user gives up).
    """

    follow: Literal["recorded"]
    missing: Literal["refuse", "begin"] = "refuse"
    patience_s: Positive | None = None

    @property
    def in_words(self) -> str:
        """What a load consists of."""
        return "sessions as recorded"


class Conversations(Spec, frozen=True, kw_only=True):
    """Every query of the trace is the begin of a conversation. The prompt of a turn is all that came before, answers too,
    and the tokens that the stage draws for it.

    turns: of a conversation, on average.
    turns_law: `geometric` (default: after each turn some users go, always the same share), or `constant`.
    pause_s: mean time from an answer to the next turn (default 0).
    pause_cv: standard deviation of this time over its mean: 0 (default) always the mean, 1 exponential, else a gamma law.
    system_tokens: that all conversations begin with (default 0).
    patience_s: a user who waits longer for an answer sends nothing more (left out: no user gives up).
    """

    turns: Annotated[float, msgspec.Meta(ge=1, le=10_000)]
    turns_law: Literal["geometric", "constant"] = "geometric"
    pause_s: NotNegative = 0.0
    pause_cv: Spread = 0.0
    system_tokens: SystemTokens = 0
    patience_s: Positive | None = None

    @property
    def in_words(self) -> str:
        """What a load consists of."""
        return f"conversations of {self.turns:g} turns"

    def problems(self) -> list[tuple[str, str]]:
        """A constant number of turns is whole."""
        if self.turns_law == "constant" and self.turns != round(self.turns):
            return [("turns", f"{self.turns:g} is no whole number, which the law constant needs")]
        return []


class Step(Spec, frozen=True, kw_only=True):
    """A request of an agent.

    name: by which others follow it.
    after: steps whose answers it needs (default: none, the job begins with it).
    prompt: tokens that it adds to the context.
    output: tokens of its answer.
    tool_s: mean time from the last of these answers until it is sent, in which tools work (default 0).
    tool_cv: standard deviation of this time over its mean: 0 (default) always the mean, 1 exponential, else a gamma law.
    context: its prompt begins with the prompt of the first step that it follows (`inherited`, the default), or with none
        (`fresh`); then come the answers of the steps that it follows, and its own tokens.
    """

    name: str
    after: tuple[str, ...] = ()
    prompt: Tokens
    output: Tokens
    tool_s: NotNegative = 0.0
    tool_cv: Spread = 0.0
    context: Literal["inherited", "fresh"] = "inherited"


class Jobs(Spec, frozen=True, kw_only=True):
    """Every query of the trace is a job of an agent: steps that fork and join. Its time is that to the end of the last step.

    steps: in any order.
    system_tokens: that all contexts begin with (default 0).
    patience_s: who waits longer for an answer sends nothing more (left out: no user gives up).
    """

    steps: tuple[Step, ...]
    system_tokens: SystemTokens = 0
    patience_s: Positive | None = None

    @property
    def in_words(self) -> str:
        """What a load consists of."""
        return f"jobs of {len(self.steps)} steps"

    def problems(self) -> list[tuple[str, str]]:
        """Steps follow others that there are, without a cycle, and forks join."""
        names = [step.name for step in self.steps]
        wrong = [] if names else [("steps", "lists no step")]
        wrong += [
            (f"steps.{i}.name", f"{name!r} stands twice") for i, name in enumerate(names) if name in names[:i]
        ]
        wrong += [
            (f"steps.{i}.after", f"no step named {one!r}; {known_names(one, names)}")
            for i, step in enumerate(self.steps)
            for one in step.after
            if one not in names
        ]
        wrong += [
            (f"steps.{i}.after.{j}", f"{one!r} stands twice")
            for i, step in enumerate(self.steps)
            for j, one in enumerate(step.after)
            if one in step.after[:j]
        ]
        if wrong:
            return wrong
        ordered = {step.name for step in self.in_order()}
        if len(ordered) < len(names):
            circle = ", ".join(name for name in names if name not in ordered)
            return [("steps", f"{circle} are part of a cycle or behind one")]
        followed = {one for step in self.steps for one in step.after}
        last = [name for name in names if name not in followed]
        if len(last) > 1:
            return [
                ("steps", f"{' and '.join(last)} never join: say a step after them, with which the job ends")
            ]
        return []

    def in_order(self) -> Iterator[Step]:
        """The steps, each behind those that it follows, else as listed; without those of a cycle."""
        done: set[str] = set()
        waiting = list(self.steps)
        while ready := [step for step in waiting if done.issuperset(step.after)]:
            yield from ready
            done |= {step.name for step in ready}
            waiting = [step for step in waiting if step not in ready]


AnySessions: TypeAlias = RecordedSessions | Conversations | Jobs
