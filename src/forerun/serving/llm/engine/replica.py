"""Replicas of a language model request by request in plain Python: for the event loop, and to test the kernel against.

Built from queues and lists that hold what their names say; it shares no code with the kernel.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import takewhile
from typing import Literal, NamedTuple

from forerun.serving.llm.inputs.model import DecodePool, LanguageModel, hashed
from forerun.serving.llm.scenario.language_model import Scored, Weighted

#: what a pass over the requests of a replica gives tokens to
Kind = Literal["prefill", "decode"]


@dataclass(eq=False)
class Block:
    """A block of the cache that a request has or that a prompt may begin with.

    Parameters
    ----------
    users : requests that have it.
    key : names its tokens with all before them, once they are known; (): they are not.
    """

    users: int = 0
    key: tuple[int, ...] = ()


@dataclass(eq=False)
class Request:
    """A request under way. Fields as in `kernels.requests.REQUEST`, and the times between its tokens.

    Parameters
    ----------
    query : its number in the trace.
    prompt, output : tokens of its prompt and of its answer.
    replica : number of the replica that it was sent to.
    rank : its class, lower ones go first.
    place : its place in the order in which requests came to the pool.
    emitted : tokens of the answer so far.
    cached : tokens that the cache contains, or will when the iterations that are composed have ended.
    pending : of these iterations, tokens that they are to emit, with those that a draft proposes.
    flying : tokens that it was given in them.
    stale : of `flying`, those from before it was preempted.
    proposed : tokens that a draft proposes next.
    midway : the last iteration that it is part of leaves tokens of it unprocessed.
    blocks : of the cache, that it has, in the order of its tokens.
    away : what is cached of it is in no block of its replica: it was swapped out, or comes from another pool.
    host : blocks of host memory that it has.
    segments : the prompt's segments, which the prefix cache can share.
    known : blocks whose key is set.
    hit : tokens that it did not process because they were there.
    preempted : how often its blocks were taken away.
    start_ms, first_ms, last_ms : when its first iteration began, and when its first and its latest token came (NaN:
        not yet).
    gap_ms : longest time between two of its tokens.
    stalled_ms, stalled_first_ms : time back in the queue after preemptions, in all and before the first token.
    since_ms : when it was preempted last.
    sent_ms : when its transfer to the other pool ends (NaN: there is none).
    gaps_ms : all times between its tokens.
    """

    query: int
    prompt: int
    output: int
    replica: int
    rank: int = 0
    place: int = 0
    emitted: int = 0
    cached: int = 0
    pending: int = 0
    flying: int = 0
    stale: int = 0
    proposed: int = 0
    midway: bool = False
    blocks: list[Block] = field(default_factory=list)
    away: bool = False
    host: int = 0
    segments: tuple[int, ...] = ()
    known: int = 0
    hit: int = 0
    preempted: int = 0
    start_ms: float = float("nan")
    first_ms: float = float("nan")
    last_ms: float = float("nan")
    gap_ms: float = 0.0
    stalled_ms: float = 0.0
    stalled_first_ms: float = 0.0
    since_ms: float = 0.0
    sent_ms: float = float("nan")
    gaps_ms: list[float] = field(default_factory=list)

    @property
    def todo(self) -> int:
        """Tokens that are not cached yet, those included that are still to be emitted."""
        return self.prompt + self.emitted + self.pending - self.cached


@dataclass
class Given:
    """What a request is given in an iteration.

    Parameters
    ----------
    request : which.
    kind : it processes its latest token, or others.
    tokens : all that it is given.
    drafts : those among them that a draft proposed.
    cached : tokens in the cache before.
    emits : all of its tokens are then in the cache, so that the next comes out.
    """

    request: Request
    kind: Kind
    tokens: int
    drafts: int
    cached: int = 0
    emits: bool = False


@dataclass
class Iteration:
    """An iteration that is being composed, is composed, or has begun.

    Parameters
    ----------
    budget : tokens that may still be given.
    given : what requests are given.
    moved : blocks that are swapped.
    preempted : how often a request lost its blocks for it; none is admitted then.
    served : a running request is part of it. midway: and is in the middle of its prompt.
    running, free_blocks : requests admitted, with those that got no token of the budget, and blocks that none has, once it
        is composed.
    number : within its stage, in the order they begin, once it has begun.
    replica : number of the replica that works on it, from then on.
    start_ms, end_ms : instants; the end is known from the start.
    """

    budget: int
    given: list[Given] = field(default_factory=list)
    moved: int = 0
    preempted: int = 0
    served: bool = False
    midway: bool = False
    running: int = 0
    free_blocks: int = 0
    number: int = -1
    replica: int = -1
    start_ms: float = float("nan")
    end_ms: float = float("nan")

    @property
    def prefill(self) -> int:
        """Tokens of prompts, and of preempted requests that are processed anew."""
        return sum(one.tokens - one.drafts for one in self.given if one.kind == "prefill")

    @property
    def decodes(self) -> int:
        """Requests that process their latest token."""
        return sum(one.kind == "decode" for one in self.given)

    @property
    def kv(self) -> int:
        """Tokens that these have in the cache."""
        return sum(one.cached for one in self.given if one.kind == "decode")

    @property
    def attention(self) -> float:
        """Pairs of tokens that attend to each other, but for those of the latest tokens."""
        return sum(_pairs(one) for one in self.given)


class Cache:
    """The blocks of one replica.

    Parameters
    ----------
    blocks : how many there are.
    blank_first : blocks without a key go first (default: yes).

    Attributes
    ----------
    blank : blocks that no request has and that go first.
    idle : the others that no request has, the least recently used first.
    keyed : by key, the blocks that have it, the first one first.
    """

    def __init__(self, blocks: int, blank_first: bool = True) -> None:
        self.blank, self._blank_first = blocks, blank_first
        self.idle: dict[Block, None] = {}
        self.keyed: dict[tuple[int, ...], list[Block]] = {}

    @property
    def free(self) -> int:
        """Blocks that no request has."""
        return self.blank + len(self.idle)

    def take(self, blocks: int) -> list[Block]:
        """So many blocks for a request; the least recently used lose their tokens where the blank ones do not suffice."""
        while self.blank < blocks:
            self.evict()
        self.blank -= blocks
        return [Block(users=1) for _ in range(blocks)]

    def evict(self) -> None:
        """The least recently used block loses its tokens."""
        gone = next(iter(self.idle))
        del self.idle[gone]
        self.blank += 1
        if gone.key:
            self.keyed[gone.key].remove(gone)
            if not self.keyed[gone.key]:
                del self.keyed[gone.key]

    def name(self, block: Block, key: tuple[int, ...]) -> None:
        """The tokens of a block are known from now on."""
        block.key = key
        self.keyed.setdefault(key, []).append(block)

    def use(self, block: Block) -> None:
        """One more has a block."""
        self.idle.pop(block, None)
        block.users += 1

    def leave(self, blocks: Sequence[Block]) -> None:
        """A request has these blocks no more; those at the end are lost first."""
        for block in reversed(blocks):
            block.users -= 1
            if not block.users:
                if block.key or not self._blank_first:
                    self.idle[block] = None
                else:
                    self.blank += 1


class Hit(NamedTuple):
    """What a request that waits would have in the cache, and what it would be given.

    Parameters
    ----------
    blocks : that it would share.
    known : tokens that it need not process.
    given : what it would be given.
    """

    blocks: list[Block]
    known: int
    given: Given


class Replica:
    """One replica: a queue, the requests that run, and free blocks.

    Parameters
    ----------
    number : of the replica within its pool.
    llm : limits and costs; where others decode, it sends requests to them after their first token.
    """

    def __init__(self, number: int, llm: LanguageModel) -> None:
        self.number = number
        self.llm = llm
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.cache = Cache(llm.kv_blocks, llm.rules.blank_first)
        self.host = llm.host.blocks if llm.host else 0
        self.held: deque[Request] = deque()
        self.busy: Iteration | None = None
        self._next: Iteration | None = None
        self._link_free_ms = 0.0
        self.drafted = self.accepted = 0

    @property
    def open(self) -> int:
        """Requests that wait or run."""
        return len(self.queue) + len(self.running)

    @property
    def due(self) -> bool:
        """There is something to do."""
        return bool(self.open or (self._next is not None and self._next.given))

    def enter(self, request: Request) -> None:
        """A request joins the queue, behind all of its class."""
        self.queue.insert(bisect_right(self.queue, request.rank, key=lambda one: one.rank), request)

    def forget(self) -> None:
        """The prefix cache has nothing that nobody uses."""
        while self.cache.idle:
            self.cache.evict()

    def begin(self, number: int, now_ms: float) -> Iteration | None:
        """The next iteration begins; None if transfers hold the blocks that it would need.

        Where iterations are composed ahead, this one was when the last one began, and the one behind it is now.

        Parameters
        ----------
        number : of the iteration within its pool.
        now_ms : the instant.
        """
        batch = self._next
        if batch is None or not batch.given:
            before = batch or Iteration(0)
            batch = self._composed(now_ms, now_ms)
            batch.preempted += before.preempted
            batch.moved += before.moved
            if not batch.given:
                self._next = batch
                return None
        begun = self._started(batch, number, now_ms)
        self._next = self._composed(now_ms, begun.end_ms) if self.llm.rules.ahead else None
        return begun

    def _composed(self, now_ms: float, begin_ms: float) -> Iteration:
        """The iteration that begins at `begin_ms`.

        Running requests come first, then waiting ones while there are seats, tokens and blocks. A running request that needs
        a block where none is free takes it from one that runs, itself at last, which goes back to the queue; none is
        admitted in that iteration.
        """
        self._end_transfers(now_ms)
        moved = preempted = 0
        while True:
            batch = Iteration(self.llm.token_budget, moved=moved)
            for kinds in self._passes():
                self._serve(batch, kinds, begin_ms)
                if not batch.preempted:
                    self._admit(batch, kinds, begin_ms)
                if batch.given:
                    break
            again = batch.preempted and not batch.given and self.busy is None
            moved, preempted = batch.moved, preempted + batch.preempted
            if not again:
                batch.preempted = preempted
                return self._closed(batch)

    def _closed(self, batch: Iteration) -> Iteration:
        """The iteration is composed: what it is to process counts as processed."""
        order = {request.query: place for place, request in enumerate(self.running)}
        batch.given.sort(key=lambda one: order[one.request.query])
        ahead, drafts = self.llm.rules.ahead, self._drafts
        for one in batch.given:
            request = one.request
            one.cached, one.emits = request.cached, one.tokens - one.drafts >= request.todo
            request.cached += one.tokens
            request.flying += one.tokens
            request.proposed, request.midway = 0, not one.emits
            if one.emits and ahead:
                request.pending += 1 + one.drafts
                request.proposed = drafts
        batch.running, batch.free_blocks = len(self.running), self.cache.free
        return batch

    @property
    def _drafts(self) -> int:
        return 0 if self.llm.speculation is None else self.llm.speculation.draft_tokens

    def _passes(self) -> list[tuple[Kind, ...]]:
        """Which kinds of tokens are given together, the first that finds any."""
        match self.llm.rules.tokens:
            case "together":
                return [("prefill", "decode")]
            case "prefills first":
                return [("prefill",), ("decode",)]
            case "decodes first":
                return [("decode",), ("prefill",)]

    def _serve(self, batch: Iteration, kinds: tuple[Kind, ...], begin_ms: float) -> None:
        """Running requests get tokens of these kinds."""
        place = 0
        while place < len(self.running):
            request = self.running[place]
            given = self._due(request, batch)
            if given.kind not in kinds or given.tokens == 0:
                place += 1
                continue
            while self._missing(request, request.cached + given.tokens) > self.cache.free:
                victim = self._victim()
                place -= self.running.index(victim) < place
                self._take_back(batch, victim)
                batch.moved += self._preempt(victim, begin_ms)
                batch.preempted += 1
                if victim is request:
                    # Who stands behind it gets nothing, either.
                    return
            batch.served, batch.midway = True, batch.midway or request.midway
            self._store(request, request.cached + given.tokens)
            self._give(batch, given)
            place += 1

    def _due(self, request: Request, batch: Iteration) -> Given:
        """What a running request is given next."""
        last = request.output if self.llm.decode is None else 1
        todo, decodes = request.todo, request.emitted + request.pending > 0
        if request.pending and request.cached + 2 - request.pending >= request.prompt + last:
            # What is under way makes its last token.
            return Given(request, "decode", 0, 0)
        if not (decodes and todo == 1):
            return Given(request, "prefill", min(self._chunk(todo), batch.budget), 0)
        return self._decoded(request, batch)

    def _decoded(self, request: Request, batch: Iteration) -> Given:
        """A request that decodes is given its latest token, and those proposed behind it."""
        tokens = self._chunk(1 + self._proposed(request))
        tokens = tokens if self.llm.rules.prompts == "whole" else min(tokens, batch.budget)
        return Given(request, "decode", tokens, max(tokens - 1, 0))

    def _proposed(self, request: Request) -> int:
        """Tokens that a draft proposes behind the latest one."""
        if self.llm.rules.drafts == "all":
            return request.proposed
        return max(0, min(self._drafts, request.output - request.emitted - request.pending - 1))

    def _chunk(self, tokens: int) -> int:
        """As many of so many tokens as an iteration gives one request."""
        most = self.llm.rules.longest_chunk
        alone = self.open == 1 and self.llm.rules.alone_unlimited
        return tokens if not most or alone else min(tokens, most)

    def _victim(self) -> Request:
        """Who loses its blocks."""
        if self.llm.rules.victim == "last of the running":
            return self.running[-1]
        return max(self.running, key=lambda one: (one.rank, one.place))

    def _take_back(self, batch: Iteration, request: Request) -> None:
        """What a request was given in this iteration."""
        for one in batch.given:
            if one.request is request:
                batch.given.remove(one)
                self._spend(batch, one, -1)
                return

    def _admit(self, batch: Iteration, kinds: tuple[Kind, ...], begin_ms: float) -> None:
        """Waiting requests get tokens of these kinds, from the front, up to the first that cannot."""
        while self.queue and len(self.running) < self.llm.max_seqs:
            request = self.queue[0]
            hit = self._wanted(batch, request)
            given, free = hit.given, self.cache.free - sum(not block.users for block in hit.blocks)
            stored = self._stored(request, hit)
            if given.kind not in kinds or not given.tokens or self._blocks(stored) - len(hit.blocks) > free:
                return
            everything = self._blocks(request.prompt + request.emitted) - len(hit.blocks)
            if self.llm.rules.whole_must_fit and everything > free:
                return
            del self.queue[0]
            self._seat(request)
            for block in hit.blocks:
                self.cache.use(block)
            if not request.away:
                request.blocks, request.known, request.cached = list(hit.blocks), len(hit.blocks), hit.known
                request.hit += hit.known
            self.host += request.host
            batch.moved += request.host
            request.away, request.host = False, 0
            self._store(request, stored, hit.known + given.tokens)
            self._give(batch, given)
            if request.preempted:
                request.stalled_ms += begin_ms - request.since_ms
            else:
                request.start_ms = begin_ms

    def _wanted(self, batch: Iteration, request: Request) -> Hit:
        """What a request that waits would be given."""
        blocks = [] if request.away else self._hits(request, request.prompt + request.emitted)
        known = request.cached if request.away else len(blocks) * self.llm.block_tokens
        todo = request.prompt + request.emitted - known
        if request.away and request.emitted and todo == 1:
            return Hit(blocks, known, self._decoded(request, batch))
        padded = self._drafts if self._pads(batch, todo, known) else 0
        if padded and 1 + padded > batch.budget:
            return Hit(blocks, known, Given(request, "prefill", 0, 0))
        tokens = self._first_tokens(batch, self._chunk(todo + padded))
        return Hit(blocks, known, Given(request, "prefill", tokens, min(padded, max(tokens - 1, 0))))

    def _pads(self, batch: Iteration, todo: int, known: int) -> bool:
        """One that has a single token to process is given as many as those that a draft serves."""
        if not self.llm.rules.pads_drafts or todo != 1 or batch.midway:
            return False
        return known > 0 or batch.served

    def _first_tokens(self, batch: Iteration, todo: int) -> int:
        """What a waiting request is given of its prompt if it is admitted; 0: it is not."""
        match self.llm.rules.prompts:
            case "in chunks":
                return min(todo, batch.budget)
            case "whole beside decodes":
                return todo if todo <= batch.budget else 0
            case "whole":
                if todo <= batch.budget:
                    return todo
                # A prompt above the whole budget is never whole: it goes alone, in pieces.
                alone = todo > self.llm.token_budget and batch.prefill == 0
                return batch.budget if alone else 0

    def _stored(self, request: Request, hit: Hit) -> int:
        """How many tokens it gets blocks for when it is admitted."""
        if self.llm.reserved_tokens:
            return request.prompt + max(self.llm.reserved_tokens, request.output)
        whole = request.prompt + request.emitted if self.llm.rules.prompts == "whole" else 0
        return max(hit.known + hit.given.tokens, whole)

    def _seat(self, request: Request) -> None:
        """A request runs: behind the others, or behind those of its class."""
        if self.llm.rules.victim == "last of the running":
            self.running.insert(bisect_right(self.running, request.rank, key=lambda one: one.rank), request)
        else:
            self.running.append(request)

    def _give(self, batch: Iteration, given: Given) -> None:
        batch.given.append(given)
        self._spend(batch, given, 1)

    def _spend(self, batch: Iteration, given: Given, sign: int) -> None:
        if given.kind == "prefill" or self.llm.rules.prompts != "whole":
            batch.budget -= sign * given.tokens

    def _started(self, batch: Iteration, number: int, now_ms: float) -> Iteration:
        drafts, prefill = [one.drafts for one in batch.given], batch.prefill
        taken_ms = self.llm.cost.iteration_ms(prefill + sum(drafts), batch.decodes, batch.kv, batch.attention)
        if self.llm.host:
            taken_ms += batch.moved * self.llm.host.move_ms
        if self.llm.speculation:
            taken_ms += self.llm.speculation.extra_ms(max(drafts, default=0), sum(drafts))
        batch.number, batch.replica = number, self.number
        batch.start_ms, batch.end_ms = now_ms, now_ms + taken_ms
        self.busy = batch
        return batch

    def end(self, now_ms: float) -> list[Request]:
        """The iteration ends; returns the requests that leave, by class and in order of admission."""
        assert self.busy is not None
        left = []
        for one in self.busy.given:
            request = one.request
            stale, right = request.stale > 0, 0
            request.flying -= one.tokens
            if request.emitted == request.output:
                # It left with the iteration before, earlier than was known when this one was composed.
                continue
            request.stale -= one.tokens if stale else 0
            if one.drafts:
                drafts = range(request.emitted, request.emitted + one.drafts)
                if one.kind == "decode":
                    right = sum(1 for _ in takewhile(partial(self._guessed, request.query), drafts))
                self.drafted += len(drafts) * (request.query >= self.llm.warm_up)
                if not stale or request.away:
                    # What was copied out meanwhile has the wrong ones, too.
                    request.cached -= one.drafts - right
                    request.pending -= (one.drafts - right) if request.pending else 0
            if not one.emits:
                continue
            new = min(1 + right, request.output - request.emitted)
            request.emitted += new
            self.accepted += (new - 1) * (request.query >= self.llm.warm_up)
            if not stale:
                if self.llm.rules.ahead:
                    request.pending -= new
                    self._name(request, request.cached - request.pending)
                else:
                    request.proposed = self._drafts
            if request.emitted == new:
                request.first_ms, request.stalled_first_ms = now_ms, request.stalled_ms
            else:
                request.gaps_ms.append(now_ms - request.last_ms)
                request.gap_ms = max(request.gap_ms, now_ms - request.last_ms)
            request.last_ms = now_ms
            ends, decode = request.emitted == request.output, self.llm.decode
            if ends or decode is not None:
                left.append(request)
                (self.running if request in self.running else self.queue).remove(request)
                self.host += request.host
                request.host = 0
                if ends or decode is None:
                    self._release(request)
                else:
                    self._send(request, decode, now_ms)
        self.busy = None
        return left

    def _guessed(self, query: int, place: int) -> bool:
        """Whether the draft guesses a token of an answer."""
        own = self.llm.speculation
        return own is not None and hashed(int(self.llm.keys[query]), place) < own.threshold

    def _send(self, request: Request, decode: DecodePool, now_ms: float) -> None:
        """The transfer begins when the link is free; until its end the request keeps its blocks."""
        self._link_free_ms = max(self._link_free_ms, now_ms) + decode.send_ms_per_token * request.prompt
        request.sent_ms = self._link_free_ms + decode.latency_ms
        self.held.append(request)

    def _end_transfers(self, now_ms: float) -> None:
        while self.held and self.held[0].sent_ms <= now_ms:
            self._release(self.held.popleft())

    def _preempt(self, request: Request, begin_ms: float) -> int:
        """The request goes back to the head of its class; returns the blocks that are swapped out."""
        self.running.remove(request)
        self._release(request)
        moved = self._blocks(request.cached)
        if not 0 < moved <= self.host:
            moved = request.cached = 0
        self.host -= moved
        request.away, request.host = moved > 0, moved
        request.preempted += 1
        request.since_ms = begin_ms
        request.pending = request.proposed = 0
        request.stale = request.flying
        key: Callable[[Request], tuple[int, ...]] = lambda one: (one.rank,)  # noqa: E731
        if self.llm.rules.victim != "last of the running":
            key = lambda one: (one.rank, one.place)  # noqa: E731
        self.queue.insert(bisect_left(self.queue, key(request), key=key), request)
        return moved

    def hits(self, segments: Sequence[int], prompt: int) -> int:
        """How many tokens at the beginning of a prompt are in the cache, one token left out."""
        blocks = self._hits(Request(-1, prompt, 1, 0, segments=tuple(segments)), prompt)
        return len(blocks) * self.llm.block_tokens

    def _hits(self, request: Request, tokens: int) -> list[Block]:
        found = []
        for number in range((tokens - 1) // self.llm.block_tokens if self.llm.shared else 0):
            blocks = self.cache.keyed.get(self._key(request, number))
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def _key(self, request: Request, number: int) -> tuple[int, ...]:
        """What names the tokens of a block of a request, with all before them."""
        segment, within = divmod(number, self.llm.prefixes.segment_blocks)
        if segment < len(request.segments):
            return (request.segments[segment], within)
        return (-1, request.query, number)

    def _missing(self, request: Request, tokens: int) -> int:
        """Blocks that it needs for so many tokens, beside those that it has."""
        return max(0, self._blocks(tokens) - len(request.blocks))

    def _store(self, request: Request, tokens: int, processed: int | None = None) -> None:
        """It has blocks for so many tokens, of which so many are processed (default: all)."""
        request.blocks += self.cache.take(self._missing(request, tokens))
        self._name(request, min(tokens if processed is None else processed, request.prompt + request.emitted))

    def _name(self, request: Request, tokens: int) -> None:
        """So many of its tokens are processed or will be: others that begin alike can share their blocks."""
        if self.llm.shared is not None:
            for number in range(request.known, tokens // self.llm.block_tokens):
                self.cache.name(request.blocks[number], self._key(request, number))
                request.known = number + 1

    def _release(self, request: Request) -> None:
        self.cache.leave(request.blocks)
        request.blocks, request.known = [], 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.llm.block_tokens)


def _pairs(one: Given) -> float:
    """Pairs of tokens that attend to each other in what a request is given, but for those of its latest token."""
    if one.kind == "decode":
        return one.drafts * (one.cached + 1 + one.drafts / 2)
    return one.tokens * (one.cached + one.tokens / 2)


class Replicas:
    """The replicas of one pool, driven instant by instant: `end`, then `enter`, then `begin`.

    Parameters
    ----------
    llm : limits, costs, and the tokens of the requests.
    replicas : how many there are.
    most : how many there may be, with `resize` (default: no more).

    Attributes
    ----------
    active : replicas that requests can choose, those with the lowest numbers.
    refused : bool[queries], requests that can never fit into the cache.
    requests : those that entered, by query.
    iterations : all that have begun, in that order.
    """

    def __init__(self, llm: LanguageModel, replicas: int, most: int = 0) -> None:
        self.llm = llm
        self.active = replicas
        self.refused, self._segments, self._prefixes = llm.refused, llm.whole_segments, llm.prefixes
        self.replicas = [Replica(number, llm) for number in range(max(most, replicas))]
        self._shut_out: list[Request] = []
        self.requests: dict[int, Request] = {}
        self.iterations: list[Iteration] = []
        self._turn = 0
        self._looked_ms = -math.inf
        self._shown: list[tuple[int, float]] = []
        self._new: list[tuple[float, Request]] = []
        self._coming: deque[tuple[float, Request]] = deque()

    def end(self, now_ms: float) -> list[list[int]]:
        """Iterations that end now, in the order they began: the queries that leave with each."""
        due = [r for r in self.replicas if r.busy is not None and r.busy.end_ms == now_ms]
        due.sort(key=lambda replica: replica.busy.number if replica.busy else 0)
        return [[request.query for request in replica.end(now_ms)] for replica in due]

    def enter(self, query: int, now_ms: float) -> bool:
        """A query comes now; False if it is refused, because it could never fit."""
        if self.refused[query]:
            return False
        request = Request(query, int(self.llm.prompt[query]), int(self.llm.output[query]), 0)
        at_ms = float(self.llm.passed_ms[query]) if len(self.llm.passed_ms) else now_ms
        at_ms += self.llm.cost.request_ms
        if at_ms > now_ms:
            self._new.append((at_ms, request))
        else:
            self._join_due(now_ms)
            self.join(request, now_ms)
        return True

    def resize(self, count: int) -> None:
        """From now on requests choose among so many replicas; others finish what they have. One that comes back has an empty
        prefix cache."""
        for replica in self.replicas[self.active : count]:
            replica.forget()
        self.active = count

    def _open(self, now_ms: float) -> None:
        """Requests that waited for a replica are sent to one."""
        shut_out, self._shut_out = self._shut_out, []
        for request in shut_out:
            self.join(request, now_ms)

    def _join_due(self, now_ms: float) -> None:
        """Requests that took until now join queues, before those that come now."""
        while self._coming and self._coming[0][0] <= now_ms:
            self.join(self._coming.popleft()[1], now_ms)

    def join(self, request: Request, now_ms: float) -> None:
        """A request is sent to a replica, and waits there; where there is none, it waits for one."""
        if not self.active:
            self._shut_out.append(request)
            return
        self._open(now_ms)
        query = request.query
        begin = int(self._prefixes.start[query])
        segments = self._prefixes.chains[begin : begin + int(self._segments[query])].tolist()
        chosen = self._chosen(request, segments, now_ms)
        self._turn = (chosen.number + 1) % self.active
        request.replica, request.segments = chosen.number, tuple(segments)
        request.rank = 0 if self.llm.ranks is None else int(self.llm.ranks[query])
        self.requests[query], request.place = request, len(self.requests)
        chosen.enter(request)

    def _chosen(self, request: Request, segments: list[int], now_ms: float) -> Replica:
        def fewest(replica: Replica) -> tuple[int, int]:
            return replica.open, replica.number

        prompt, routing = request.prompt, self.llm.routing
        if routing == "random" or isinstance(routing, Weighted):
            shares = self.llm.shares(self.active)
            lot = hashed(int(self.llm.keys[request.query]), -1) / 2**32 * shares[-1]
            return self.replicas[min(bisect_right(shares.tolist(), lot), self.active - 1)]
        if isinstance(routing, Scored):
            return self._best(routing, request, segments, now_ms)
        if self.llm.routing == "prefix-affinity" and segments:
            return self.replicas[segments[0] % self.active]
        if self.llm.routing == "longest-prefix":
            free = [replica for replica in self.replicas[: self.active] if replica.open < self.llm.max_seqs]
            return min(
                free or self.replicas[: self.active],
                key=lambda one: (-one.hits(segments, prompt) * bool(free), *fewest(one)),
            )
        if self.llm.routing == "least-requests":
            return min(self.replicas[: self.active], key=fewest)
        return self.replicas[self._turn % self.active]

    def _best(self, routing: Scored, request: Request, segments: list[int], now_ms: float) -> Replica:
        """The replica with the highest score, of equal ones that whose turn it is."""
        if now_ms >= self._looked_ms + routing.refresh_ms:
            self._looked_ms = now_ms
            blocks = self.llm.kv_blocks
            self._shown = [(len(one.queue), 1.0 - one.cache.free / blocks) for one in self.replicas]
        waiting = [count for count, _ in self._shown[: self.active]]
        fewest, most = min(waiting), max(waiting)

        def score(replica: Replica) -> float:
            count, used = self._shown[replica.number]
            total = routing.cache * (1.0 - used)
            total += routing.queue * ((most - count) / (most - fewest) if most > fewest else 1.0)
            total += routing.prefix * (replica.hits(segments, request.prompt) / request.prompt)
            return total

        turn = self._turn % self.active
        return max([*self.replicas[turn : self.active], *self.replicas[:turn]], key=score)

    def begin(self, now_ms: float) -> list[float]:
        """Idle replicas with something to do begin iterations; returns when they end, or when it is worth trying again, and
        when requests join queues that take some time to."""
        again = [at_ms for at_ms, _ in self._new]
        self._coming.extend(self._new)
        self._new.clear()
        if self.active:
            self._open(now_ms)
        self._join_due(now_ms)
        for replica in self.replicas:
            if replica.busy is None and replica.due:
                iteration = replica.begin(len(self.iterations), now_ms)
                if iteration is None:
                    again.append(replica.held[0].sent_ms)
                else:
                    self.iterations.append(iteration)
                    again.append(iteration.end_ms)
        return again


class ApartReplicas:
    """Two pools, of which one prefills and the other decodes; driven as `Replicas`.

    Parameters
    ----------
    llm : the first pool, with the second one as `llm.decode`.
    replicas : of the first pool.

    Attributes
    ----------
    first, second : the pools.
    """

    def __init__(self, llm: LanguageModel, replicas: int) -> None:
        assert llm.decode is not None
        self.first = Replicas(llm, replicas)
        self.second = Replicas(llm.decode.llm, llm.decode.replicas)
        self._under_way: list[tuple[float, float, int, int, Request]] = []
        self._number = 0

    def end(self, now_ms: float) -> list[list[int]]:
        """Iterations that end now, in the order they began, of the first pool before the second: the queries that leave with
        each. Then transfers end, in the order of their first tokens."""
        groups = []
        for pool in (self.first, self.second):
            for replica in pool.replicas:
                if replica.busy is not None and replica.busy.end_ms == now_ms:
                    begun_ms = replica.busy.start_ms
                    groups.append((begun_ms, pool is self.second, replica.number, replica.end(now_ms)))
        groups.sort(key=lambda group: group[:3])
        left = []
        for _, _, _, requests in groups:
            for request in requests:
                if request.emitted < request.output:
                    on = (request.sent_ms, request.first_ms, request.replica, self._number, request)
                    heappush(self._under_way, on)
                    self._number += 1
            left.append([request.query for request in requests if request.emitted == request.output])
        while self._under_way and self._under_way[0][0] <= now_ms:
            *_, request = heappop(self._under_way)
            there = Request(request.query, request.prompt, request.output, 0, emitted=1, away=True)
            there.cached, there.first_ms, there.last_ms = request.prompt, request.first_ms, request.first_ms
            self.second.join(there, now_ms)
        return left

    def enter(self, query: int, now_ms: float) -> bool:
        """A query comes to the first pool now; False if it is refused, because it could never fit into either."""
        return self.first.enter(query, now_ms)

    def begin(self, now_ms: float) -> list[float]:
        """Idle replicas with something to do begin iterations; returns when these and transfers end."""
        transfers_ms = [sent_ms for sent_ms, *_ in self._under_way[:1]]
        return [*self.first.begin(now_ms), *self.second.begin(now_ms), *transfers_ms]


def replicas_of(llm: LanguageModel, replicas: int, most: int) -> Replicas | ApartReplicas:
    """The replicas of a stage.

    Parameters
    ----------
    llm : limits, costs, and the tokens of the requests.
    replicas : how many there are at the start, of the first pool where there are two.
    most : how many there may be.
    """
    return Replicas(llm, replicas, most=most) if llm.decode is None else ApartReplicas(llm, replicas)
