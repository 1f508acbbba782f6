"""Whole pages: of one run, of several side by side, of a study, a comparison, a plan, a measurement, of any mix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from forerun.atomic_write import write_text
from forerun.errors import Problem, StoreError, UsageError
from forerun.regular import open_regular
from forerun.report import compare, documents, sections
from forerun.report import comparison as comparisons
from forerun.report import study as studies
from forerun.report.contents import (
    Item,
    Other,
    Run,
    figures_of,
    figures_of_item,
    label,
    labels,
    scenario_data,
    title_in,
)
from forerun.report.drawing import draw
from forerun.report.images import stems
from forerun.report.markup import Html, join, tag
from forerun.report.page import BEGINNING, page
from forerun.report.palette import VARIABLES
from forerun.report.quantities import title_of
from forerun.report.sections import Section
from forerun.report.stored import StoredComparison, StoredDocument
from forerun.result.figures import Figure
from forerun.result.run import TIMELINE_FILE, Result, SavedRun
from forerun.study.saved import SavedStudy

#: runs that fit beside each other in a table
MOST_RUNS: Final = 12
#: what a page may contain, in the order in which it is counted: singular and plural
_KINDS: Final = {
    "run": "runs",
    "study": "studies",
    "comparison": "comparisons",
    "plan": "plans",
    "measurement": "measurements",
}


def any_page(items: Sequence[Item], questions: Sequence[str] = ()) -> str:
    """The page of any items: one by itself, runs of one domain side by side, any mix one after the other.

    questions: what each was run to answer, in their order; shown where things are shown one by one. Raises UsageError for
    more than a page holds.
    """
    runs = [item for item in items if isinstance(item, (Result, SavedRun))]
    if len(runs) == len(items):
        return runs_page(runs, questions)
    if len(items) == 1 and not isinstance(items[0], (Result, SavedRun)):
        return _one_page(items[0])
    _not_too_many(items)
    return mixed_page(items, questions)


@dataclass(frozen=True)
class _Overview:
    """What a page says of a study, comparison, plan or measurement. opened: sections shown, not folded, in a mix."""

    kind: str
    facts: str
    answer: str
    figures: tuple[Figure, ...]
    sections: list[Section]
    opened: tuple[str, ...]


def _told(item: Other, prefix: str = "figure") -> _Overview:
    opened = ("headline", "figures", "failed", "causes")
    figures = figures_of_item(item)
    shown = drawn(figures, prefix) if figures else None
    if isinstance(item, SavedStudy):
        body = studies.study_sections(item, shown)
        return _Overview("study", studies.facts(item), item.why(), figures, body, opened)
    if isinstance(item, StoredComparison):
        body = comparisons.comparison_sections(item, shown)
        return _Overview("comparison", comparisons.facts(item), item.comparison.why, figures, body, opened)
    body = documents.document_sections(item, shown)
    return _Overview(item.kind, documents.facts(item), item.answer, figures, body, opened)


def _one_page(item: Other) -> str:
    """The page of one study, comparison, plan or measurement."""
    told = _told(item)
    named = label(item) if told.kind in label(item).lower() else f"{told.kind} {label(item)}"
    answer = tag("p", told.answer, class_="why") if told.answer else None
    lead = join((tag("p", told.facts, class_="meta"), answer))
    titled = "" if isinstance(item, SavedStudy) else title_in(_scenario_of(item))
    title = f"{title_of(told.kind)}: {titled}" if titled else f"{title_of(item.domain)}: {named}"
    return page(title, lead, told.sections, charts=bool(figures_of_item(item)))


def _scenario_of(item: StoredComparison | StoredDocument) -> Mapping[str, Any]:
    return item.comparison.scenario if isinstance(item, StoredComparison) else item.scenario


def run_page(run: Run, question: str = "") -> str:
    """The page of one run, and the question that it answers."""
    figures = figures_of(run)
    found = [
        Section("headline", "Headline", sections.headline(run)),
        Section(
            "ledgers",
            "Where it went",
            tag("div", (sections.ledger(entry) for entry in run.ledgers), class_="ledgers"),
            "Ledgers",
        )
        if run.ledgers
        else None,
        Section("figures", "Figures", drawn(figures)) if figures else None,
        Section("notes", "Notes", sections.notes(run)) if run.notes else None,
        Section("next", "What to run next", sections.commands(_commands(run))),
        Section(
            "scenario",
            "Scenario",
            join(
                (
                    tag("p", "Resolved: every default is written out.", class_="soft over"),
                    sections.scenario(run),
                )
            ),
        ),
        Section("tables", "Tables", sections.tables(run.tables)) if run.tables else None,
        Section("provenance", "Provenance", sections.provenance(run)),
    ]
    lead = join(
        (
            tag("p", question, class_="question") if question else None,
            tag("p", _facts(run), class_="meta"),
            tag("p", run.why, class_="why") if run.why else None,
        )
    )
    name = label(run)
    plain = title_of(run.domain) if name == run.domain else f"{title_of(run.domain)}: {name}"
    title = title_in(scenario_data(run)) or plain
    return page(title, lead, [section for section in found if section], charts=bool(figures))


def runs_page(runs: Sequence[Run], questions: Sequence[str] = ()) -> str:
    """The page of several runs: side by side if they are of one domain, else one after another.

    Raises UsageError for more runs than a table holds.
    """
    if len(runs) == 1:
        return run_page(runs[0], *questions)
    _not_too_many(runs)
    if len({run.domain for run in runs}) > 1:
        return mixed_page(runs, questions)
    names = labels(runs)
    groups = [figures_of(run) for run in runs]
    common, used = compare.shared_figures(groups, names)
    alone = [
        tuple(figure for at, figure in enumerate(group) if at not in mine)
        for group, mine in zip(groups, used)
    ]
    whys = tag(
        "dl",
        (
            tag("div", tag("dt", tag("strong", name)), tag("dd", run.why))
            for name, run in zip(names, runs)
            if run.why
        ),
        class_="commands",
    )
    found: list[Section] = [
        Section("headline", "Headline", join((whys, compare.summaries(runs, names)))),
        Section("differences", "Where the scenarios differ", compare.differences(runs, names), "Differences"),
    ]
    if any(run.ledgers for run in runs):
        found.append(Section("ledgers", "Where it went", compare.ledgers(runs, names), "Ledgers"))
    if common:
        found.append(Section("figures", "Figures", drawn(common)))
    for number, (name, figures) in enumerate(zip(names, alone), start=1):
        if figures:
            found.append(
                Section(f"run-{number}", f"Figures of {name}", drawn(figures, f"run-{number}"), name)
            )
    noted = [
        tag("li", tag("strong", f"{name}: "), note) for name, run in zip(names, runs) for note in run.notes
    ]
    if noted:
        found.append(Section("notes", "Notes", tag("ul", noted, class_="notes")))
    found.append(
        Section(
            "provenance",
            "Provenance",
            join(_folded(name, sections.provenance(run)) for name, run in zip(names, runs)),
        )
    )
    found.append(
        Section(
            "scenarios",
            "Scenarios",
            join(_folded(name, sections.scenario(run)) for name, run in zip(names, runs)),
        )
    )
    lead = tag(
        "p",
        f"{', '.join(dict.fromkeys(run.domain for run in runs))} · {len(runs)} runs; changes are against {names[0]}",
        class_="meta",
    )
    return page(f"{len(runs)} runs side by side", lead, found, charts=any(groups))


def mixed_page(items: Sequence[Item], questions: Sequence[str] = ()) -> str:
    """The page of items without common figures, each shown by itself: runs of different domains, studies, plans."""
    names = [
        name if item.domain in name else f"{item.domain}: {name}" for name, item in zip(labels(items), items)
    ]
    found = [
        Section(
            f"run-{number}",
            title_of(name),
            join(
                (
                    tag("p", question, class_="question") if question else None,
                    _run_body(item, number)
                    if isinstance(item, (Result, SavedRun))
                    else _other_body(item, number),
                )
            ),
        )
        for number, (name, item, question) in enumerate(zip_longest(names, items, questions), start=1)
    ]
    domains = list(dict.fromkeys(item.domain for item in items))
    kinds = Counter("run" if isinstance(item, (Result, SavedRun)) else _kind(item) for item in items)
    told = [
        f"{kinds[kind]} {kind if kinds[kind] == 1 else many}" for kind, many in _KINDS.items() if kinds[kind]
    ]
    counted = " and ".join([*([", ".join(told[:-1])] if told[:-1] else []), told[-1]])
    of = f" of {len(domains)} domains" if len(domains) > 1 else ""
    return page(title_of(", ".join(domains)), tag("p", counted + of, class_="meta"), found, charts=True)


def _kind(item: Other) -> str:
    if isinstance(item, SavedStudy):
        return "study"
    return "comparison" if isinstance(item, StoredComparison) else item.kind


def _run_body(run: Run, number: int) -> Html:
    ledgers = tag("div", (sections.ledger(entry) for entry in run.ledgers), class_="ledgers")
    return join(
        (
            tag("p", _facts(run), class_="soft over"),
            tag("p", run.why, class_="why over") if run.why else None,
            sections.headline(run),
            tag("h3", "Where it went", class_="part") if run.ledgers else None,
            ledgers if run.ledgers else None,
            tag("h3", "Figures", class_="part"),
            drawn(figures_of(run), f"run-{number}"),
            sections.notes(run) if run.notes else None,
            _folded("What to run next", sections.commands(_commands(run))),
            _folded("Scenario", sections.scenario(run)),
            _folded("Provenance", sections.provenance(run)),
        )
    )


def _other_body(item: Other, number: int) -> Html:
    told = _told(item, f"run-{number}")
    return join(
        (
            tag("p", told.facts, class_="soft over"),
            tag("p", told.answer, class_="why over") if told.answer else None,
            (
                join((tag("h3", section.title, class_="part"), section.body))
                if section.name in told.opened
                else _folded(section.title, section.body)
                for section in told.sections
            ),
        )
    )


def _not_too_many(items: Sequence[Item]) -> None:
    if len(items) > MOST_RUNS:
        raise UsageError(Problem("report", f"{len(items)} runs were given; a page shows at most {MOST_RUNS}"))


def write_html(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page atomically; replaces only a page that forerun wrote.

    Raises StoreError if something else is there, or it cannot be written.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise StoreError.at(target, "is a directory; name the page, for example report.html in it")
        if target.exists() and not _is_ours(target):
            raise StoreError.at(target, "already contains something that is not a forerun page")
    except OSError as error:
        raise StoreError.at(target, f"cannot be written: {error.strerror}") from error
    return write_text(target, text)


def _is_ours(path: Path) -> bool:
    beginning = BEGINNING.encode()
    with open_regular(path) as file:
        first = file.read(len(beginning))
    return first == beginning or first == b""


def drawn(figures: Sequence[Figure], prefix: str = "figure") -> Html:
    """Figures as they stand on a page; `prefix` keeps their names apart from other figures' on it."""
    names = [f"{prefix}-{stem}" for stem in stems(figures)]
    return sections.figures([draw(figure, VARIABLES) for figure in figures], names)


def _folded(name: str, body: Html) -> Html:
    return tag("details", tag("summary", name), body)


def _facts(run: Run) -> str:
    """Domain, id, seed, policy and version on one line."""
    data = scenario_data(run)
    policy = data.get("policy")
    named: Any = policy.get("name") if isinstance(policy, dict) else policy
    version = run.provenance.get("versions", {}).get("forerun")
    facts = [
        str(run.domain),
        f"run {run.id}",
        f"seed {data['seed']}" if "seed" in data else "",
        f"policy {named}" if named else "",
        f"forerun {version}" if version else "",
    ]
    return " · ".join(fact for fact in facts if fact)


def _commands(run: Run) -> list[tuple[str, str]]:
    """The domain's next steps, then those of any run."""
    if not isinstance(run, SavedRun):
        return [(step.format(scenario="SCENARIO"), "") for step in run.next_steps]
    folder = str(run.folder)
    lines = [(step.replace("{scenario}", f"{folder}/scenario.json"), "") for step in run.next_steps]
    lines.append(
        (
            f"forerun simulate {folder}/scenario.json",
            "The same run again: the same scenario gives the same bytes.",
        )
    )
    lines.append(
        (
            f"forerun report {folder} --png {folder}/figures --svg {folder}/figures",
            "These figures as pictures.",
        )
    )
    if (run.folder / TIMELINE_FILE).is_file():
        lines.append(
            (f"{folder}/{TIMELINE_FILE}", "The timeline, for Perfetto (ui.perfetto.dev, Open trace file).")
        )
    return lines
