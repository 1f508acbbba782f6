"""Sessions as they are simulated: which requests follow which, and what prompts begin with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.trace.requests import AFTER, PAUSE
from forerun.core.trace.table import Trace
from forerun.serving.inputs.clients import UNLIMITED, Clients
from forerun.serving.llm.inputs.model import Prefixes
from forerun.serving.scenario.sessions import AnySessions, Conversations, Jobs, RecordedSessions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sessions:
    """Requests that follow each other.

    Parameters
    ----------
    planned_ms : float64[requests], none is sent before.
    session : int64[requests], the session of each, from 0 without gaps.
    links : int64[links, 2], a request, and one that follows it; by the latter, and of one that follows several the one whose
        context it continues is the first.
    pause_ms : float64[requests], from the last answer that a request needs until it may be sent.
    patience_ms : the user of a session sends nothing more after an answer that took longer.
    base : int64[requests], the request whose context a prompt continues, -1: none; None: the prompts are known as they are.
    own : int64[requests] each, tokens that a request adds to the context, and those of its answer (None: the stage says).
    system_tokens : that all contexts begin with.
    """

    planned_ms: Floats = field(repr=False)
    session: Ints = field(repr=False)
    links: Ints = field(repr=False)
    pause_ms: Floats = field(repr=False)
    patience_ms: float
    base: Ints | None = field(default=None, repr=False)
    own: tuple[Ints, Ints] | None = field(default=None, repr=False)
    system_tokens: int = 0

    def __len__(self) -> int:
        return len(self.planned_ms)

    def clients(self, joins_ms: Floats, think_ms: Floats, most: int = UNLIMITED) -> Clients:
        """What is sent; parameters as those of `Clients`, the times to think for each request of the trace."""
        before, after = self.links.T
        order = np.argsort(before, kind="stable")
        begin = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=len(self)))])
        sessions = int(self.session.max()) + 1
        return Clients(
            self.planned_ms,
            self.session,
            begin,
            after[order],
            self.pause_ms,
            joins_ms,
            think_ms[:sessions],
            np.full(sessions, self.patience_ms),
            most,
        )

    def grown(self, prompt: Ints, output: Ints) -> Ints:
        """int64[requests]: tokens of the prompts with all that they continue.

        Parameters
        ----------
        prompt, output : int64[requests], tokens that each adds, and those of its answer.
        """
        if self.base is None:
            return prompt
        whole = prompt + np.where(self.base < 0, self.system_tokens, 0)
        before, after = self.links.T
        for at in np.argsort(after, kind="stable"):
            whole[after[at]] += output[before[at]]
            if self.base[after[at]] == before[at]:
                whole[after[at]] += whole[before[at]]
        return np.asarray(whole)

    def prefixes(self, prompt: Ints, output: Ints, block_tokens: int) -> Prefixes:
        """What prompts begin with, block by block, their answers behind them.

        Parameters
        ----------
        prompt, output : int64[requests], whole prompts, and tokens of the answers.
        block_tokens : tokens in a block.
        """
        assert self.base is not None
        system = np.arange(self.system_tokens // block_tokens)
        fresh, chains = len(system), list[Ints]()
        for base, own, tokens in zip(self.base.tolist(), prompt.tolist(), (prompt + output).tolist()):
            known = system
            if base >= 0:
                known = chains[base][: min(own, int(prompt[base] + output[base])) // block_tokens]
            more = tokens // block_tokens - len(known)
            chains.append(np.concatenate([known, np.arange(fresh, fresh + more)]))
            fresh += more
        start = np.concatenate([[0], np.cumsum([len(chain) for chain in chains])]).astype(np.int64)
        return Prefixes(start, np.concatenate(chains).astype(np.int64), answers=True)


def sessions_of(spec: AnySessions, arrivals_ms: Floats, trace: Trace | None, seed: int) -> Sessions:
    """The sessions of a scenario.

    Parameters
    ----------
    spec : how requests follow each other.
    arrivals_ms : float64[queries] of the trace, ascending: of requests, or of the begins of sessions.
    trace : that they come from, if it is a file.
    seed : of what is drawn.

    Raises TraceError for a trace that does not say what follows what, or says what cannot be.
    """
    patience_ms = np.inf if spec.patience_s is None else spec.patience_s * 1e3
    match spec:
        case RecordedSessions():
            return _recorded(spec, arrivals_ms, trace, patience_ms)
        case Conversations():
            return _conversations(spec, arrivals_ms, patience_ms, seed)
        case Jobs():
            return _jobs(spec, arrivals_ms, patience_ms, seed)


def drawn_ms(mean_s: float, cv: float, n: int, draws: np.random.Generator) -> Floats:
    """Times of a gamma law, in ms.

    Parameters
    ----------
    mean_s, cv : mean in seconds, and standard deviation over it; 0: all have the mean.
    n : how many.
    """
    # A spread below what a double tells apart is none; its square would be 0.
    drawn = draws.standard_gamma(cv**-2.0, n) * cv**2 if cv > 1e-16 else np.ones(n)
    return np.asarray(mean_s * 1e3 * drawn)


def _conversations(spec: Conversations, arrivals_ms: Floats, patience_ms: float, seed: int) -> Sessions:
    n = len(arrivals_ms)
    if spec.turns_law == "constant":
        turns = np.full(n, round(spec.turns))
    else:
        turns = stream(seed, "turns").geometric(1 / spec.turns, n)
    session = np.repeat(np.arange(n), turns)
    number = np.arange(len(session))
    later = np.flatnonzero(np.diff(session, prepend=-1) == 0)
    pause_ms = drawn_ms(spec.pause_s, spec.pause_cv, len(session), stream(seed, "pauses"))
    base = np.full(len(session), -1)
    base[later] = later - 1
    links = np.stack([number[later] - 1, number[later]], axis=1)
    return Sessions(
        arrivals_ms[session],
        session,
        links,
        pause_ms,
        patience_ms,
        base,
        system_tokens=spec.system_tokens,
    )


def _jobs(spec: Jobs, arrivals_ms: Floats, patience_ms: float, seed: int) -> Sessions:
    n, steps = len(arrivals_ms), list(spec.in_order())
    place = {step.name: at for at, step in enumerate(steps)}
    one = np.array([(place[name], place[step.name]) for step in steps for name in step.after], dtype=np.int64)
    first = np.arange(n) * len(steps)
    base = np.array(
        [place[step.after[0]] if step.after and step.context == "inherited" else -1 for step in steps]
    )
    pauses = [drawn_ms(step.tool_s, step.tool_cv, n, stream(seed, "tools", step.name)) for step in steps]
    own = tuple(np.tile([getattr(step, of) for step in steps], n) for of in ("prompt", "output"))
    return Sessions(
        np.repeat(arrivals_ms, len(steps)),
        np.repeat(np.arange(n), len(steps)),
        (one.reshape(1, -1, 2) + first[:, None, None]).reshape(-1, 2),
        np.stack(pauses, axis=1).ravel(),
        patience_ms,
        np.where(base < 0, -1, base + first[:, None]).ravel(),
        (own[0], own[1]),
        spec.system_tokens,
    )


def _recorded(
    spec: RecordedSessions, arrivals_ms: Floats, trace: Trace | None, patience_ms: float
) -> Sessions:
    if trace is None or AFTER.name not in trace or "id" not in trace:
        name = "the trace" if trace is None else trace.provenance.source
        what = f"does not say which request follows which: it has no columns id and {AFTER.name}"
        raise TraceError.at(name, f"{what}; qwen_bailian, otel_genai and csv may have them")
    source, n = f"{trace.provenance.source}:{AFTER.name}", len(trace)
    number = {name: at for at, name in enumerate(trace["id"].tolist())}
    pairs = [(one, name) for one, text in enumerate(trace[AFTER.name].tolist()) for name in text.split()]
    missing = [(one, name) for one, name in pairs if name not in number]
    if missing and spec.missing == "refuse":
        one, name = missing[0]
        what = (
            f"{len(missing)} requests follow one that is not in the trace, first {trace['id'][one]!r}, which follows "
            f"{name!r}; sessions: {{follow: recorded, missing: begin}} begins sessions with them"
        )
        raise TraceError.at(source, what)
    links = np.array([(number[name], one) for one, name in pairs if name in number], dtype=np.int64).reshape(
        -1, 2
    )
    session = _components(links, n)
    left = _in_circles(links, n)
    if len(left):
        what = f"{len(left)} requests follow each other in a cycle, or follow one of those, first {trace['id'][left[0]]!r}"
        raise TraceError.at(source, what)
    pause_ms = trace[PAUSE.name] * 1e3 if PAUSE.name in trace else np.zeros(n)
    planned_ms = arrivals_ms.copy()
    if PAUSE.name in trace:
        # Where it is known how long after an answer a request came, its recorded time is that of another server.
        planned_ms[links[:, 1]] = 0.0
    return Sessions(planned_ms, session, links, np.asarray(pause_ms, np.float64), patience_ms)


def _components(links: Ints, n: int) -> Ints:
    """int64[requests]: the session of each; those that are linked are in one, numbered as they begin."""
    root = list(range(n))

    def top(one: int) -> int:
        while root[one] != one:
            root[one] = one = root[root[one]]
        return one

    for before, after in links.tolist():
        low, high = sorted((top(before), top(after)))
        root[high] = low
    return np.unique([top(one) for one in range(n)], return_inverse=True)[1].astype(np.int64)


def _in_circles(links: Ints, n: int) -> Ints:
    """Requests that are part of a cycle, or behind one."""
    waits = np.bincount(links[:, 1], minlength=n)
    followers: list[list[int]] = [[] for _ in range(n)]
    for before, after in links.tolist():
        followers[before].append(after)
    ready = np.flatnonzero(waits == 0).tolist()
    while ready:
        for one in followers[ready.pop()]:
            waits[one] -= 1
            if not waits[one]:
                ready.append(one)
    return np.flatnonzero(waits)
