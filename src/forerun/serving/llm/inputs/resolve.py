"""A scenario's language model with its files read and its requests' tokens resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from forerun.core.errors import ScenarioError, TraceError
from forerun.core.rng import stream
from forerun.core.trace.table import Trace
from forerun.serving.inputs.pipeline import Ints
from forerun.serving.llm.inputs.memory import memory_use
from forerun.serving.llm.inputs.model import Cost, DecodePool, HostMemory, LanguageModel, Prefixes
from forerun.serving.llm.scenario.language_model import (
    Coefficients,
    DrawnPrefixes,
    DrawnTokens,
    FixedTokens,
    HistoryPrefixes,
    LanguageModelSpec,
    ListedTokens,
    Measured,
    Weighted,
)
from forerun.serving.scenario.limits import MOST_BYTES, gib

if TYPE_CHECKING:
    from forerun.serving.inputs.inputs import ScenarioFiles
    from forerun.serving.inputs.sessions import Sessions

COLUMNS = ("prompt_tokens", "output_tokens")
#: the numbers of a prompt's segments, equal for equal beginnings, separated by blanks
SEGMENTS = "hash_ids"
#: the class of a request
PRIORITY = "priority"
#: classes of requests that there may be, each with a queue at every replica
MOST_CLASSES = 1000


def language_model_of(
    spec: LanguageModelSpec,
    stage: str,
    files: ScenarioFiles,
    trace: Trace | None,
    queries: int,
    seed: int,
    sessions: Sessions | None = None,
) -> tuple[LanguageModel, list[str]]:
    """The language model of a stage, and what is to be noted.

    Parameters
    ----------
    spec : as the scenario gives it.
    stage : name of the stage, for messages and for its random stream.
    files : reads those that the model names.
    trace : the recorded trace of the arrivals (None: there is none).
    queries : how many arrive; each has tokens, whether it comes by or not.
    seed : of tokens that are drawn from a recorded trace.
    sessions : which requests follow which (default None: none does).

    Raises ScenarioError, ProfileError or TraceError; also where every request would be refused, because it can never
    fit into the cache.
    """
    where = _path(stage)
    cost, notes = _cost(spec.cost, spec.token_budget, spec.max_seqs, files)
    blocks, token_bytes, noted = _memory(spec, stage, files, f"{where}.memory")
    notes += noted
    if sessions is not None and sessions.own is not None:
        prompt, output = sessions.own
    else:
        prompt, output = _tokens(spec, stage, files, trace, queries, seed)
    if sessions is not None:
        prompt = sessions.grown(prompt, output)
    host = None
    if spec.swap is not None:
        block_bytes = token_bytes * spec.block_tokens
        host = HostMemory(spec.swap.host_blocks, 1e3 * block_bytes / spec.swap.bandwidth_bytes_per_s)
    llm = LanguageModel(
        max_seqs=spec.max_seqs,
        token_budget=spec.token_budget,
        kv_blocks=blocks,
        block_tokens=spec.block_tokens,
        cost=cost,
        prompt=prompt,
        output=output,
        routing=spec.balance,
        limits=spec.limits,
        keeps_iterations=spec.iterations,
        shared=_prefixes(spec, stage, trace, (prompt, output), seed, sessions),
        rules=spec.scheduler.rules(),
        ranks=_ranks(spec, stage, trace, queries, seed),
        host=host,
        speculation=spec.speculation,
        keys=_keys(spec, stage, queries, seed),
    )
    if spec.decode is not None:
        pool, noted = _decode_pool(spec, stage, llm, files, token_bytes)
        llm, notes = replace(llm, decode=pool), [*notes, *noted]
    refused = llm.refused
    if llm.beyond_budget.all():
        least = min((own for _, own in _pools(llm)), key=lambda own: own.token_budget)
        what = (
            f"is {least.token_budget}; the smallest of the {queries} requests needs {int((prompt + output).min())}, since "
            "no prompt is cut, so every one would be refused"
        )
        raise ScenarioError.at(f"{where}.{'' if least is llm else 'decode.'}token_budget", what)
    if refused.all():
        stored = "; ".join(
            f"{whose} cache stores {pool.kv_blocks * pool.block_tokens} tokens, the smallest of the {queries} requests "
            f"needs {int(pool.most_tokens.min())}"
            for whose, pool in _pools(llm)
        )
        what = f"{stored}, so every one would be refused"
        raise ScenarioError.at(f"{where}.{'kv_blocks' if spec.memory is None else 'memory'}", what)
    if refused.any():
        notes.append(
            f"{stage}: {np.count_nonzero(refused)} of {queries} requests are refused: "
            + "; ".join(lack for whose, pool in _pools(llm) for lack in _lacks(pool, whose))
        )
    return llm, notes


def _path(stage: str) -> str:
    """Of the section in the scenario, for messages."""
    return f"$.configuration.{stage}.llm"


def _memory(
    spec: LanguageModelSpec, stage: str, files: ScenarioFiles, where: str
) -> tuple[int, float, list[str]]:
    """Blocks of the cache, and keys and values of a token on all accelerators of a replica (0: not known), as given or from
    the model's configuration; with a note of what they follow from."""
    if spec.memory is None:
        assert spec.kv_blocks is not None, "the scenario has one of the two"
        return spec.kv_blocks, spec.kv_token_bytes, []
    model = files.architecture(spec.memory.model)
    use = memory_use(spec, spec.memory, model, where)
    note = (
        f"{stage}: {use.blocks:,} blocks of {spec.block_tokens} tokens follow from {model.parameters / 1e9:.4g} billion "
        f"parameters ({use.weights_bytes / 1e9:.3g} GB on each accelerator) and {use.block_bytes / spec.block_tokens:,.0f} "
        "bytes a token; activations are estimated" * (spec.memory.activations_bytes is None)
    )
    token_bytes = use.block_bytes / spec.block_tokens * spec.memory.tensor_parallel
    return use.blocks, spec.kv_token_bytes or token_bytes, [note, *model.notes]


def _lacks(llm: LanguageModel, whose: str) -> Iterator[str]:
    """What requests need that replicas have not; parameters as `_pools` gives them."""
    if (llm.most_blocks > llm.kv_blocks).any():
        stores = llm.kv_blocks * llm.block_tokens
        yield f"they need up to {int(llm.most_tokens.max())} tokens, {whose} cache stores {stores}"
    if replace(llm, decode=None).beyond_budget.any():
        most = int((llm.prompt + llm.output).max())
        yield (
            f"no prompt is cut, and with their answers they have up to {most} tokens, {whose} token_budget is "
            f"{llm.token_budget}"
        )


def _pools(llm: LanguageModel) -> list[tuple[str, LanguageModel]]:
    """Whose caches there are, in words, each with its model."""
    if llm.decode is None:
        return [("its", llm)]
    return [("the prefilling replicas'", llm), ("the decoding replicas'", llm.decode.llm)]


def _decode_pool(
    spec: LanguageModelSpec, stage: str, llm: LanguageModel, files: ScenarioFiles, token_bytes: float
) -> tuple[DecodePool, list[str]]:
    """The replicas that decode, and what is to be noted.

    Parameters
    ----------
    spec : of the stage; what the pool does not say is as there.
    stage : its name, for messages.
    llm : the replicas that prefill.
    files : reads those that costs and memory name.
    token_bytes : keys and values of a token.
    """
    given = spec.decode
    assert given is not None
    budget, seats = given.token_budget or llm.token_budget, given.max_seqs or llm.max_seqs
    cost, notes = _cost(given.cost or spec.cost, budget, seats, files)
    blocks = given.kv_blocks or llm.kv_blocks
    if given.memory is not None:
        own_spec = msgspec.structs.replace(
            spec, max_seqs=seats, token_budget=budget, kv_blocks=None, memory=given.memory
        )
        blocks, _, noted = _memory(own_spec, f"{stage} (decode)", files, f"{_path(stage)}.decode.memory")
        notes += noted
    alike = llm.routing in ("round-robin", "least-requests", "random")
    own = replace(
        llm,
        max_seqs=seats,
        token_budget=budget,
        kv_blocks=blocks,
        cost=replace(cost, request_ms=0.0),
        routing=given.balance or (llm.routing if alike else "round-robin"),
        shared=None,
    )
    per_token_ms = 0.0
    if given.bandwidth_bytes_per_s is not None:
        per_token_ms = 1e3 * token_bytes / given.bandwidth_bytes_per_s
    return DecodePool(given.replicas, own, per_token_ms, given.latency_ms), notes


def _cost(
    given: Coefficients | Measured, token_budget: int, max_seqs: int, files: ScenarioFiles
) -> tuple[Cost, list[str]]:
    if isinstance(given, Coefficients):
        return Cost.of(np.array(given.values, dtype=np.float64), given.fit, given.spread), []
    medians = files.medians(given.medians)
    key = medians.key(given.model, given.hardware, given.tensor_parallel)
    cost, notes = medians.cost(key, token_budget, max_seqs)
    return cost, list(notes)


def _tokens(
    spec: LanguageModelSpec, stage: str, files: ScenarioFiles, trace: Trace | None, queries: int, seed: int
) -> tuple[Ints, Ints]:
    """Tokens of the prompt and of the answer, int64[queries] each.

    Parameters
    ----------
    spec : says where they come from: fixed, listed, drawn with replacement from a file, or the trace's own.
    stage : name of the stage, which names the random stream.
    files : reads the file that they are drawn from.
    trace : the recorded trace of the arrivals (None: there is none).
    queries : how many arrive.
    seed : of the draws.
    """
    given, where = spec.tokens, _path(stage)
    if isinstance(given, FixedTokens):
        return np.full(queries, given.prompt), np.full(queries, given.output)
    if isinstance(given, ListedTokens):
        if len(given.pairs) != queries:
            what = f"lists the tokens of {len(given.pairs)} requests; {queries} arrive"
            raise ScenarioError.at(f"{where}.tokens.pairs", what)
        prompt, output = np.array(given.pairs, dtype=np.int64).T.copy()
        return prompt, output
    if isinstance(given, DrawnTokens):
        prompt, output = token_columns(files.trace(given), given.drawn_from.path)
        rows = stream(seed, "tokens", stage).integers(len(prompt), size=queries)
        return prompt[rows], output[rows]
    if trace is None:
        what = "the trace has no tokens: say tokens: {prompt: 512, output: 128}, {drawn_from: FILE} or {pairs: [...]}"
        raise ScenarioError.at(f"{where}.tokens", what)
    return token_columns(trace, trace.provenance.source)


def _prefixes(
    spec: LanguageModelSpec,
    stage: str,
    trace: Trace | None,
    tokens: tuple[Ints, Ints],
    seed: int,
    sessions: Sessions | None,
) -> Prefixes | None:
    """What the prompts begin with; None without a prefix cache. Parameters as those of `_tokens`."""
    given, where, (prompt, output) = spec.prefix_cache, _path(stage), tokens
    if given is None:
        return None
    if isinstance(given, HistoryPrefixes):
        assert sessions is not None, "the scenario has refused it"
        taken = 16 * int((prompt + output).sum() // spec.block_tokens)
        if taken > MOST_BYTES:
            what = f"contexts of {len(prompt):,} requests take {gib(taken)} of memory; at most {gib(MOST_BYTES)} are used"
            raise ScenarioError.at(f"{where}.prefix_cache", what)
        return sessions.prefixes(prompt, output, spec.block_tokens) if given.history else None
    if isinstance(given, DrawnPrefixes):
        return drawn_prefixes(given, prompt, spec.block_tokens, stream(seed, "prefixes", stage))
    if trace is None or SEGMENTS not in [column.name for column in trace.schema]:
        name = "the trace" if trace is None else trace.provenance.source
        what = f"{name} has no column {SEGMENTS}; traces in the formats mooncake and qwen_bailian do"
        raise ScenarioError.at(f"{where}.prefix_cache", what)
    source = f"{trace.provenance.source}:{SEGMENTS}"
    try:
        segments = [[int(number) for number in text.split()] for text in trace[SEGMENTS].tolist()]
    except ValueError as error:
        raise TraceError.at(source, f"whole numbers between blanks are needed: {error}") from None
    numbers = np.array([len(own) for own in segments])
    whole = prompt // given.id_tokens
    few, many = numbers < whole, numbers > whole + (prompt % given.id_tokens > 0)
    if (few | many).any():
        first = int(np.argmax(few | many))
        wrong = [
            f"{count} requests have too {word}"
            for word, count in (("few", few.sum()), ("many", many.sum()))
            if count
        ]
        what = (
            f"request {first} in order of arrival has {numbers[first]} numbers for {prompt[first]} prompt tokens, "
            f"{given.id_tokens} tokens each; {' and '.join(wrong)}{_fitting(numbers, prompt)}"
        )
        raise TraceError.at(source, what)
    return Prefixes.of(segments, given.id_tokens // spec.block_tokens)


def _fitting(numbers: Ints, prompt: Ints) -> str:
    """Tokens a number that every prompt agrees with, as an advice; empty if there are none."""
    least = int(np.max(-(-prompt // np.maximum(numbers, 1))))
    most = int(np.min(np.where(numbers > 1, (prompt - 1) // np.maximum(numbers - 1, 1), prompt.max())))
    power = 1 << (least - 1).bit_length()
    fits = power if power <= most else least
    return f"; id_tokens: {fits} fits them all" if numbers.min() and least <= most else ""


def _ranks(spec: LanguageModelSpec, stage: str, trace: Trace | None, queries: int, seed: int) -> Ints | None:
    """The class of each request, numbered from 0 without gaps; None where the scheduler knows none.

    Parameters as those of `_tokens`.
    """
    given = spec.scheduler.rules().classes
    if given is None:
        return None
    where = f"{_path(stage)}.scheduler"
    if given.shares:
        share = np.array(given.shares)
        classes = stream(seed, "classes", stage).choice(len(share), size=queries, p=share / share.sum())
    elif given.listed:
        if len(given.listed) != queries:
            what = f"lists the classes of {len(given.listed)} requests; {queries} arrive"
            raise ScenarioError.at(f"{where}.classes", what)
        classes = np.array(given.listed)
    elif trace is None or PRIORITY not in [column.name for column in trace.schema]:
        name = "the trace" if trace is None else trace.provenance.source
        what = f"{name} has no column {PRIORITY}; say shares: [1, 3] or classes: [0, 1, ...], or read a csv with it"
        raise ScenarioError.at(where, what)
    else:
        classes = trace[PRIORITY]
    known, ranks = np.unique(classes, return_inverse=True)
    if len(known) > MOST_CLASSES:
        raise ScenarioError.at(
            where, f"{len(known)} classes of requests; at most {MOST_CLASSES} are simulated"
        )
    return ranks.astype(np.int64)


def _keys(spec: LanguageModelSpec, stage: str, queries: int, seed: int) -> Ints:
    """What it is drawn from by request whether drafts guess its tokens, and which replica it goes to; none where neither is
    drawn or planned to be."""
    pools = [spec.decode, *spec.plan.decode]
    routings = [spec.balance, *spec.plan.balance, *(pool.balance for pool in pools if pool is not None)]
    lots = any(routing == "random" or isinstance(routing, Weighted) for routing in routings)
    if not lots and spec.speculation is None and not any(spec.plan.speculation or ()):
        return np.empty(0, dtype=np.int64)
    return stream(seed, "speculation", stage).integers(2**32, size=queries)


def drawn_prefixes(
    given: DrawnPrefixes, prompt: Ints, block_tokens: int, draw: np.random.Generator
) -> Prefixes:
    """Each prompt begins with one of several system prompts.

    Parameters
    ----------
    given : how many there are, how long they are, and how often each is drawn.
    prompt : int64[queries], tokens of the prompts.
    block_tokens : tokens in a block of the cache.
    draw : random numbers.
    """
    rank = np.arange(1, given.system_prompts + 1, dtype=np.float64)
    share = rank**-given.skew
    chosen = draw.choice(given.system_prompts, size=len(prompt), p=share / share.sum())
    blocks = given.system_tokens // block_tokens
    own = np.minimum(prompt // block_tokens, blocks)
    start = np.concatenate([[0], np.cumsum(own)])
    place = np.arange(start[-1]) - np.repeat(start[:-1], own)
    return Prefixes(start, np.repeat(chosen * blocks, own) + place)


def token_columns(trace: Trace, name: str) -> tuple[Ints, Ints]:
    """Tokens by row, in order of arrival."""
    known = [column.name for column in trace.schema]
    missing = [column for column in COLUMNS if column not in known]
    if missing:
        what = (
            f"has no column {' or '.join(missing)}, which a language model needs; it has {', '.join(known)}"
        )
        raise TraceError.at(name, what)
    prompt, output = (trace[column].astype(np.int64) for column in COLUMNS)
    for column, values in zip(COLUMNS, (prompt, output)):
        bad = np.flatnonzero(values < 1)
        if len(bad):
            what = f"{len(bad)} requests have {values[bad[0]]} {column}, the first is number {bad[0]} in order of arrival"
            hint = "; requests without an answer can be left out with options: {failed: drop}"
            failed = hint if trace.provenance.format == "burstgpt" and column == "output_tokens" else ""
            raise TraceError.at(f"{name}:{column}", f"{what}; at least 1 is needed{failed}")
    return prompt, output
