"""Whole pages: of one run, of several side by side, of a study, a comparison, a plan, a measurement, of any mix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

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
from forerun.report.pieces import (
    Section,
    bullets,
    commands,
    facts_line,
    folded,
    named_lines,
    paragraph,
    present,
    scenario_text,
)
from forerun.report.quantities import capital
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
#: sections of a study, comparison, plan or measurement that are shown unfolded on a page of several items
_UNFOLDED: Final = ("headline", "figures", "failed", "causes")


def any_page(items: Sequence[Item], questions: Sequence[str] = ()) -> str:
    """The page of any items: one by itself, runs of one domain side by side, any mix one after the other.

    Parameters
    ----------
    items : what to show, at least one.
    questions : what each was run to answer, in their order; shown where things are shown one by one (default: none).

    Raises
    ------
    UsageError : there are more than `MOST_RUNS`.
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
    """What a page says of a study, comparison, plan or measurement.

    Parameters
    ----------
    kind : one of those words.
    facts : what identifies it, on one line.
    answer : one sentence, may be empty.
    sections : all of it.
    """

    kind: str
    facts: str
    answer: str
    sections: list[Section]


def _overview(item: Other, prefix: str = "figure") -> _Overview:
    """What a page says of an item.

    Parameters
    ----------
    item : anything but a run.
    prefix : keeps the names of its figures apart from those of other items (default: `figure`).
    """
    figures = drawn(figures_of_item(item), prefix)
    if isinstance(item, SavedStudy):
        return _Overview("study", studies.facts(item), item.why(), studies.study_sections(item, figures))
    if isinstance(item, StoredComparison):
        body = comparisons.comparison_sections(item, figures)
        return _Overview("comparison", comparisons.facts(item), item.comparison.why, body)
    return _Overview(
        item.kind, documents.facts(item), item.answer, documents.document_sections(item, figures)
    )


def _one_page(item: Other) -> str:
    """The page of one study, comparison, plan or measurement."""
    shown = _overview(item)
    named = label(item) if shown.kind in label(item).lower() else f"{shown.kind} {label(item)}"
    lead = join(tag("p", shown.facts, class_="meta"), paragraph(shown.answer, "why"))
    titled = "" if isinstance(item, SavedStudy) else title_in(_scenario_of(item))
    title = f"{capital(shown.kind)}: {titled}" if titled else f"{capital(item.domain)}: {named}"
    return page(title, lead, shown.sections, charts=bool(figures_of_item(item)))


def _scenario_of(item: StoredComparison | StoredDocument) -> Mapping[str, object]:
    """The scenario of a comparison or document, as plain data."""
    return item.comparison.scenario if isinstance(item, StoredComparison) else item.scenario


def run_page(run: Run, question: str = "") -> str:
    """The page of one run.

    Parameters
    ----------
    run : a result or a saved run.
    question : what it was run to answer (default: none).

    Raises
    ------
    StoreError : the run lacks a table or column that its figures need.
    """
    figures = figures_of(run)
    resolved = tag("p", "Resolved: every default is written out.", class_="soft over")
    shown = present(
        Section("headline", "Headline", sections.headline(run)),
        Section("ledgers", "Where it went", sections.ledgers(run.ledgers), "Ledgers"),
        Section("figures", "Figures", drawn(figures)),
        Section("notes", "Notes", bullets(run.notes)),
        Section("next", "What to run next", commands(_commands(run))),
        Section("scenario", "Scenario", join(resolved, scenario_text(scenario_data(run)))),
        Section("tables", "Tables", sections.tables(run.tables)),
        Section("provenance", "Provenance", sections.provenance(run)),
    )
    lead = join(
        paragraph(question, "question"), tag("p", _facts(run), class_="meta"), paragraph(run.why, "why")
    )
    name = label(run)
    plain = capital(run.domain) if name == run.domain else f"{capital(run.domain)}: {name}"
    return page(title_in(scenario_data(run)) or plain, lead, shown, charts=bool(figures))


def runs_page(runs: Sequence[Run], questions: Sequence[str] = ()) -> str:
    """The page of several runs: side by side if they are of one domain, else one after another.

    Parameters
    ----------
    runs : at least one; changes are shown against the first.
    questions : what each was run to answer; not shown side by side (default: none).

    Raises
    ------
    UsageError : there are more than `MOST_RUNS`.
    """
    if len(runs) == 1:
        return run_page(runs[0], *questions)
    _not_too_many(runs)
    if len({run.domain for run in runs}) > 1:
        return mixed_page(runs, questions)
    names = labels(runs)
    groups = [figures_of(run) for run in runs]
    common, used = compare.shared_figures(groups, names)
    alone = [[f for at, f in enumerate(group) if at not in mine] for group, mine in zip(groups, used)]
    named = list(zip(names, runs))
    whys = named_lines([(tag("strong", name), run.why) for name, run in named if run.why])
    ledgers = compare.ledgers(runs, names) if any(run.ledgers for run in runs) else None
    notes = [(tag("strong", f"{name}: "), note) for name, run in named for note in run.notes]
    provenance = join(folded(name, sections.provenance(run)) for name, run in named)
    scenarios = join(folded(name, scenario_text(scenario_data(run))) for name, run in named)
    shown = present(
        Section("headline", "Headline", join(whys, compare.summaries(runs, names))),
        Section("differences", "Where the scenarios differ", compare.differences(runs, names), "Differences"),
        Section("ledgers", "Where it went", ledgers, "Ledgers"),
        Section("figures", "Figures", drawn(common)),
        *(
            Section(f"run-{number}", f"Figures of {name}", drawn(figures, f"run-{number}"), name)
            for number, (name, figures) in enumerate(zip(names, alone), start=1)
        ),
        Section("notes", "Notes", bullets(notes)),
        Section("provenance", "Provenance", provenance),
        Section("scenarios", "Scenarios", scenarios),
    )
    lead = f"{runs[0].domain} · {len(runs)} runs; changes are against {names[0]}"
    title = f"{len(runs)} runs side by side"
    return page(title, tag("p", lead, class_="meta"), shown, charts=any(groups))


def mixed_page(items: Sequence[Item], questions: Sequence[str] = ()) -> str:
    """The page of items without common figures, each shown by itself: runs of different domains, studies, plans.

    Parameters
    ----------
    items : what to show, in this order.
    questions : what each was run to answer (default: none).
    """
    names = [
        name if item.domain in name else f"{item.domain}: {name}" for name, item in zip(labels(items), items)
    ]
    shown = []
    for number, (name, item, question) in enumerate(zip_longest(names, items, questions), start=1):
        if isinstance(item, (Result, SavedRun)):
            body = _run_body(item, number)
        else:
            body = _other_body(item, number)
        shown.append(Section(f"run-{number}", capital(name), join(paragraph(question, "question"), body)))
    domains = list(dict.fromkeys(item.domain for item in items))
    kinds = Counter(map(_kind, items))
    counts = [
        f"{kinds[kind]} {kind if kinds[kind] == 1 else many}" for kind, many in _KINDS.items() if kinds[kind]
    ]
    counted = " and ".join([*filter(None, [", ".join(counts[:-1])]), counts[-1]])
    of = f" of {len(domains)} domains" if len(domains) > 1 else ""
    return page(capital(", ".join(domains)), tag("p", counted + of, class_="meta"), shown, charts=True)


def _kind(item: Item) -> str:
    """The word for an item: run, study, comparison, plan or measurement."""
    if isinstance(item, (Result, SavedRun)):
        return "run"
    if isinstance(item, SavedStudy):
        return "study"
    return "comparison" if isinstance(item, StoredComparison) else item.kind


def _run_body(run: Run, number: int) -> Html:
    """A run as a section of a page of several items.

    Parameters
    ----------
    run : a result or a saved run.
    number : its place on the page, from 1; names its figures.
    """
    ledgers = sections.ledgers(run.ledgers)
    return join(
        tag("p", _facts(run), class_="soft over"),
        paragraph(run.why, "why over"),
        sections.headline(run),
        tag("h3", "Where it went", class_="part") if ledgers else None,
        ledgers,
        tag("h3", "Figures", class_="part"),
        drawn(figures_of(run), f"run-{number}"),
        bullets(run.notes),
        folded("What to run next", commands(_commands(run))),
        folded("Scenario", scenario_text(scenario_data(run))),
        folded("Provenance", sections.provenance(run)),
    )


def _other_body(item: Other, number: int) -> Html:
    """A study, comparison, plan or measurement as a section of a page of several items.

    Parameters
    ----------
    item : what to show.
    number : its place on the page, from 1; names its figures.
    """
    shown = _overview(item, f"run-{number}")
    return join(
        tag("p", shown.facts, class_="soft over"),
        paragraph(shown.answer, "why over"),
        (
            (tag("h3", part.title, class_="part"), part.body)
            if part.name in _UNFOLDED
            else folded(part.title, part.body)
            for part in shown.sections
        ),
    )


def _not_too_many(items: Sequence[Item]) -> None:
    """Reject more items than a page holds. Raises UsageError."""
    if len(items) > MOST_RUNS:
        raise UsageError(Problem("report", f"{len(items)} runs were given; a page shows at most {MOST_RUNS}"))


def write_html(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page atomically; replaces only a page that forerun wrote.

    Parameters
    ----------
    text : the page.
    path : the file to write.

    Raises
    ------
    StoreError : something else is there, or it cannot be written.
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
    """Whether a file is a page that forerun wrote, or empty."""
    beginning = BEGINNING.encode()
    with open_regular(path) as file:
        first = file.read(len(beginning))
    return first in (beginning, b"")


def drawn(figures: Sequence[Figure], prefix: str = "figure") -> Html | None:
    """Figures as they stand on a page; None if there are none.

    Parameters
    ----------
    figures : to draw, in this order.
    prefix : what their names on the page begin with, which keeps them apart from other figures' (default: `figure`).
    """
    if not figures:
        return None
    names = [f"{prefix}-{stem}" for stem in stems(figures)]
    return sections.figures([draw(figure, VARIABLES) for figure in figures], names)


def _facts(run: Run) -> str:
    """Domain, id, seed, policy and version on one line."""
    data = scenario_data(run)
    policy = data.get("policy")
    named = policy.get("name") if isinstance(policy, dict) else policy
    version = run.provenance.get("versions", {}).get("forerun")
    return facts_line(
        run.domain,
        f"run {run.id}",
        f"seed {data['seed']}" if "seed" in data else "",
        f"policy {named}" if named else "",
        f"forerun {version}" if version else "",
    )


def _commands(run: Run) -> list[tuple[str, str]]:
    """The domain's next steps, then those of any run."""
    if not isinstance(run, SavedRun):
        return [(step.format(scenario="SCENARIO"), "") for step in run.next_steps]
    folder = str(run.folder)
    timeline = f"{folder}/{TIMELINE_FILE}"
    lines = [(step.replace("{scenario}", f"{folder}/scenario.json"), "") for step in run.next_steps]
    again, pictures = (
        "The same run again: the same scenario gives the same bytes.",
        "These figures as pictures.",
    )
    lines.append((f"forerun simulate {folder}/scenario.json", again))
    lines.append((f"forerun report {folder} --png {folder}/figures --svg {folder}/figures", pictures))
    if Path(timeline).is_file():
        lines.append((timeline, "The timeline, for Perfetto (ui.perfetto.dev, Open trace file)."))
    return lines
