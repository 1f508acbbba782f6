"""The file of a survey: what it says as plain data, and what a page shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forerun.cluster.summary.past import Beside
from forerun.core.documents import Document
from forerun.core.errors import StoreError, worded
from forerun.core.result.document import StoredDocument
from forerun.core.result.figures import Axis, Figure, Rule
from forerun.core.result.numbers import format_number, plain
from forerun.core.result.reading import check_figures, record
from forerun.core.result.stats import Interval
from forerun.core.scenario.spec import Spec, override, to_data
from forerun.core.version import VERSION
from forerun.site.survey.answer import Survey
from forerun.site.survey.effects import CONFIDENCE, Effect

SITE_FORMAT: Final = "forerun.site/1"


class _Site(Spec, frozen=True, kw_only=True):
    """The content of a file of a survey. `written`: the files beside it, with their digests."""

    format: str
    forerun: str
    domain: str
    why: str
    reproduced: bool
    facts: dict[str, Any]
    files: tuple[dict[str, str], ...]
    waiting: tuple[dict[str, Any], ...]
    history: tuple[dict[str, Any], ...]
    cheapest: tuple[dict[str, Any], ...]
    changes: tuple[dict[str, Any], ...]
    starts: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    scenario: dict[str, Any]
    written: dict[str, str] = {}


def content_of(made: Survey, folder: Path) -> dict[str, Any]:
    """Everything that a survey says, as plain data; files of its folder by their names alone."""
    whole, *_ = made.past.rows
    content: dict[str, Any] = {
        "format": SITE_FORMAT,
        "forerun": VERSION,
        "domain": "cluster",
        "why": _why(made),
        "reproduced": made.reproduced,
        "facts": {
            "recorded_wait_mean_h": whole.recorded_mean_s / 3600,
            "simulated_wait_mean_h": whole.simulated_mean_s / 3600,
            "off_percent": 100 * whole.off,
            "scored_jobs": whole.jobs,
            "wait_p90_h": made.result.summary["wait_p90_s"] / 3600,
            "gpus": made.result.summary["gpus"],
        },
        "files": [one.row() for one in made.setting.files],
        "waiting": list(made.why),
        "history": [_beside(one) for one in made.past.rows],
        "cheapest": [_effect(one) for one in made.best],
        "changes": [_effect(one) for one in made.effects],
        "starts": list(made.shapes),
        "notes": [*_notes(made), *made.notes],
        "scenario": _named(to_data(made.result.scenario), folder),
    }
    data: dict[str, Any] = plain(content)
    return data


def _named(data: Any, folder: Path) -> Any:
    """Plain data with the files of a folder by their names."""
    if isinstance(data, dict):
        return {key: _named(value, folder) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_named(value, folder) for value in data]
    return Path(data).name if isinstance(data, str) and Path(data).parent == folder.resolve() else data


def _beside(one: Beside) -> dict[str, Any]:
    return {
        "jobs of": one.name,
        "jobs": one.jobs,
        "recorded_mean_h": one.recorded_mean_s / 3600,
        "simulated_mean_h": one.simulated_mean_s / 3600,
        "off": f"{100 * one.off:+.0f} %",
        "recorded_median_h": one.recorded_median_s / 3600,
        "simulated_median_h": one.simulated_median_s / 3600,
        "within_factor_2": one.within_factor_2,
    }


def _hours(seconds: float) -> str:
    """Seconds in hours, in words."""
    return f"{format_number(seconds / 3600)} h"


def _effect(one: Effect) -> dict[str, Any]:
    """A change as a row; what it sets is as for `--set`."""
    (name, worst_s), interval = one.worst, one.interval
    worst = f"{name} ({'+' if worst_s > 0 else ''}{_hours(worst_s)})"
    return {
        "change": one.change.name,
        "costs": f"{one.change.nodes} node" if one.change.nodes else "nothing",
        "wait_mean_h": one.wait_s / 3600,
        "difference_h": one.difference_s / 3600,
        "low_h": None if interval is None else interval.low / 3600,
        "high_h": None if interval is None else interval.high / 3600,
        "verdict": one.verdict + (", a tie with the best" if one.tie else ""),
        "worst for": worst if name and round(worst_s) else "–",
        "try": " ".join(f"--set '{override(path, value)}'" for path, value in one.change.sets.items()),
    }


def _why(made: Survey) -> str:
    """The answer in a few clauses: history first where it is not reproduced."""
    whole, *partitions = made.past.rows
    near = f"{_hours(whole.simulated_mean_s)} mean wait simulated, {_hours(whole.recorded_mean_s)} recorded"
    if made.reproduced:
        history = f"the last month is reproduced: {near}"
    else:
        history = f"the setting does not reproduce the last month: {near} ({100 * whole.off:+.0f} %)"
        if partitions:
            worst = max(partitions, key=lambda one: abs(one.off))
            history += f", {worst.name} {100 * worst.off:+.0f} %"
        history += f"; largest known gap: {made.past.gap}" if made.past.gap else ""
        history += "; what-ifs carry that error"
    first = made.why[0]
    waits = f"{first['partition']} waits longest, {first['mostly']}" if first["wait_h"] else "no job waits"
    helps = "no change that was tried is separated from none"
    if made.best and made.best[0].verdict == "better":
        best = made.best[0]
        ties = [one.change.name for one in made.best if one.tie]
        helps = f"cheapest help: {best.change.name} ({_gain(best)})" + (
            f"; ties with the best: {', '.join(ties)}" if ties else ""
        )
    parts = (waits, history, helps) if made.reproduced else (history, waits, helps)
    return "; ".join(parts)


def _gain(one: Effect) -> str:
    shorter = f"mean wait {_hours(-one.difference_s)} shorter"
    if one.interval is None:
        return shorter
    return f"{shorter}, 90 % interval {_hours(-one.interval.high)} to {_hours(-one.interval.low)}"


def _notes(made: Survey) -> list[str]:
    apart = ", ".join(f"{count:,} {why}" for why, count in made.past.apart.items())
    notes = [
        made.setting.policy,
        f"scored are jobs submitted from {made.scored_from} on, the last month and at most the last 40 % of the log; what "
        "is calibrated is so before that" + (f"; not scored: {apart}" if apart else ""),
        f"intervals of {CONFIDENCE:.0%} are block bootstraps over days of the scored part; "
        + (
            "they carry the setting's error in proportion to the difference"
            if made.reproduced
            else "they carry the whole error of the setting, as it does not reproduce history"
        ),
        "a change is equivalent where its interval lies within 2 % of the mean wait, or a minute, of none",
    ]
    if made.untried:
        names = ", ".join(one.name for one in made.untried)
        notes.append(f"not tried: {names}; --changes {len(made.effects) + len(made.untried)} tries all")
    return notes


#: tables of a page by their title, in its order where history is reproduced
_WAITING, _HISTORY, _CHEAPEST = (
    "why partitions wait",
    "how well the last month is reproduced",
    "cheapest changes",
)
_TITLES: Final[Mapping[str, str]] = {
    "waiting": _WAITING,
    "history": _HISTORY,
    "cheapest": _CHEAPEST,
    "starts": "when a job would start",
    "changes": "all changes that were tried",
    "files": "files",
}


class SiteDocument(Document):
    """A survey of a site."""

    format = SITE_FORMAT

    def read(self, name: str, content: Mapping[str, Any], file: str = "") -> StoredDocument:
        """What a page shows of a survey: history first where it is not reproduced."""
        where = file or name
        kept = record(content, _Site, where)
        check_figures({key: value for key, value in content.items() if key != "scenario"}, where)
        order = list(_TITLES)
        if not kept.reproduced:
            order.insert(0, order.pop(order.index("history")))
        tables = {_TITLES[key]: rows for key in order if (rows := getattr(kept, key))}
        try:
            return StoredDocument(
                name=name,
                file=where,
                kind="survey",
                domain=kept.domain,
                version=kept.forerun,
                answer=kept.why,
                notes=kept.notes,
                facts=kept.facts,
                tables=tables,
                scenario=kept.scenario,
                content=content,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StoreError.at(where, f"is no survey of a site: {worded(error)}") from error

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """Waits beside history by partition, and what each change does."""
        history, changes = content["history"], content["changes"]
        made = [
            Figure.of(
                "bar",
                "history",
                "Mean waits of the last month",
                {
                    "jobs": [row["jobs of"] for row in history for _ in range(2)],
                    "wait": [row[key] for row in history for key in ("recorded_mean_h", "simulated_mean_h")],
                    "which": ["recorded", "simulated"] * len(history),
                },
                x=Axis("jobs", "jobs of"),
                y=Axis("wait", "mean wait", "h"),
                series="which",
                caption="History and the simulation of the site as it is, over the scored jobs.",
            )
        ]
        if changes:
            made.append(
                Figure.of(
                    "points",
                    "changes",
                    "What each change does to the mean wait",
                    {
                        "change": [row["change"] for row in changes],
                        "difference": [row["difference_h"] for row in changes],
                    },
                    intervals=[
                        None if row["low_h"] is None else Interval(row["low_h"], row["high_h"], CONFIDENCE)
                        for row in changes
                    ],
                    x="change",
                    y=Axis("difference", "difference of the mean wait", "h"),
                    rules=[Rule(0.0, "as it is", "y")],
                    caption="With 90 % intervals; on the low side of the line jobs wait less.",
                )
            )
        return tuple(made)


DOCUMENT: Final = SiteDocument()
