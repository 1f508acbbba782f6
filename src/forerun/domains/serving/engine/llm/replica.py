"""Replicas of a language model request by request in plain Python: for the event loop, and to test the kernel against.

Built from queues and lists that hold what their names say; it shares no code with the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from forerun.domains.serving.inputs.llm.model import LanguageModel


@dataclass(eq=False)
class Request:
    """A request under way. Fields as in `kernels.requests.REQUEST`, and the times between its tokens.

    Parameters
    ----------
    query : its number in the trace.
    prompt, output : tokens of its prompt and of its answer.
    replica : number of the replica that it was sent to.
    emitted : tokens of the answer so far.
    cached : tokens that the cache contains, of the prompt and of the answer.
    blocks : blocks of the cache that it has for itself.
    segments : the prompt's whole segments, which the prefix cache can share.
    shared : how many of them it uses there.
    hit : tokens that it did not process because they were there.
    preempted : how often these were taken away.
    start_ms, first_ms, last_ms : when its first iteration began, and when its first and its latest token came (NaN:
        not yet).
    gap_ms : longest time between two of its tokens.
    stalled_ms, stalled_first_ms : time back in the queue after preemptions, in all and before the first token.
    since_ms : when it was preempted last.
    gaps_ms : all times between its tokens.
    """

    query: int
    prompt: int
    output: int
    replica: int
    emitted: int = 0
    cached: int = 0
    blocks: int = 0
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
    gaps_ms: list[float] = field(default_factory=list)


@dataclass
class Iteration:
    """An iteration under way: who was given how many tokens, and what it consists of.

    Parameters
    ----------
    number : of the iteration within its stage, in the order they begin.
    replica : number of the replica that works on it.
    start_ms, end_ms : instants; the end is known from the start.
    given : requests and the tokens that each has processed in it, in order of admission.
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

    def evict(self) -> int:
        """The least recently used segment leaves the cache: how many blocks that frees."""
        gone = next(iter(self.unused))
        del self.unused[gone], self.users[gone]
        return self.blocks


class Replica:
    """One replica: a queue, the requests that run in order of admission, and free blocks."""

    def __init__(self, number: int, llm: LanguageModel) -> None:
        self.number = number
        self.llm = llm
        self.queue: deque[Request] = deque()
        self.running: list[Request] = []
        self.free = llm.kv_blocks
        self.prefixes = PrefixCache(llm.prefixes.segment_blocks)
        self.busy: Iteration | None = None

    @property
    def open(self) -> int:
        """Requests that wait or run."""
        return len(self.queue) + len(self.running)

    def begin(self, number: int, now_ms: float) -> Iteration:
        """The next iteration begins: running requests come first, in order of admission, then waiting ones while
        there are seats, tokens and blocks.

        A running request that needs a block where none is free takes it from the request admitted last, which goes
        back to the head of the queue; nobody is admitted in that iteration.

        Parameters
        ----------
        number : of the iteration within its stage.
        now_ms : the instant.
        """
        budget = self.llm.token_budget
        given: list[tuple[Request, int]] = []
        prefill = decodes = kv = 0
        attention = 0.0
        preempted = False
        for request in list(self.running):
            if request not in self.running:
                continue
            todo = request.prompt + request.emitted - request.cached
            tokens = min(todo, budget)
            if tokens == 0:
                continue
            shared = request.shared * self.prefixes.blocks
            needed = self._blocks(request.cached + tokens) - shared - request.blocks
            while needed > self.free + self.prefixes.idle and request in self.running:
                self._preempt(self.running[-1], now_ms)
                preempted = True
            if request not in self.running:
                continue
            self._take(request, needed)
            given.append((request, tokens))
            budget -= tokens
            if request.emitted > 0 and todo == 1:
                decodes += 1
                kv += request.cached
            else:
                prefill += tokens
                attention += tokens * (request.cached + tokens / 2)
        while not preempted and self.queue and len(self.running) < self.llm.max_seqs and budget > 0:
            request = self.queue[0]
            todo = request.prompt + request.emitted
            hits = self._hits(request.segments, todo)
            known = len(hits) * self.prefixes.blocks * self.llm.block_tokens
            tokens = min(todo - known, budget)
            unused = sum(segment in self.prefixes.unused for segment in hits) * self.prefixes.blocks
            if self._blocks(tokens) > self.free + self.prefixes.idle - unused:
                break
            self.queue.popleft()
            self.running.append(request)
            for segment in hits:
                self.prefixes.use(segment)
            request.shared, request.cached = len(hits), known
            request.hit += known
            self._take(request, self._blocks(tokens))
            given.append((request, tokens))
            budget -= tokens
            prefill += tokens
            attention += tokens * (known + tokens / 2)
            if request.preempted:
                request.stalled_ms += now_ms - request.since_ms
            else:
                request.start_ms = now_ms
        end_ms = now_ms + self.llm.cost.iteration_ms(prefill, decodes, kv, attention)
        self.busy = Iteration(
            number,
            self.number,
            now_ms,
            end_ms,
            given,
            prefill,
            decodes,
            kv,
            len(self.running),
            self.free + self.prefixes.idle,
        )
        return self.busy

    def end(self, now_ms: float) -> list[Request]:
        """The iteration ends; returns the requests that leave, in order of admission."""
        assert self.busy is not None
        left = []
        for request, tokens in self.busy.given:
            request.cached += tokens
            self._share(request)
            if request.cached < request.prompt + request.emitted:
                continue
            request.emitted += 1
            if request.emitted == 1:
                request.first_ms, request.stalled_first_ms = now_ms, request.stalled_ms
            else:
                request.gaps_ms.append(now_ms - request.last_ms)
                request.gap_ms = max(request.gap_ms, now_ms - request.last_ms)
            request.last_ms = now_ms
            if request.emitted == request.output:
                left.append(request)
                self._release(request)
        self.busy = None
        return left

    def _preempt(self, request: Request, now_ms: float) -> None:
        self._release(request)
        request.blocks = request.cached = request.shared = 0
        request.preempted += 1
        request.since_ms = now_ms
        self.queue.appendleft(request)

    def hits(self, segments: Sequence[int], tokens: int) -> int:
        """How many segments at the beginning of so many tokens are in the cache, one token left out."""
        return len(self._hits(segments, tokens))

    def _hits(self, segments: Sequence[int], tokens: int) -> list[int]:
        segment_tokens = self.prefixes.blocks * self.llm.block_tokens
        return self.prefixes.leading(segments[: (tokens - 1) // segment_tokens])

    def _take(self, request: Request, blocks: int) -> None:
        while self.free < blocks:
            self.free += self.prefixes.evict()
        self.free -= blocks
        request.blocks += blocks

    def _share(self, request: Request) -> None:
        tokens = self.prefixes.blocks * self.llm.block_tokens
        for segment in request.segments[request.shared : request.cached // tokens]:
            request.blocks -= self.prefixes.blocks
            if segment in self.prefixes.users:
                self.free += self.prefixes.blocks
            self.prefixes.use(segment)
            request.shared += 1

    def _release(self, request: Request) -> None:
        self.running.remove(request)
        self.free += request.blocks
        self.prefixes.leave(request.segments[: request.shared])

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.llm.block_tokens)


class Replicas:
    """All replicas of a stage, driven instant by instant: `end`, then `enter`, then `begin`.

    Parameters
    ----------
    llm : limits, costs, and the tokens of the requests.
    replicas : how many there are.

    Attributes
    ----------
    refused : bool[queries], requests that can never fit into the cache.
    requests : those that entered, by query.
    iterations : all that have begun, in that order.
    """

    def __init__(self, llm: LanguageModel, replicas: int) -> None:
        self.llm = llm
        self.refused, self._segments, self._prefixes = llm.refused, llm.whole_segments, llm.prefixes
        self.replicas = [Replica(number, llm) for number in range(replicas)]
        self.requests: dict[int, Request] = {}
        self.iterations: list[Iteration] = []
        self._turn = 0

    def end(self, now_ms: float) -> list[list[int]]:
        """Iterations that end now, in the order they began: the queries that leave with each."""
        due = [r for r in self.replicas if r.busy is not None and r.busy.end_ms == now_ms]
        due.sort(key=lambda replica: replica.busy.number if replica.busy else 0)
        return [[request.query for request in replica.end(now_ms)] for replica in due]

    def enter(self, query: int) -> bool:
        """A query comes; False if it is refused, because it could never fit."""
        if self.refused[query]:
            return False
        prompt, output = int(self.llm.prompt[query]), int(self.llm.output[query])
        begin = int(self._prefixes.start[query])
        segments = self._prefixes.chains[begin : begin + int(self._segments[query])]
        chosen = self._chosen(segments.tolist(), prompt)
        self._turn = (chosen.number + 1) % len(self.replicas)
        request = Request(query, prompt, output, chosen.number, segments=tuple(segments.tolist()))
        self.requests[query] = request
        chosen.queue.append(request)
        return True

    def _chosen(self, segments: list[int], prompt: int) -> Replica:
        def fewest(replica: Replica) -> tuple[int, int]:
            return replica.open, replica.number

        if self.llm.routing == "prefix-affinity" and segments:
            return self.replicas[segments[0] % len(self.replicas)]
        if self.llm.routing == "longest-prefix":
            free = [replica for replica in self.replicas if replica.open < self.llm.max_seqs]
            return min(
                free or self.replicas,
                key=lambda one: (-one.hits(segments, prompt) * bool(free), *fewest(one)),
            )
        return (
            min(self.replicas, key=fewest)
            if self.llm.routing == "least-requests"
            else self.replicas[self._turn]
        )

    def begin(self, now_ms: float) -> list[float]:
        """Idle replicas with something to do begin iterations; returns when they end."""
        ends = []
        for replica in self.replicas:
            if replica.busy is None and replica.open:
                self.iterations.append(replica.begin(len(self.iterations), now_ms))
                ends.append(self.iterations[-1].end_ms)
        return ends
