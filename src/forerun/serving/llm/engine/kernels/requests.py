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
    "prompt output emitted cached pending flying stale proposed midway blocks next preempted replica rank away host key "
    "counted",
    "enter_ms start_ms first_ms last_ms gap_ms since_ms stalled_ms stalled_first_ms sent_ms",
)
"""A request, in `State.requests`.

prompt, output: tokens it has and wants. emitted: tokens so far. cached: tokens in the cache, or that will be there when the
iterations that are composed have ended. pending: tokens that these are to emit, with those that a draft proposes. flying:
tokens that it was given in them; stale: of these, from before it was preempted. proposed: tokens that a draft proposes
next. midway: 1 if its last iteration leaves tokens unprocessed. blocks: of the cache, without those that it shares. next:
the position behind it in its replica's queue, or among those whose blocks a transfer holds, -1 at the end. preempted: how
often. rank: its class, lower ones go first. away: 1 if what is cached of it is in no block of its replica: it was swapped
out, or comes from another pool. host: blocks of host memory that it has. key: what it is drawn from whether drafts guess
its tokens, and which replica it goes to. enter_ms: when it enters. start_ms: begin of its first iteration. first_ms: its
first token. last_ms: its latest token; at the end, its last. gap_ms: longest time between tokens that do not come together.
since_ms: since when it waits: when it joined the queue, or was preempted. stalled_ms: time between preemption and
readmission; stalled_first_ms: the part of it before the first token. sent_ms: when the transfer to the other pool ends,
where there is one. counted: 1 if its times between tokens and its drafts are.
"""

PREFIX: Final = record_type("chain segments own shared known tail unknown hit")
"""What a request has in the prefix cache, in `State.prefixes`.

chain, segments: where its prompt's segments begin in `Model.chains`, and how many are whole. own: key of its first block, if
no other request has any of its tokens. shared: blocks that others had before it. known: blocks that have a key. tail: its
last block, but for those; unknown: the first of them without a key; -1 if there is none. hit: tokens that it did not process
because they were there.
"""

BLOCK: Final = record_type("users key before after alike")
"""A block of the cache, in `State.cache`.

users: requests that have it. key: names its tokens with all before them; -1 while they are not known. before, after: the
blocks beside it, among those of the request that took it, or if no request has it, among those used less and more recently,
or among the blank ones; -1 at the ends. alike: the next with a key of the same bucket, -1 if there is none.
"""

REPLICA: Final = record_type(
    "running front free order open steady idle oldest newest blank next host held_head held_tail shown_waiting",
    "due_ms begun_ms link_ms shown_used",
)
"""A replica, in `State.replicas`.

running: requests in an iteration. front: the lowest class in which a request waits; the number of classes if none waits.
free: blocks that no request has and without a key. order: number of its iteration under way. open: requests waiting or
running. steady: 1 if every running request emitted a token when its last iteration ended. idle: blocks with a key that no
request has. oldest, newest: of these, the one used least recently and the one used last; blank: the first of the free ones;
-1 if there is none. next: 0 or 1, which of its batches begins next; the other is under way. host: free blocks of its host
memory. held_head, held_tail: of the requests whose blocks transfers hold, in the order these end; held_head -1 if there is
none. shown_waiting, shown_used: requests that waited, and the share of blocks in use, when the router looked last. due_ms:
end of the iteration under way, inf if there is none. begun_ms: its begin, or from when on the next may begin. link_ms: from
when on it can send.
"""

QUEUE: Final = record_type("head tail")
"""The requests of one class that wait at a replica, in `State.queues`: the first and the last; head -1 if there is none."""

WHOLE: Final = record_type("entered fed iterations done turn active drafted accepted", "open_ms looked_ms")
"""The stage as a whole, the only row of `State.whole`.

entered, fed: positions so far. iterations: begun. done: requests that left. turn: the replica that the next request
goes to, if they take turns. active: replicas that requests can choose, those with the lowest numbers. drafted,
accepted: tokens that drafts proposed in iterations that have ended, and those of them that were right. open_ms: since
when there is one, inf if there is none; requests that came before it enter then.
looked_ms: when the router looked last.
"""

LOAD: Final = record_type("budget prefill served midway moved preempted")
"""The iteration that is being composed, the only row of `State.load`, scratch.

budget: tokens that are left to give. prefill: tokens of prompts. served: 1 if a running request is part of it; midway: 1 if
one of these is in the middle of its prompt. moved: blocks to and from host memory. preempted: requests that lost their
blocks.
"""

WANTED: Final = record_type("give kind needed must hits idle known")
"""What a request that waits would be given, the only row of `State.wanted`, scratch.

give: its tokens, 0 if it cannot be admitted. kind: of these. needed: blocks for them; must: blocks that have to be free.
hits: its blocks that are in the cache already; idle: those of them that no request has. known: tokens that it need not
process.
"""

BATCH: Final = record_type(
    "count prefill decodes kv moved drafted passes preempted running free_blocks", "attention"
)
"""A composed iteration, in `State.batches`.

count: its parts. prefill, decodes, kv, preempted, running, free_blocks: as `outcome.Iterations` says. moved: blocks to and
from host memory. drafted: tokens that drafts propose, passes: the most for one request. attention: A of `Model`.
"""

PART: Final = record_type("request tokens drafts guesses emits")
"""What a request is given in an iteration, in `State.parts`.

request: its position. tokens: all that it is given; drafts: those that a draft proposes; guesses: those that may be right.
emits: 1 if all its tokens are in the cache then, so that the next comes out.
"""

DONE: Final = record_type("request iteration", "begun_ms")
"""A request that left, in `State.done`: its position, its last iteration, and when that began."""

ITERATION: Final = record_type("replica prefill decodes kv running free_blocks preempted", "start_ms end_ms")
"""An iteration, in `State.iterations`; fields as in `outcome.Iterations`."""


#: how requests choose a replica: in turn; where the fewest are; where most of the prompt is in the cache, among replicas
#: with a free seat; by the first segment of the prompt; by lot; by scores
IN_TURN, FEWEST, LONGEST, SAME, LOT, SCORES = range(6)

#: which tokens an iteration processes: prompts and decodes; prompts, or decodes if there is no prompt; the other way round
TOGETHER, PREFILLS, DECODES = range(3)

#: how prompts are processed: cut at the budget, whole while only they count, whole beside the decodes
CHUNKS, WHOLE_ALONE, WHOLE_BESIDE = range(3)

#: what a request is given: tokens of its prompt or that it processes anew, its latest token, or one token with stand-ins for
#: drafts
PREFILL, DECODE, PADDED = range(3)


class Rules(NamedTuple):
    """How replicas schedule and preempt requests, and what they do with those that are prefilled.

    tokens: which tokens an iteration processes, and prompts: how prompts are processed, two of the numbers above.
    answer: blocks for at least this long an answer are taken at admission; 0: for none. must_fit: 1 if a request is
    admitted only where there are blocks for all of its tokens so far. longest_chunk: tokens that an iteration gives one
    request at most, 0: any; alone_unlimited: 1 if that is not so for one that is alone on its replica. lowest_class: 1
    if who loses its blocks is, of the lowest class, who came last, and the running are in order of admission; otherwise
    it is the last of the running. all_drafts: 1 if a draft proposes more than the answer can take; pads: 1 if who is
    admitted with one token is given stand-ins for drafts. in_order: 1 if blocks without a key are not the first to be
    given out. ahead: 1 if an iteration is composed when the one before it begins.
    host_blocks: blocks of a replica's host memory; where they do not suffice, a preempted request is processed anew.
    move_ms: to move a block there or back, in the iteration that does it. sends: 1 if requests leave with their first
    token, and those that want more are sent on: their blocks are held until the transfer ends. send_ms: latency of a
    transfer, send_ms_per_token: time that it occupies the replica's link, for each token of the prompt.
    """

    tokens: int
    prompts: int
    answer: int
    must_fit: int
    longest_chunk: int
    alone_unlimited: int
    lowest_class: int
    all_drafts: int
    pads: int
    in_order: int
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


class Scores(NamedTuple):
    """By what a router scores replicas; the highest sum of weights times what is between 0 and 1 wins.

    prefix: weight of the share of the prompt that is in the cache. queue: of how few requests wait, 1 for the fewest and 0
    for the most. cache: of the share of blocks that are free. refresh_ms: the router looks at queues and blocks when a
    request comes and it has not looked for so long.
    """

    prefix: float
    queue: float
    cache: float
    refresh_ms: float


class Model(NamedTuple):
    """What a replica's cache can store, how requests choose one and are scheduled, and what an iteration takes.

    routing: how a request chooses a replica, one of the numbers above. An iteration takes a + b_p max(0, P - h) + b_d D +
    b_k K + c A, and with P and P + D > r at least l, with `terms` = (a, b_p, b_d, b_k, c, h, l, r); tokens that a draft
    proposed are verified as prefill tokens are processed. With tables (else of length 1): prefill_ms[P], of P prompt tokens
    alone, and decode_ms[D], of D decodes alone; both together take prefill_ms[P] + decode_ms[D] - decode_ms[1].
    segment_blocks: blocks in a segment of a prompt that the prefix cache can share. chains: the segments of all prompts,
    one prompt behind the other; empty without a prefix cache. shares: float64[R], of the lots, how many fall on a replica
    and those before it. scores: for the routing by scores.
    """

    max_seqs: int
    token_budget: int
    kv_blocks: int
    block_tokens: int
    routing: int
    rules: Rules
    drafts: Drafts
    terms: Floats
    prefill_ms: Floats
    decode_ms: Floats
    segment_blocks: int
    chains: Ints
    shares: Floats
    scores: Scores


class State(NamedTuple):
    """N requests, R replicas, K classes, B blocks of a replica.

    requests: REQUEST[N]. replicas: REPLICA[R]. queues: QUEUE[R, K]. slots, given, kinds: int64[R, max_seqs], who runs, by
    class and in order of admission (-1: no request has had that seat), how many tokens each is given, and of which kind.
    whole: WHOLE[1]. done: DONE[N], in order replica by replica. gaps: int64[CELLS], times between consecutive tokens that
    do not come together. crossing: int64[block_tokens], load: LOAD[1], wanted: WANTED[1], scratch. batches: BATCH[R, 2].
    parts: PART[R, 2, max_seqs]. iterations: ITERATION[M], in order replica by replica; M = 0 records none. Without a prefix
    cache of no length: prefixes: PREFIX[N]. cache: BLOCK[R, B]. buckets: int64[R, a power of two], of the blocks whose keys
    end in the same bits, the one that has had its key for longest, -1 if there is none.
    """

    requests: Rows
    replicas: Rows
    queues: Rows
    slots: Ints
    given: Ints
    kinds: Ints
    whole: Rows
    done: Rows
    gaps: Ints
    crossing: Ints
    load: Rows
    wanted: Rows
    batches: Rows
    parts: Rows
    iterations: Rows
    prefixes: Rows
    cache: Rows
    buckets: Ints


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
                    if (
                        not (own.open > 0 or state.batches[r, own.next].count > 0)
                        or not own.begun_ms < limit_ms
                    ):
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
def end_iterations(model: Model, state: State, now_ms: float) -> None:
    """What ends at an instant before which everything has been handled; nothing enters or begins yet."""
    for r in range(state.replicas.shape[0]):
        if state.replicas[r].due_ms == now_ms:
            _end(model, state, r)


@kernel(inline=True)
def _end(model: Model, state: State, r: int) -> None:
    """The replica's iteration ends: whoever has all of its tokens cached emits one; whoever has emitted all leaves."""
    own, whole, requests, rules = state.replicas[r], state.whole[0], state.requests, model.rules
    now_ms, usual_ms, cell = own.due_ms, -1.0, 0
    gone, emitted, busy = 0, 0, 1 - own.next
    for k in range(state.batches[r, busy].count):
        part = state.parts[r, busy, k]
        who = part.request
        request = requests[who]
        request.flying -= part.tokens
        if request.emitted == request.output:
            # It left with the iteration before, earlier than was known when this one was composed.
            continue
        stale = request.stale > 0
        if stale:
            request.stale -= part.tokens
        accepted = 0
        if part.drafts > 0:
            while accepted < part.guesses and _guessed(model, request.key, request.emitted + accepted):
                accepted += 1
            whole.drafted += part.drafts * request.counted
            if not stale or request.away > 0:
                # What was copied out meanwhile has the wrong ones, too.
                request.cached -= part.drafts - accepted
                if request.pending > 0:
                    request.pending -= part.drafts - accepted
        if part.emits == 0:
            continue
        new = min(1 + accepted, request.output - request.emitted)
        request.emitted += new
        whole.accepted += (new - 1) * request.counted
        if not stale:
            emitted += 1
            if rules.ahead > 0:
                request.pending -= new
                _name(model, state, r, who, request.cached - request.pending)
            else:
                request.proposed = model.drafts.tokens
        if request.emitted == new:
            request.first_ms, request.stalled_first_ms = now_ms, request.stalled_ms
        else:
            gap_ms = now_ms - request.last_ms
            request.gap_ms = max(request.gap_ms, gap_ms)
            if gap_ms != usual_ms:
                usual_ms, cell = gap_ms, _cell(gap_ms)
            state.gaps[cell] += request.counted
        request.last_ms = now_ms
        if request.emitted == request.output or rules.sends > 0:
            if stale:
                _unqueue(state, r, who)
                own.host += request.host
                request.host = 0
            else:
                gone += 1
            if request.emitted == request.output:
                _leave(model, state, r, who)
            else:
                _send(model, state, r, who, now_ms)
            own.open -= 1
            left = state.done[whole.done]
            left.request, left.iteration, left.begun_ms = who, own.order, own.begun_ms
            whole.done += 1
    own.steady = emitted == own.running
    if gone > 0:
        staying = 0
        for i in range(own.running):
            who = state.slots[r, i]
            if requests[who].emitted < requests[who].output and (
                rules.sends == 0 or requests[who].emitted == 0
            ):
                state.slots[r, staying] = who
                staying += 1
        own.running = staying
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
                _find_hits(model, state, r, who)
                hits = state.wanted[0].hits
                if hits > longest or (hits == longest and replicas[r].open < replicas[chosen].open):
                    longest, chosen = hits, r
    if model.routing == LOT:
        lot, chosen = _hash(requests[who].key, -1) / 2.0**32 * model.shares[active - 1], 0
        while chosen < active - 1 and model.shares[chosen] <= lot:
            chosen += 1
    if model.routing == SCORES:
        chosen = _best(model, state, who)
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
def _best(model: Model, state: State, who: int) -> int:
    """The replica with the highest score; of equal ones that whose turn it is."""
    whole, replicas, scores = state.whole[0], state.replicas, model.scores
    now_ms, active = max(state.requests[who].enter_ms, whole.open_ms), whole.active
    if not now_ms < whole.looked_ms + scores.refresh_ms:
        whole.looked_ms = now_ms
        for r in range(replicas.shape[0]):
            own = replicas[r]
            own.shown_waiting = own.open - own.running
            own.shown_used = 1.0 - (own.free + own.idle) / model.kv_blocks
    fewest, most = replicas[0].shown_waiting, replicas[0].shown_waiting
    for r in range(1, active):
        fewest, most = min(fewest, replicas[r].shown_waiting), max(most, replicas[r].shown_waiting)
    chosen, best = 0, -1.0
    for k in range(active):
        r = (whole.turn + k) % active
        score = scores.cache * (1.0 - replicas[r].shown_used)
        score += scores.queue * (
            (most - replicas[r].shown_waiting) / (most - fewest) if most > fewest else 1.0
        )
        if state.prefixes.shape[0] > 0:
            _find_hits(model, state, r, who)
            hit = state.wanted[0].hits * model.block_tokens
            score += scores.prefix * (hit / state.requests[who].prompt)
        if score > best:
            chosen, best = r, score
    return chosen


@kernel(inline=True)
def _begin(model: Model, state: State, r: int) -> None:
    """An idle replica begins an iteration, which is composed now or was when the one before it began.

    Something is always to do, except where transfers hold blocks: then the replica tries again when the next one ends.
    """
    own, whole = state.replicas[r], state.whole[0]
    now_ms = own.begun_ms
    begin_ms = now_ms
    for turn in range(1 + model.rules.ahead):
        batch = state.batches[r, own.next]
        if turn > 0 or batch.count == 0:
            # What was composed ahead without finding anything to do may have preempted a request.
            preempted, moved = batch.preempted, batch.moved
            _compose(model, state, r, now_ms, begin_ms)
            batch.preempted += preempted
            batch.moved += moved
        if turn == 0:
            if batch.count == 0:
                own.begun_ms = state.requests[own.held_head].sent_ms
                return
            prefill, drafted = batch.prefill, batch.drafted
            taken_ms = _iteration_ms(model, prefill + drafted, batch.decodes, batch.kv, batch.attention)
            taken_ms += batch.moved * model.rules.move_ms
            taken_ms += batch.passes * model.drafts.pass_ms + drafted * model.drafts.seq_ms
            own.due_ms, own.order = now_ms + taken_ms, whole.iterations
            begin_ms = own.due_ms
            if state.iterations.shape[0] > 0:
                _note(state, r, own.order, now_ms, own.due_ms, batch.kv, batch.free_blocks, batch.preempted)
            whole.iterations += 1
            own.next = 1 - own.next
            behind = state.batches[r, own.next]
            behind.count = behind.preempted = behind.moved = 0


@kernel(inline=True)
def _compose(model: Model, state: State, r: int, now_ms: float, begin_ms: float) -> None:
    """The iteration that begins at `begin_ms`.

    Running requests are given what they still need, within the budget. One that finds too few free blocks has another
    preempted, again and again; if that is itself, it waits with the others. Where none was preempted, requests are admitted
    from the front of the queue. Where the rules want one kind of tokens alone, this happens for that kind, and if there is
    nothing to do, for the other. If everybody was preempted, who waits may fit, unless an iteration is under way.
    """
    own, load, rules = state.replicas[r], state.load[0], model.rules
    load.moved = load.preempted = 0
    if rules.sends > 0:
        _release(model, state, r, now_ms)
    tokens, preempted = rules.tokens, 0
    load.budget, load.prefill, load.served, load.midway = model.token_budget, 0, 0, 0
    while True:
        given = _serve(model, state, r, tokens, begin_ms)
        if load.preempted == preempted:
            given += _admit(model, state, r, tokens, begin_ms)
        if given > 0:
            break
        if tokens == rules.tokens and tokens != TOGETHER:
            tokens = PREFILLS + DECODES - tokens
        elif load.preempted > preempted and own.due_ms == np.inf:
            tokens, preempted = rules.tokens, load.preempted
            load.budget, load.prefill, load.served, load.midway = model.token_budget, 0, 0, 0
        else:
            break
    _close(model, state, r)


@kernel(inline=True)
def _close(model: Model, state: State, r: int) -> None:
    """The iteration is composed: what it is to process counts as processed."""
    own, load, requests, rules = state.replicas[r], state.load[0], state.requests, model.rules
    batch, count = state.batches[r, own.next], 0
    prefill, decodes, kv, drafted, passes, attention = 0, 0, 0, 0, 0, 0.0
    for i in range(own.running):
        give, kind = state.given[r, i], state.kinds[r, i]
        if give == 0:
            continue
        who = state.slots[r, i]
        request, part = requests[who], state.parts[r, own.next, count]
        cached = request.cached
        drafts = 0 if kind == PREFILL else give - 1
        if kind == DECODE:
            decodes += 1
            kv += cached
            attention += drafts * (cached + 1 + drafts / 2)
        else:
            prefill += give - drafts
            attention += give * (cached + give / 2)
        drafted += drafts
        passes = max(passes, drafts)
        emits = give - drafts >= request.prompt + request.emitted + request.pending - cached
        part.request, part.tokens, part.drafts, part.emits = who, give, drafts, emits
        part.guesses = drafts if kind == DECODE else 0
        request.cached = cached + give
        request.flying += give
        request.midway, request.proposed = not emits, 0
        if emits and rules.ahead > 0:
            request.pending += 1 + drafts
            request.proposed = model.drafts.tokens
        count += 1
    batch.count, batch.prefill, batch.decodes = count, prefill, decodes
    batch.kv, batch.attention = kv, attention
    batch.drafted, batch.passes, batch.moved, batch.preempted = drafted, passes, load.moved, load.preempted
    batch.running, batch.free_blocks = own.running, own.free + own.idle


@kernel(inline=True)
def _serve(model: Model, state: State, r: int, tokens: int, begin_ms: float) -> int:
    """Running requests are given tokens of a kind, and blocks for them; returns how many are."""
    own, slots, load = state.replicas[r], state.slots, state.load[0]
    rules, block, served, i = model.rules, model.block_tokens, 0, 0
    for k in range(own.running):
        state.given[r, k] = 0
    while i < own.running:
        who = slots[r, i]
        request = state.requests[who]
        pending, cached = request.pending, request.cached
        todo = request.prompt + request.emitted + pending - cached
        last = request.output if rules.sends == 0 else 1
        # What is under way may make its last token.
        finishing = pending > 0 and cached + 2 - pending >= request.prompt + last
        decode = todo == 1 and request.emitted + pending > 0
        give = 0
        if not finishing and (tokens == TOGETHER or decode == (tokens == DECODES)):
            give = (
                _decoded(model, state, r, who, load.budget)
                if decode
                else min(_chunk(model, own.open, todo), load.budget)
            )
        if give > 0:
            owned = request.blocks + _shared(state, who)
            needed = 0
            if cached + give > owned * block:
                needed = (cached + give + block - 1) // block - owned
            while needed > own.free + own.idle:
                at = _victim(model, state, r)
                if state.given[r, at] > 0 and at < i:
                    served -= 1
                _preempt(model, state, r, at, begin_ms)
                if at == i:
                    # Who stands behind it gets nothing, either.
                    return served
                if at < i:
                    i -= 1
            _take(model, state, r, who, needed)
            _name(model, state, r, who, min(cached + give, request.prompt + request.emitted))
            load.served = 1
            load.midway = max(load.midway, request.midway)
            _give(model, state, r, i, give, DECODE if decode else PREFILL)
            served += 1
        i += 1
    return served


@kernel(inline=True)
def _give(model: Model, state: State, r: int, i: int, give: int, kind: int) -> None:
    """A running request is given tokens, or if the number is negative, gives them back."""
    load = state.load[0]
    state.given[r, i] += give
    state.kinds[r, i] = kind
    if kind != DECODE:
        load.prefill += give
    if kind != DECODE or model.rules.prompts != WHOLE_ALONE:
        load.budget -= give


@kernel(inline=True)
def _victim(model: Model, state: State, r: int) -> int:
    """Which of the running loses its blocks."""
    chosen = state.replicas[r].running - 1
    if model.rules.lowest_class > 0:
        for i in range(state.replicas[r].running):
            who, worst = state.slots[r, i], state.slots[r, chosen]
            rank, lowest = state.requests[who].rank, state.requests[worst].rank
            if rank > lowest or (rank == lowest and who > worst):
                chosen = i
    return int(chosen)


@kernel(inline=True)
def _admit(model: Model, state: State, r: int, tokens: int, begin_ms: float) -> int:
    """Requests are admitted from the front of the queue; returns how many are."""
    own, load, wanted, admitted = state.replicas[r], state.load[0], state.wanted[0], 0
    while own.front < state.queues.shape[1] and own.running < model.max_seqs:
        who = state.queues[r, own.front].head
        _want(model, state, r, who, load.budget)
        if wanted.give == 0 or (tokens != TOGETHER and (wanted.kind == DECODE) != (tokens == DECODES)):
            break
        if wanted.must > own.free + own.idle - wanted.idle:
            break
        request = state.requests[who]
        _unqueue(state, r, who)
        at = _seat(model, state, r, who)
        _use(model, state, r, who, wanted.hits)
        request.cached = wanted.known
        own.host += request.host
        load.moved += request.host
        request.away = request.host = 0
        _take(model, state, r, who, wanted.needed)
        _name(model, state, r, who, min(wanted.known + wanted.give, request.prompt + request.emitted))
        _give(model, state, r, at, wanted.give, wanted.kind)
        if request.preempted > 0:
            request.stalled_ms += begin_ms - request.since_ms
        else:
            request.start_ms = begin_ms
        admitted += 1
    return admitted


@kernel(inline=True)
def _want(model: Model, state: State, r: int, who: int, budget: int) -> None:
    """What a request that waits would be given, and what that needs, to `State.wanted`."""
    request, rules, block, wanted = state.requests[who], model.rules, model.block_tokens, state.wanted[0]
    own, load, drafts = state.replicas[r], state.load[0], model.drafts.tokens
    wanted.hits, wanted.idle, wanted.known = 0, 0, request.cached
    if request.away == 0:
        _find_hits(model, state, r, who)
        wanted.known = wanted.hits * block
    tokens = request.prompt + request.emitted
    todo = tokens - wanted.known
    wanted.kind = DECODE if request.away > 0 and request.emitted > 0 and todo == 1 else PREFILL
    if wanted.kind == DECODE:
        wanted.give = _decoded(model, state, r, who, budget)
        target = wanted.known + wanted.give
    else:
        give = todo
        if (
            rules.pads > 0
            and drafts > 0
            and todo == 1
            and load.midway == 0
            and (wanted.known > 0 or load.served > 0)
        ):
            give = 1 + drafts
            wanted.kind = PADDED
        padded = wanted.kind == PADDED and give > budget
        give = _chunk(model, own.open, give)
        if padded or (rules.prompts == WHOLE_BESIDE and give > budget):
            give = 0
        elif (
            rules.prompts == WHOLE_ALONE
            and give > budget
            and (load.prefill > 0 or give <= model.token_budget)
        ):
            # A prompt above the whole budget is never whole: it goes alone, in pieces.
            give = 0
        wanted.give = min(give, budget)
        target = wanted.known + wanted.give
        if rules.prompts == WHOLE_ALONE:
            target = max(target, tokens)
    if rules.answer > 0:
        target = request.prompt + max(rules.answer, request.output)
    wanted.needed = max(0, (target + block - 1) // block - wanted.hits)
    wanted.must = wanted.needed
    if rules.must_fit > 0:
        wanted.must = max(wanted.needed, (tokens + block - 1) // block - wanted.hits)


@kernel(inline=True)
def _chunk(model: Model, present: int, tokens: int) -> int:
    """As many of so many tokens as an iteration gives one request, where so many are present."""
    most = model.rules.longest_chunk
    if most == 0 or tokens <= most or (present == 1 and model.rules.alone_unlimited > 0):
        return tokens
    return most


@kernel(inline=True)
def _decoded(model: Model, state: State, r: int, who: int, budget: int) -> int:
    """Tokens that a request which decodes is given: its latest, and those proposed behind it."""
    request = state.requests[who]
    drafts = request.proposed
    if model.rules.all_drafts == 0:
        drafts = max(0, min(model.drafts.tokens, request.output - request.emitted - request.pending - 1))
    give = _chunk(model, state.replicas[r].open, 1 + drafts)
    return give if model.rules.prompts == WHOLE_ALONE else min(give, budget)


@kernel(inline=True)
def _guessed(model: Model, key: int, place: int) -> bool:
    """Whether a draft guesses a token, by a hash of the request's key and the token's place."""
    return _hash(key, place) < model.drafts.threshold


@kernel(inline=True)
def _hash(key: int, place: int) -> int:
    """A hash of 32 bits."""
    mixed = (key + place * 0x3C6EF372) & 0xFFFFFFFF
    for _ in range(3):
        mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


@kernel(inline=True)
def _seat(model: Model, state: State, r: int, who: int) -> int:
    """A request runs: behind the others, or behind those of its class and of lower ones; returns its place."""
    own, slots, given, kinds = state.replicas[r], state.slots, state.given, state.kinds
    at = own.running
    if state.queues.shape[1] > 1 and model.rules.lowest_class == 0:
        rank = state.requests[who].rank
        while at > 0 and state.requests[slots[r, at - 1]].rank > rank:
            at -= 1
            slots[r, at + 1], given[r, at + 1], kinds[r, at + 1] = slots[r, at], given[r, at], kinds[r, at]
    slots[r, at], given[r, at] = who, 0
    own.running += 1
    return int(at)


@kernel(inline=True)
def _decode_on(model: Model, state: State, r: int, limit_ms: float) -> None:
    """Whole iterations in which all that run decode and nothing else can happen.

    They end before `limit_ms` and no request leaves with them. No request can be admitted, and blocks suffice. Then
    iterations differ in their times only, and requests are brought up to date once. Each time is computed as it would be one
    by one. Where one can be admitted, or blocks do not suffice, the next one is left to `_begin`. Where iterations are
    composed ahead, the first is there, and each composes the one behind it.
    """
    own, whole, crossing, rows = state.replicas[r], state.whole[0], state.crossing, state.iterations.shape[0]
    now_ms, running, block, free = own.begun_ms, own.running, model.block_tokens, own.free + own.idle
    rules, batch, load, wanted = model.rules, state.batches[r, own.next], state.load[0], state.wanted[0]
    if rules.ahead > 0 and (batch.count != running or batch.decodes != running or batch.moved > 0):
        return
    steps = rows - whole.iterations if rows > 0 else np.int64(2**62)
    kv, counted = -running if rules.ahead > 0 else 0, 0
    for k in range(block):
        crossing[k] = 0
    for i in range(running):
        request = state.requests[state.slots[r, i]]
        steps = min(steps, request.output - request.emitted - 1)
        kv += request.cached
        counted += request.counted
        if rules.answer == 0:
            # Its blocks are full, and it needs another one, in this many iterations.
            room = (request.blocks + _shared(state, state.slots[r, i])) * block - request.cached
            if room < block:
                crossing[room] += 1
            else:
                steps = 0
            state.given[r, i] = room
    left, spare = model.token_budget, free
    alike = rules.prompts == WHOLE_ALONE or running <= left
    if rules.prompts != WHOLE_ALONE and rules.tokens != PREFILLS:
        left -= running
    if own.front < state.queues.shape[1] and running < model.max_seqs:
        load.prefill, load.served, load.midway = 0, 1, 0
        _want(model, state, r, state.queues[r, own.front].head, left)
        # Free blocks only get fewer, so whoever does not fit now does not fit later, unless what it would use is evicted.
        if wanted.idle > 0:
            spare = own.free
        # Nor does it begin with more that is cached, unless one that runs comes to the end of a block of the same tokens.
        steps = min(steps, _until_hit(model, state, r, state.queues[r, own.front].head))
        if rules.tokens == DECODES and wanted.kind != DECODE:
            wanted.give = 0
        # Prompts that go first are admitted before the decodes take their blocks.
        before = 0 if rules.tokens == PREFILLS and wanted.kind != DECODE else crossing[0]
        if wanted.give > 0 and wanted.must <= free - wanted.idle - before:
            alike = False
    if not alike:
        return
    if rules.ahead == 0:
        batch.prefill, batch.decodes, batch.running = 0, running, running
    # Cells of the histogram are wide: the one before is as a rule the one again.
    done, at, cell, low_ms, high_ms, longest_ms = 0, 0, 0, 0.0, 0.0, 0.0
    while done < steps:
        needed = crossing[at]
        if needed > spare:
            break
        end_ms = now_ms + _iteration_ms(model, 0, running, kv, 0.0)
        if not end_ms < limit_ms:
            break
        if rows > 0:
            behind = batch.free_blocks if rules.ahead > 0 else free - needed
            _note(state, r, whole.iterations + done, now_ms, end_ms, kv, behind, batch.preempted)
        free -= needed
        spare -= needed
        batch.running, batch.free_blocks, batch.preempted = running, free, 0
        gap_ms = end_ms - now_ms
        longest_ms = max(longest_ms, gap_ms)
        if not low_ms <= gap_ms < high_ms:
            cell = _cell(gap_ms)
            low_ms, high_ms = _limits_ms(cell)
        state.gaps[cell] += counted
        kv += running
        now_ms = end_ms
        done += 1
        at = at + 1 if at + 1 < block else 0
    if done > 0:
        for i in range(running):
            who = state.slots[r, i]
            request = state.requests[who]
            request.cached += done
            request.emitted += done
            more = done - state.given[r, i]
            if rules.answer == 0 and more > 0:
                _take(model, state, r, who, (more + block - 1) // block)
            _name(model, state, r, who, request.cached - request.pending)
            request.last_ms = now_ms
            request.gap_ms = max(request.gap_ms, longest_ms)
        own.begun_ms = now_ms
        whole.iterations += done
        batch.kv = kv


@kernel(inline=True)
def _preempt(model: Model, state: State, r: int, at: int, begin_ms: float) -> None:
    """A running request loses its blocks and goes back to the queue."""
    own, load = state.replicas[r], state.load[0]
    slots, given, kinds = state.slots, state.given, state.kinds
    who = slots[r, at]
    request = state.requests[who]
    if given[r, at] > 0:
        _give(model, state, r, at, -given[r, at], kinds[r, at])
    _leave(model, state, r, who)
    own.running -= 1
    for i in range(at, own.running):
        slots[r, i], given[r, i], kinds[r, i] = slots[r, i + 1], given[r, i + 1], kinds[r, i + 1]
    moved = (request.cached + model.block_tokens - 1) // model.block_tokens
    if 0 < moved <= own.host:
        own.host -= moved
        request.away, request.host = 1, moved
        load.moved += moved
    else:
        request.cached = 0
    request.preempted += 1
    load.preempted += 1
    request.pending, request.proposed, request.stale = 0, 0, request.flying
    request.since_ms = begin_ms
    queue, before = state.queues[r, request.rank], np.int64(-1)
    after = queue.head
    # In order of classes and of arrival, or before all that wait.
    while model.rules.lowest_class > 0 and after >= 0 and after < who:
        before, after = after, state.requests[after].next
    request.next = after
    if before < 0:
        queue.head = who
    else:
        state.requests[before].next = who
    if after < 0:
        queue.tail = who
    own.front = min(own.front, request.rank)


@kernel(inline=True)
def _unqueue(state: State, r: int, who: int) -> None:
    """A request leaves the queue from any place."""
    own, requests, rank = state.replicas[r], state.requests, state.requests[who].rank
    queue, before = state.queues[r, rank], np.int64(-1)
    one = queue.head
    while one != who:
        before, one = one, requests[one].next
    if before < 0:
        queue.head = requests[who].next
    else:
        requests[before].next = requests[who].next
    if queue.tail == who:
        queue.tail = before
    while own.front < state.queues.shape[1] and state.queues[r, own.front].head < 0:
        own.front += 1


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
        _leave(model, state, r, own.held_head)
        own.held_head = state.requests[own.held_head].next


@kernel(inline=True)
def _shared(state: State, who: int) -> int:
    """Blocks that a request has, and that others had before it."""
    return state.prefixes[who].shared if state.prefixes.shape[0] > 0 else 0


@kernel(inline=True)
def _key(model: Model, state: State, who: int, number: int) -> int:
    """What names the tokens of a request's block, with all before them."""
    own = state.prefixes[who]
    segment = number // model.segment_blocks
    if segment < own.segments:
        return int(model.chains[own.chain + segment] * model.segment_blocks + number % model.segment_blocks)
    return int(own.own + number)


@kernel(inline=True)
def _find(state: State, r: int, key: int) -> int:
    """The block that has had this key for longest; -1 if there is none."""
    one = state.buckets[r, key & (state.buckets.shape[1] - 1)]
    while one >= 0 and state.cache[r, one].key != key:
        one = state.cache[r, one].alike
    return int(one)


@kernel(inline=True)
def _find_hits(model: Model, state: State, r: int, who: int) -> None:
    """How many leading blocks of a request are in the replica's cache, and how many of them no request has.

    At least one token is left to process.
    """
    wanted = state.wanted[0]
    wanted.hits = wanted.idle = 0
    if state.prefixes.shape[0] > 0:
        request = state.requests[who]
        most = (request.prompt + request.emitted - 1) // model.block_tokens
        while wanted.hits < most:
            one = _find(state, r, _key(model, state, who, wanted.hits))
            if one < 0:
                break
            wanted.idle += state.cache[r, one].users == 0
            wanted.hits += 1


@kernel(inline=True)
def _until_hit(model: Model, state: State, r: int, who: int) -> int:
    """How many iterations of decodes add nothing to what a waiting request begins with, as `_want` has it."""
    request, hits, block, steps = state.requests[who], state.wanted[0].hits, model.block_tokens, 2**62
    if (
        state.prefixes.shape[0] > 0
        and request.away == 0
        and hits < (request.prompt + request.emitted - 1) // block
    ):
        for i in range(state.replicas[r].running):
            other = state.slots[r, i]
            if state.prefixes[other].known == hits and _key(model, state, other, hits) == _key(
                model, state, who, hits
            ):
                ends = state.requests[other]
                behind = (hits + 1) * block - 1 - model.rules.ahead
                steps = min(steps, max(0, behind - (ends.cached - ends.pending)))
    return steps


@kernel(inline=True)
def _use(model: Model, state: State, r: int, who: int, hits: int) -> None:
    """A request that is admitted has its first blocks, which are in the cache."""
    if state.prefixes.shape[0] > 0:
        own, cache = state.prefixes[who], state.cache
        for k in range(hits):
            one = _find(state, r, _key(model, state, who, k))
            if cache[r, one].users == 0:
                _unlink(state, r, one)
            cache[r, one].users += 1
        own.shared = own.known = hits
        own.tail = own.unknown = -1
        own.hit += hits * model.block_tokens


@kernel(inline=True)
def _take(model: Model, state: State, r: int, who: int, needed: int) -> None:
    """A request has so many more blocks; who used theirs least recently lose them where free ones do not suffice."""
    own = state.replicas[r]
    if needed > 0:
        while own.free < needed:
            _evict(state, r)
        own.free -= needed
        state.requests[who].blocks += needed
        if state.prefixes.shape[0] > 0:
            mine, cache = state.prefixes[who], state.cache
            for _ in range(needed):
                one = own.blank
                own.blank = cache[r, one].after
                cache[r, one].users, cache[r, one].key = 1, -1
                cache[r, one].before, cache[r, one].after = mine.tail, -1
                if mine.tail >= 0:
                    cache[r, mine.tail].after = one
                if mine.unknown < 0:
                    mine.unknown = one
                mine.tail = one


@kernel(inline=True)
def _name(model: Model, state: State, r: int, who: int, tokens: int) -> None:
    """So many tokens of a request are processed or will be: others that begin alike can share their blocks."""
    if state.prefixes.shape[0] > 0:
        mine, cache, buckets = state.prefixes[who], state.cache, state.buckets
        while mine.known < tokens // model.block_tokens:
            one, key = mine.unknown, _key(model, state, who, mine.known)
            bucket = key & (buckets.shape[1] - 1)
            cache[r, one].key, cache[r, one].alike = key, -1
            if buckets[r, bucket] < 0:
                buckets[r, bucket] = one
            else:
                last = buckets[r, bucket]
                while cache[r, last].alike >= 0:
                    last = cache[r, last].alike
                cache[r, last].alike = one
            mine.unknown = cache[r, one].after
            mine.known += 1


@kernel(inline=True)
def _leave(model: Model, state: State, r: int, who: int) -> None:
    """A request has its blocks no more, the last one first: what more prompts begin with is kept longer."""
    own, request = state.replicas[r], state.requests[who]
    if state.prefixes.shape[0] > 0:
        mine, cache = state.prefixes[who], state.cache
        one, shared = mine.tail, mine.shared
        while one >= 0 or shared > 0:
            if one < 0:
                shared -= 1
                block = _find(state, r, _key(model, state, who, shared))
            else:
                block, one = one, cache[r, one].before
            cache[r, block].users -= 1
            if cache[r, block].users == 0:
                if cache[r, block].key < 0 and model.rules.in_order == 0:
                    cache[r, block].after = own.blank
                    own.blank = block
                    own.free += 1
                else:
                    cache[r, block].before, cache[r, block].after = own.newest, -1
                    if own.newest < 0:
                        own.oldest = block
                    else:
                        cache[r, own.newest].after = block
                    own.newest = block
                    own.idle += 1
        mine.shared = mine.known = 0
        mine.tail = mine.unknown = -1
    else:
        own.free += request.blocks
    request.blocks = 0


@kernel(inline=True)
def _unlink(state: State, r: int, one: int) -> None:
    """Take a block out of those that no request has."""
    own, cache = state.replicas[r], state.cache
    before, after = cache[r, one].before, cache[r, one].after
    if before < 0:
        own.oldest = after
    else:
        cache[r, before].after = after
    if after < 0:
        own.newest = before
    else:
        cache[r, after].before = before
    own.idle -= 1


@kernel(inline=True)
def _evict(state: State, r: int) -> None:
    """The least recently used block that no request has loses its tokens."""
    own, cache, buckets = state.replicas[r], state.cache, state.buckets
    gone = own.oldest
    _unlink(state, r, gone)
    bucket = cache[r, gone].key & (buckets.shape[1] - 1)
    if cache[r, gone].key < 0:
        pass
    elif buckets[r, bucket] == gone:
        buckets[r, bucket] = cache[r, gone].alike
    else:
        one = buckets[r, bucket]
        while cache[r, one].alike != gone:
            one = cache[r, one].alike
        cache[r, one].alike = cache[r, gone].alike
    cache[r, gone].key = -1
    cache[r, gone].after = own.blank
    own.blank = gone
    own.free += 1


@kernel(allocates=False)
def forget(state: State, r: int) -> None:
    """A replica's prefix cache has nothing that no request uses."""
    while state.replicas[r].idle > 0:
        _evict(state, r)


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
        if prefill > 0 and prefill + decodes > terms[7]:
            taken_ms = max(taken_ms, terms[6])
    return float(taken_ms)


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
    kv: int,
    free_blocks: int,
    preempted: int,
) -> None:
    """Record an iteration: the replica's next one, but for what is given here."""
    row, batch = state.iterations[number], state.batches[r, state.replicas[r].next]
    row.start_ms, row.end_ms, row.replica = start_ms, end_ms, r
    row.prefill, row.decodes, row.running = batch.prefill, batch.decodes, batch.running
    row.kv, row.free_blocks, row.preempted = kv, free_blocks, preempted
