"""The costs of a server at the iterations that a measured run must have had, and what another setting would carry with them.

A run's iterations need not be replayed to know their mean composition. By Little's law as many requests decode as come in a
second times the seconds that each decodes; the time between tokens is that of an iteration; and in it prompts are processed
at the rate at which requests come. So each run says what one iteration of known composition takes. Costs of the model's
kernels (`bottom_up`) are where the search begins and how far it may go: a single sweep of rates cannot tell what a decode
takes from what a prompt takes, because both grow together, but kernels can. Where no measurement of the other setting exists
the answer has an interval, from what remains unsure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.experiment import Experiment
from forerun.serving.llm.calibration.fitting import PRECISION
from forerun.serving.llm.calibration.physics import SPREAD, Physics
from forerun.serving.llm.calibration.replay import COEFFICIENTS, possible
from forerun.serving.llm.calibration.server import Server
from forerun.serving.llm.inputs.model import Cost
from forerun.serving.llm.scenario.language_model import SpeculationSpec

#: standard deviation of the logarithm of what kernels and a server's overhead say of each coefficient: of iterations that
#: decode about what models that the overhead was not fitted to are off by, and of decodes more than fits without a family
#: differ; of prompts as wide as from a data sheet, because the runs that the overhead was fitted to had nearly all prompts
#: in their prefix caches
KERNEL_SPREAD: Final = np.array([0.1, SPREAD[1], 0.15, 0.3, SPREAD[4], 1.0, SPREAD[6]])
#: steps of the search, where it begins with prompts that little or much of is hidden, and decodes that cost more
STEPS: Final = 60
HIDDEN: Final = (0.1, 0.4, 1.0)
DEARER: Final = (1.0, 2.0)
#: change of a logarithm by which slopes are taken
SLOPE: Final = 1e-4
#: gaps between requests whose deviation is less than this share of their mean are even
EVEN: Final = 0.5
#: deviations above the mean up to which numbers of prompts are counted
MOST_SPREAD: Final = 6.0
#: halvings of the interval in which the carried rate lies, and rounds in which an iteration settles at a rate
HALVINGS: Final = 50
ROUNDS: Final = 100


class Occupied(NamedTuple):
    """The mean iteration of a run.

    Parameters
    ----------
    decodes : requests that decode in it.
    prompts : prompts that are processed in it.
    processed : tokens of each prompt that are, without those that the prefix cache had.
    context : tokens that a request which decodes has in the cache.
    drafted : tokens that a draft proposes (default 0).
    even : requests come evenly, so iterations have the next whole number of prompts below or above the mean; else as many as
        chance has it (Poisson), as when seats are given back (default).
    alone : prompts have iterations of their own, between those that decode (default: they share them).
    """

    decodes: float
    prompts: float
    processed: float
    context: float
    drafted: float = 0.0
    even: bool = False
    alone: bool = False


def mean_tokens(draft: SpeculationSpec) -> float:
    """Tokens that a step yields on average, if the answer goes on."""
    return float(sum(draft.acceptance**drafts for drafts in range(draft.draft_tokens + 1)))


def processed_tokens(server: Server, prompt: Floats) -> Floats:
    """Tokens of each prompt that are processed once the prefix cache has what prompts begin with.

    Parameters
    ----------
    server : its prefix cache and blocks.
    prompt : float64[n], tokens of prompts.
    """
    if server.prefix_cache is None:
        return prompt
    block = server.block_tokens
    shared = np.minimum((prompt - 1) // block, server.prefix_cache.system_tokens // block) * block
    return np.asarray(prompt - shared)


def occupied(server: Server, experiment: Experiment) -> tuple[float, Occupied]:
    """What an iteration of a run took without its drafts, in ms, and what it consisted of, on each replica.

    Parameters
    ----------
    server : that was measured.
    experiment : with the rate, and the means of the latencies.
    """
    measured, load, draft = experiment.measured, experiment.load, server.speculation
    per_ms = measured["throughput_rps"] / 1e3 / server.replicas
    took_ms = measured["tpot_mean_ms"] * (1.0 if draft is None else mean_tokens(draft))
    prompt, gaps_ms = load.prompt.astype(np.float64), np.diff(load.send_ms)
    even = not experiment.holds_back and len(gaps_ms) > 0 and gaps_ms.std() < EVEN * gaps_ms.mean()
    decodes = per_ms * (measured["e2e_mean_ms"] - measured["ttft_mean_ms"])
    drafts = 0 if draft is None else draft.draft_tokens
    draft_ms = 0.0 if draft is None else draft.extra_ms(drafts, drafts * decodes)
    return took_ms - draft_ms, Occupied(
        decodes,
        per_ms * took_ms,
        float(processed_tokens(server, prompt).mean()),
        float(prompt.mean() + load.output.mean() / 2),
        drafts * decodes,
        even=bool(even),
    )


def iteration_ms(values: Floats, of: Occupied) -> float:
    """What the mean iteration takes: prompts come whole, and what an iteration hides of them it hides once.

    Parameters
    ----------
    values : in the order of `Coefficients.names`, the last may be left out.
    of : what it consists of.
    """
    cost = Cost.of(values)
    a, prefill, decode, kv, pair = cost.terms
    if of.even:
        counts = math.floor(of.prompts) + np.arange(2.0)
        chances = 1 - np.abs(counts - of.prompts)
    else:
        counts = np.arange(math.ceil(of.prompts + MOST_SPREAD * math.sqrt(of.prompts)) + 1.0)
        ratios = np.divide(of.prompts, counts, out=np.ones(len(counts)), where=counts > 0)
        chances = math.exp(-of.prompts) * np.cumprod(ratios)
    shown = np.maximum(0.0, counts * of.processed + of.drafted - cost.hidden_prefill)
    before = counts * of.processed * max(0.0, of.context - of.processed / 2)
    prompts_ms = prefill * shown + pair * (before + of.drafted * of.context)
    decodes_ms = decode * of.decodes + kv * of.decodes * of.context
    decodes = 0.0 if of.alone else of.decodes
    # As many decode as chance has it, so near the limit some iterations are launched and others are not.
    over = (counts * of.processed + of.drafted + decodes - cost.launch_tokens) / math.sqrt(2 * decodes + 1)
    launched = np.where(counts > 0, [(1 + math.erf(one)) / 2 for one in over], 0.0)
    each_ms = a + prompts_ms + (0.0 if of.alone else decodes_ms)
    each_ms = each_ms + launched * np.maximum(cost.launch_ms - each_ms, 0.0)
    if of.alone:
        return a + decodes_ms + float(chances @ np.where(counts > 0, each_ms, 0.0))
    return float(chances @ each_ms)


@dataclass(frozen=True)
class Calibrated:
    """Costs after a run.

    Parameters
    ----------
    values : in the order of `Coefficients.names`, as many as the search began with.
    covariance : float64[7, 7], of their logarithms: what the run and the start leave unsure.
    errors : of each run, what the iteration is off by, as a share.
    """

    values: Floats
    covariance: Floats = field(repr=False)
    errors: tuple[float, ...]

    def draws(self, count: int, seed: int = 0) -> Floats:
        """Coefficients as they may be, one row a draw; those of launches as they are."""
        spread = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(len(COEFFICIENTS)))
        noise = np.random.default_rng(seed).normal(size=(count, len(COEFFICIENTS)))
        return np.array([_times(self.values, spread @ one) for one in noise])


def calibrated(runs: Sequence[tuple[Server, Experiment]], start: Physics) -> Calibrated:
    """The most likely costs after some runs of one model on one kind of accelerator.

    Parameters
    ----------
    runs : at least one, each with the settings that the server had; with the rate, and the means of the latencies.
    start : what is known of the costs without them.
    """
    seen = [occupied(server, one) for server, one in runs]
    precision = PRECISION["tpot_mean_ms"]

    def off(x: Floats) -> Floats:
        values = _times(start.values, x)
        return np.array([np.log(iteration_ms(values, of) / took_ms) for took_ms, of in seen])

    def residuals(x: Floats) -> Floats:
        return np.concatenate([off(x) / precision, x / start.spread])

    begins = [np.zeros(len(COEFFICIENTS)) for _ in HIDDEN for _ in DEARER]
    for begin, (hidden, dearer) in zip(begins, [(one, other) for one in HIDDEN for other in DEARER]):
        begin[2], begin[6] = np.log(dearer), np.log(hidden)
    found = [_descended(residuals, begin) for begin in begins]
    best = min(found, key=lambda one: float((residuals(one) ** 2).sum()))
    slopes = _slopes(residuals, best)
    covariance = np.linalg.inv(slopes.T @ slopes).astype(np.float64)
    return Calibrated(_times(start.values, best), covariance, tuple(off(best).tolist()))


def _times(values: Floats, logs: Floats) -> Floats:
    """Values whose first are changed by these logarithms."""
    count = len(logs)
    return np.concatenate([possible(values[:count] * np.exp(logs)), values[count:]])


def _slopes(residuals: Callable[[Floats], Floats], x: Floats) -> Floats:
    here = residuals(x)
    return np.stack([(residuals(x + SLOPE * one) - here) / SLOPE for one in np.eye(len(x))], axis=1)


def _descended(residuals: Callable[[Floats], Floats], x: Floats) -> Floats:
    """The least squares near a point, by Gauss and Newton with halved steps."""
    for _ in range(STEPS):
        here, slopes = residuals(x), _slopes(residuals, x)
        step = -np.linalg.solve(slopes.T @ slopes, slopes.T @ here)
        share, least = 1.0, float((here**2).sum())
        while share > SLOPE and float((residuals(x + share * step) ** 2).sum()) > least:
            share /= 2
        if share <= SLOPE:
            break
        x = x + share * step
    return x


def carried_rps(values: Floats, server: Server, prompt: float, output: float) -> float:
    """The rate at which all seats are taken, in the mean iteration.

    Parameters
    ----------
    values : in the order of `replay.COEFFICIENTS`.
    server : seats, prefix cache, drafts and replicas.
    prompt, output : tokens of a request.
    """
    draft = server.speculation
    drafts, tokens = (0, 1.0) if draft is None else (draft.draft_tokens, mean_tokens(draft))
    processed = float(processed_tokens(server, np.array([prompt]))[0])
    steps = (output - 1) / tokens
    decodes = server.max_seqs * steps / (steps + 1)
    draft_ms = 0.0 if draft is None else draft.extra_ms(drafts, drafts * decodes)
    low, high = 0.0, server.max_seqs / ((steps + 1) * (float(values[0]) + draft_ms))
    for _ in range(HALVINGS):
        per_ms, took_ms = (low + high) / 2, 0.0
        # Times only grow from round to round, so what is too long stays so.
        for _ in range(ROUNDS):
            if per_ms * (steps + 1) * took_ms >= server.max_seqs:
                break
            of = Occupied(decodes, per_ms * took_ms, processed, prompt + output / 2, drafts * decodes)
            took_ms = (took_ms + iteration_ms(values, of) + draft_ms) / 2
        low, high = (per_ms, high) if per_ms * (steps + 1) * took_ms < server.max_seqs else (low, per_ms)
    return 1e3 * low * server.replicas
