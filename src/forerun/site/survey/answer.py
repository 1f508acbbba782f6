"""A site answered: simulated as its files have it, beside its history, and with what could be otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.run import Outcome
from forerun.cluster.inputs.arrays import BOOL, F64, NO_REQUEST_S
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.summary.causes import CAUSES
from forerun.cluster.summary.operators import instant_text
from forerun.cluster.summary.past import Beside, Judged, Recorded, besides, judged, reproduces
from forerun.core.domain import get_domain
from forerun.core.errors import InputError
from forerun.core.result.numbers import duration
from forerun.core.result.run import Result
from forerun.core.scenarios import load
from forerun.core.study.estimate import Estimate
from forerun.site.survey.changes import Change, default_changes, tried
from forerun.site.survey.effects import Effect, cheapest, effect_of, error_of, waits
from forerun.site.survey.setting import SCENARIO, Setting, with_policy
from forerun.site.survey.starts import Start, Starts

DAY_S: Final = 86_400.0
#: what is scored: the last month, and no more than this share of the log
MONTH_S: Final = 30 * DAY_S
LAST_PART: Final = 0.4
#: another policy than that of the files is taken where it misses history by less than this part of what theirs does
BETTER: Final = 0.8
#: jobs of a shape from which on their own waits answer for it
MANY_ALIKE: Final = 20
_TO_LAST: Final = "submitted before the last month"
_FROM_ALL: Final = "submitted before all running jobs are known"


@dataclass(frozen=True, slots=True)
class Survey:
    """What is said of a site.

    Parameters
    ----------
    setting : the scenario, and the files that it is made of.
    result : of the site as it is.
    scored_from : from when on jobs are scored, in words.
    past : the scored jobs of all partitions, then of each, beside history.
    effects : of the changes that were tried, in their order.
    untried : changes that were not.
    best : the cheapest of those that help.
    why : by partition, what its jobs wait for.
    shapes : by partition, when a job of its commonest shape starts.
    notes : what else to know.
    """

    setting: Setting
    result: Result
    scored_from: str
    past: Judged
    effects: tuple[Effect, ...]
    untried: tuple[Change, ...]
    best: tuple[Effect, ...]
    why: tuple[Mapping[str, Any], ...]
    shapes: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def reproduced(self) -> bool:
        """Whether the setting reproduces history."""
        return bool(self.past.rows) and reproduces(self.past.rows)


def survey(setting: Setting, folder: Path, *, most: int = 0, say: Callable[[str], None]) -> Survey:
    """Answer for the site whose scenario lies in a folder.

    Parameters
    ----------
    setting : what it was made of.
    folder : with the scenario.
    most : changes that are tried (default 0: by the number of jobs).
    say : is called with what is being done.

    Raises InputError for files that cannot be simulated, and where no job can be scored.
    """
    say("simulating the site as it is")
    base = _run(folder)
    recorded = base.inputs.past
    if not isinstance(recorded, Recorded):
        raise InputError.at(SCENARIO, f"there is no history to compare with: {recorded}")
    setting, base = _as_history_has_it(setting, base, recorded, folder, say)
    result = get_domain("cluster").summarize(base)
    jobs = base.inputs.setting.jobs
    submit_s = jobs.submit_s.astype(np.float64)
    from_s = _scored_from(submit_s, recorded.from_s)
    start_s = _starts(base)
    past = judged(jobs, replace(recorded, from_s=from_s), start_s, base.inputs.known)
    if not past.rows:
        why = ", ".join(f"{count:,} {why}" for why, count in past.apart.items())
        raise InputError.at(SCENARIO, f"no job of the last month can be scored ({why})")
    apart = {(_TO_LAST if why == _FROM_ALL else why): count for why, count in past.apart.items()}
    past = replace(past, apart=apart)
    began = np.isfinite(
        recorded.jobs.start_s
    )  # who still waits at the log's end waits longer here than is known
    scored = (submit_s >= from_s) & np.isfinite(start_s) & began
    causes = _causes(result, began)
    changes = default_changes(base, [str(row["partition"]) for row in causes if row["wait_h"]])
    chosen = tried(changes, len(jobs), most)
    error = error_of(past.rows[0].recorded_mean_s, past.rows[0].simulated_mean_s)
    effects, notes = _effects(base, folder, chosen, scored, error, reproduced=reproduces(past.rows), say=say)
    return Survey(
        setting,
        result,
        instant_text(from_s, base.inputs.origin_s, recorded.zone),
        past,
        tuple(effects),
        tuple(changes[len(chosen) :]),
        tuple(cheapest(effects, error, reproduced=reproduces(past.rows))),
        tuple(causes),
        tuple(_shapes(base, recorded, scored, Starts(setting.files, recorded.zone))),
        (*setting.notes, *notes, *result.notes),
    )


def _run(folder: Path, overrides: Sequence[str] = ()) -> Outcome:
    """A run of the scenario in a folder, with changes."""
    domain = get_domain("cluster")
    made: Outcome = domain.run(domain.prepare(load(folder / SCENARIO, overrides)))
    return made


def _as_history_has_it(
    setting: Setting, base: Outcome, recorded: Recorded, folder: Path, say: Callable[[str], None]
) -> tuple[Setting, Outcome]:
    """The setting and its run; EASY instead of Slurm's plans where it explains the time before the last month better."""
    before = _before(base, recorded)
    if not isinstance(base.inputs.policy, SlurmBackfill) or not before or reproduces(before):
        return setting, base
    say("simulating the site with EASY, as the policy of its files does not reproduce history")
    other = _run(folder, ["policy.name=easy"])
    easy = _before(other, recorded)
    if not easy or not _missed_s(easy) < BETTER * _missed_s(before):
        return setting, base
    off, off_easy = (f"{100 * rows[0].off:+.0f} %" for rows in (before, easy))
    how = (
        f"{setting.policy}; but before the last month its mean wait is off by {off}, that of easy by {off_easy}: the policy "
        "is easy, in the same order"
    )
    return with_policy(setting, folder, "easy", how), other


def _before(outcome: Outcome, recorded: Recorded) -> Sequence[Beside]:
    """The jobs of before the last month beside history: all, then by partition."""
    submit_s, start_s = outcome.inputs.setting.jobs.submit_s.astype(np.float64), _starts(outcome)
    rows = (submit_s >= recorded.from_s) & (submit_s < _scored_from(submit_s, recorded.from_s))
    rows &= np.isfinite(start_s) & np.isfinite(recorded.jobs.start_s)
    return besides(submit_s, recorded.jobs.start_s, start_s, rows, _partitions(outcome))


def _missed_s(rows: Sequence[Beside]) -> float:
    """By how much waits of partitions are missed, in all."""
    of = rows[1:] or rows
    return sum(one.jobs * abs(one.simulated_mean_s - one.recorded_mean_s) for one in of)


def _starts(outcome: Outcome) -> F64:
    """When each job first started; nan: it did not."""
    first_s = outcome.record.first_start_s
    return np.where(first_s >= 0, first_s, np.nan)


def _scored_from(submit_s: F64, known_from_s: float) -> float:
    """From when on jobs are scored: since the last month began, in the last part of the log, and all running jobs known."""
    first_s, last_s = max(float(submit_s.min()), known_from_s), float(submit_s.max())
    return max(known_from_s, last_s - MONTH_S, first_s + (1 - LAST_PART) * (last_s - first_s))


def _partitions(outcome: Outcome) -> Sequence[str]:
    """The partition of each job; `all` where the log has none."""
    jobs = outcome.inputs.setting.jobs
    names = jobs.labels.partition if jobs.labels is not None else ("",) * len(jobs)
    return [name or "all" for name in names]


def _effects(
    base: Outcome,
    folder: Path,
    changes: Sequence[Change],
    scored: BOOL,
    error: float,
    *,
    reproduced: bool,
    say: Callable[[str], None],
) -> tuple[list[Effect], list[str]]:
    """What each change does to the scored jobs, and notes on those that cannot be simulated."""
    effects, notes, estimate = list[Effect](), list[str](), Estimate()
    ids, partitions = base.inputs.setting.jobs.id, _partitions(base)
    submit_s, start_s = base.inputs.setting.jobs.submit_s.astype(np.float64), _starts(base)
    estimate.see(0)
    for number, change in enumerate(changes):
        left = estimate.left(len(changes))
        say(f"change {number + 1} of {len(changes)}{f', {left} left' if left else ''}: {change.name}")
        try:
            other = _run(folder, change.overrides)
        except InputError as failure:
            notes.append(f"not simulated: {change.name}, as {failure.problems[0].what}")
            continue
        estimate.see(number + 1)
        there = dict(zip(other.inputs.setting.jobs.id, _starts(other).tolist(), strict=True))
        then_s = np.array([there.get(name, np.nan) for name in ids])
        both = np.flatnonzero(scored & np.isfinite(then_s))
        without, with_change = (waits(submit_s[both], at_s[both]) for at_s in (start_s, then_s))
        of = [partitions[row] for row in both.tolist()]
        effects.append(effect_of(change, with_change, without, of, error, reproduced=reproduced))
        if lost := int(scored.sum()) - len(both):
            notes.append(
                f"{change.name}: {lost} scored jobs do not start with it, and are left out of its effect"
            )
    return effects, notes


def _causes(result: Result, began: BOOL) -> list[Mapping[str, Any]]:
    """By partition, the longest waits together first: what its jobs that have begun wait for."""
    table = result.tables["jobs"]
    about = {f"wait_{name}_s": title for name, (title, _) in CAUSES.items()}
    names = np.where(began, [str(name) or "all" for name in table["partition"]], "")
    rows: list[tuple[float, Mapping[str, Any]]] = []
    for name in dict.fromkeys(names[began].tolist()):
        mine = names == name
        sums = {cause: float(np.nansum(table[cause][mine])) for cause in about}
        whole = sum(sums.values())
        ranked = sorted(sums, key=lambda one: -sums[one])
        row: dict[str, Any] = {
            "partition": name,
            "jobs": int(mine.sum()),
            "wait_mean_h": whole / int(mine.sum()) / 3600,
            "wait_h": whole / 3600,
        }
        for place, cause in zip(("mostly", "then"), ranked, strict=False):
            share = sums[cause] / whole if whole > 0 else 0.0
            row[place] = f"{100 * share:.0f} % {about[cause]}" if share >= 0.005 else "–"
        rows.append((whole, row))
    return [row for _, row in sorted(rows, key=lambda one: -one[0])]


def _shapes(base: Outcome, recorded: Recorded, scored: BOOL, starts: Starts) -> list[dict[str, Any]]:
    """By partition, when a job of its commonest shape starts.

    As forecast, where forecasts did well at the last jobs of the log; else as such jobs did lately, or do in the simulation.
    """
    jobs, partitions = base.inputs.setting.jobs, np.array(_partitions(base), dtype=object)
    submit_s = jobs.submit_s.astype(np.float64)
    rows: list[dict[str, Any]] = []
    for name, _ in Counter(partitions[scored].tolist()).most_common():
        mine = scored & (partitions == name)
        shapes = Counter(zip(jobs.gpus[mine].tolist(), jobs.requested_s[mine].tolist(), strict=True))
        (gpus, request_s), count = shapes.most_common(1)[0]
        alike = mine & (jobs.gpus == gpus)
        if count >= MANY_ALIKE:
            alike &= jobs.requested_s == request_s
        what = f"{gpus} GPU{'s' * (gpus > 1)}"
        asked = request_s < NO_REQUEST_S and count >= MANY_ALIKE
        started = alike & np.isfinite(recorded.jobs.start_s)
        rows.append(
            {"partition": name, "a job of": f"{what} for {duration(float(request_s))}" if asked else what}
        )
        said = starts.of(name, int(gpus), float(request_s)) if asked else ""
        if isinstance(said, Start):
            rows[-1] |= {
                "even_odds_h": said.even_odds_s / 3600,
                "nine_in_ten_h": said.nine_in_ten_s / 3600,
                "jobs": said.answers,
                "from": said.how,
            }
            continue
        from_history = int(started.sum()) >= MANY_ALIKE
        rows_of = started if from_history else alike
        start_s = recorded.jobs.start_s if from_history else _starts(base)
        wait_h = np.maximum(start_s[rows_of] - submit_s[rows_of], 0.0) / 3600
        kind = "recorded" if from_history else "simulated"
        rows[-1] |= {
            "even_odds_h": float(np.quantile(wait_h, 0.5)),
            "nine_in_ten_h": float(np.quantile(wait_h, 0.9)),
            "jobs": int(rows_of.sum()),
            "from": f"{kind} waits of such jobs" + (f"; {said}" if said else ""),
        }
    return rows
