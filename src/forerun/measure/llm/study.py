"""A whole measurement of a language-model server: a load, what came of it, the simulation beside it, the files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.atomic_write import refuse_foreign, write_text
from forerun.domains.serving.calibration.experiment import LATE_MS, Load
from forerun.domains.serving.inputs.llm import token_columns
from forerun.domains.serving.inputs.llm.model import LanguageModel
from forerun.domains.serving.inputs.pipeline import Floats, Ints
from forerun.domains.serving.inputs.prepare import prepare
from forerun.domains.serving.policies.fixed import Fixed
from forerun.domains.serving.policy.envelope import mean_rate_rps
from forerun.domains.serving.scenario import Scenario
from forerun.errors import Problem, StoreError, UsageError
from forerun.measure.llm.prompts import Prompts
from forerun.measure.llm.replaying import Replayed, replay_load
from forerun.measure.llm.results import (
    FAILED,
    REQUESTS,
    Answers,
    compared,
    latencies,
    reasons,
    write_failed,
)
from forerun.measure.llm.trial import Server, Tried, tried
from forerun.measure.progress import Steps, Tell, stops_like_ctrl_c
from forerun.measure.serving.host import described, probe
from forerun.study.estimate import duration
from forerun.trace.reader import read_trace
from forerun.trace.requests import arrivals_ms
from forerun.version import VERSION

MEASURED: Final = "measured.json"


@dataclass(frozen=True)
class Traffic:
    """What is to be sent, and what is believed of the server.

    Parameters
    ----------
    load : the requests.
    seed : of the words of the prompts, and of the intervals.
    llm : limits and costs of the server, with these requests (None: nothing is simulated).
    replicas : of the server (default 1).
    notes : what a reader of the measurement should know.
    """

    load: Load
    seed: int
    llm: LanguageModel | None = field(default=None, repr=False)
    replicas: int = 1
    notes: tuple[str, ...] = ()

    @classmethod
    def of_scenario(cls, scenario: Scenario) -> Traffic:
        """The requests of a scenario with one stage, a language model, which is also what is simulated.

        Raises UsageError for any other scenario, and what reading its files raises.
        """
        problems = (
            [Problem("$.mode", "what is measured is mode default")] if scenario.mode != "default" else []
        )
        placed = list(scenario.configuration.values())
        if len(scenario.stages) != 1 or placed[0].llm is None:
            problems.append(
                Problem("$.stages", "a server is one stage with a section llm, and no other stage")
            )
        elif placed[0].llm.decode is not None:
            where = f"$.configuration.{scenario.stages[0].name}.llm.decode"
            problems.append(Problem(where, "the simulation beside a measurement has replicas that do both"))
        if not isinstance(scenario.tuner, Fixed) or any(one.changes for one in placed):
            problems.append(
                Problem("$.tuner", "what is measured keeps its replicas; use tuner: fixed, no changes")
            )
        if problems:
            raise UsageError(*problems)
        inputs = prepare(scenario)
        (stage,) = inputs.pipeline.stages
        assert stage.llm is not None
        load = Load(inputs.arrivals_ms - inputs.arrivals_ms[0], stage.llm.prompt, stage.llm.output)
        return cls(load, scenario.seed, stage.llm, stage.replicas, inputs.notes)

    @classmethod
    def of_trace(cls, path: Path, format: str, seed: int) -> Traffic:
        """The requests of a recorded trace.

        Parameters
        ----------
        path : the file.
        format : as `forerun trace formats` calls it; empty to recognise it.
        seed : of the words of the prompts.

        Raises TraceError for a trace without tokens.
        """
        trace = read_trace(path, format)
        prompt, output = token_columns(trace, str(path))
        at_ms = arrivals_ms(trace)
        notes = [f"repair: {repair['rule']}, {repair['count']} times" for repair in trace.provenance.repairs]
        return cls(Load(at_ms - at_ms[0], prompt, output), seed, notes=tuple(notes))

    def limited(self, requests: int | None, rate_rps: float | None, most_in_flight: int | None) -> Traffic:
        """The same with fewer requests, faster or slower, or held back.

        Parameters
        ----------
        requests : only so many, the first ones (None: all).
        rate_rps : on average; the gaps are stretched alike (None: as they are).
        most_in_flight : requests under way at most (None: no limit).

        Raises UsageError where a rate is asked for and all come at once.
        """
        chosen: Ints = np.arange(len(self.load))[:requests]
        send_ms: Floats = self.load.send_ms[chosen]
        if rate_rps is not None:
            now_rps = mean_rate_rps(send_ms)
            if not now_rps > 0:
                raise UsageError.at(
                    "--rate", "all requests come at one instant: there are no gaps to stretch"
                )
            send_ms = send_ms * (now_rps / rate_rps)
        load = Load(send_ms, self.load.prompt[chosen], self.load.output[chosen], most_in_flight)
        llm = self.llm
        if llm is not None:
            llm = replace(
                llm,
                prompt=load.prompt,
                output=load.output,
                ranks=None if llm.ranks is None else llm.ranks[chosen],
                shared=None if llm.shared is None else llm.shared.rows(chosen),
            )
        return replace(self, load=load, llm=llm)

    def prompts(self, ids: tuple[int, int] | None) -> Prompts:
        """How its prompts are made, before anything is known of the server's tokens.

        Parameters
        ----------
        ids : numbers of tokens to send instead of words (None: words).
        """
        if self.llm is None or self.llm.shared is None:
            return Prompts(self.seed, ids=ids)
        shared = self.llm.shared
        segment_tokens = shared.segment_blocks * self.llm.block_tokens
        return Prompts(
            self.seed,
            ids=ids,
            prefixes=shared,
            segments=self.llm.whole_segments,
            segment_tokens=segment_tokens,
        )


def check_folder(folder: Path) -> None:
    """Make a folder for the files of a measurement, before anything is measured.

    Raises StoreError if it cannot be made, or has such files of another program.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError.at(folder, f"cannot be made: {error.strerror}") from None
    refuse_foreign(folder, (REQUESTS, FAILED, MEASURED), marker=MEASURED, sign=b"forerun.measurement")


def measure(
    url: str, server: Server, traffic: Traffic, ids: tuple[int, int] | None, folder: Path | None, tell: Tell
) -> dict[str, Any]:
    """Load a server, write what came of it (requests.csv, failed.csv, measured.json), and return it.

    If it is interrupted once a request has ended, what was measured is written and returned, with `stopped` in words.

    Parameters
    ----------
    url : of the server, for messages.
    server : how it should be asked; an empty model is the only one that it serves.
    traffic : what is sent, and what is believed.
    ids : numbers of tokens to send instead of words (None: words).
    folder : of the files (None: nothing is written).
    tell : given the progress in words.

    Raises UsageError where no server answers a short request, or every request failed.
    """
    load = traffic.load
    known = tried(url, server, traffic.prompts(ids), int(load.prompt.max()))
    span_s = float(load.send_ms[-1] - load.send_ms[0]) / 1e3
    steps = Steps(tell, [span_s])
    before, came = probe(), Replayed()
    steps.begin(f"{len(load)} requests over {duration(span_s)}")
    try:
        with stops_like_ctrl_c():
            replay_load(known.server, known.prompts, load, steps, came)
    except KeyboardInterrupt:
        if not came.answers:
            raise
        came.stopped = f"interrupted after {len(came.answers)} of {len(load)} requests"
    host = described(before, probe())
    answers = Answers.of(load, came.answers, counts=known.counts)
    failed = reasons(came.answers)
    notes = [*traffic.notes, *_notes(answers, traffic, known, failed)]
    rows = _compared(answers, traffic, notes) if traffic.llm is not None and len(answers) else []
    content: dict[str, Any] = {
        "format": "forerun.measurement/1",
        "domain": "serving",
        "forerun": VERSION,
        "answer": _answer(answers, rows, failed),
        "model": known.server.model,
        "requests": len(load),
        "answered": len(answers),
        "failed": len(came.answers) - len(answers),
        "offered_rps": load.rate_rps if np.isfinite(load.rate_rps) else None,
        "most_in_flight": load.most_in_flight,
        "words_per_token": None if ids is not None or not known.counts else 1 / known.prompts.per_unit,
        **(_facts(answers) if len(answers) else {}),
        "latencies": latencies(answers) if len(answers) else [],
        "compared": rows,
        "failures": failed,
        "host": host,
        "notes": notes,
    }
    if came.stopped:
        content["stopped"] = came.stopped
    if folder is not None:
        write_text(folder / MEASURED, json.dumps(content, indent=1, allow_nan=False) + "\n")
        answers.write(folder / REQUESTS)
        write_failed(folder / FAILED, load, came.answers)
    if not len(answers):
        why = failed[0]["why"]
        raise UsageError.at(f"URL {url}", f"all {len(came.answers)} requests failed, most often: {why}")
    return content


def _facts(answers: Answers) -> dict[str, Any]:
    """Single figures of those that were answered."""
    span_s = float(answers.last_ms.max() - answers.sent_ms.min()) / 1e3
    return {
        "throughput_rps": answers.throughput_rps,
        "output_tokens_per_s": float(answers.output.sum()) / span_s,
        "prompt_tokens": int(answers.prompt.sum()),
        "output_tokens": int(answers.output.sum()),
        "cached_tokens": int(answers.cached.sum()),
        "lag_p99_ms": float(np.quantile(answers.lag_ms, 0.99)),
        "token_by_token": answers.token_by_token,
    }


def _notes(answers: Answers, traffic: Traffic, known: Tried, failed: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader should know of how the load was sent and answered."""
    notes = [f"{row['requests']} requests failed: {row['why']}" for row in failed]
    if not len(answers):
        return notes
    if not known.counts:
        notes.append(
            "the server does not say how many tokens a request has: prompts are taken to have as many as the load says, "
            "answers as many as pieces came"
        )
    load = traffic.load
    wanted_prompt, wanted_output = load.prompt[answers.number], load.output[answers.number]
    if (answers.prompt != wanted_prompt).any():
        off = np.abs(answers.prompt / wanted_prompt - 1)
        notes.append(
            f"prompts have {answers.prompt.sum() / wanted_prompt.sum() - 1:+.1%} tokens against the load in all, each "
            f"within {off.max():.1%} (median {np.median(off):.1%}); what the server counted is reported and simulated"
        )
    if short := int(np.count_nonzero(answers.output != wanted_output)):
        why = "" if "ignore_eos" in known.server.extras else "; the server takes no ignore_eos"
        notes.append(
            f"{short} of {len(answers)} answers have other lengths than the load says: "
            f"{answers.output.sum() / wanted_output.sum() - 1:+.1%} tokens in all{why}"
        )
    if not answers.token_by_token:
        notes.append(
            f"answers came in {answers.pieces.sum() / answers.output.sum():.2f} pieces a token: times between tokens are "
            "not known, and itl is left out"
        )
    cached = int(answers.cached.sum())
    if cached and (traffic.llm is None or traffic.llm.shared is None):
        share = cached / answers.prompt.sum()
        notes.append(
            f"the server's prefix cache had {share:.1%} of the prompts' tokens, and the load says nothing of prefixes"
        )
    lag_ms = float(np.quantile(answers.lag_ms, 0.9))
    if lag_ms > LATE_MS and load.most_in_flight is None:
        notes.append(
            f"a tenth of the requests was sent more than {lag_ms:.0f} ms late: this machine limits the load, not the server"
        )
    return notes


def _compared(answers: Answers, traffic: Traffic, notes: list[str]) -> list[dict[str, Any]]:
    """The simulation beside what was answered; what is to be noted of it is added to the notes."""
    llm = traffic.llm
    assert llm is not None
    refused = replace(llm, prompt=answers.prompt, output=answers.output, ranks=None, shared=None).refused
    if refused.any():
        notes.append(
            f"the server answered {np.count_nonzero(refused)} requests that the scenario's cache cannot store: the scenario "
            "has another server"
        )
    if refused.all():
        return []
    rows = compared(answers, llm, traffic.replicas, traffic.load.most_in_flight, traffic.seed)
    if near := [row["figure"] for row in rows if row["saturating"]]:
        notes.append(
            f"saturating: iterations 5 % longer or shorter change {', '.join(near)} by half or more: no number is predicted"
        )
    if len(answers) < len(traffic.load):
        notes.append(
            "only requests that were answered are simulated; those that failed loaded the server, too"
        )
    return rows


def _answer(answers: Answers, rows: Sequence[dict[str, Any]], failed: Sequence[dict[str, Any]]) -> str:
    """One sentence."""
    if not len(answers):
        return "no request was answered"
    beside = ""
    if judged := [row for row in rows if not row["saturating"]]:
        worst = max(judged, key=lambda row: abs(row["error"]))
        middle = float(np.median([abs(row["error"]) for row in judged]))
        beside = f"; predictions are off by {middle:.1%} in the median, {worst['figure']} most: {worst['error']:+.1%}"
    lost = sum(row["requests"] for row in failed)
    said = f"{len(answers)} requests were answered, {answers.throughput_rps:.3g} a second"
    return said + (f", {lost} failed" if lost else "") + beside
