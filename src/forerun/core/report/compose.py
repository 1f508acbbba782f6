"""Whole pages: of one run, of several side by side, of a study, a comparison, a plan, a measurement, of any mix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from forerun.core.atomic_write import write_text
from forerun.core.documents import StoredDocument
from forerun.core.errors import Problem, StoreError, UsageError
from forerun.core.regular import open_regular
from forerun.core.report import compare, documents, sections
from forerun.core.report import comparison as comparisons
from forerun.core.report import study as studies
from forerun.core.report.contents import (
    Item,
    Run,
    figures_of,
    figures_of_item,
    label,
    labels,
    scenario_data,
    title_in,
)
from forerun.core.report.drawing import draw
from forerun.core.report.images import stems
from forerun.core.report.markup import Html, join, tag
from forerun.core.report.page import BEGINNING, page
from forerun.core.report.palette import VARIABLES
from forerun.core.report.pieces import (
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
from forerun.core.report.stored import StoredComparison
from forerun.core.result.figures import Figure
from forerun.core.result.numbers import capital
from forerun.core.result.run import TIMELINE_FILE, Result, SavedRun
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
        return _one_page(items[0], *questions)
    if len(items) > MOST_RUNS:
        raise UsageError(Problem("report", f"{len(items)} runs were given; a page shows at most {MOST_RUNS}"))
    runs = [item for item in items if isinstance(item, (Result, SavedRun))]
    if len(runs) == len(items) and len({run.domain for run in runs}) == 1:
        return _runs_page(runs)
    return _mixed_page(items, questions)


@dataclass(frozen=True)
class _Overview:
    """What a page says of an item.

    Parameters
    ----------
    kind : one of `_KINDS`.
    facts : what identifies it, on one line.
    answer : one sentence, may be empty.
    sections : all of it.
    """

    kind: str
    facts: str
    answer: str
    sections: list[Section]


def _overview(item: Item, prefix: str = "figure") -> _Overview:
    """What a page says of an item.

    Parameters
    ----------
    item : what to show.
    prefix : keeps the names of its figures apart from those of other items (default: `figure`).
    """
    figures = drawn(figures_of_item(item), prefix)
    match item:
        case Result() | SavedRun():
            return _Overview("run", _facts(item), item.why, _run_sections(item, figures))
        case SavedStudy():
            return _Overview("study", studies.facts(item), item.why(), studies.study_sections(item, figures))
        case StoredComparison():
            body = comparisons.comparison_sections(item, figures)
            return _Overview("comparison", comparisons.facts(item), item.comparison.why, body)
        case StoredDocument():
            body = documents.document_sections(item, figures)
            return _Overview(item.kind, documents.facts(item), item.answer, body)


def _run_sections(run: Run, figures: Html | None) -> list[Section]:
    """The sections of a page that is about one run; those with nothing to show are left out.

    Parameters
    ----------
    run : a result or a saved run.
    figures : drawn; None for none.
    """
    resolved = tag("p", "Resolved: every default is written out.", class_="soft over")
    return present(
        Section("headline", "Headline", sections.headline(run)),
        Section("ledgers", "Where it went", sections.ledgers(run.ledgers), "Ledgers"),
        Section("figures", "Figures", figures),
        Section("notes", "Notes", bullets(run.notes)),
        Section("next", "What to run next", commands(_commands(run))),
        Section("scenario", "Scenario", join(resolved, scenario_text(scenario_data(run)))),
        Section("tables", "Tables", sections.tables(run.tables)),
        Section("provenance", "Provenance", sections.provenance(run)),
    )


def _one_page(item: Item, question: str = "") -> str:
    """The page of one item. question: what it was run to answer (default: none)."""
    shown = _overview(item)
    lead = join(
        paragraph(question, "question"),
        tag("p", shown.facts, class_="meta"),
        paragraph(shown.answer, "why"),
    )
    return page(_title(item, shown.kind), lead, shown.sections, charts=bool(figures_of_item(item)))


def _title(item: Item, kind: str) -> str:
    """The title of a page of one item: the title that its scenario has, else its domain and its name; of a job, its name."""
    name = label(item)
    if isinstance(item, (Result, SavedRun)):
        plain = capital(item.domain) if name == item.domain else f"{capital(item.domain)}: {name}"
        return title_in(scenario_data(item)) or plain
    if isinstance(item, StoredDocument) and item.kind == "explanation":
        return capital(name)
    if not isinstance(item, SavedStudy):
        scenario = item.comparison.scenario if isinstance(item, StoredComparison) else item.scenario
        if titled := title_in(scenario):
            return f"{capital(kind)}: {titled}"
    return f"{capital(item.domain)}: {name if kind in name.lower() else f'{kind} {name}'}"


def _runs_page(runs: Sequence[Run]) -> str:
    """The page of several runs of one domain, side by side; changes are shown against the first."""
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
        of_one = _overview(item, f"run-{number}")
        kinds[of_one.kind] += 1
        body = join(paragraph(question, "question"), _body(of_one))
        shown.append(Section(f"run-{number}", capital(name), body))
    domains = list(dict.fromkeys(item.domain for item in items))
    counts = [
        f"{kinds[kind]} {kind if kinds[kind] == 1 else many}" for kind, many in _KINDS.items() if kinds[kind]
    ]
    counted = " and ".join([*filter(None, [", ".join(counts[:-1])]), counts[-1]])
    of = f" of {len(domains)} domains" if len(domains) > 1 else ""
    return page(capital(", ".join(domains)), tag("p", counted + of, class_="meta"), shown, charts=True)


def _body(shown: _Overview) -> Html:
    """An item as a section of a page of several: what matters most, and the rest folded."""
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
