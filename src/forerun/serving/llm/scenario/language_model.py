"""How a scenario describes a stage that runs a language model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from forerun.core.errors import known_names
from forerun.core.scenario.numbers import Count, NotNegative, Positive, Whole
from forerun.core.scenario.spec import Input, Spec, chosen_from
from forerun.core.trace.reader import format_problems
from forerun.serving.llm.inputs.accelerators import ACCELERATORS
from forerun.serving.llm.policy.scheduling import Scheduler, scheduler_policies
from forerun.serving.policies.vllm import Newest

Seats = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Blocks = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Accelerators = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Ms = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
BlockTokens = Annotated[int, msgspec.Meta(ge=1, le=65_536)]

#: how a request chooses a replica, where that needs no numbers
Named = Literal["round-robin", "least-requests", "longest-prefix", "prefix-affinity", "random"]
#: the same where replicas only decode
OfDecodes = Literal["round-robin", "least-requests", "random"]

#: what an objective limits: the time to the first token, the mean time between the tokens after it, the longest time between
#: two of them, the time to the last token
Kind = Literal["ttft", "tpot", "itl", "e2e"]

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Weighted(Spec, frozen=True, kw_only=True):
    """A request goes to a replica by lot.

    weights: of the replicas, one after the other; where there are more replicas they begin again.
    """

    weights: tuple[Annotated[float, msgspec.Meta(ge=0, le=1e12)], ...]

    def problems(self) -> list[tuple[str, str]]:
        """One of them is chosen."""
        return [] if self.weights and self.weights[0] > 0 else [("weights", "the first must be above 0")]


class Scored(Spec, frozen=True, kw_only=True):
    """A request goes to the replica with the highest sum of weights times scores between 0 and 1, of equal ones in turn. The
    defaults are those of the Gateway API Inference Extension: the weights of its chart `inferencepool` (at commit 0ae94df),
    and its `--refresh-metrics-interval`.

    prefix: weight of the share of the prompt that is in the cache (default 3).
    queue: of how few requests wait, 1 for the fewest and 0 for the most (default 2).
    cache: of the share of blocks that are free (default 2).
    refresh_ms: what waits and is free is looked up when a request comes, but no more often (default 50).
    """

    prefix: NotNegative = 3.0
    queue: NotNegative = 2.0
    cache: NotNegative = 2.0
    refresh_ms: NotNegative = 50.0


#: how a request chooses a replica
Routing: TypeAlias = Named | Weighted | Scored


class Limit(NamedTuple):
    """An objective of a stage that serves a language model.

    Parameters
    ----------
    kind : what is limited.
    limit_ms : the limit.
    wanted : share of the requests that must meet it (None: it counts with the other limits).
    """

    kind: Kind
    limit_ms: float
    wanted: float | None


#: of the logarithms of the coefficients, in the order of `calibration.replay.COEFFICIENTS`
Row = Annotated[
    tuple[Annotated[float, msgspec.Meta(ge=-5, le=5)], ...], msgspec.Meta(min_length=7, max_length=7)
]


def together(deviation: float) -> Row:
    """All iterations longer or shorter by one factor.

    Parameters
    ----------
    deviation : standard deviation of its logarithm.
    """
    return (deviation,) * 5 + (0.0, 0.0)


def outside(deviation: float) -> Row:
    """The time outside of iterations longer or shorter by a factor. Parameter as that of `together`."""
    return (0.0,) * 5 + (deviation, 0.0)


#: a relative error; a figure that is further off than by e to the fiftieth is no figure
Off = Annotated[float, msgspec.Meta(ge=0, le=50)]


class FitRecord(Spec, frozen=True, kw_only=True):
    """What a fit of costs knows of itself, as `forerun fit` writes it.

    experiments: how many it was fitted to.
    prefill_tokens, decodes, kv_tokens: the most of one iteration in them; beyond that nothing was seen.
    step_error: relative error of iterations that 90 % of unseen ones should not exceed.
    errors: by figure, such as `ttft_p99_ms`, the same of the figure of an unseen load.
    misses: by figure, the median relative error on the data themselves, where it is more than a fit should have (left out:
        nowhere); a scenario must accept it.
    spread: how unsure the coefficients are, and how they go together: a draw adds to the logarithms of all seven each of
        these rows times a standard normal number (left out: there are no draws).
    client_ms: of `request_ms`, what was measured with other clients and may be half or twice (default 0: nothing).
    """

    experiments: Count
    prefill_tokens: Annotated[int, msgspec.Meta(ge=0)]
    decodes: Annotated[int, msgspec.Meta(ge=0)]
    kv_tokens: Annotated[int, msgspec.Meta(ge=0)]
    step_error: Off
    errors: dict[str, Off] = {}
    misses: dict[str, NotNegative] | None = None
    spread: tuple[Row, ...] | None = None
    client_ms: NotNegative = 0.0

    added_later: ClassVar[tuple[str, ...]] = ("misses", "spread", "client_ms")

    @property
    def missing(self) -> str:
        """How far the data are missed, in words."""
        off = ", ".join(f"{name} by {share:.0%}" for name, share in (self.misses or {}).items())
        return f"miss the data that came with them: in the median {off}"


class Coefficients(Spec, frozen=True, kw_only=True):
    """The time of an iteration, as a sum.

    a_ms: of every iteration.
    prefill_ms_per_token: per prefill token.
    decode_ms_per_seq: per decode.
    kv_ms_per_token: per cached token of the decodes.
    attn_ms_per_token2: per pair of tokens that attend to each other in prefills.
    request_ms: of every request outside of iterations, before it joins the queue (default 0).
    hidden_prefill_tokens: prefill tokens of an iteration that take no time of their own, because it takes at least as long
        to read the weights (left out: none).
    launch_ms: at least, of an iteration with prompts or drafts, whose kernels are launched one by one (left out: nothing).
    launch_tokens: up to so many tokens its kernels are recorded all the same, so that this does not count (left out: none).
    unsure: standard deviation of the logarithm of the times of iterations, where they were not fitted; 0: they are exact
        (left out: it is not known, and no plan can hold over what they may be).
    fit: where these are from and how far off they are, if they were fitted.
    """

    a_ms: Annotated[float, msgspec.Meta(gt=0, le=1e12)]
    prefill_ms_per_token: Ms = 0.0
    decode_ms_per_seq: Ms = 0.0
    kv_ms_per_token: Ms = 0.0
    attn_ms_per_token2: Ms = 0.0
    request_ms: Ms = 0.0
    hidden_prefill_tokens: NotNegative | None = None
    launch_ms: Ms | None = None
    launch_tokens: NotNegative | None = None
    unsure: Share | None = None
    fit: FitRecord | None = None

    #: the coefficients, in the order of `values`
    names: ClassVar[tuple[str, ...]] = (
        "a_ms", "prefill_ms_per_token", "decode_ms_per_seq", "kv_ms_per_token", "attn_ms_per_token2", "request_ms",
        "hidden_prefill_tokens", "launch_ms", "launch_tokens",
    )  # fmt: skip
    added_later: ClassVar[tuple[str, ...]] = (*names[6:], "unsure")

    @property
    def values(self) -> tuple[float, ...]:
        """The coefficients, 0 where one is left out."""
        return tuple(getattr(self, name) or 0.0 for name in self.names)

    @property
    def spread(self) -> tuple[Row, ...] | None:
        """As that of a fit; of times that were not fitted all are longer or shorter together."""
        if self.fit is not None and self.fit.spread is not None:
            return self.fit.spread
        return None if self.unsure is None else (together(self.unsure),)

    def problems(self) -> list[tuple[str, str]]:
        """The hidden prefill tokens take no longer than `a_ms`, and another client's time is a part of `request_ms`."""
        hidden_ms = (self.hidden_prefill_tokens or 0.0) * self.prefill_ms_per_token
        if hidden_ms > self.a_ms * (1 + 1e-9):
            each = f"of {self.prefill_ms_per_token:g} ms each take {hidden_ms:g} ms"
            what = f"{each}, more than a_ms, {self.a_ms:g}, which hides them"
            return [("hidden_prefill_tokens", what)]
        if self.fit is not None and self.fit.client_ms > self.request_ms * (1 + 1e-9):
            what = (
                f"{self.fit.client_ms:g} is more than request_ms, {self.request_ms:g}, of which it is a part"
            )
            return [("fit.client_ms", what)]
        return []


class Measured(Spec, frozen=True, kw_only=True):
    """Times of iterations from a file of measured medians.

    medians: the file (see `inputs.llm.medians`).
    model, hardware: as the file calls them.
    tensor_parallel: accelerators that the model is split over (default 1).
    """

    medians: Input
    model: str
    hardware: str
    tensor_parallel: Count = 1


class ModelMemory(Spec, frozen=True, kw_only=True):
    """The cache of a replica from what the model is and what its accelerators have (see `inputs.llm.memory`).

    model: the model's config.json, as published with its weights.
    gpu: the accelerator, such as `H100-80GB`; give this or `gpu_memory`.
    gpu_memory_bytes: memory of one accelerator that programs can use.
    tensor_parallel: accelerators that the model is split over (default 1).
    memory_share: of the accelerator's memory that the server uses (default 0.9).
    weights_bytes: of the whole model (default: counted from the configuration).
    activations_bytes: what an iteration computes with and libraries take, on one accelerator (default: estimated).
    kv_bits: bits of a value in the cache (default: those of the model).
    """

    model: Input
    gpu: str | None = None
    gpu_memory_bytes: Positive | None = None
    tensor_parallel: Accelerators = 1
    memory_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    weights_bytes: Positive | None = None
    activations_bytes: NotNegative | None = None
    kv_bits: Literal[4, 8, 16, 32] | None = None

    def problems(self) -> list[tuple[str, str]]:
        """The accelerator is given in one way, and its name is known."""
        if (self.gpu is None) == (self.gpu_memory_bytes is None):
            return [("", "give exactly one of gpu, such as H100-80GB, and gpu_memory, such as 80GB")]
        if self.gpu is not None and self.gpu not in ACCELERATORS:
            known = known_names(self.gpu, ACCELERATORS)
            return [("gpu", f"no accelerator named {self.gpu!r}; {known}; or give gpu_memory, such as 80GB")]
        return []


class FixedTokens(Spec, frozen=True, kw_only=True):
    """Every request has the same number of tokens.

    prompt: tokens of the prompt.
    output: tokens of the answer.
    """

    prompt: Tokens
    output: Tokens


class DrawnTokens(Spec, frozen=True, kw_only=True):
    """Each request takes the tokens of a row, drawn with replacement, of a recorded trace of requests.

    drawn_from: the file.
    format: of the file (default: recognised).
    options: of the format's reader.
    """

    drawn_from: Input
    format: str = ""
    options: dict[str, Any] = {}

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format)


class ListedTokens(Spec, frozen=True, kw_only=True):
    """(prompt, output) tokens of each request, in order of arrival."""

    pairs: tuple[tuple[Tokens, Tokens], ...]


class RecordedPrefixes(Spec, frozen=True, kw_only=True):
    """Prompts begin alike as far as the trace's column `hash_ids` has equal numbers [Qin et al., FAST'25].

    id_tokens: tokens that a number stands for, 512 in the published traces.
    """

    id_tokens: Tokens


class DrawnPrefixes(Spec, frozen=True, kw_only=True):
    """Every prompt begins with one of several system prompts, drawn for each request.

    system_prompts: how many there are.
    system_tokens: tokens of each.
    skew: the k-th is drawn with a probability proportional to 1 / k^skew (default 0: all with the same).
    """

    system_prompts: Seats
    system_tokens: Tokens
    skew: NotNegative = 0.0


class HistoryPrefixes(Spec, frozen=True, kw_only=True):
    """Prompts of a session begin with what its context has so far (see the scenario's `sessions`).

    history: true; false: nothing is shared.
    """

    history: bool


class Swap(Spec, frozen=True, kw_only=True):
    """Host memory that the blocks of preempted requests are moved to, instead of processing their tokens anew.

    Where it is full, a preempted request is processed anew. The iteration that moves blocks takes so much longer.

    host_blocks: blocks that the host memory of a replica stores.
    bandwidth_bytes_per_s: between the two memories.
    """

    host_blocks: Blocks
    bandwidth_bytes_per_s: Positive


class ObjectiveShares(Spec, frozen=True, kw_only=True):
    """Shares of the requests that must meet an objective of their own, such as 0.9 for a 90th percentile.

    ttft, tpot, itl, e2e: by what is limited (0: the limit counts with the others, for the scenario's attainment).
    """

    ttft: Share = 0.0
    tpot: Share = 0.0
    itl: Share = 0.0
    e2e: Share = 0.0


class Gateway(Spec, frozen=True, kw_only=True):
    """What is in front of the replicas, and passes requests on, first in first out.

    per_replica: requests that it passes on to the replicas before one of these is answered, for each replica.
    queue: requests that wait at most; who comes then is refused (left out: no limit).
    """

    per_replica: Count
    queue: Whole | None = None


def _said_one_way(self: DecodePoolSpec | PlannedHardware) -> list[tuple[str, str]]:
    """The size of the cache is given in one way at most."""
    if self.kv_blocks is not None and self.memory is not None:
        return [("", "give kv_blocks, a number, or memory, which they follow from, not both")]
    return []


class DecodePoolSpec(Spec, frozen=True, kw_only=True):
    """Replicas that decode, while those of the stage prefill [Zhong et al., OSDI'24; Patel et al., ISCA'24].

    A request leaves the replica that prefilled it with its first token; its blocks there are free when their transfer has
    ended. A replica sends one request after another.

    replicas: how many decode.
    hardware: what they run on (default: as the stage's).
    bandwidth_bytes_per_s: of the link of each replica that prefills (left out: transfers take the latency alone).
    latency_ms: of a transfer (default 0).
    max_seqs, token_budget, kv_blocks, memory, cost, balance: of the replicas that decode (default: as those that prefill;
        requests choose in turn where these choose by prefixes).
    """

    replicas: Replicas
    hardware: str = ""
    bandwidth_bytes_per_s: Positive | None = None
    latency_ms: Ms = 0.0
    max_seqs: Seats | None = None
    token_budget: Tokens | None = None
    kv_blocks: Blocks | None = None
    memory: ModelMemory | None = None
    cost: Coefficients | Measured | None = None
    balance: OfDecodes | None = None

    problems = _said_one_way


class SpeculationSpec(Spec, frozen=True, kw_only=True):
    """Speculative decoding [Leviathan et al., ICML'23; Li et al., ICML'24]: a draft proposes tokens that the model verifies.

    An iteration processes, of every request that decodes, its latest token and those proposed behind it; they count in the
    token budget, and they take the time that as many prefill tokens take. The leading right ones come together with the
    token that the model makes behind them, so a step whose answer goes on yields (1 - a^(k+1)) / (1 - a) tokens on average,
    with k tokens proposed and acceptance a. Whether a token would be guessed is a property of the token: it does not depend
    on when, where or behind how many others it is proposed.

    draft_tokens: proposed for a request in an iteration at most: no more than fit its answer and the token budget.
    acceptance: probability that a proposed token is right if all before it are; it depends on draft, model and text.
    draft_ms: of each pass of the draft, one for each token that it proposes, for all requests together (default 0).
    draft_ms_per_seq: of each token that is proposed (default 0).
    """

    draft_tokens: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    acceptance: Share
    draft_ms: NotNegative = 0.0
    draft_ms_per_seq: NotNegative = 0.0

    @property
    def threshold(self) -> int:
        """Hashes of 32 bits below it stand for tokens that are guessed."""
        return round(self.acceptance * 2**32)

    def extra_ms(self, passes: float, drafted: float) -> float:
        """What drafting takes in an iteration.

        Parameters
        ----------
        passes : of the draft.
        drafted : tokens that it proposes, for all requests.
        """
        return passes * self.draft_ms + drafted * self.draft_ms_per_seq


class PlannedHardware(Spec, frozen=True, kw_only=True):
    """Something that `forerun plan` may run a stage on: a kind of machine, or a model split over several.

    hardware: as prices_usd_per_h calls it; the price is that of a replica.
    kv_blocks, memory: blocks in the cache there, a number or what they follow from (default: as the stage's).
    cost: time of an iteration there (default: the stage's).
    """

    hardware: str
    kv_blocks: Blocks | None = None
    memory: ModelMemory | None = None
    cost: Coefficients | Measured | None = None

    problems = _said_one_way

    def on(self, llm: LanguageModelSpec) -> LanguageModelSpec:
        """A stage's section with what is different on this hardware."""
        changes: dict[str, Any] = {} if self.cost is None else {"cost": self.cost}
        if self.kv_blocks is not None or self.memory is not None:
            changes |= {"kv_blocks": self.kv_blocks, "memory": self.memory}
        return llm.with_(**changes)


class PlanAxes(Spec, frozen=True, kw_only=True):
    """What `forerun plan` may choose for a stage. What is left out stays as the stage has it.

    hardware: what the replicas run on.
    replicas: numbers of replicas (left out: all from 1 to the plan's max_replicas).
    max_seqs: requests that run at once.
    token_budget: tokens processed in one iteration.
    balance: how requests choose a replica.
    scheduler: which requests an iteration works on.
    decode: replicas that decode what those of the stage prefill; null: these do both.
    speculation: how decodes are drafted; null: they are not (left out: as the stage's).
    prefix_cache: the stage's own; null: there is none (left out: as the stage's).
    """

    hardware: tuple[PlannedHardware, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    max_seqs: tuple[Seats, ...] = ()
    token_budget: tuple[Tokens, ...] = ()
    balance: tuple[Routing, ...] = ()
    scheduler: tuple[Annotated[Scheduler, chosen_from(scheduler_policies)], ...] = ()
    decode: tuple[DecodePoolSpec | None, ...] = ()
    speculation: tuple[SpeculationSpec | None, ...] | None = None
    prefix_cache: tuple[RecordedPrefixes | DrawnPrefixes | HistoryPrefixes | None, ...] | None = None

    added_later: ClassVar[tuple[str, ...]] = ("speculation", "prefix_cache")

    def problems(self) -> list[tuple[str, str]]:
        """Nothing is listed twice."""
        listed: dict[str, tuple[object, ...]] = {
            name: getattr(self, name) or () for name in ("replicas", *PLAN_AXES)
        }
        listed["hardware"] = tuple(one.hardware for one in self.hardware)
        return [
            (f"{name}.{i}", f"{value} stands twice")
            for name, values in listed.items()
            for i, value in enumerate(values)
            if value in values[:i]
        ]


#: settings of a stage that a plan may choose besides hardware and replicas, each a field of both records
PLAN_AXES: Final = tuple(name for name in PlanAxes.__struct_fields__ if name not in ("hardware", "replicas"))
#: those that cells are written without where they are not used
LATER_AXES: Final = PlanAxes.added_later


class LanguageModelSpec(Spec, frozen=True, kw_only=True):
    """Memory and cost of one replica of a language model.

    max_seqs: requests that run at once.
    token_budget: tokens processed in one iteration.
    kv_blocks: blocks in the cache; give this or `memory`.
    memory: what the blocks follow from: a model's configuration and an accelerator.
    block_tokens: tokens in a block (default 16).
    cost: time of an iteration.
    balance: how requests choose a replica: in turn (default); the one with the fewest; the one whose cache has most of the
        prompt, among those with a free seat, else that with the fewest; the same for all that begin with one segment; by lot
        (`random`, as a Service of Kubernetes does), with weights; or by scores.
    tokens: where the requests' tokens come from; left out: the trace's columns.
    ttft_slo_ms: objective for the time to first token, besides the latency (0: none).
    tpot_slo_ms: objective for the mean time between the tokens after it (0: none).
    itl_slo_ms: objective for the longest time between two tokens of a request (0: none).
    e2e_slo_ms: objective for the time from entering the stage to the last token (0: none).
    slo_shares: shares of the requests that meet one of these objectives, judged alone (default: all limits count together).
    iterations: make a table of every iteration (default no).
    scheduler: which requests an iteration works on (default: vLLM's, of the newest version compared).
    kv_token_bytes: keys and values of a token, which moving blocks is timed by (default 0: as `memory` says, if given).
    swap: where the blocks of preempted requests go (left out: nowhere, their tokens are processed anew).
    decode: replicas that decode, so that the stage's replicas prefill alone (left out: these do both).
    prefix_cache: what prompts begin with, which the cache keeps for later requests (left out: nothing is kept).
    plan: what `forerun plan` may choose (default: the number of replicas only).
    speculation: how decodes are drafted (left out: each iteration gives a request one token).
    gateway: where requests wait that replicas have no place for (left out: they go to a replica at once).
    """

    max_seqs: Seats
    token_budget: Tokens
    kv_blocks: Blocks | None = None
    memory: ModelMemory | None = None
    block_tokens: BlockTokens = 16
    cost: Coefficients | Measured
    balance: Routing = "round-robin"
    tokens: FixedTokens | DrawnTokens | ListedTokens | None = None
    ttft_slo_ms: NotNegative = 0.0
    tpot_slo_ms: NotNegative = 0.0
    itl_slo_ms: NotNegative = 0.0
    e2e_slo_ms: NotNegative = 0.0
    slo_shares: ObjectiveShares = ObjectiveShares()
    iterations: bool = False
    prefix_cache: RecordedPrefixes | DrawnPrefixes | HistoryPrefixes | None = None
    scheduler: Annotated[Scheduler, chosen_from(scheduler_policies)] = msgspec.field(default_factory=Newest)
    kv_token_bytes: NotNegative = 0.0
    swap: Swap | None = None
    decode: DecodePoolSpec | None = None
    plan: PlanAxes = PlanAxes()
    speculation: SpeculationSpec | None = None
    gateway: Gateway | None = None

    added_later: ClassVar[tuple[str, ...]] = ("speculation", "gateway")

    @property
    def fits(self) -> dict[str, FitRecord]:
        """What fitted costs know of themselves, by path below this record: its own, and those that a plan may choose."""
        given = {"cost": self.cost, "decode.cost": self.decode and self.decode.cost}
        given |= {f"plan.hardware.{i}.cost": one.cost for i, one in enumerate(self.plan.hardware)}
        given |= {f"plan.decode.{i}.cost": pool and pool.cost for i, pool in enumerate(self.plan.decode)}
        return {
            where: cost.fit
            for where, cost in given.items()
            if isinstance(cost, Coefficients) and cost.fit is not None
        }

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The objectives that are stated."""
        return tuple(
            Limit(kind, limit_ms, getattr(self.slo_shares, kind) or None)
            for kind, limit_ms in self._limits_ms.items()
            if limit_ms
        )

    @property
    def _limits_ms(self) -> dict[Kind, float]:
        """All limits, 0 where none is stated."""
        return {
            "ttft": self.ttft_slo_ms,
            "tpot": self.tpot_slo_ms,
            "itl": self.itl_slo_ms,
            "e2e": self.e2e_slo_ms,
        }

    def problems(self) -> list[tuple[str, str]]:
        """The size of the cache is given in one way; shares have limits; blocks that are moved have a size; prefixes are as
        the cache and the routing need them."""
        if (self.kv_blocks is None) == (self.memory is None):
            return [("", "give exactly one of kv_blocks, a number, and memory, which they follow from")]
        found = [
            (f"slo_shares.{kind}", f"is a share of requests without a limit: say {kind}_slo_ms, too")
            for kind, limit_ms in self._limits_ms.items()
            if getattr(self.slo_shares, kind) and not limit_ms
        ]
        linked = self.decode is not None and self.decode.bandwidth_bytes_per_s is not None
        movers = [name for name, moves in (("swap", self.swap is not None), ("decode", linked)) if moves]
        if movers and not self.kv_token_bytes and self.memory is None:
            what = (
                f"is needed to time what {' and '.join(movers)} move{'s' * (len(movers) == 1)}: 2 x layers x KV heads x "
                "head size x bytes of a value"
            )
            found.append(("kv_token_bytes", what))
        drafts = self.speculation is not None or any(self.plan.speculation or ())
        decoding = self.cost if self.decode is None or self.decode.cost is None else self.decode.cost
        costs = [decoding, *(one.cost for one in self.plan.hardware)]
        if drafts and any(isinstance(one, Measured) for one in costs):
            what = "measured medians do not say what verifying several tokens of a request takes; give cost as coefficients"
            found.append(("speculation", what))
        proposed = [one.draft_tokens for one in (self.speculation, *(self.plan.speculation or ())) if one]
        budgets = {"token_budget": self.token_budget}
        if self.decode is not None and self.decode.token_budget is not None:
            budgets["decode.token_budget"] = self.decode.token_budget
        if proposed and self.scheduler.rules().pads_drafts:
            least = 1 + max(proposed)
            what = f"gives a request that has one token to process {least}, as many as one that drafts are verified for"
            found += [
                (name, f"is {budget}; this scheduler {what}")
                for name, budget in budgets.items()
                if budget < least
            ]
        if self.prefix_cache is None and self.balance in ("longest-prefix", "prefix-affinity"):
            found.append(("balance", f"{self.balance} needs a prefix cache: say prefix_cache"))
        if isinstance(self.prefix_cache, RecordedPrefixes):
            tokens, block = self.prefix_cache.id_tokens, self.block_tokens
            if tokens % block:
                what = f"{tokens} tokens are no whole number of blocks of {block} tokens"
                found.append(("prefix_cache.id_tokens", what))
            if self.tokens is not None:
                what = (
                    "the prompts do not come from the trace, so its prefixes do not apply; leave out tokens"
                )
                found.append(("prefix_cache", what))
        return found
