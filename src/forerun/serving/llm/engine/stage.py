"""A stage with a language model as a stream: requests enter, requests leave, any cut allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.records import records
from forerun.serving.engine.outcome import Batches, Guesses, Iterations, Requests, Visits
from forerun.serving.inputs.clients import Clients, Sent
from forerun.serving.inputs.pipeline import Bools, Floats, Ints
from forerun.serving.llm.engine.kernels import requests as kernel
from forerun.serving.llm.engine.kernels.closed import LOOP, Sending, run_closed
from forerun.serving.llm.engine.kernels.gaps import CELLS
from forerun.serving.llm.engine.record import iterations_of, records_of
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.policy.scheduling import Prompts, Tokens
from forerun.serving.llm.scenario.language_model import Named, Routing, Scored, Weighted
from forerun.serving.policy.tuning import ModelView

#: (instant ms, replicas from then on), ascending
Changes: TypeAlias = Sequence[tuple[float, int]]

#: the kernel's number of each routing
ROUTINGS: Final[dict[Named, int]] = {
    "round-robin": kernel.IN_TURN,
    "least-requests": kernel.FEWEST,
    "longest-prefix": kernel.LONGEST,
    "prefix-affinity": kernel.SAME,
    "random": kernel.LOT,
}
#: the kernel's number of what an iteration processes
TOKENS: Final[dict[Tokens, int]] = {
    "together": kernel.TOGETHER,
    "prefills first": kernel.PREFILLS,
    "decodes first": kernel.DECODES,
}
#: the kernel's number of how prompts are processed
PROMPTS: Final[dict[Prompts, int]] = {
    "in chunks": kernel.CHUNKS,
    "whole": kernel.WHOLE_ALONE,
    "whole beside decodes": kernel.WHOLE_BESIDE,
}


class Departures(NamedTuple):
    """Requests that have left a stage.

    Parameters
    ----------
    query : int64[n], their numbers.
    end_ms : float64[n], when they left.
    begun_ms : float64[n], when their last iteration began.
    replica : int64[n], where.
    iteration : int64[n], its number.
    """

    query: Ints
    end_ms: Floats
    begun_ms: Floats
    replica: Ints
    iteration: Ints

    def in_order(self) -> Departures:
        """By instant; iterations that end together do so in the order they began, then by replica."""
        order = np.lexsort((self.replica, self.begun_ms, self.end_ms))
        return Departures._make(column[order] for column in self)

    @property
    def ends_ms(self) -> Floats:
        """When iterations end with which somebody leaves; of requests that are listed replica by replica."""
        return self.end_ms[np.flatnonzero(np.diff(self.iteration, prepend=-1))]


class LanguageStage:
    """One stage under way. `feed` what enters, `advance` to an instant, take what has left since with `left`."""

    def __init__(
        self, llm: LanguageModel, replicas: int, *, keep: bool, capacity: Changes = (), most: int = 0
    ) -> None:
        """Begin at instant 0 with nothing fed.

        Parameters
        ----------
        llm : limits, costs, and the tokens of the requests. Where others decode, requests leave with their first token.
        replicas : how many there are at the start.
        keep : iterations are recorded one by one.
        capacity : changes of the replicas (default: none).
        most : replicas that `reschedule` may ask for (default: it is not called).
        """
        self.llm, self._keep = llm, keep
        self._refused, self._segments, self._prefixes = llm.refused, llm.whole_segments, llm.prefixes
        self._caches = llm.shared is not None
        most = max(most, replicas, *(count for _, count in capacity), 1)
        # Keys of blocks: those of segments come first, then those of each request by itself.
        shared = self._prefixes.count * self._prefixes.segment_blocks
        self._own = shared + np.cumsum(llm.most_blocks) - llm.most_blocks
        scored = llm.routing if isinstance(llm.routing, Scored) else Scored()
        self._model = kernel.Model(
            llm.max_seqs,
            llm.token_budget,
            llm.kv_blocks,
            llm.block_tokens,
            _routing(llm.routing),
            _rules(llm),
            _drafts(llm),
            np.array([*llm.cost.terms, llm.cost.hidden_prefill, llm.cost.launch_ms, llm.cost.launch_tokens]),
            np.require(llm.cost.prefill_ms, np.float64, ["C", "W"]),
            np.require(llm.cost.decode_ms, np.float64, ["C", "W"]),
            self._prefixes.segment_blocks,
            np.require(self._prefixes.chains, np.int64, ["C", "W"]),
            llm.shares(most),
            kernel.Scores(scored.prefix, scored.queue, scored.cache, scored.refresh_ms),
        )
        self._ahead = list(capacity)
        self._state = _fresh(llm, most, capacity=64, iterations=1024 if keep else 0)
        self._state.whole["active"] = replicas
        self._state.whole["open_ms"] = 0.0 if replicas else np.inf
        self._state.whole["looked_ms"] = -np.inf
        self._query = np.zeros(64, dtype=np.int64)
        self._sending: Sending | None = None
        self._entered: list[tuple[Ints, Floats]] = []
        self._group_ms: list[Floats] = []
        self._handed = self._forwarded = self._open = 0

    @property
    def seated(self) -> int:
        """The most requests that ran at once on a replica: seats are taken from the first, and keep who had them last."""
        return int(np.count_nonzero(self._state.slots >= 0, axis=1).max())

    @property
    def ties(self) -> int:
        """Instants at which two iterations end with which somebody leaves, two groups enter, or both."""
        return instants_twice([self.group_ms, self.departures().ends_ms])

    @property
    def group_ms(self) -> Floats:
        """When groups of requests entered."""
        return np.concatenate(self._group_ms) if self._group_ms else np.empty(0)

    def feed(self, query: Ints, enter_ms: Floats, begins: Bools, first_ms: Floats | None = None) -> None:
        """More requests. Refused ones are left out: they end at once.

        Parameters
        ----------
        query : int64[n], their numbers.
        enter_ms : float64[n], when each enters, ascending and no earlier than those fed before.
        begins : bool[n], where one does not come in one group with the one before it.
        first_ms : float64[n], when another pool, which has processed their prompts, emitted their first token (default:
            none has).
        """
        self._entered.append((query, enter_ms))
        welcome = ~self._refused[query]
        if not welcome.all():
            # The first of a group that is let in begins it.
            group = np.cumsum(begins)[welcome]
            begins = np.diff(group, prepend=0) > 0
            query, enter_ms = query[welcome], enter_ms[welcome]
        self._group_ms.append(enter_ms[begins])
        fed = int(self._state.whole["fed"][0])
        after = fed + len(query)
        if after > len(self._query):
            capacity = max(after, 2 * len(self._query))
            requests, done = _longer(self._state.requests, capacity), _longer(self._state.done, capacity)
            prefixes = _longer(self._state.prefixes, capacity * self._caches)
            self._state = self._state._replace(requests=requests, done=done, prefixes=prefixes)
            self._query = _longer(self._query, capacity)
        self._query[fed:after] = query
        entering = self._state.requests[fed:after]
        entering["prompt"], entering["output"] = self.llm.prompt[query], self.llm.output[query]
        if first_ms is None:
            passed_ms = self.llm.passed_ms[query] if len(self.llm.passed_ms) else enter_ms
            entering["enter_ms"] = passed_ms + self.llm.cost.request_ms
        else:
            # What another pool forwards has been received already.
            entering["enter_ms"], entering["away"] = enter_ms, 1
            entering["first_ms"] = entering["last_ms"] = first_ms
            entering["emitted"], entering["cached"] = 1, entering["prompt"]
        entering["counted"] = query >= self.llm.warm_up
        if len(self.llm.keys):
            entering["key"] = self.llm.keys[query]
        if self.llm.ranks is not None:
            entering["rank"] = self.llm.ranks[query]
        if self._caches:
            own = self._state.prefixes[fed:after]
            own["chain"], own["segments"] = self._prefixes.start[query], self._segments[query]
            own["own"] = self._own[query]
        self._state.whole["fed"] = after

    def run_closed(self, clients: Clients) -> Sent:
        """All requests of clients who see the answers; to the end.

        Parameters
        ----------
        clients : what they send, request by request of this stage. When a request is sent is when it enters.
        """
        self.open_to(clients)
        self.advance(np.inf)
        return self.sent_by(clients)

    def open_to(self, clients: Clients) -> None:
        """From now on clients send, and nothing else is fed. Parameters as those of `run_closed`."""
        queries = len(clients)
        self.feed(np.arange(queries), np.zeros(queries), np.ones(queries, dtype=np.bool_))
        self._sending = self._begun(clients)

    def sent_by(self, clients: Clients) -> Sent:
        """What clients have sent so far. Parameters as those of `run_closed`."""
        sending = self._sending
        assert sending is not None
        order = sending.order[: int(sending.loop["sent"][0])]
        self._query = sending.query
        self._entered, self._group_ms = [(order, sending.sent_ms[order])], [sending.sent_ms[order]]
        return Sent(clients, sending.sent_ms, sending.late_ms, sending.passed_ms, order, sending.ended)

    def _begun(self, clients: Clients) -> Sending:
        """What the kernel knows of the clients at the start; what was fed enters only when they send it."""
        state, fed, queries = self._state, int(self._state.whole["fed"][0]), len(clients)
        requests, prefixes = state.requests[:fed].copy(), state.prefixes[:fed].copy()
        state.whole["fed"] = 0
        for rows in (state.requests, state.prefixes):
            rows.view(np.uint8)[:] = 0
        welcome, first, waits = ~self._refused[:queries], clients.first, clients.waits
        ready = np.flatnonzero(waits == 0)
        ready = ready[np.argsort(clients.planned_ms[ready], kind="stable")]
        waiting = len(clients.joins_ms) or len(ready)
        heap_ms = np.zeros(queries + len(clients.joins_ms))
        heap_who = np.full(len(heap_ms), -1)
        if len(clients.joins_ms):
            heap_ms[:waiting], opened = clients.joins_ms, np.zeros(clients.sessions, dtype=np.int64)
        else:
            heap_ms[:waiting], heap_who[:waiting] = clients.planned_ms[ready], ready
            opened = np.bincount(clients.session[ready], minlength=clients.sessions)
        loop = records(1, LOOP)
        loop["waiting"] = waiting
        return Sending._make(
            [
                *vars(clients).values(),
                waits,
                first,
                np.where(welcome, np.cumsum(welcome) - 1, -1),
                requests,
                prefixes,
                self.llm.cost.request_ms,
                heap_ms,
                heap_who,
                np.bincount(clients.session),
                opened,
                np.zeros(clients.sessions, dtype=np.int64),
                np.full(queries, np.nan),
                np.zeros(queries),
                np.full(queries, np.nan),
                np.zeros(queries, dtype=np.int64),
                np.zeros(queries, dtype=np.int64),
                np.zeros(queries, dtype=np.int64),
                loop,
            ]
        )

    def advance(self, until_ms: float) -> None:
        """Handle every instant before `until_ms`; whatever enters before it has been fed."""
        while self._ahead and self._ahead[0][0] < until_ms:
            at_ms, count = self._ahead.pop(0)
            self._run(at_ms)
            self._resize(at_ms, count)
        self._run(until_ms)

    def reschedule(self, capacity: Changes) -> None:
        """Replace the changes of replicas that are still to come."""
        self._ahead = list(capacity)

    @property
    def ongoing(self) -> int:
        """Requests that wait or run."""
        return int(self._state.whole["fed"][0] - self._state.whole["done"][0])

    @property
    def working(self) -> int:
        """Replicas in an iteration."""
        return int(np.count_nonzero(self._state.replicas["due_ms"] < np.inf))

    def seen(self, since_ms: float) -> ModelView:
        """What a tuner may know of the stage now.

        Parameters
        ----------
        since_ms : from when on tokens count.
        """
        state, active = self._state, int(self._state.whole["active"][0])
        fed, own = int(state.whole["fed"][0]), state.replicas[:active]
        rows = state.requests[self._open : fed]
        ended = rows["emitted"] == rows["output"]
        unfinished = np.flatnonzero(~ended)
        begun = rows[(rows["emitted"] > 0) & (rows["first_ms"] >= since_ms)]
        enter_ms = begun["enter_ms"] - self.llm.cost.request_ms
        left = rows[ended & (rows["last_ms"] >= since_ms) & (rows["output"] > 1)]
        # Those that ended count until the next look, so they are passed over one look later.
        old = np.flatnonzero(~(ended & (rows["last_ms"] < since_ms)))
        self._open += int(old[0]) if len(old) else len(rows)
        running = int(state.replicas["running"].sum())
        used = active * self.llm.kv_blocks - int((own["free"] + own["idle"]).sum())
        return ModelView(
            len(unfinished) - running,
            running,
            used / (active * self.llm.kv_blocks) if active else 0.0,
            begun["first_ms"] - enter_ms,
            (left["last_ms"] - left["first_ms"]) / (left["output"] - 1),
        )

    def _resize(self, now_ms: float, count: int) -> None:
        """From now on requests choose among so many replicas; others finish what they have. One that comes back has an empty
        prefix cache."""
        whole, state = self._state.whole, self._state
        active = int(whole["active"][0])
        for r in range(active, count):
            kernel.forget(state, r)
        if count == 0:
            whole["open_ms"] = np.inf
        elif active == 0:
            whole["open_ms"] = now_ms
        whole["active"] = count

    def _run(self, until_ms: float) -> None:
        model, sending = self._model, self._sending
        while not (
            kernel.run_requests(model, self._state, until_ms)
            if sending is None
            else run_closed(model, self._state, sending, until_ms)
        ):
            capacity = 2 * len(self._state.iterations) + 2 * len(self._state.replicas)
            self._state = self._state._replace(iterations=_longer(self._state.iterations, capacity))

    def left(self) -> tuple[Ints, Floats, Ints]:
        """(query, instant, iteration) of the requests that have left since the last call, in order."""
        left = self.newly_left().in_order()
        return left.query, left.end_ms, left.iteration

    def newly_left(self) -> Departures:
        """Those that have left since the last call, replica by replica."""
        begin, self._handed = self._handed, len(self._done())
        return self.departures(begin)

    def departures(self, begin: int = 0) -> Departures:
        """Requests that have left with all their tokens, replica by replica.

        Parameters
        ----------
        begin : how many to leave out, of those that have left with whatever tokens.
        """
        done, requests = self._done()[begin:], self._state.requests
        if self.llm.decode is not None:
            done = done[requests["output"][done["request"]] == 1]
        who = done["request"]
        return Departures(
            self._query[who],
            requests["last_ms"][who],
            done["begun_ms"],
            requests["replica"][who],
            done["iteration"],
        )

    def sent(self) -> tuple[Ints, Floats, Floats, Ints]:
        """(query, first token, end of the transfer, replica) of the requests that were sent to the other pool since the last
        call, replica by replica."""
        who = self._done()["request"][self._forwarded :]
        self._forwarded += len(who)
        requests = self._state.requests
        who = who[requests["output"][who] > 1]
        return (
            self._query[who],
            requests["first_ms"][who],
            requests["sent_ms"][who],
            requests["replica"][who],
        )

    def record(self, queries: int) -> tuple[Visits, Batches, Requests]:
        """What happened, by query and by iteration, once everything has been handled."""
        enqueue_ms = np.full(queries, np.nan)
        for query, enter_ms in self._entered:
            enqueue_ms[query] = enter_ms
        rows, state = self._done()["request"], self._state
        recorded = self._iterations() if self._keep else None
        iterations, gaps = int(state.whole["iterations"][0]), state.gaps.copy()
        drafted, accepted = int(state.whole["drafted"][0]), int(state.whole["accepted"][0])
        guesses = None if self.llm.speculation is None else Guesses(drafted, accepted)
        served = self._query[rows]
        hit = state.prefixes["hit"][rows] if self._caches else np.zeros(len(rows), dtype=np.int64)
        return records_of(
            enqueue_ms,
            served,
            lambda name: state.requests[name][rows],
            hit,
            gaps,
            iterations,
            recorded,
            guesses,
        )

    def _done(self) -> NDArray[Any]:
        """Requests that have left."""
        return self._state.done[: int(self._state.whole["done"][0])]

    def _iterations(self) -> Iterations:
        """Those recorded, in the order they begin: by instant, then by replica."""
        known = self._state.iterations[: int(self._state.whole["iterations"][0])]
        order = np.lexsort((known["replica"], known["start_ms"]))
        return iterations_of(lambda name: known[name][order])


def instants_twice(parts: list[Floats]) -> int:
    """How many instants there are more than once, in all parts together."""
    # Parts are ascending, or nearly: a stable sort merges them.
    together = np.sort(np.concatenate(parts), kind="stable")
    again = together[1:] == together[:-1]
    return int(np.count_nonzero(again[1:] > again[:-1])) + int(again[:1].sum())


def _rules(llm: LanguageModel) -> kernel.Rules:
    host_blocks, move_ms = (0, 0.0) if llm.host is None else (llm.host.blocks, llm.host.move_ms)
    return kernel.Rules(
        TOKENS[llm.rules.tokens],
        PROMPTS[llm.rules.prompts],
        llm.reserved_tokens,
        int(llm.rules.whole_must_fit),
        llm.rules.longest_chunk,
        int(llm.rules.alone_unlimited),
        int(llm.rules.victim == "last of the lowest class"),
        int(llm.rules.drafts == "all"),
        int(llm.rules.pads_drafts),
        int(not llm.rules.blank_first),
        int(llm.rules.ahead),
        host_blocks,
        move_ms,
        int(llm.decode is not None),
        0.0 if llm.decode is None else llm.decode.latency_ms,
        0.0 if llm.decode is None else llm.decode.send_ms_per_token,
    )


def _routing(routing: Routing) -> int:
    match routing:
        case Weighted():
            return kernel.LOT
        case Scored():
            return kernel.SCORES
        case _:
            return ROUTINGS[routing]


def _drafts(llm: LanguageModel) -> kernel.Drafts:
    if llm.speculation is None:
        return kernel.Drafts(0, 0, 0.0, 0.0)
    own = llm.speculation
    return kernel.Drafts(own.draft_tokens, own.threshold, own.draft_ms, own.draft_ms_per_seq)


def _fresh(llm: LanguageModel, replicas: int, capacity: int, iterations: int) -> kernel.State:
    own = records(replicas, kernel.REPLICA)
    own["oldest"] = own["newest"] = own["held_head"] = own["held_tail"] = -1
    # Blocks have names only where prompts share them, and no more than are ever taken.
    blocks = min(llm.kv_blocks, int(llm.most_blocks.sum())) * (llm.shared is not None)
    cache = records((replicas, blocks), kernel.BLOCK)
    cache["after"] = np.arange(1, blocks + 1)
    own["free"], own["due_ms"], own["front"] = llm.kv_blocks, np.inf, llm.classes
    own["host"] = 0 if llm.host is None else llm.host.blocks
    queues = records((replicas, llm.classes), kernel.QUEUE)
    queues["head"] = queues["tail"] = -1
    seats = (replicas, llm.max_seqs)
    return kernel.State(
        requests=records(capacity, kernel.REQUEST),
        replicas=own,
        queues=queues,
        slots=np.full(seats, -1),
        given=np.zeros(seats, dtype=np.int64),
        kinds=np.zeros(seats, dtype=np.int64),
        whole=records(1, kernel.WHOLE),
        done=records(capacity, kernel.DONE),
        gaps=np.zeros(CELLS, dtype=np.int64),
        crossing=np.zeros(llm.block_tokens, dtype=np.int64),
        load=records(1, kernel.LOAD),
        wanted=records(1, kernel.WANTED),
        batches=records((replicas, 2), kernel.BATCH),
        parts=records((replicas, 2, llm.max_seqs), kernel.PART),
        iterations=records(iterations, kernel.ITERATION),
        prefixes=records(capacity * (llm.shared is not None), kernel.PREFIX),
        cache=cache,
        buckets=np.full((replicas, 1 << blocks.bit_length()), -1),
    )


def _longer(old: NDArray[Any], capacity: int) -> Any:
    """The array extended to `capacity` rows; the new ones are zero."""
    new = np.zeros(capacity, dtype=old.dtype).view(type(old))
    # Records are copied as bytes: field by field takes twenty times as long.
    new.view(np.uint8)[: old.nbytes] = old.view(np.uint8)
    return new
