"""The replicas of a language model: requests in, tokens out, iteration by iteration. Arrays in, arrays out, resumable.

(Part of the digest that names the compiled code's folder: forerun.core.kernels.) Requests are numbered by their place in
the order of entry, *positions*; refused ones are not among them. Within an instant: iterations end in the order they
began, transfers end, requests enter, idle replicas begin iterations.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import Rows, record_type
from forerun.serving.llm.engine.kernels.gaps import CELLS, FIRST_EXPONENT, LEAST_MS, PER_OCTAVE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REQUEST: Final = record_type(
    "prompt output emitted cached blocks next preempted replica rank away host key",
    "enter_ms start_ms first_ms last_ms gap_ms since_ms stalled_ms stalled_first_ms sent_ms",
)
"""A request, in `State.requests`.

prompt, output: tokens it has and wants. emitted, cached: tokens so far. blocks: of the cache, without those that it
shares. next: the position behind it in its replica's queue, or among those whose blocks a transfer holds, -1 at the
end. preempted: how often. rank: its class, lower ones go first. away: 1 if what is cached of it is in no block of its
replica: it was swapped out, or comes from another pool. host: blocks of host memory that it has. key: what it is
drawn from whether drafts guess its tokens. enter_ms: when it enters. start_ms: begin of its first iteration.
first_ms: its first token. last_ms: its latest token; at the end, its last. gap_ms: longest time between tokens that
do not come together. since_ms: since when it waits: when it joined the queue, or was preempted. stalled_ms: time
between preemption and readmission; stalled_first_ms: the part of it before the first token. sent_ms: when the
transfer to the other pool ends, where there is one.
"""

PREFIX: Final = record_type("chain segments shared hit")
"""What a request shares, in `State.prefixes`.

chain, segments: where its prompt's segments begin in `Model.chains`, and how many are whole. shared: how many of them it
uses in the prefix cache. hit: tokens that it did not process because they were there.
"""

REPLICA: Final = record_type(
    "running front free order open steady idle oldest newest host held_head held_tail",
    "due_ms begun_ms link_ms seen_ms",
)
"""A replica, in `State.replicas`.

running: requests in an iteration. front: the lowest class in which a request waits; the number of classes if nobody
waits. free: free blocks. order: number of its iteration under way. open: requests waiting or running. steady: 1 if
everybody who ran emitted a token when its last iteration ended. idle: blocks of the prefix cache that nobody uses.
oldest, newest: of these segments, the one used least recently and the one used last, -1 if there is none. host: free
blocks of its host memory. held_head, held_tail: of the requests whose blocks transfers hold, in the order these end;
held_head -1 if there is none. due_ms: end of the iteration under way, inf if there is none. begun_ms: its begin, or
from when on the next may begin. link_ms: from when on it can send. seen_ms: begin of the iteration that ended last.
"""

QUEUE: Final = record_type("head tail")
"""The requests of one class that wait at a replica, in `State.queues`: the first and the last; head -1 if there is none."""

WHOLE: Final = record_type("entered fed iterations done turn active drafted accepted", "open_ms")
"""The stage as a whole, the only row of `State.whole`.

entered, fed: positions so far. iterations: begun. done: requests that left. turn: the replica that the next request
goes to, if they take turns. active: replicas that requests can choose, those with the lowest numbers. drafted,
accepted: tokens that drafts proposed in iterations that have ended, and those of them that were right. open_ms: since
when there is one, inf if there is none; requests that came before it enter then.
"""

LOAD: Final = record_type("budget prefill decodes kv moved drafted passes", "attention")
"""The iteration that begins, the only row of `State.load`, scratch.

budget: tokens that are left to give. prefill, decodes, kv: as `outcome.Iterations` says. moved: blocks to and from host
memory. drafted: tokens that drafts propose, passes: the most for one request. attention: A of `Model`.
"""

DONE: Final = record_type("request iteration", "begun_ms")
"""A request that left, in `State.done`: its position, its last iteration, and when that began."""

ITERATION: Final = record_type("replica prefill decodes kv running free_blocks", "start_ms end_ms")
"""An iteration, in `State.iterations`; fields as in `outcome.Iterations`."""


#: how requests choose a replica: in turn; where the fewest are; where most of the prompt is in the cache, among replicas
#: with a free seat; by the first segment of the prompt
IN_TURN, FEWEST, LONGEST, SAME = range(4)

#: which tokens an iteration processes: prompts and decodes; prompts, or decodes if there is no prompt; the other way round
TOGETHER, PREFILLS, DECODES = range(3)


class Rules(NamedTuple):
    """How replicas schedule and preempt requests, and what they do with those that are prefilled.

    tokens: which tokens an iteration processes, one of the numbers above. whole: 1 if prompts are processed whole and
    only they count in the budget. answer: blocks for at least this long an answer are taken at admission; 0: for none.
    ahead: 1 if an iteration is composed when the one before it begins, so that who joins the queue later waits for the next.
    host_blocks: blocks of a replica's host memory; where they do not suffice, a preempted request is processed anew.
    move_ms: to move a block there or back, in the iteration that does it. sends: 1 if requests leave with their first
    token, and those that want more are sent on: their blocks are held until the transfer ends. send_ms: latency of a
    transfer, send_ms_per_token: time that it occupies the replica's link, for each token of the prompt.
    """

    tokens: int
    whole: int
    answer: int
    ahead: int
    host_blocks: int
    move_ms: float
    sends: int
    send_ms: float
    send_ms_per_token: float


class Drafts(NamedTuple):
    """Speculative decoding: a draft proposes tokens, and one iteration verifies them behind the request's latest token.

    tokens: proposed for a request in an iteration at most; 0: none. threshold: of 2^32, below it the hash of a token says
    that the draft guesses it. pass_ms: of each pass of the draft, one for each token that it proposes, for all requests
    together. seq_ms: of each token that is proposed.
    """

    tokens: int
    threshold: int
    pass_ms: float
    seq_ms: float


class Model(NamedTuple):
    """What a replica's cache can store, how requests choose one and are scheduled, and what an iteration takes.

    routing: how a request chooses a replica, one of the numbers above. An iteration takes a + b_p max(0, P - h) + b_d D +
    b_k K + c A with `terms` = (a, b_p, b_d, b_k, c, h); tokens that a draft proposed are verified as prefill tokens are
    processed. With tables (else of length 1): prefill_ms[P], of P prompt tokens
    alone, and decode_ms[D], of D decodes alone; both together take prefill_ms[P] + decode_ms[D] - decode_ms[1].
    segment_blocks: blocks in a segment of a prompt that the prefix cache can share. chains: the segments of all prompts,
    one prompt behind the other; empty without a prefix cache.
    """

    max_seqs: int
    token_budget: int
    block_tokens: int
    routing: int
    rules: Rules
    drafts: Drafts
    terms: Floats
    prefill_ms: Floats
    decode_ms: Floats
    segment_blocks: int
    chains: Ints


class State(NamedTuple):
    """N requests, R replicas, K classes, C segments.

    requests: REQUEST[N]. replicas: REPLICA[R]. queues: QUEUE[R, K]. slots, given: int64[R, max_seqs], who runs, by
    class and in order of admission, and how many tokens each was given. whole: WHOLE[1]. done: DONE[N], in order
    replica by replica. gaps: int64[CELLS], times between consecutive tokens that do not come together. crossing:
    int64[block_tokens], and load: LOAD[1], scratch. iterations: ITERATION[M], in order replica by replica; M = 0
    records none. prefixes: PREFIX[N]; of no length without a prefix cache. users: int64[R, C], requests that use a
    segment, -1 where it is not
    in the cache. older, newer: int64[R, C], among segments that nobody uses, those last used before and after it, -1 at
    the ends.
    """

    requests: Rows
    replicas: Rows
    queues: Rows
    slots: Ints
    given: Ints
    whole: Rows
    done: Rows
    gaps: Ints
    crossing: Ints
    load: Rows
    iterations: Rows
    prefixes: Rows
    users: Ints
    older: Ints
    newer: Ints


@kernel(allocates=False)
def run_requests(model: Model, state: State, until_ms: float) -> bool:
    """Handle every instant before `until_ms`; False if `iterations` is full and there is more to do.

    Between two instants of entry replicas do not meet, so each runs ahead by itself.
    """
    whole, requests, replicas = state.whole[0], state.requests, state.replicas
    capacity = state.iterations.shape[0]
    while True:
        coming_ms = np.inf
        if whole.entered < whole.fed:
            coming_ms = max(requests[whole.entered].enter_ms, whole.open_ms)
        limit_ms = min(coming_ms, until_ms)
        for r in range(replicas.shape[0]):
            own = replicas[r]
            while True:
                if own.due_ms == np.inf:
                    # What ends at the instant of entry begins again only after it.
                    if own.open == 0 or not own.begun_ms < limit_ms:
                        break
                    if capacity > 0 and whole.iterations + 1 > capacity:
                        return False
                    _begin(model, state, r)
                elif own.due_ms < limit_ms or (own.due_ms == coming_ms and coming_ms < until_ms):
                    _end(model, state, r)
                    if own.steady and own.running > 0 and model.drafts.tokens == 0:
                        _decode_on(model, state, r, limit_ms)
                else:
                    break
        if not coming_ms < until_ms:
            return True
        for r in range(replicas.shape[0]):
            if replicas[r].due_ms == np.inf:
                replicas[r].begun_ms = coming_ms
        while whole.entered < whole.fed and requests[whole.entered].enter_ms <= coming_ms:
            _enter(model, state)


@kernel(inline=True)
def _end(model: Model, state: State, r: int) -> None:
    """The replica's iteration ends: whoever has all of its tokens cached emits one; whoever has emitted all leaves."""
    own, whole, slots, given = state.replicas[r], state.whole[0], state.slots, state.given
    now_ms, usual_ms, cell = own.due_ms, -1.0, 0
    staying, emitted = 0, 0
    for i in range(own.running):
        who = slots[r, i]
        request = state.requests[who]
        # Beyond the latest token there are those that a draft proposed.
        drafted = max(request.cached + given[r, i] - request.prompt - request.emitted, 0)
        accepted = 0
        if drafted > 0:
            while accepted < drafted and _guessed(model, request.key, request.emitted + accepted):
                accepted += 1
            whole.drafted += drafted
            whole.accepted += accepted
        request.cached += given[r, i] - drafted + accepted
        _share(model, state, r, who)
        if given[r, i] > 0 and request.cached == request.prompt + request.emitted + accepted:
            request.emitted += 1 + accepted
            emitted += 1
            if request.emitted == 1:
                request.first_ms, request.stalled_first_ms = now_ms, request.stalled_ms
            else:
                gap_ms = now_ms - request.last_ms
                request.gap_ms = max(request.gap_ms, gap_ms)
                if gap_ms != usual_ms:
                    usual_ms, cell = gap_ms, _cell(gap_ms)
                state.gaps[cell] += 1
            request.last_ms = now_ms
            if request.emitted == request.output or model.rules.sends > 0:
                if request.emitted == request.output:
                    own.free += request.blocks
                    _leave(model, state, r, who)
                else:
                    _send(model, state, r, who, now_ms)
                own.open -= 1
                left = state.done[whole.done]
                left.request, left.iteration, left.begun_ms = who, own.order, own.begun_ms
                whole.done += 1
                continue
        slots[r, staying] = who
        staying += 1
    own.steady = emitted == own.running
    own.running = staying
    own.seen_ms = own.begun_ms
    own.due_ms, own.begun_ms = np.inf, now_ms


@kernel(inline=True)
def _enter(model: Model, state: State) -> None:
    """The next request joins the back of a replica's queue, that which the routing says."""
    whole, replicas, requests = state.whole[0], state.replicas, state.requests
    who, chosen, active = whole.entered, whole.turn % whole.active, whole.active
    if model.routing == SAME and state.prefixes.shape[0] > 0 and state.prefixes[who].segments > 0:
        chosen = model.chains[state.prefixes[who].chain] % active
    if model.routing == FEWEST or model.routing == LONGEST:
        chosen = 0
        for r in range(1, active):
            if replicas[r].open < replicas[chosen].open:
                chosen = r
    if model.routing == LONGEST:
        longest = 0
        for r in range(active):
            if replicas[r].open < model.max_seqs:
                hits, _ = _hits(model, state, r, who)
                if hits > longest or (hits == longest and replicas[r].open < replicas[chosen].open):
                    longest, chosen = hits, r
    whole.turn = (chosen + 1) % active
    own, request = replicas[chosen], requests[who]
    request.replica, request.next = chosen, -1
    request.since_ms = max(request.enter_ms, whole.open_ms)
    queue = state.queues[chosen, request.rank]
    if queue.head < 0:
        queue.head = who
    else:
        requests[queue.tail].next = who
    queue.tail = who
    own.front = min(own.front, request.rank)
    own.open += 1
    whole.entered = who + 1


@kernel(inline=True)
def _begin(model: Model, state: State, r: int) -> None:
    """An idle replica begins an iteration.

    Running requests, by class and in order of admission, are given what they still need, within the budget. One that
    finds too few free blocks has the last of the running preempted, again and again; if that is itself, it waits with
    the others. Where nobody was preempted, requests are admitted from the front of the queue. Where the rules want one
    kind of tokens alone, this happens for that kind, and if there is nothing to do, for the other.

    Something is always to do, except where transfers hold blocks: then the replica tries again when the next one ends.
    """
    own, whole, load, rules = state.replicas[r], state.whole[0], state.load[0], model.rules
    now_ms = own.begun_ms
    load.budget, load.prefill, load.decodes, load.kv, load.attention = model.token_budget, 0, 0, 0, 0.0
    load.moved = load.drafted = load.passes = 0
    preempted = False
    # What is known of the queue; where nobody runs, there was nothing to compose ahead.
    latest_ms = own.seen_ms if rules.ahead > 0 and own.running > 0 else now_ms
    if rules.sends > 0:
        _release(model, state, r, now_ms)
    tokens = rules.tokens
    while True:
        if _give(model, state, r, tokens, now_ms):
            preempted = True
        if not preempted:
            _admit(model, state, r, tokens, now_ms, latest_ms)
        if load.prefill + load.decodes > 0:
            break
        if tokens == rules.tokens and tokens != TOGETHER:
            tokens = PREFILLS + DECODES - tokens
        elif preempted:
            # Everybody was: who waits may fit now.
            tokens, preempted, latest_ms = rules.tokens, False, now_ms
        else:
            break
    if load.prefill + load.decodes == 0:
        own.begun_ms = state.requests[own.held_head].sent_ms
        return
    prefill, drafted = load.prefill, load.drafted
    taken_ms = _iteration_ms(model, prefill + drafted, load.decodes, load.kv, load.attention)
    taken_ms += load.moved * rules.move_ms
    taken_ms += load.passes * model.drafts.pass_ms + drafted * model.drafts.seq_ms
    own.due_ms, own.order = now_ms + taken_ms, whole.iterations
    if state.iterations.shape[0] > 0:
        left = own.free + own.idle
        _note(state, r, own.order, now_ms, own.due_ms, prefill, load.decodes, load.kv, own.running, left)
    whole.iterations += 1


@kernel(inline=True)
def _give(model: Model, state: State, r: int, tokens: int, now_ms: float) -> bool:
    """Running requests are given tokens of a kind, and blocks for them; returns whether anybody was preempted."""
    own, slots, given, load, block = (
        state.replicas[r],
        state.slots,
        state.given,
        state.load[0],
        model.block_tokens,
    )
    preempted, i = False, 0
    while i < own.running:
        who = slots[r, i]
        request = state.requests[who]
        todo = request.prompt + request.emitted - request.cached
        decode = request.emitted > 0 and todo == 1
        give = min(todo, load.budget)
        if tokens != TOGETHER and decode != (tokens == DECODES):
            give = 0
        elif decode:
            give = _decoded(model, state, who, load.budget)
        given[r, i] = 0
        if give > 0:
            needed = 0
            owned = request.blocks + _shared(model, state, who)
            if request.cached + give > owned * block:
                needed = (request.cached + give + block - 1) // block - owned
            while needed > own.free + own.idle:
                last = slots[r, own.running - 1]
                load.moved += _preempt(model, state, r, last, now_ms)
                preempted = True
                if last == who:
                    give = 0
                    break
            if give > 0:
                _evict(model, state, r, needed)
                own.free -= needed
                request.blocks += needed
                given[r, i] = give
                _load(model, state, give, request.cached, decode)
        i += 1
    return preempted


@kernel(inline=True)
def _admit(model: Model, state: State, r: int, tokens: int, now_ms: float, latest_ms: float) -> None:
    """Requests that have waited since `latest_ms` or longer are admitted from the front of the queue."""
    own, load = state.replicas[r], state.load[0]
    while own.front < state.queues.shape[1] and own.running < model.max_seqs:
        who = state.queues[r, own.front].head
        if state.requests[who].since_ms > latest_ms:
            break
        give, needed, hits, idle, known, decode = _wanted(model, state, r, who, load.budget, load.prefill)
        if give == 0 or (tokens != TOGETHER and decode != (tokens == DECODES)):
            break
        if needed > own.free + own.idle - idle:
            break
        request = state.requests[who]
        _pop(state, r)
        _use(model, state, r, who, hits)
        _evict(model, state, r, needed)
        _seat(state, r, who, give)
        own.free -= needed
        request.blocks = needed
        request.cached = known
        own.host += request.host
        load.moved += request.host
        request.away = request.host = 0
        _load(model, state, give, known, decode)
        if request.preempted > 0:
            request.stalled_ms += now_ms - request.since_ms
        else:
            request.start_ms = now_ms


@kernel(inline=True)
def _load(model: Model, state: State, give: int, known: int, decode: bool) -> None:
    """A request with so many known tokens is part of the iteration."""
    load = state.load[0]
    if decode:
        load.decodes += 1
        load.kv += known
        load.drafted += give - 1
        load.passes = max(load.passes, give - 1)
        load.attention += (give - 1) * (known + 1 + (give - 1) / 2)
        load.budget -= give * (1 - model.rules.whole)
    else:
        load.prefill += give
        load.attention += give * (known + give / 2)
        load.budget -= give


@kernel(inline=True)
def _wanted(
    model: Model, state: State, r: int, who: int, budget: int, prefill: int
) -> tuple[int, int, int, int, int, bool]:
    """What a request that waits would be given, and what that needs.

    Returns its tokens (0: it cannot be admitted), the blocks that it needs, how many of its segments are in the prefix
    cache, the blocks of those that nobody uses, the tokens that are known, and whether it would decode.
    """
    request, rules, block = state.requests[who], model.rules, model.block_tokens
    hits, idle, known = 0, 0, request.cached
    if request.away == 0:
        hits, idle = _hits(model, state, r, who)
        known = hits * model.segment_blocks * block
    todo = request.prompt + request.emitted - known
    decode = request.away > 0 and request.emitted > 0 and todo == 1
    give = _decoded(model, state, who, budget) if decode else min(todo, budget)
    target = known + give
    if rules.whole > 0 and not decode:
        if todo > budget and (prefill > 0 or todo <= model.token_budget):
            give = 0
        target = known + todo
    if rules.answer > 0:
        target = request.prompt + max(rules.answer, request.output)
    needed = (target + block - 1) // block - hits * model.segment_blocks
    return give, needed, hits, idle, known, decode


@kernel(inline=True)
def _decoded(model: Model, state: State, who: int, budget: int) -> int:
    """Tokens that a request which decodes is given: its latest, and those proposed behind it that its answer can take."""
    request = state.requests[who]
    give = 1 + min(model.drafts.tokens, request.output - request.emitted - 1)
    return give if model.rules.whole > 0 else min(give, budget)  # type: ignore[no-any-return]


@kernel(inline=True)
def _guessed(model: Model, key: int, place: int) -> bool:
    """Whether a draft guesses a token, by a hash of the request's key and the token's place, in 32 bits."""
    mixed = (key + place * 0x3C6EF372) & 0xFFFFFFFF
    for _ in range(3):
        mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) < model.drafts.threshold


@kernel(inline=True)
def _pop(state: State, r: int) -> None:
    """The request at the front leaves the queue."""
    own = state.replicas[r]
    queue = state.queues[r, own.front]
    queue.head = state.requests[queue.head].next
    while own.front < state.queues.shape[1] and state.queues[r, own.front].head < 0:
        own.front += 1


@kernel(inline=True)
def _seat(state: State, r: int, who: int, give: int) -> None:
    """A request runs: behind those of its class and of lower ones."""
    own, slots, given = state.replicas[r], state.slots, state.given
    at = own.running
    if state.queues.shape[1] > 1:
        rank = state.requests[who].rank
        while at > 0 and state.requests[slots[r, at - 1]].rank > rank:
            slots[r, at], given[r, at] = slots[r, at - 1], given[r, at - 1]
            at -= 1
    slots[r, at], given[r, at] = who, give
    own.running += 1


@kernel(inline=True)
def _decode_on(model: Model, state: State, r: int, limit_ms: float) -> None:
    """Whole iterations in which all that run decode and nothing else can happen, and the begin of the one behind them.

    The whole ones end before `limit_ms` and nobody leaves with them. In none anybody can be admitted, and blocks
    suffice. Then iterations differ in their times only, and requests are brought up to date once. Each time is computed
    as it would be one by one. Where somebody can be admitted, or blocks do not suffice, the next one is left to
    `_begin`.
    """
    own, whole, crossing, rows = state.replicas[r], state.whole[0], state.crossing, state.iterations.shape[0]
    now_ms, running, block, free = own.begun_ms, own.running, model.block_tokens, own.free + own.idle
    rules = model.rules
    steps = rows - whole.iterations - 1 if rows > 0 else np.int64(2**62)
    kv = 0
    for k in range(block):
        crossing[k] = 0
    for i in range(running):
        request = state.requests[state.slots[r, i]]
        steps = min(steps, request.output - request.emitted - 1)
        kv += request.cached
        if rules.answer == 0:
            # Its blocks are full, and it needs another one, in this many iterations.
            room = (request.blocks + _shared(model, state, state.slots[r, i])) * block - request.cached
            crossing[room] += 1
            state.given[r, i] = room
    left, spare = model.token_budget, free
    alike = rules.whole > 0 or running <= left
    if rules.whole == 0 and rules.tokens != PREFILLS:
        left -= running
    if own.front < state.queues.shape[1] and running < model.max_seqs:
        who = state.queues[r, own.front].head
        give, wanted, _, idle, _, decode = _wanted(model, state, r, who, left, 0)
        # Free blocks only get fewer, so whoever does not fit now does not fit later, unless what it would use is evicted.
        if idle > 0:
            spare = own.free
        if rules.tokens == DECODES and not decode:
            give = 0
        # Prompts that go first are admitted before the decodes take their blocks.
        before = 0 if rules.tokens == PREFILLS and not decode else crossing[0]
        if give > 0 and wanted <= free - idle - before:
            alike = False
    if not alike:
        steps = 0
    # Cells of the histogram are wide: the one before is as a rule the one again.
    done, at, cell, low_ms, high_ms, longest_ms = 0, 0, 0, 0.0, 0.0, 0.0
    while done < steps:
        needed = crossing[at]
        if needed > spare:
            break
        end_ms = now_ms + _iteration_ms(model, 0, running, kv, 0.0)
        if not end_ms < limit_ms:
            break
        free -= needed
        spare -= needed
        if rows > 0:
            _note(state, r, whole.iterations + done, now_ms, end_ms, 0, running, kv, running, free)
        gap_ms = end_ms - now_ms
        longest_ms = max(longest_ms, gap_ms)
        if not low_ms <= gap_ms < high_ms:
            cell = _cell(gap_ms)
            low_ms, high_ms = _limits_ms(cell)
        state.gaps[cell] += running
        kv += running
        own.seen_ms, now_ms = now_ms, end_ms
        done += 1
        at = at + 1 if at + 1 < block else 0
    begins = alike and crossing[at] <= spare and now_ms < limit_ms
    if begins and (rows == 0 or whole.iterations + done < rows):
        free -= crossing[at]
        own.due_ms = now_ms + _iteration_ms(model, 0, running, kv, 0.0)
        own.order = whole.iterations + done
        if rows > 0:
            _note(state, r, own.order, now_ms, own.due_ms, 0, running, kv, running, free)
        whole.iterations += 1
    else:
        begins = False
    if done > 0 or begins:
        for i in range(running):
            request = state.requests[state.slots[r, i]]
            request.cached += done
            request.emitted += done
            more = done + begins - state.given[r, i]
            if rules.answer == 0 and more > 0:
                request.blocks += (more + block - 1) // block
            state.given[r, i] = 1
            request.last_ms = now_ms
            request.gap_ms = max(request.gap_ms, longest_ms)
        taken = own.free + own.idle - free
        _evict(model, state, r, taken)
        own.free -= taken
        own.begun_ms = now_ms
        whole.iterations += done


@kernel(inline=True)
def _preempt(model: Model, state: State, r: int, who: int, now_ms: float) -> int:
    """The last running request loses its blocks and goes back to the front of its class; returns the blocks swapped out."""
    own, request = state.replicas[r], state.requests[who]
    own.free += request.blocks
    _leave(model, state, r, who)
    own.running -= 1
    request.blocks = 0
    moved = (request.cached + model.block_tokens - 1) // model.block_tokens
    if 0 < moved <= own.host:
        own.host -= moved
        request.away, request.host = 1, moved
    else:
        request.cached = moved = 0
    request.preempted += 1
    queue = state.queues[r, request.rank]
    request.next = queue.head
    if queue.head < 0:
        queue.tail = who
    queue.head = who
    own.front = min(own.front, request.rank)
    request.since_ms = now_ms
    return moved  # type: ignore[no-any-return]


@kernel(inline=True)
def _send(model: Model, state: State, r: int, who: int, now_ms: float) -> None:
    """A request is sent to the other pool when the replica's link is free, and keeps its blocks until it is there."""
    own, request, rules = state.replicas[r], state.requests[who], model.rules
    own.link_ms = max(own.link_ms, now_ms) + rules.send_ms_per_token * request.prompt
    request.sent_ms = own.link_ms + rules.send_ms
    request.next = -1
    if own.held_head < 0:
        own.held_head = who
    else:
        state.requests[own.held_tail].next = who
    own.held_tail = who


@kernel(inline=True)
def _release(model: Model, state: State, r: int, now_ms: float) -> None:
    """Blocks of requests whose transfers have ended are free."""
    own = state.replicas[r]
    while own.held_head >= 0 and state.requests[own.held_head].sent_ms <= now_ms:
        request = state.requests[own.held_head]
        own.free += request.blocks
        _leave(model, state, r, own.held_head)
        own.held_head = request.next


@kernel(inline=True)
def _shared(model: Model, state: State, who: int) -> int:
    """Blocks of the prefix cache that a request uses."""
    return state.prefixes[who].shared * model.segment_blocks if state.prefixes.shape[0] > 0 else 0


@kernel(inline=True)
def _hits(model: Model, state: State, r: int, who: int) -> tuple[int, int]:
    """How many leading segments of a prompt are in the replica's cache, and the blocks of those that nobody uses.

    At least one token is left to process.
    """
    hits, idle = 0, 0
    if state.prefixes.shape[0] > 0:
        request, own = state.requests[who], state.prefixes[who]
        tokens = request.prompt + request.emitted - 1
        most = min(own.segments, tokens // (model.segment_blocks * model.block_tokens))
        while hits < most:
            users = state.users[r, model.chains[own.chain + hits]]
            if users < 0:
                break
            if users == 0:
                idle += model.segment_blocks
            hits += 1
    return hits, idle


@kernel(inline=True)
def _use(model: Model, state: State, r: int, who: int, hits: int) -> None:
    """A request that is admitted uses the first segments of its prompt, which are in the cache."""
    if hits > 0:
        own = state.prefixes[who]
        for k in range(hits):
            _use_one(model, state, r, model.chains[own.chain + k])
        own.shared = hits
        own.hit += hits * model.segment_blocks * model.block_tokens


@kernel(inline=True)
def _use_one(model: Model, state: State, r: int, one: int) -> None:
    if state.users[r, one] == 0:
        _unlink(state, r, one)
        state.replicas[r].idle -= model.segment_blocks
    state.users[r, one] += 1


@kernel(inline=True)
def _share(model: Model, state: State, r: int, who: int) -> None:
    """Segments that a request has processed enter the cache; where one is there already, the copy is given up."""
    if state.prefixes.shape[0] > 0:
        request, own = state.requests[who], state.prefixes[who]
        tokens = model.segment_blocks * model.block_tokens
        while own.shared < own.segments and request.cached >= (own.shared + 1) * tokens:
            one = model.chains[own.chain + own.shared]
            request.blocks -= model.segment_blocks
            if state.users[r, one] < 0:
                state.users[r, one] = 1
            else:
                state.replicas[r].free += model.segment_blocks
                _use_one(model, state, r, one)
            own.shared += 1


@kernel(inline=True)
def _leave(model: Model, state: State, r: int, who: int) -> None:
    """A request uses its segments no more, the last one first: what more prompts begin with is kept longer."""
    if state.prefixes.shape[0] > 0:
        own, mine = state.replicas[r], state.prefixes[who]
        for k in range(mine.shared - 1, -1, -1):
            one = model.chains[mine.chain + k]
            state.users[r, one] -= 1
            if state.users[r, one] == 0:
                state.older[r, one], state.newer[r, one] = own.newest, -1
                if own.newest < 0:
                    own.oldest = one
                else:
                    state.newer[r, own.newest] = one
                own.newest = one
                own.idle += model.segment_blocks
        mine.shared = 0


@kernel(inline=True)
def _unlink(state: State, r: int, one: int) -> None:
    """Take a segment out of the list of those that nobody uses."""
    own, before, after = state.replicas[r], state.older[r, one], state.newer[r, one]
    if before < 0:
        own.oldest = after
    else:
        state.newer[r, before] = after
    if after < 0:
        own.newest = before
    else:
        state.older[r, after] = before


@kernel(inline=True)
def _evict(model: Model, state: State, r: int, needed: int) -> None:
    """Segments that nobody uses leave the cache, the least recently used first, until so many blocks are free."""
    own = state.replicas[r]
    while own.free < needed:
        gone = own.oldest
        _unlink(state, r, gone)
        state.users[r, gone] = -1
        own.idle -= model.segment_blocks
        own.free += model.segment_blocks


@kernel(inline=True)
def _iteration_ms(model: Model, prefill: int, decodes: int, kv: int, attention: float) -> float:
    """What an iteration takes (see `Model`)."""
    terms, prefill_ms, decode_ms = model.terms, model.prefill_ms, model.decode_ms
    if decode_ms.shape[0] > 1:
        taken_ms = decode_ms[decodes]
        if prefill > 0:
            taken_ms = prefill_ms[prefill] + (taken_ms - decode_ms[1] if decodes > 0 else 0.0)
    else:
        shown = max(prefill - terms[5], 0.0)
        taken_ms = terms[0] + terms[1] * shown + terms[2] * decodes + terms[3] * kv + terms[4] * attention
    return taken_ms  # type: ignore[no-any-return]


@kernel(inline=True)
def _cell(gap_ms: float) -> int:
    """The cell of the histogram that a time between tokens falls into."""
    mantissa, exponent = math.frexp(max(gap_ms, LEAST_MS))
    within = int((mantissa - 0.5) * (2 * PER_OCTAVE))
    return min(CELLS - 1, (exponent - FIRST_EXPONENT) * PER_OCTAVE + within)


@kernel(inline=True)
def _limits_ms(cell: int) -> tuple[float, float]:
    """The times that fall into a cell of the histogram: from, up to; none for the cells at its ends."""
    low_ms = high_ms = 0.0
    if 0 < cell < CELLS - 1:
        exponent, within = FIRST_EXPONENT + cell // PER_OCTAVE, cell % PER_OCTAVE
        low_ms = math.ldexp(0.5 + within / (2 * PER_OCTAVE), exponent)
        high_ms = math.ldexp(0.5 + (within + 1) / (2 * PER_OCTAVE), exponent)
    return low_ms, high_ms


@kernel(inline=True)
def _note(
    state: State,
    r: int,
    number: int,
    start_ms: float,
    end_ms: float,
    prefill: int,
    decodes: int,
    kv: int,
    running: int,
    free: int,
) -> None:
    """Record an iteration."""
    row = state.iterations[number]
    row.start_ms, row.end_ms, row.replica = start_ms, end_ms, r
    row.prefill, row.decodes, row.kv, row.running, row.free_blocks = prefill, decodes, kv, running, free
