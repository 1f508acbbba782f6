"""What a language model's stage records: its requests, its course over time, and its iterations if asked for."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from forerun.core.result.tables import Column, Table, TableSchema
from forerun.serving.engine.outcome import Iterations, Requests, Run, Visits
from forerun.serving.inputs.pipeline import Floats, Ints, Pipeline
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.summary.objectives import tpot_ms, ttft_ms

#: equal spans of time in which the course of a language model is given
SPANS: Final = 300

_STAGE: Final = Column("stage", "", "name of the stage")

REQUESTS: Final = TableSchema(
    "requests",
    (
        Column("query", "", "number of the query, in order of arrival"),
        _STAGE,
        Column("replica", "", "number of the replica; -1 if refused"),
        Column("prompt_tokens", "tokens", "tokens of the prompt"),
        Column("output_tokens", "tokens", "tokens of the answer"),
        Column("enqueue_ms", "ms", "when it enters the stage"),
        Column("start_ms", "ms", "when its first iteration begins"),
        Column("first_token_ms", "ms", "instant of its first token; nan, like what follows from it: refused"),
        Column("end_ms", "ms", "instant of its last token"),
        Column("queue_ms", "ms", "from entering to the first iteration"),
        Column("ttft_ms", "ms", "time to first token, from entering the stage"),
        Column("tpot_ms", "ms", "mean time between tokens after the first; nan: only one"),
        Column("longest_gap_ms", "ms", "longest time between two of its tokens"),
        Column("e2e_ms", "ms", "from entering the stage to the last token"),
        Column("preemptions", "", "how often its blocks were taken away and its tokens processed anew"),
        Column("stalled_ms", "ms", "time back in the queue after preemptions"),
        Column("refused", "", "it can never fit into the cache and was refused on arrival"),
    ),
    "one query at one stage that serves a language model",
)
COURSE: Final = TableSchema(
    "llm_course",
    (
        _STAGE,
        Column("at_ms", "ms", "begin of the span of time"),
        Column("running", "requests", "most requests that ran at once, all replicas together"),
        Column("waiting", "requests", "most requests that waited at once"),
        Column("cache_share", "", "most of the blocks in use, as a share of all"),
        Column("prefill_tokens_per_s", "tokens/s", "prompt tokens processed in iterations that began in it"),
        Column("output_tokens_per_s", "tokens/s", "decodes in iterations that began in it"),
        Column("busy_share", "", "share of replica time in iterations that began in it"),
    ),
    "one span of time at one stage that serves a language model",
)
TRANSFERS: Final = TableSchema(
    "transfers",
    (
        Column("query", "", "number of the query, in order of arrival"),
        _STAGE,
        Column("from_replica", "", "number of the replica that prefilled it"),
        Column("to_replica", "", "number of the replica that decodes, behind those that prefill"),
        Column("first_token_ms", "ms", "instant of its first token: it is sent as soon as the link is free"),
        Column("sent_ms", "ms", "when it is there, and its blocks at the replica that prefilled it are free"),
        Column("decode_start_ms", "ms", "when its first iteration there begins"),
    ),
    "one request that another replica prefilled than decodes",
)
ITERATIONS: Final = TableSchema(
    "iterations",
    (
        _STAGE,
        Column("replica", "", "number of the replica within its stage"),
        Column("start_ms", "ms", "when it begins"),
        Column("end_ms", "ms", "when it ends"),
        Column("prefill_tokens", "tokens", "tokens of prompts, or of preempted requests, that are processed"),
        Column("decodes", "requests", "requests that process their latest token"),
        Column("kv_tokens", "tokens", "tokens that the decodes have in the cache"),
        Column("running", "requests", "requests admitted"),
        Column("free_blocks", "blocks", "blocks of the cache that are free"),
    ),
    "one iteration, in the order they begin within a stage",
)


def llm_tables(pipeline: Pipeline, run: Run) -> dict[str, Table]:
    """The tables of all stages that serve language models."""
    served = [
        (stage.name, stage.llm, stage.most_replicas, run.visits[s], requests)
        for s, (stage, requests) in enumerate(zip(pipeline.stages, run.requests))
        if stage.llm is not None and requests is not None
    ]
    together = {
        "requests": Table.of_parts(REQUESTS, [_requests(*llm) for llm in served]),
        "llm_course": Table.of_parts(COURSE, [_course(*llm) for llm in served]),
    }
    sent = [
        _transfers(name, visits, requests) for name, _, _, visits, requests in served if requests.transfers
    ]
    if sent:
        together["transfers"] = Table.of_parts(TRANSFERS, sent)
    iterations = [
        {
            "stage": name,
            **vars(each.recorded),
            "prefill_tokens": each.recorded.prefill,
            "kv_tokens": each.recorded.kv,
        }
        for name, llm, _, _, each in served
        if llm.keeps_iterations and each.recorded is not None
    ]
    return together | ({"iterations": Table.of_parts(ITERATIONS, iterations)} if iterations else {})


def _requests(
    name: str, llm: LanguageModel, replicas: int, visits: Visits, requests: Requests
) -> dict[str, Any]:
    refused = np.isnan(requests.first_ms)
    # A refused request has no times but that of its entry.
    start_ms, end_ms = (np.where(refused, np.nan, at_ms) for at_ms in (visits.start_ms, visits.end_ms))
    query = np.flatnonzero(~np.isnan(visits.enqueue_ms))
    columns = {
        "replica": visits.replica.astype(np.int64),
        "prompt_tokens": llm.prompt,
        "output_tokens": llm.output,
        "enqueue_ms": visits.enqueue_ms,
        "start_ms": start_ms,
        "first_token_ms": requests.first_ms,
        "end_ms": end_ms,
        "queue_ms": start_ms - visits.enqueue_ms,
        "ttft_ms": ttft_ms(visits, requests),
        "tpot_ms": tpot_ms(llm, visits, requests),
        "longest_gap_ms": requests.longest_gap_ms,
        "e2e_ms": end_ms - visits.enqueue_ms,
        "preemptions": requests.preemptions,
        "stalled_ms": requests.stalled_ms,
        "refused": refused,
    }
    return {"query": query, "stage": name, **{name: values[query] for name, values in columns.items()}}


def _transfers(name: str, visits: Visits, requests: Requests) -> dict[str, Any]:
    assert requests.transfers is not None
    query = np.flatnonzero(~np.isnan(requests.transfers.sent_ms))
    return {
        "query": query,
        "stage": name,
        "from_replica": visits.replica[query].astype(np.int64),
        "to_replica": requests.transfers.replica[query],
        "first_token_ms": requests.first_ms[query],
        "sent_ms": requests.transfers.sent_ms[query],
        "decode_start_ms": requests.transfers.start_ms[query],
    }


def _course(
    name: str, llm: LanguageModel, replicas: int, visits: Visits, requests: Requests
) -> dict[str, Any]:
    """Each span's peaks and rates; peaks take the level at its begin and after every change in it."""
    recorded = requests.recorded
    assert recorded is not None
    begin_ms, end_ms = float(np.nanmin(visits.enqueue_ms)), float(recorded.end_ms.max())
    edges = np.linspace(begin_ms, end_ms, SPANS + 1)
    span = np.clip(np.searchsorted(edges, recorded.start_ms, side="right") - 1, 0, SPANS - 1)
    span_s = (end_ms - begin_ms) / SPANS / 1e3
    blocks = np.full(replicas, llm.kv_blocks)
    if llm.decode is not None:
        blocks = np.append(blocks, np.full(llm.decode.replicas, llm.decode.llm.kv_blocks))
        replicas += llm.decode.replicas
    running = _most_at_once([_level(recorded, r, recorded.running) for r in range(replicas)], edges)
    used = _most_at_once(
        [_level(recorded, r, blocks[r] - recorded.free_blocks) for r in range(replicas)], edges
    )
    guesses, steps = requests.guesses, int(requests.gaps.sum())
    each = 1.0 if guesses is None or not steps else 1 + guesses.accepted / steps
    served = ~np.isnan(requests.first_ms)
    come, gone = visits.enqueue_ms[served], visits.start_ms[served]
    queue = (np.concatenate([come, gone]), np.repeat([1.0, -1.0], len(come)))
    waiting = _most_at_once([queue], edges)
    return {
        "stage": name,
        "at_ms": edges[:-1],
        "running": running.astype(np.int64),
        "waiting": waiting.astype(np.int64),
        "cache_share": used / int(blocks.sum()),
        "prefill_tokens_per_s": np.bincount(span, recorded.prefill, minlength=SPANS) / span_s,
        "output_tokens_per_s": np.bincount(span, recorded.decodes, minlength=SPANS) * each / span_s,
        "busy_share": np.bincount(span, recorded.end_ms - recorded.start_ms, minlength=SPANS)
        / (span_s * 1e3 * replicas),
    }


def _level(recorded: Iterations, replica: int, values: Ints) -> tuple[Floats, Floats]:
    """(instants, changes) of a replica's load: what its iteration says, and nothing while it idles."""
    rows = recorded.replica == replica
    start_ms, end_ms = recorded.start_ms[rows], recorded.end_ms[rows]
    idle_ms = end_ms[np.concatenate([start_ms[1:] > end_ms[:-1], [True]])] if len(end_ms) else end_ms
    at_ms = np.concatenate([start_ms, idle_ms])
    level = np.concatenate([values[rows].astype(np.float64), np.zeros(len(idle_ms))])
    order = np.argsort(at_ms, kind="stable")
    return at_ms[order], np.diff(level[order], prepend=0.0)


def _most_at_once(parts: list[tuple[Floats, Floats]], edges: Floats) -> Floats:
    """float64[spans]: the largest sum of all parts within each span, from the level at its begin on."""
    at_ms = np.concatenate([instants for instants, _ in parts])
    order = np.argsort(at_ms, kind="stable")
    at_ms = at_ms[order]
    level = np.cumsum(np.concatenate([changes for _, changes in parts])[order])
    settled = np.concatenate([at_ms[1:] > at_ms[:-1], [True]])  # after all changes of an instant
    at_ms, level = at_ms[settled], level[settled]
    before = np.searchsorted(at_ms, edges[:-1], side="left")
    most = np.where(before > 0, level[before - 1], 0.0)
    span = np.clip(np.searchsorted(edges, at_ms, side="right") - 1, 0, len(most) - 1)
    np.maximum.at(most, span, level)
    return np.asarray(most)
