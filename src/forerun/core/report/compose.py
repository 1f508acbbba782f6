"""Whole pages: of one run, of several side by side, of a study, a comparison, a plan, a measurement, of any mix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from forerun.core.atomic_write import write_text
from forerun.core.errors import Problem, StoreError, UsageError
from forerun.core.regular import open_regular
from forerun.core.report import compare
from forerun.core.report.comparison import shown_comparison
from forerun.core.report.contents import Item, Run, figures_of, labels, scenario_data
from forerun.core.report.documents import shown_document
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content
from forerun.core.report.page import BEGINNING, page
from forerun.core.report.pieces import (
    Bullets,
    Element,
    Folded,
    NamedLines,
    Paragraph,
    ScenarioText,
    Section,
    Shown,
    present,
)
from forerun.core.report.run import provenance as run_provenance
from forerun.core.report.run import shown_run
from forerun.core.report.stored import StoredComparison
from forerun.core.report.study import shown_study
from forerun.core.result.document import StoredDocument
from forerun.core.result.numbers import capital
from forerun.core.result.run import Result, SavedRun
from forerun.core.study.ranking import SavedStudy

#: runs that fit beside each other in a table
MOST_RUNS: Final = 12
#: what a page may contain, in the order in which it is counted: singular and plural
_KINDS: Final = {
    "run": "runs",
    "study": "studies",
    "comparison": "comparisons",
    "plan": "plans",
    "measurement": "measurements",
    "bound": "bounds",
    "replay": "replays",
    "survey": "surveys",
    "explanation": "explanations",
}
#: sections that are shown unfolded on a page of several items
_UNFOLDED: Final = ("headline", "ledgers", "figures", "failed", "causes", "notes")


def any_page(items: Sequence[Item], questions: Sequence[str] = ()) -> str:
    """The page of any items: one by itself, runs of one domain side by side, any mix one after the other.

    Parameters
    ----------
    items : what to show, at least one.
    questions : what each was run to answer, in their order; not shown where runs are side by side (default: none).

    Raises
    ------
    UsageError : there are more than `MOST_RUNS`.
    StoreError : a run lacks a table or column that its figures need.
    """
    if len(items) == 1:
        return _one_page(_shown(items[0]), *questions)
    if len(items) > MOST_RUNS:
        raise UsageError(Problem("report", f"{len(items)} runs were given; a page shows at most {MOST_RUNS}"))
    runs = [item for item in items if isinstance(item, (Result, SavedRun))]
    if len(runs) == len(items) and len({run.domain for run in runs}) == 1:
        return _runs_page(runs)
    return _mixed_page(items, questions)


def _shown(item: Item, prefix: str = "figure") -> Shown:
    """What a page says of an item.

    Parameters
    ----------
    item : what to show.
    prefix : keeps the names of its figures apart from those of other items (default: `figure`).
    """
    match item:
        case SavedStudy():
            return shown_study(item, prefix)
        case StoredComparison():
            return shown_comparison(item, prefix)
        case StoredDocument():
            return shown_document(item, prefix)
        case _:
            return shown_run(item, prefix)


def _one_page(shown: Shown, question: str = "") -> str:
    """The page of one item. question: what it was run to answer (default: none)."""
    lead = (
        Paragraph(question, "question"),
        Element("p", _line(shown.facts), "meta"),
        Paragraph(shown.answer, "why"),
    )
    return page(shown.title, lead, shown.sections, charts=shown.charts)


def _runs_page(runs: Sequence[Run]) -> str:
    """The page of several runs of one domain, side by side; changes are shown against the first."""
    names = labels(runs)
    groups = [figures_of(run) for run in runs]
    common, used = compare.shared_figures(groups, names)
    alone = [[f for at, f in enumerate(group) if at not in mine] for group, mine in zip(groups, used)]
    named = list(zip(names, runs))
    whys = NamedLines([(Element("strong", name), run.why) for name, run in named if run.why])
    ledgers = compare.ledgers(runs, names) if any(run.ledgers for run in runs) else None
    notes = [(Element("strong", f"{name}: "), note) for name, run in named for note in run.notes]
    provenance = [
        Folded(name, run_provenance(run.id, run.provenance, scenario_data(run))) for name, run in named
    ]
    scenarios = [Folded(name, ScenarioText(scenario_data(run))) for name, run in named]
    shown = [
        Section("headline", "Headline", (whys, compare.summaries(runs, names))),
        Section("differences", "Where the scenarios differ", compare.differences(runs, names), "Differences"),
        Section("ledgers", "Where it went", ledgers, "Ledgers"),
        Section("figures", "Figures", Drawn(common)),
        *(
            Section(f"run-{number}", f"Figures of {name}", Drawn(figures, f"run-{number}"), name)
            for number, (name, figures) in enumerate(zip(names, alone), start=1)
        ),
        Section("notes", "Notes", Bullets(notes)),
        Section("provenance", "Provenance", provenance),
        Section("scenarios", "Scenarios", scenarios),
    ]
    lead = f"{runs[0].domain} · {len(runs)} runs; changes are against {names[0]}"
    title = f"{len(runs)} runs side by side"
    return page(title, Element("p", lead, "meta"), shown, charts=any(groups))


def _mixed_page(items: Sequence[Item], questions: Sequence[str]) -> str:
    """The page of items without common figures, each shown by itself: runs of different domains, studies, plans.

    Parameters
    ----------
    items : what to show, in this order.
    questions : what each was run to answer.
    """
    names = [
        name if item.domain in name else f"{item.domain}: {name}" for name, item in zip(labels(items), items)
    ]
    shown, kinds = [], Counter[str]()
    for number, (name, item, question) in enumerate(zip_longest(names, items, questions), start=1):
        of_one = _shown(item, f"run-{number}")
        kinds[of_one.kind] += 1
        body = (Paragraph(question or "", "question"), *_body(of_one))
        shown.append(Section(f"run-{number}", capital(name), body))
    domains = list(dict.fromkeys(item.domain for item in items))
    counts = [
        f"{kinds[kind]} {kind if kinds[kind] == 1 else many}" for kind, many in _KINDS.items() if kinds[kind]
    ]
    counted = " and ".join([*filter(None, [", ".join(counts[:-1])]), counts[-1]])
    of = f" of {len(domains)} domains" if len(domains) > 1 else ""
    return page(capital(", ".join(domains)), Element("p", counted + of, "meta"), shown, charts=True)


def _body(shown: Shown) -> Sequence[Content]:
    """An item as a section of a page of several: what matters most, and the rest folded."""
    return (
        Element("p", _line(shown.facts), "soft over"),
        Paragraph(shown.answer, "why over"),
        *(
            (Element("h3", part.title, "part"), body) if part.name in _UNFOLDED else Folded(part.title, body)
            for part, body in present(shown.sections)
        ),
    )


def _line(facts: Sequence[str]) -> str:
    """What identifies an item, on one line."""
    return " · ".join(filter(None, facts))


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
