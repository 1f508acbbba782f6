"""Replicas of a language model request by request in plain Python: for the event loop, and to test the kernel against.

Built from queues and lists that hold what their names say; it shares no code with the kernel.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import takewhile
from typing import Literal

from forerun.serving.llm.inputs.model import LanguageModel

#: what a pass over the requests of a replica gives tokens to
Kind = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Link:
    """How a replica sends prefilled requests to the other pool, one after another.

    Parameters
    ----------
    ms_per_token : time that a transfer occupies the link, for each token of the prompt.
    latency_ms : from then on until it is there.
    """

    ms_per_token: float
    latency_ms: float


@dataclass(eq=False)
class Request:
    """A request under way. Fields as in `kernels.requests.REQUEST`, and the times between its tokens.

    Parameters
    ----------
    query : its number in the trace.
    prompt, output : tokens of its prompt and of its answer.
    replica : number of the replica that it was sent to.
    rank : its class, lower ones go first.
    emitted : tokens of the answer so far.
    cached : tokens that the cache contains, of the prompt and of the answer.
    blocks : blocks of the cache that it has for itself.
    away : what is cached of it is in no block of its replica: it was swapped out, or comes from another pool.
    host : blocks of host memory that it has.
    segments : the prompt's whole segments, which the prefix cache can share.
    shared : how many of them it uses there.
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
    emitted: int = 0
    cached: int = 0
    blocks: int = 0
    away: bool = False
    host: int = 0
    segments: tuple[int, ...] = ()
    shared: int = 0
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
        """Tokens that are not cached yet."""
        return self.prompt + self.emitted - self.cached

    @property
    def next_step(self) -> Kind:
        """A decode if all but its latest token is cached."""
        return "decode" if self.emitted and self.todo == 1 else "prefill"


@dataclass
class Iteration:
    """An iteration under way: who was given how many tokens, and what it consists of.

    Parameters
    ----------
    number : of the iteration within its stage, in the order they begin.
    replica : number of the replica that works on it.
    start_ms, end_ms : instants; the end is known from the start.
    given : requests and the tokens that each has processed in it, in the order they were given.
    prefill : tokens of prompts, and of preempted requests that are processed anew.
    decodes : requests that process their latest token alone.
    kv : tokens that these requests have in the cache.
    running : requests admitted, with those that got no token of the budget.
    free_blocks : blocks of the cache that nobody has.
    """

    number: int
    replica: int
    start_ms: float
    end_ms: float
    given: list[tuple[Request, int]]
    prefill: int
    decodes: int
    kv: int
    running: int
    free_blocks: int


@dataclass
class _Batch:
    """An iteration that is being put together.

    Parameters
    ----------
    budget : tokens that may still be given.
    given : requests and their tokens.
    prefill, decodes : of these, tokens of prompts, and requests that decode.
    attention : pairs of tokens that attend to each other in prefills.
    kv : tokens that the decodes have in the cache.
    drafts : tokens that are proposed for each request that decodes.
    moved : blocks that are swapped.
    preempting : somebody lost its blocks for it, so nobody is admitted.
    """

    budget: int
    given: list[tuple[Request, int]] = field(default_factory=list)
    prefill: int = 0
    decodes: int = 0
    attention: float = 0.0
    kv: int = 0
    drafts: list[int] = field(default_factory=list)
    moved: int = 0
    preempting: bool = False


class PrefixCache:
    """The segments of prompts that one replica has in its cache.

    Parameters
    ----------
    blocks : of the cache, in a segment.

    Attributes
    ----------
    users : by segment in the cache, how many requests use it.
    unused : those that nobody uses, the least recently used first.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.users: dict[int, int] = {}
        self.unused: dict[int, None] = {}

    @property
    def idle(self) -> int:
        """Blocks that nobody uses."""
        return len(self.unused) * self.blocks

    def leading(self, segments: Sequence[int]) -> list[int]:
        """Those at the beginning that are in the cache."""
        return list(takewhile(self.users.__contains__, segments))

    def use(self, segment: int) -> None:
        """A request uses a segment, which enters the cache if it is not there."""
        self.unused.pop(segment, None)
        self.users[segment] = self.users.get(segment, 0) + 1

    def leave(self, segments: Sequence[int]) -> None:
        """A request uses segments of its prompt no more; the beginning counts as used last."""
        for segment in reversed(segments):
            self.users[segment] -= 1
            if not self.users[segment]:
                self.unused[segment] = None

    def evict_all(self) -> int:
        """All that nobody uses leaves the cache: how many blocks that frees."""
        return sum(self.evict() for _ in list(self.unused))

    def evict(self) -> int:
        """The least recently used segment leaves the cache: how many blocks that frees."""
        gone = next(iter(self.unused))
        del self.unused[gone], self.users[gone]
        return self.blocks


class Replica:
    """One replica: a queue, the requests that run, and free blocks.

    Parameters
    ----------
    number : of the replica within its pool.
    llm : limits and costs.
    link : by which it sends requests to the other pool after their first token (None: they stay).
    """

    def __init__(self, number: int, llm: LanguageModel, link: Link | None = None) -> None:
        self.number = number
        self.llm = llm
        self.link = link
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.free = llm.kv_blocks
        self.host = llm.host.blocks if llm.host else 0
        self.prefixes = PrefixCache(llm.prefixes.segment_blocks)
        self.held: deque[Request] = deque()
        self.busy: Iteration | None = None
        self._known: set[int] = set()
        self._link_free_ms = 0.0
        self.drafted = self.accepted = 0

    @property
    def open(self) -> int:
        """Requests that wait or run."""
        return len(self.queue) + len(self.running)

    def enter(self, request: Request) -> None:
        """A request joins the queue, behind all of its class."""
        self.queue.insert(bisect_right(self.queue, request.rank, key=lambda one: one.rank), request)

    def forget(self) -> None:
        """The prefix cache has nothing that nobody uses."""
        self.free += self.prefixes.evict_all()

    def begin(self, number: int, now_ms: float) -> Iteration | None:
        """The next iteration begins; None if transfers hold the blocks that it would need.

        Running requests come first, by class and in order of admission, then waiting ones while there are seats, tokens and
        blocks. A running request that needs a block where none is free takes it from the request that runs last, which goes
        back to the head of its class; nobody is admitted in that iteration.

        Parameters
        ----------
        number : of the iteration within its pool.
        now_ms : the instant.
        """
        self._end_transfers(now_ms)
        moved = 0
        # While somebody runs, this iteration was composed when the last one began.
        late = self._late if self.llm.rules.ahead and self.running else set()
        while True:
            batch = _Batch(self.llm.token_budget, moved=moved)
            for kinds in self._passes():
                self._serve(batch, kinds, now_ms)
                if not batch.preempting:
                    self._admit(batch, kinds, now_ms, late)
                if batch.given:
                    return self._started(batch, number, now_ms)
            if not batch.preempting:
                return None
            moved, late = batch.moved, set()

    @property
    def _late(self) -> set[int]:
        """Who came after the last iteration had begun."""
        return {request.query for request in self.queue} - self._known

    def _passes(self) -> list[tuple[Kind, ...]]:
        """Which kinds of tokens are given together, the first that finds any."""
        match self.llm.rules.tokens:
            case "together":
                return [("prefill", "decode")]
            case "prefills first":
                return [("prefill",), ("decode",)]
            case "decodes first":
                return [("decode",), ("prefill",)]

    def _serve(self, batch: _Batch, kinds: tuple[Kind, ...], now_ms: float) -> None:
        """Running requests get tokens of these kinds."""
        for request in list(self.running):
            kind = request.next_step
            if kind not in kinds or request not in self.running:
                continue
            if kind == "decode":
                tokens = self._decode_tokens(request, batch)
            else:
                tokens = min(request.todo, batch.budget)
            if tokens == 0:
                continue
            has = request.shared * self.prefixes.blocks + request.blocks
            needed = max(0, self._blocks(request.cached + tokens) - has)
            while needed > self.free + self.prefixes.idle and request in self.running:
                batch.moved += self._preempt(self.running[-1], now_ms)
                batch.preempting = True
            if request in self.running:
                self._take(request, needed)
                self._give(batch, request, tokens, kind)

    def _admit(self, batch: _Batch, kinds: tuple[Kind, ...], now_ms: float, late: set[int]) -> None:
        """Waiting requests get tokens of these kinds, from the front, up to the first that cannot or came late."""
        while self.queue and len(self.running) < self.llm.max_seqs:
            request = self.queue[0]
            if request.query in late:
                return
            hits = [] if request.away else self._hits(request.segments, request.prompt + request.emitted)
            known = request.cached if request.away else len(hits) * self._segment_tokens
            todo = request.prompt + request.emitted - known
            kind: Kind = request.next_step if request.away else "prefill"
            if kind == "decode":
                tokens = self._decode_tokens(request, batch)
            else:
                tokens = self._first_tokens(batch, todo)
            needed = (
                self._blocks(self._stored(request, known, todo, tokens)) - len(hits) * self.prefixes.blocks
            )
            unused = sum(segment in self.prefixes.unused for segment in hits) * self.prefixes.blocks
            if kind not in kinds or not tokens or needed > self.free + self.prefixes.idle - unused:
                return
            del self.queue[0]
            self.running.insert(bisect_right(self.running, request.rank, key=lambda one: one.rank), request)
            for segment in hits:
                self.prefixes.use(segment)
            if not request.away:
                request.shared, request.cached = len(hits), known
                request.hit += known
            self.host += request.host
            batch.moved += request.host
            request.away, request.host = False, 0
            self._take(request, needed)
            self._give(batch, request, tokens, kind)
            if request.preempted:
                request.stalled_ms += now_ms - request.since_ms
            else:
                request.start_ms = now_ms

    def _decode_tokens(self, request: Request, batch: _Batch) -> int:
        """What a request that decodes is given: its latest token, and those that a draft proposes behind it; 0: nothing."""
        own = self.llm.speculation
        wanted = 1 + (0 if own is None else min(own.draft_tokens, request.output - request.emitted - 1))
        return wanted if self.llm.rules.whole_prompts else min(wanted, batch.budget)

    def _first_tokens(self, batch: _Batch, todo: int) -> int:
        """What a waiting request is given of its prompt if it is admitted; 0: it is not."""
        if not self.llm.rules.whole_prompts:
            return min(todo, batch.budget)
        if todo <= batch.budget:
            return todo
        # A prompt above the whole budget is never whole: it goes alone, in pieces.
        alone = todo > self.llm.token_budget and batch.prefill == 0
        return batch.budget if alone else 0

    def _stored(self, request: Request, known: int, todo: int, tokens: int) -> int:
        """How many tokens it gets blocks for when it is admitted."""
        if self.llm.rules.reserved != "nothing" and self.link is None:
            return request.prompt + max(self.llm.reserved_tokens, request.output)
        return known + max(tokens, todo if self.llm.rules.whole_prompts else 0)

    def _give(self, batch: _Batch, request: Request, tokens: int, kind: Kind) -> None:
        batch.given.append((request, tokens))
        if kind == "decode":
            drafts = tokens - 1
            batch.decodes += 1
            batch.kv += request.cached
            batch.drafts.append(drafts)
            batch.attention += drafts * (request.cached + 1 + drafts / 2)
        else:
            batch.prefill += tokens
            batch.attention += tokens * (request.cached + tokens / 2)
        if kind == "prefill" or not self.llm.rules.whole_prompts:
            batch.budget -= tokens

    def _started(self, batch: _Batch, number: int, now_ms: float) -> Iteration:
        drafted = sum(batch.drafts)
        taken_ms = self.llm.cost.iteration_ms(
            batch.prefill + drafted, batch.decodes, batch.kv, batch.attention
        )
        if self.llm.host:
            taken_ms += batch.moved * self.llm.host.move_ms
        if self.llm.speculation:
            taken_ms += self.llm.speculation.extra_ms(max(batch.drafts, default=0), drafted)
        self._known = {request.query for request in (*self.queue, *self.running)}
        self.busy = Iteration(
            number,
            self.number,
            now_ms,
            now_ms + taken_ms,
            batch.given,
            batch.prefill,
            batch.decodes,
            batch.kv,
            len(self.running),
            self.free + self.prefixes.idle,
        )
        return self.busy

    def end(self, now_ms: float) -> list[Request]:
        """The iteration ends; returns the requests that leave, by class and in order of admission."""
        assert self.busy is not None
        left = []
        # Those admitted now stand behind the others of their class.
        for request, tokens in sorted(self.busy.given, key=lambda one: one[0].rank):
            latest = min(tokens, request.todo)
            drafts = range(request.emitted, request.emitted + tokens - latest)
            right = sum(1 for _ in takewhile(partial(self._guessed, request.query), drafts))
            self.drafted += len(drafts)
            self.accepted += right
            request.cached += latest + right
            self._share(request)
            if request.cached < request.prompt + request.emitted:
                continue
            request.emitted += 1 + right
            if request.emitted == 1:
                request.first_ms, request.stalled_first_ms = now_ms, request.stalled_ms
            else:
                request.gaps_ms.append(now_ms - request.last_ms)
                request.gap_ms = max(request.gap_ms, now_ms - request.last_ms)
            request.last_ms = now_ms
            if request.emitted == request.output:
                left.append(request)
                self.running.remove(request)
                self._release(request)
            elif self.link is not None:
                left.append(request)
                self.running.remove(request)
                self._send(request, self.link, now_ms)
        self.busy = None
        return left

    def _guessed(self, query: int, place: int) -> bool:
        """Whether the draft guesses a token of an answer."""
        own = self.llm.speculation
        return own is not None and own.guesses(int(self.llm.keys[query]), place)

    def _send(self, request: Request, link: Link, now_ms: float) -> None:
        """The transfer begins when the link is free; until its end the request keeps its blocks."""
        self._link_free_ms = max(self._link_free_ms, now_ms) + link.ms_per_token * request.prompt
        request.sent_ms = self._link_free_ms + link.latency_ms
        self.held.append(request)

    def _end_transfers(self, now_ms: float) -> None:
        while self.held and self.held[0].sent_ms <= now_ms:
            self._release(self.held.popleft())

    def _preempt(self, request: Request, now_ms: float) -> int:
        """The request goes back to the head of its class; returns the blocks that are swapped out."""
        self.running.remove(request)
        self._release(request)
        request.blocks = request.shared = 0
        moved = self._blocks(request.cached)
        if not 0 < moved <= self.host:
            moved = request.cached = 0
        self.host -= moved
        request.away, request.host = moved > 0, moved
        request.preempted += 1
        request.since_ms = now_ms
        self.queue.insert(bisect_left(self.queue, request.rank, key=lambda one: one.rank), request)
        return moved

    def hits(self, segments: Sequence[int], tokens: int) -> int:
        """How many segments at the beginning of so many tokens are in the cache, one token left out."""
        return len(self._hits(segments, tokens))

    @property
    def _segment_tokens(self) -> int:
        return self.prefixes.blocks * self.llm.block_tokens

    def _hits(self, segments: Sequence[int], tokens: int) -> list[int]:
        return self.prefixes.leading(segments[: (tokens - 1) // self._segment_tokens])

    def _take(self, request: Request, blocks: int) -> None:
        while self.free < blocks:
            self.free += self.prefixes.evict()
        self.free -= blocks
        request.blocks += blocks

    def _share(self, request: Request) -> None:
        for segment in request.segments[request.shared : request.cached // self._segment_tokens]:
            request.blocks -= self.prefixes.blocks
            if segment in self.prefixes.users:
                self.free += self.prefixes.blocks
            self.prefixes.use(segment)
            request.shared += 1

    def _release(self, request: Request) -> None:
        self.free += request.blocks
        self.prefixes.leave(request.segments[: request.shared])

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.llm.block_tokens)


class Replicas:
    """The replicas of one pool, driven instant by instant: `end`, then `enter`, then `begin`.

    Parameters
    ----------
    llm : limits, costs, and the tokens of the requests.
    replicas : how many there are.
    link : by which each sends requests on after their first token (default None: they stay).
    most : how many there may be, with `resize` (default: no more).

    Attributes
    ----------
    active : replicas that requests can choose, those with the lowest numbers.
    refused : bool[queries], requests that can never fit into the cache.
    requests : those that entered, by query.
    iterations : all that have begun, in that order.
    """

    def __init__(self, llm: LanguageModel, replicas: int, link: Link | None = None, most: int = 0) -> None:
        self.llm = llm
        self.active = replicas
        self.refused, self._segments, self._prefixes = llm.refused, llm.whole_segments, llm.prefixes
        self.replicas = [Replica(number, llm, link) for number in range(max(most, replicas))]
        self._shut_out: list[Request] = []
        self.requests: dict[int, Request] = {}
        self.iterations: list[Iteration] = []
        self._turn = 0
        self._new: list[Request] = []
        self._coming: deque[tuple[float, Request]] = deque()

    @property
    def drafted(self) -> int:
        """Tokens that drafts proposed."""
        return sum(replica.drafted for replica in self.replicas)

    @property
    def accepted(self) -> int:
        """Of these, right ones."""
        return sum(replica.accepted for replica in self.replicas)

    def end(self, now_ms: float) -> list[list[int]]:
        """Iterations that end now, in the order they began: the queries that leave with each."""
        return [[request.query for request in left] for left in self.ended(now_ms)]

    def ended(self, now_ms: float) -> list[list[Request]]:
        """The same as requests."""
        due = [r for r in self.replicas if r.busy is not None and r.busy.end_ms == now_ms]
        due.sort(key=lambda replica: replica.busy.number if replica.busy else 0)
        return [replica.end(now_ms) for replica in due]

    def enter(self, query: int) -> bool:
        """A query comes; False if it is refused, because it could never fit."""
        if self.refused[query]:
            return False
        request = Request(query, int(self.llm.prompt[query]), int(self.llm.output[query]), 0)
        if self.llm.cost.request_ms:
            self._new.append(request)
        else:
            self.join(request)
        return True

    def resize(self, count: int) -> None:
        """From now on requests choose among so many replicas; others finish what they have. One that comes back has an empty
        prefix cache."""
        for replica in self.replicas[self.active : count]:
            replica.forget()
        self.active = count

    def _open(self) -> None:
        """Requests that waited for a replica are sent to one."""
        shut_out, self._shut_out = self._shut_out, []
        for request in shut_out:
            self.join(request)

    def join(self, request: Request) -> None:
        """A request is sent to a replica, and waits there; where there is none, it waits for one."""
        if not self.active:
            self._shut_out.append(request)
            return
        self._open()
        query = request.query
        begin = int(self._prefixes.start[query])
        segments = self._prefixes.chains[begin : begin + int(self._segments[query])].tolist()
        chosen = self._chosen(segments, request.prompt)
        self._turn = (chosen.number + 1) % self.active
        request.replica, request.segments = chosen.number, tuple(segments)
        request.rank = 0 if self.llm.ranks is None else int(self.llm.ranks[query])
        self.requests[query] = request
        chosen.enter(request)

    def _chosen(self, segments: list[int], prompt: int) -> Replica:
        def fewest(replica: Replica) -> tuple[int, int]:
            return replica.open, replica.number

        if self.llm.routing == "prefix-affinity" and segments:
            return self.replicas[segments[0] % self.active]
        if self.llm.routing == "longest-prefix":
            free = [replica for replica in self.replicas[: self.active] if replica.open < self.llm.max_seqs]
            return min(
                free or self.replicas[: self.active],
                key=lambda one: (-one.hits(segments, prompt) * bool(free), *fewest(one)),
            )
        return (
            min(self.replicas[: self.active], key=fewest)
            if self.llm.routing == "least-requests"
            else self.replicas[self._turn % self.active]
        )

    def begin(self, now_ms: float) -> list[float]:
        """Idle replicas with something to do begin iterations; returns when they end, or when it is worth trying again, and
        when requests join queues that take some time to."""
        again = [now_ms + self.llm.cost.request_ms] if self._new else []
        self._coming.extend((again[0], request) for request in self._new)
        self._new.clear()
        if self.active:
            self._open()
        while self._coming and self._coming[0][0] == now_ms:
            self.join(self._coming.popleft()[1])
        for replica in self.replicas:
            if replica.busy is None and replica.open:
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
        self.first = Replicas(llm, replicas, Link(llm.decode.send_ms_per_token, llm.decode.latency_ms))
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
            self.second.join(
                Request(
                    request.query,
                    request.prompt,
                    request.output,
                    0,
                    emitted=1,
                    cached=request.prompt,
                    away=True,
                    first_ms=request.first_ms,
                    last_ms=request.first_ms,
                )
            )
        return left

    def enter(self, query: int) -> bool:
        """A query comes to the first pool; False if it is refused, because it could never fit into either."""
        return self.first.enter(query)

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
