"""Believe no planner: verify that a plan for language models is the cheapest, from its certificate and the scenario alone.

Shares no code with the planner. Verified: that the certificate lists every cell of the scenario's space that is cheaper than
the plan, each once; by simulation, to the end, that each cell said to miss does so in the worlds claimed; request by
request, that each bound excludes its cell; by simulation, that the plan keeps the objectives. The engine is believed, and
how worlds are drawn and how much further off figures are near the knee.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from forerun.core.errors import worded
from forerun.core.scenario.spec import to_data
from forerun.serving.engine import run
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.prepare import prepare
from forerun.serving.inputs.profile import ARTIFACT_PRICES_USD_PER_H
from forerun.serving.inputs.routing import visited_stages
from forerun.serving.llm.plan.draws import grown, growths, worlds
from forerun.serving.llm.scenario.language_model import LATER_AXES, LanguageModelSpec
from forerun.serving.llm.summary.models import model_figures
from forerun.serving.scenario import Scenario
from forerun.serving.summary.clients import counted, counted_inputs

SCHEMA: Final = "forerun.serving.llm.certificate/2"

#: what rounding may take away from a bound, as a share of it
ROUNDING: Final = 1e-9


#: hardware, replicas and settings of a stage
_Choice = dict[str, Any]


class Rejected(Exception):
    """The certificate claims something that is not so."""


def demand(is_true: object, claim: str, cell: Mapping[str, _Choice] | None = None) -> None:
    """Reject unless the claim is true. cell: what it is about (default: the whole certificate)."""
    if not is_true:
        raise Rejected(f"{_named(cell)}: {claim}" if cell else claim)


def check(certificate: Mapping[str, Any], inputs: Inputs, traces: int, max_replicas: int) -> int:
    """Verify a certificate; returns how many cells it excludes.

    Parameters
    ----------
    certificate : plain data, as read from a file.
    inputs : the scenario's.
    traces : fresh ones that were planned for (0: the scenario's own).
    max_replicas : of a stage that lists no numbers of replicas.

    Raises Rejected, naming the claim that does not hold.
    """
    try:
        return _Checked(certificate, inputs, traces, max_replicas).all()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise Rejected(f"malformed: {worded(error)}") from error


class _Checked:
    def __init__(
        self, certificate: Mapping[str, Any], inputs: Inputs, traces: int, max_replicas: int
    ) -> None:
        self.claims, self.inputs, self.numbers = certificate, inputs, tuple(range(1, traces + 1)) or (0,)
        self.scenario, self.max_replicas = inputs.scenario, max_replicas
        self.served: dict[str, LanguageModelSpec] = {
            stage.name: llm
            for stage in self.scenario.stages
            if (llm := self.scenario.configuration[stage.name].llm) is not None
        }
        prices = {**ARTIFACT_PRICES_USD_PER_H, **self.scenario.prices_usd_per_h}
        self.prices = {name: Fraction(repr(float(usd))) for name, usd in prices.items()}
        self.asked: dict[str, _Asked] = {}
        self.answers: dict[str, int] = {}

    def all(self) -> int:
        """Every claim, the quick ones first."""
        claims, failing = self.claims, int(self.claims["failing"])
        demand(claims["schema"] == SCHEMA, f"unknown schema {claims['schema']}")
        objectives = ("cost", "token-cost") if self.inputs.clients is None else ("cost",)
        demand(claims["objective"] in objectives, f"unknown objective {claims['objective']}")
        cells = {_key(_written(cell)): cell for cell in self._cells()}
        plan = _key(claims["plan"])
        demand(plan in cells, "the plan is not in the space", claims["plan"])
        limit = self._worth(cells[plan])
        demand(
            math.isclose(float(self._cost(cells[plan])), claims["cost_usd_per_h"], rel_tol=1e-12),
            f"the plan costs {float(self._cost(cells[plan])):g} $/h, not {claims['cost_usd_per_h']:g}",
        )
        excluded: dict[str, Mapping[str, Any]] = {}
        for entry in claims["excluded"]:
            key = _key(entry["cell"])
            demand(key not in excluded, "this is listed twice", entry["cell"])
            excluded[key] = entry
        for key, cell in cells.items():
            demand(self._worth(cell) >= limit or key in excluded, "this is cheaper and not excluded", cell)
        for key, entry in excluded.items():
            demand(key in cells, "this is not in the space", entry["cell"])
            bounded, missed = [int(one["world"]) for one in entry["bounds"]], entry["missed"]
            fails = {number for number in (*bounded, *missed) if number in self.numbers}
            demand(len(fails) > failing, "it lists too few worlds in which this misses", entry["cell"])
            self._check_bounds(cells[key], entry["bounds"])
        fails = set(self._missed(cells[plan], self.numbers))
        demand(len(fails) <= failing, f"the plan fails in {len(fails)} of its worlds; {failing} may")
        for key, entry in excluded.items():
            kept = set(entry["missed"]) - set(self._missed(cells[key], entry["missed"]))
            demand(not kept, "this keeps the objectives in a world that is listed as missed", entry["cell"])
        return len(excluded)

    def _cells(self) -> Iterator[dict[str, _Choice]]:
        """Every cell of the space, by stage."""
        by_stage = []
        for name, llm in self.served.items():
            plan, own = llm.plan, self.scenario.configuration[name].hardware
            hardware = [one.hardware for one in plan.hardware] or [own]
            counts = plan.replicas or range(1, self.max_replicas + 1)
            axes = {
                axis: getattr(plan, axis) or (getattr(llm, axis),)
                for axis in plan.__struct_fields__
                if axis not in ("hardware", "replicas")
            }
            by_stage.append(
                [
                    {"hardware": one, "replicas": count, **dict(zip(axes, chosen))}
                    for one in hardware
                    for count in counts
                    for chosen in itertools.product(*axes.values())
                ]
            )
        for chosen in itertools.product(*by_stage):
            yield dict(zip(self.served, chosen))

    def _cost(self, cell: Mapping[str, _Choice]) -> Fraction:
        total = Fraction(0)
        for name, placed in self.scenario.configuration.items():
            hardware, replicas = placed.hardware, placed.replicas
            if name in cell:
                hardware, replicas = cell[name]["hardware"], cell[name]["replicas"]
                pool = cell[name]["decode"]
                total += self.prices[pool.hardware or hardware] * pool.replicas if pool is not None else 0
            total += self.prices[hardware] * replicas
        return total

    def _worth(self, cell: Mapping[str, _Choice]) -> Fraction:
        """What the plan minimises."""
        if self.claims["objective"] == "cost":
            return self._cost(cell)
        return self._cost(cell) / max(1, self._tokens(cell))

    def _tokens(self, cell: Mapping[str, _Choice]) -> int:
        """Tokens of the answers in the first world; the number of replicas does not change it."""
        key = _key([{**choice, "replicas": 0} for choice in cell.values()])
        if key not in self.answers:
            (inputs,) = worlds(self._inputs(cell), self.numbers[:1])
            visited = visited_stages(inputs.pipeline, len(inputs.arrivals_ms))
            self.answers[key] = sum(
                int(stage.llm.output[came & ~stage.llm.refused].sum())
                for stage, came in zip(inputs.pipeline.stages, visited)
                if stage.llm is not None
            )
        return self.answers[key]

    def _placed(self, cell: Mapping[str, _Choice]) -> Scenario:
        """The scenario with a cell as its configuration."""
        placed = dict(self.scenario.configuration)
        for name, llm in self.served.items():
            chosen = dict(cell[name])
            hardware, replicas = chosen.pop("hardware"), chosen.pop("replicas")
            for one in llm.plan.hardware:
                if one.hardware == hardware:
                    chosen |= {"cost": one.cost} if one.cost is not None else {}
                    if one.kv_blocks is not None or one.memory is not None:
                        chosen |= {"kv_blocks": one.kv_blocks, "memory": one.memory}
            placed[name] = placed[name].with_(hardware=hardware, replicas=replicas, llm=llm.with_(**chosen))
        return self.scenario.with_(
            configuration=placed,
            record="counts",
            intervals=self.scenario.intervals.with_(replications=0),
        )

    def _inputs(self, cell: Mapping[str, _Choice]) -> Inputs:
        return prepare(self._placed(cell), self.inputs.files, self.inputs.pipeline.seed)

    def _missed(self, cell: Mapping[str, _Choice], numbers: Sequence[int]) -> Iterator[int]:
        """In which of some worlds a cell misses the objectives."""
        inputs, factors = self._inputs(cell) if numbers else self.inputs, None
        for number, world in zip(numbers, worlds(inputs, numbers)):
            met = _met(world)
            if met and number:
                # Limits are as drawn at the least; they are tighter where the cell is near the knee.
                factors = growths(inputs) if factors is None else factors
                met = not factors or _met(grown(world, inputs, factors))
            if not met:
                yield number

    def _check_bounds(self, cell: Mapping[str, _Choice], bounds: Sequence[Mapping[str, Any]]) -> None:
        """Verify that each world named asks more than a cell can do."""
        for bound in bounds:
            name, number = bound["stage"], int(bound["world"])
            # How requests choose a replica changes nothing of what they ask.
            chosen = {key: value for key, value in cell[name].items() if key not in ("replicas", "balance")}
            known = _key({"stage": name, "world": number, **chosen})
            if known not in self.asked:
                (inputs,) = worlds(self._inputs(cell), [number])
                self.asked[known] = _Asked(inputs, name)
            asked = self.asked[known]
            if "late" in bound:
                demand(asked.late > asked.allowed, "not so many requests are late whatever is done", cell)
            else:
                first, last = int(bound["first"]), int(bound["last"])
                needed = asked.needed(first, last, bool(bound["whole"]))
                only = f"the work of queries {first} to {last - 1} needs {needed:.6g} replicas only"
                demand(cell[name]["replicas"] < needed * (1 - ROUNDING / 2), only, cell)


class _Asked:
    """What the requests of one world ask of a stage that they enter as they arrive."""

    def __init__(self, inputs: Inputs, name: str) -> None:
        self.clients, self.warm_up = inputs.clients, inputs.scenario.warm_up or 0
        inputs = inputs if self.clients is not None else counted_inputs(inputs)
        (stage,) = (one for one in inputs.pipeline.stages if one.name == name)
        ((edge,), llm) = (stage.edges, stage.llm)
        demand(
            edge.parent < 0 and edge.always and llm is not None and llm.decode is None,
            f"{name}: requests do not enter as they arrive",
        )
        assert llm is not None
        self.llm, self.arrival_ms = llm, inputs.arrivals_ms
        #: as `_needed`, once for each window
        self.needed = functools.cache(self._needed)
        self.limit = dict.fromkeys(("ttft", "tpot", "itl", "e2e"), math.inf)
        self.limit |= {kind: limit_ms for kind, limit_ms, _ in llm.limits}
        self.limit["e2e"] = min(self.limit["e2e"], inputs.scenario.slo_ms or math.inf)
        queries = len(self.arrival_ms)
        self.allowed = inputs.scenario.allowed_misses(queries) + sum(
            math.floor((1 - Fraction(repr(wanted))) * queries)
            for stage in inputs.pipeline.stages
            for _, _, wanted in (stage.llm.limits if stage.llm is not None else ())
            if wanted is not None
        )
        self.served = ~llm.refused
        self.prompt, self.answer = llm.prompt.astype(float), llm.output.astype(float)
        drafts = 0 if llm.speculation is None else llm.speculation.draft_tokens
        # Iterations that emit a token or more, if every draft is right.
        self.steps = 1 + np.ceil((self.answer - 1) / (1 + drafts))
        self.chunk = self.prompt if llm.shared is None else np.ones(queries)
        self.counted = llm.rules.counts_decodes
        self.tabled = len(llm.cost.decode_ms) > 1
        terms = (llm.cost.least_ms, 0.0, 0.0, 0.0, 0.0) if self.tabled else llm.cost.terms
        self.each_ms, self.per_prefill, self.per_decode, self.per_cached, self.per_pair = terms
        # Prompt tokens that reading the weights hides count in full, so what hides them counts less.
        self.each_ms = max(0.0, self.each_ms - self.per_prefill * llm.cost.hidden_prefill)

    def prefill_ms(self) -> Any:
        """What the prompt of each request takes, beside its iterations."""
        pairs = self.chunk * self.chunk / 2 if self.llm.shared is None else 0.0
        return self.per_prefill * self.chunk + self.per_pair * pairs

    def decode_ms(self) -> Any:
        """What the tokens behind the first take; nothing where a preempted request might take less to go on."""
        count = self.steps - 1
        cached = count * self.prompt + count * (count - 1) / 2
        if self.llm.shared is None:
            dearer = self.per_prefill * (self.prompt + 1) >= self.per_decode + self.per_cached * self.prompt
            safe = dearer & (self.per_prefill >= self.per_cached)
        else:
            dearer = self.per_prefill >= self.per_decode + 0 * self.prompt
            safe = dearer & (self.per_cached == 0)
        return (self.per_decode * count + self.per_cached * cached) * safe

    @functools.cached_property
    def late(self) -> int:
        """Requests that are refused, or late with a replica of their own."""
        chunks = np.ceil(self.chunk / self.llm.token_budget)
        first_ms = self.each_ms * chunks + self.prefill_ms()
        rest_ms = self.each_ms * (self.steps - 1) + self.decode_ms()
        mean_ms, gap_ms = (rest_ms / np.maximum(count - 1, 1) for count in (self.answer, self.steps))
        more = 1 + ROUNDING
        in_time = (first_ms <= self.limit["ttft"] * more) & (first_ms + rest_ms <= self.limit["e2e"] * more)
        in_time &= (mean_ms <= self.limit["tpot"] * more) & (gap_ms <= self.limit["itl"] * more)
        missed = ~(in_time & self.served)
        if self.clients is None:
            return int(np.count_nonzero(missed))
        # One of those that begin a session is sent, and the warm-up may consist of late ones.
        begins: list[list[bool]] = [[] for _ in range(self.clients.sessions)]
        for session, waits, is_late in zip(self.clients.session, self.clients.waits, missed):
            if not waits:
                begins[session].append(bool(is_late))
        return sum(map(all, begins)) - self.warm_up

    def _needed(self, first: int, last: int, whole: bool) -> float:
        """Replicas that the work of some queries needs, of all tokens or of the first.

        Parameters
        ----------
        first, last : the queries, the last one excluded.
        whole : of all tokens.
        """
        demand(self.clients is None, "requests come when answers let them, not at instants that are known")
        llm, mine = self.llm, slice(first, last)
        until_ms = min(self.limit["ttft"], self.limit["e2e"])
        after_ms = np.full(len(self.answer), until_ms)
        work_ms, chunks = self.prefill_ms(), np.ceil(self.chunk / llm.token_budget)
        tokens, turns, blocks = self.chunk, chunks, self.prompt / llm.block_tokens
        if whole:
            between_ms = min(self.limit["tpot"], self.limit["itl"])
            more = self.answer > 1
            later_ms = np.where(more, between_ms, 0.0) * (self.answer - 1)
            after_ms = np.minimum(self.limit["ttft"] + later_ms, self.limit["e2e"])
            work_ms = work_ms + self.decode_ms()
            tokens, turns = tokens + (self.steps - 1) * self.counted, turns + self.steps - 1
            blocks = (self.steps * self.prompt + self.steps * (self.steps - 1) / 2) / llm.block_tokens
        demand(np.isfinite(after_ms).all(), "the requests have no deadlines")
        span_ms = float(np.max(self.arrival_ms[mine] + after_ms[mine]) - self.arrival_ms[first])

        def least(values: Any) -> float:
            ascending = np.sort((values * self.served)[mine])
            return float(np.sum(ascending[: max(0, len(ascending) - self.allowed)]))

        iterations = [least(tokens) / llm.token_budget, least(turns) / llm.max_seqs]
        if llm.shared is None:
            iterations.append(least(blocks) / llm.kv_blocks)
        return (least(work_ms) + self.each_ms * max(iterations)) / span_ms


def _met(inputs: Inputs) -> bool:
    """Whether a run of the inputs, to the end, keeps all objectives."""
    scenario, outcome = inputs.scenario, run(inputs)
    if len(outcome.inputs.arrivals_ms) <= (scenario.warm_up or 0):
        return False
    sent, counting = counted(outcome.inputs, outcome.run)
    figures = model_figures(scenario, sent.pipeline, counting)
    allowed = scenario.allowed_misses(len(sent.arrivals_ms))
    return bool(figures.get("slo_met", counting.misses <= allowed))


def _written(cell: Mapping[str, _Choice]) -> dict[str, _Choice]:
    """A cell as a certificate has it: later axes only where they are used."""
    return {
        name: {key: value for key, value in chosen.items() if key not in LATER_AXES or value is not None}
        for name, chosen in cell.items()
    }


def _named(cell: Mapping[str, _Choice]) -> str:
    """A cell in words, with all of its settings: `stage Chat: hardware A100, replicas 2, scheduler (name orca)`."""
    return "; ".join(f"stage {name}: {_settings(to_data(chosen))}" for name, chosen in cell.items())


def _settings(chosen: _Choice) -> str:
    used = ((key, f"({_settings(one)})" if isinstance(one, dict) else one) for key, one in chosen.items())
    return ", ".join(f"{key} {one}" for key, one in used if one is not None)


def _key(value: object) -> str:
    return json.dumps(to_data(value), sort_keys=True)
