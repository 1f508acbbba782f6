"""A replay as a file: what it needs to be made again, its report card, and what a page draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from forerun.cluster.summary.past import Beside, besides
from forerun.cluster.summary.spans import Spans
from forerun.core.errors import StoreError, worded
from forerun.core.result.figures import Axis, Figure, Rule
from forerun.core.result.numbers import shown_instant
from forerun.core.scenario.spec import Input, to_data
from forerun.core.version import VERSION
from forerun.site.cases import Case
from forerun.site.files import pinned, read_machine
from forerun.site.history import F64
from forerun.site.machine import INFERRED, Declared, System
from forerun.site.reading import Reading
from forerun.site.replay.play import policy_name, replayed
from forerun.site.replay.replay import Replay, replay_log
from forerun.site.replay.scores import daily, scored

REPLAY_FORMAT: Final = "forerun.replay/1"
_DAY_S: Final = 86_400.0


def content_of(replay: Replay, file: Path, reading: Reading) -> dict[str, Any]:
    """Everything that is kept of a replay, as plain data, with where its log is and how it was read."""
    card, log, main, system = replay.card, replay.log, replay.main, replay.system
    return {
        "format": REPLAY_FORMAT,
        "forerun": VERSION,
        "why": answer_of(replay),
        "log": {
            "file": str(file),
            "format": reading.format,
            "columns": list(reading.columns),
            "zone": reading.zone,
            "sha256": log.sha256,
            "jobs": len(log),
            "selection": log.selection,
            "complete_from_s": log.complete_from_s + log.origin_s,
            "complete_until_s": log.complete_until_s + log.origin_s,
        },
        "calibrate_until_s": replay.calibrated_s + log.origin_s,
        "scored_until_s": replay.until_s + log.origin_s,
        "system": to_data(
            System(
                pools=system.pools,
                windows=system.windows,
                limits=system.limits,
                order=system.order,
                held_after_s=system.held_after_s,
            )
        ),
        "system_files": to_data(system.files) if isinstance(system, Declared) else [],
        "policy": policy_name(card.policy),
        "named": policy_name(card.named) if card.named is not None else None,
        "findings": [to_data(finding) for finding in replay.findings],
        "notes": [note for note in (identified_of(replay), *replay.notes) if note],
        "card": [
            {
                "figure": line.what,
                "measured": line.value,
                "limit": line.limit,
                "bound": "at most" if line.at_most else "at least",
                "met": "yes" if line.met else "no",
            }
            for line in card.lines
        ],
        "policies": [
            {
                "policy": policy_name(one.policy),
                "one-step F1": one.step.f1,
                "precision": one.step.precision,
                "recall": one.step.recall,
                "mean wait error": one.mean,
                "worst class error": one.worst,
                "F1 on a log of the chosen": one.own,
            }
            for one in card.tried
        ],
        "classes": [
            {"class": one.name, "jobs": one.jobs, "history_s": one.history_s, "replay_s": one.replay_s}
            for one in card.classes
        ],
        "beside": [
            {
                "jobs of": one.name,
                "jobs": one.jobs,
                "recorded_mean_s": one.recorded_mean_s,
                "replayed_mean_s": one.simulated_mean_s,
                "recorded_median_s": one.recorded_median_s,
                "replayed_median_s": one.simulated_median_s,
                "within_factor_2": one.within_factor_2,
                "first_difference": shown_instant(one.first_s + log.origin_s) if one.first_s > 0 else "never",
            }
            for one in beside_of(replay)
        ],
        "over_time": _over_time(main, replay.main_starts, replay),
        "pool": main.pool.name,
    }


def beside_of(replay: Replay) -> tuple[Beside, ...]:
    """The waits of scored jobs of all pools on the last part, and of each partition, beside the recorded ones."""
    pairs = list(zip(replay.cases, replay.starts, strict=True))
    rows = np.concatenate([scored(*one, replay.calibrated_s, replay.until_s) for one in pairs])
    codes = replay.log.partition.codes[np.concatenate([case.rows for case, _ in pairs])]
    names = [*replay.log.partition.names, ""]
    submit_s, recorded_s, replayed_s = (
        np.concatenate(each)
        for each in zip(*((case.submit_s, case.start_s, start_s) for case, start_s in pairs), strict=True)
    )
    return besides(submit_s, recorded_s, replayed_s, rows, [names[code] for code in codes.tolist()])


def answer_of(replay: Replay) -> str:
    """The report card in one sentence."""
    card, pool = replay.card, replay.main.pool.name
    waits = (
        f"jobs of pool {pool} that are not held wait {card.history_s / 3600:.1f} h on average on the last part of the log, "
        f"and {card.replay_s / 3600:.1f} h in the replay"
    )
    if card.reasons:
        return f"this log is not reproduced: {'; '.join(card.reasons)}"
    if card.missed:
        return f"{waits}; {len(card.missed)} of {len(card.lines)} limits of the report card are missed"
    return f"{waits}; all {len(card.lines)} limits of the report card are met"


def named_of(replay: Replay) -> str:
    """Which policy made the log, as far as it shows, in one sentence."""
    card = replay.card
    if card.named is not None:
        return f"the log was made by {policy_name(card.named)}, or by one that decides alike"
    best = card.tried[0].step.f1
    names = ", ".join(policy_name(policy) for policy in card.alike)
    return f"no policy is named: {names} decide alike but for chance, the best with F1 {best:.2f}"


def identified_of(replay: Replay) -> str:
    """How well the policies can be distinguished on this log, in one sentence; empty if that was not asked."""
    card = replay.card
    others = [one for one in card.tried if one.policy != card.policy and one.own is not None]
    if not others:
        return ""
    chosen = policy_name(card.policy)
    (mine,) = (one for one in card.tried if one.policy == card.policy)
    nearest = max(others, key=lambda one: one.own or 0.0)
    return (
        f"on a log that {chosen} had made of these jobs, it would reach F1 {mine.own:.2f}, and the nearest other, "
        f"{policy_name(nearest.policy)}, {nearest.own:.2f}; on this log it reaches {mine.step.f1:.2f}"
    )


def kept_replay(kept: Path, content: Mapping[str, Any]) -> Replay:
    """The replay of a file, made again from its log. Raises StoreError for what is no replay, or if its log has changed.

    Parameters
    ----------
    kept : the file.
    content : what it says.
    """
    try:
        if content["format"] != REPLAY_FORMAT:
            raise StoreError.at(kept, f"has format {content['format']!r}; {REPLAY_FORMAT} is expected")
        log = content["log"]
        file, digest = str(log["file"]), str(log["sha256"])
        reading = Reading(str(log["format"]), tuple(log["columns"]), str(log["zone"]))
        system = msgspec.convert(content["system"], System)
        files = msgspec.convert(content.get("system_files", []), list[Input])
        until_s = float(content["calibrate_until_s"])
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise StoreError.at(kept, f"is no replay: {worded(error)}") from error
    history = reading.read(Path(file))
    if history.sha256 != digest:
        raise StoreError.at(kept, f"{file} has changed since it was replayed; replay it again")
    for one in files:
        if pinned(Path(one.path)) != one:
            raise StoreError.at(kept, f"{one.path} has changed since it was read; replay the log again")
    if files:
        declared, _ = read_machine([Path(one.path) for one in files], reading.zone, history)
        system = msgspec.structs.replace(declared, held_after_s=system.held_after_s)
    off = tuple(one for one in INFERRED if one != "holds")
    return replay_log(history, system=system, off=off, calibrate_until_s=until_s, identify=False)


def _over_time(case: Case, start_s: F64, replay: Replay) -> dict[str, list[float]]:
    """Each day: the share of nodes in use, and nodes that waiting jobs ask for at noon, in history and in the replay."""
    first_s = replayed(case, replay.card.policy)
    days = int((replay.until_s - case.begin_s) // _DAY_S)
    noon_s = np.asarray(case.begin_s + _DAY_S * (np.arange(days) + 0.5), np.float64)
    last = noon_s >= replay.calibrated_s  # where the replay begins anew
    ours = [np.where(np.isnan(starts), case.start_s, starts) for starts in (first_s, start_s)]
    used = [daily(case, starts, case.begin_s, replay.until_s) for starts in ours]
    queued = [_queued(case, starts, noon_s) for starts in ours]
    return {
        "day": (np.arange(days) + 0.5).tolist(),
        "used in history": daily(case, case.start_s, case.begin_s, replay.until_s).tolist(),
        "used in the replay": np.where(last, used[1], used[0]).tolist(),
        "queued in history": _queued(case, case.start_s, noon_s).tolist(),
        "queued in the replay": np.where(last, queued[1], queued[0]).tolist(),
    }


def _queued(case: Case, start_s: F64, at: F64) -> F64:
    """Nodes that waiting jobs ask for at some instants."""
    return Spans(case.submit_s, start_s, case.gpus).at(at).astype(np.float64)


def replay_figures(content: Mapping[str, Any]) -> tuple[Figure, ...]:
    """The figures of a stored replay: history and replay side by side."""
    over, classes = content["over_time"], content["classes"]
    log = content["log"]
    split = (float(content["calibrate_until_s"]) - float(log["complete_from_s"])) / _DAY_S
    rules = (Rule(split, "scored after"),)
    figures = []
    for name, title, label in (
        ("used", "Nodes in use, day by day", "share of nodes"),
        ("queued", "Nodes that waiting jobs ask for, at noon", "nodes"),
    ):
        series = [
            (who, over[f"{name} {where}"])
            for who, where in (("history", "in history"), ("replay", "in the replay"))
        ]
        figures.append(
            Figure.of(
                "line",
                f"replay-{name}",
                title,
                {
                    "day": [day for _ in series for day in over["day"]],
                    "value": [value for _, values in series for value in values],
                    "who": [who for who, values in series for _ in values],
                },
                x=Axis("day", "since the log is complete", "days"),
                y=Axis("value", label),
                series="who",
                rules=rules,
                caption=f"Pool {content['pool']}. Outages and holds are those of history in both; at the line the replay "
                "begins anew.",
            )
        )
    whose = ("history", "replay")
    if classes:
        figures.append(
            Figure.of(
                "bar",
                "replay-waits",
                "Mean wait by class of jobs",
                {
                    "class": [one["class"] for one in classes for _ in whose],
                    "hours": [one[f"{who}_s"] / 3600 for one in classes for who in whose],
                    "who": [who for _ in classes for who in whose],
                },
                x=Axis("class", "class"),
                y=Axis("hours", "mean wait", "h"),
                series="who",
                caption="Jobs of the scored part that are not held; medians part narrow from wide and short from long ones.",
            )
        )
    return tuple(figures)
