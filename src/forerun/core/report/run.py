"""A run on a page: its headline, ledgers, figures, notes, next steps, scenario, tables, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.core.report.contents import Run, figures_of, label, scenario_data, title_in
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content
from forerun.core.report.palette import VARIABLES
from forerun.core.report.pieces import (
    MOST_ROWS,
    Bar,
    Bullets,
    Commands,
    DataTable,
    Element,
    Estimate,
    Folded,
    Headline,
    Paragraph,
    Provenance,
    ScenarioText,
    Section,
    Shown,
    Swatch,
)
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import capital, figure_row, readable_rows
from forerun.core.result.run import TIMELINE_FILE, SavedRun
from forerun.core.result.stats import Interval
from forerun.core.result.tables import Table
from forerun.core.units import readable_unit, split_name


def shown_run(run: Run, prefix: str) -> Shown:
    """What a page says of a run.

    Parameters
    ----------
    run : a result or a saved run.
    prefix : of the names of its figures.
    """
    scenario, name = scenario_data(run), label(run)
    drawn = Drawn(figures_of(run), prefix)
    groups = {key: value for key, value in run.summary.items() if _by_group(key) and key not in run.lead}
    plain = capital(run.domain) if name == run.domain else f"{capital(run.domain)}: {name}"
    folder = str(run.folder) if isinstance(run, SavedRun) else ""
    resolved = Element("p", "Resolved: every default is written out.", "soft over")
    return Shown(
        "run",
        title_in(scenario) or plain,
        _facts(run.domain, run.id, scenario, run.provenance.get("versions", {}).get("forerun")),
        run.why,
        bool(drawn.figures),
        (
            *(_leading(*one) for one in run.leading()),
            Section("headline", "Headline", _headline(run, run.headline, run.intervals)),
            Section("groups", "By group", [_nested(*one) for one in groups.items()]),
            Section("ledgers", "Where it went", ledgers(run.ledgers), "Ledgers"),
            Section("figures", "Figures", drawn),
            Section("notes", "Notes", Bullets(run.notes)),
            Section("next", "What to run next", Commands(_commands(run.next_steps, folder))),
            Section("scenario", "Scenario", (resolved, ScenarioText(scenario))),
            Section("tables", "Tables", [_table(name, table) for name, table in run.tables.items()]),
            Section("provenance", "Provenance", provenance(run.id, run.provenance, scenario)),
        ),
    )


def _facts(domain: str, id: str, scenario: Mapping[str, Any], version: str | None) -> Sequence[str]:
    """Domain, id, seed, policy and version."""
    policy = scenario.get("policy")
    named = policy.get("name") if isinstance(policy, dict) else policy
    return (
        domain,
        f"run {id}",
        f"seed {scenario['seed']}" if "seed" in scenario else "",
        f"policy {named}" if named else "",
        f"forerun {version}" if version else "",
    )


def _commands(steps: Sequence[str], folder: str) -> list[tuple[str, str]]:
    """The domain's next steps, then those of any run. folder: of the run; empty for one that is in memory."""
    if not folder:
        return [(step.format(scenario="SCENARIO"), "") for step in steps]
    timeline = f"{folder}/{TIMELINE_FILE}"
    lines = [(step.replace("{scenario}", f"{folder}/scenario.json"), "") for step in steps]
    again, pictures = (
        "The same run again: the same scenario gives the same bytes.",
        "These figures as pictures.",
    )
    lines.append((f"forerun simulate {folder}/scenario.json", again))
    lines.append((f"forerun report {folder} --png {folder}/figures --svg {folder}/figures", pictures))
    if Path(timeline).is_file():
        lines.append((timeline, "The timeline, for Perfetto (ui.perfetto.dev, Open trace file)."))
    return lines


def _leading(title: str, head: Sequence[str], rows: Sequence[tuple[Any, ...]], sentence: str) -> Section:
    """A part of what is said above all else: its table, if it has one, and its sentence."""
    cells = [[name, *map(Estimate, values)] for name, *values in rows]
    table = DataTable(head, cells, label=title, right=range(1, len(head))) if rows else None
    return Section(
        title.lower().replace(" ", "-"), title, Element("div", (table, Paragraph(capital(sentence) + ".")))
    )


def _headline(run: Run, first: Sequence[str], intervals: Mapping[str, Interval]) -> Headline:
    """The figures that matter, large, and all of them as tables, but those shown before.

    Large are the figures that the domain names first, else the first numbers of the summary.
    """
    summary = {
        name: value for name, value in run.summary.items() if name not in run.lead and not _by_group(name)
    }
    flat = {name: value for name, value in summary.items() if not _deep(value)}
    first = [name for name in first if name in flat]
    numbers = [name for name, value in flat.items() if isinstance(value, (int, float)) and value is not True]
    rows = {}
    for name, value in flat.items():
        label, value, unit, interval = figure_row(name, value, intervals.get(name))
        rows[name] = (capital(label), value, unit, interval)
    names = [*first, *(name for name in flat if name not in first)]
    table = _summary_table([rows[name] for name in names], intervals.values())
    deep = [_nested(name, value) for name, value in summary.items() if _deep(value)]
    tiles = [rows[name] for name in first or numbers]
    return Headline(tiles, len(names), Element("div", (table, deep), "beside"))


def _summary_table(rows: Sequence[tuple[str, object, str, str]], intervals: Iterable[Interval]) -> Element:
    """Every value of the summary with its unit, and its interval where some values have one."""
    columns = 4 if any(row[3] for row in rows) else 3
    cells = [(label, Estimate(value), unit, interval)[:columns] for label, value, unit, interval in rows]
    head = ("Quantity", "Value", "Unit", "Interval")[:columns]
    table = DataTable(head, cells, label="All values of the summary", right=(1, 3))
    methods = {f"{i.confidence:.0%}{', ' + i.method if i.method else ''}" for i in intervals}
    return Element("div", (table, Paragraph(f"Intervals: {'; '.join(sorted(methods))}." if methods else "")))


def _by_group(name: str) -> bool:
    """Whether an entry of the summary is a table with a row a group, which has a part of the page."""
    return name.startswith("by_")


def _deep(value: Any) -> bool:
    """Whether a summary entry is a table of its own rather than one figure or a short list of them."""
    if isinstance(value, (list, tuple)):
        return len(value) > 8 or any(isinstance(item, (Mapping, list, tuple)) for item in value)
    return isinstance(value, Mapping)


def _nested(name: str, value: Any) -> Element | None:
    """A summary entry that is itself a table (stage -> figure -> value) or a list."""
    title = capital(split_name(name)[0])
    if isinstance(value, Mapping) and value and all(isinstance(inner, Mapping) for inner in value.values()):
        head, cells = readable_rows(dict(list(value.items())[:MOST_ROWS]))
        rows = [[name, *map(_one, inner)] for name, *inner in cells]
        table = DataTable(head, rows, label=title, right=range(1, len(head)))
        return Element("div", (Element("h4", title), table))
    rows = [[path, Estimate(leaf)] for path, leaf in _leaves(value)]
    if not rows:
        return None
    cut = f" (first {MOST_ROWS} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
    table = DataTable(("", "Value"), rows[:MOST_ROWS], label=title, right=(1,))
    return Element("div", (Element("h4", title + cut), table))


def _one(value: Any) -> Estimate:
    """A value of a nested summary entry, however deep, in one cell."""
    return Estimate(str(value) if isinstance(value, (Mapping, list, tuple)) else value)


def _leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each scalar of plain data with its path."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, (list, tuple)):
        for at, value in enumerate(data):
            yield from _leaves(value, f"{prefix}[{at}]")
    else:
        yield prefix, data


def ledgers(entries: Sequence[Ledger]) -> Element | None:
    """Ledgers, each as a bar of its parts and a table that explains them; None if there are none."""
    return Element("div", list(map(_ledger, entries)), "ledgers") if entries else None


def _ledger(entry: Ledger) -> Element:
    """A ledger as a bar of its parts and a table that explains them."""
    shares, meanings = entry.shares(), entry.meanings or {}
    unit = readable_unit(entry.unit)
    colours = {name: VARIABLES.area_colour(number) for number, name in enumerate(entry.parts)}
    words = ", ".join(f"{name} {shares[name]:.1%}" for name in entry.parts if shares[name] >= 0.0005)
    widths = [(shares[name], colours[name], f"{name}: {shares[name]:.1%}") for name in entry.parts]
    rows: list[list[Content]] = [
        [Swatch(name, colours[name]), Estimate(float(value)), f"{shares[name]:.1%}", meanings.get(name, "")]
        for name, value in entry.parts.items()
    ]
    rows.append([Element("strong", "whole"), Element("strong", Estimate(float(entry.whole))), "", ""])
    head = ["Part", f"Amount ({unit})" if unit else "Amount", "Share", "Meaning"]
    if not any(meanings.get(name) for name in entry.parts):
        head, rows = head[:3], [row[:3] for row in rows]
    shown = (
        Element("h3", capital(entry.name)),
        Bar(widths, f"{entry.name}: {words}"),
        DataTable(head, rows, label=f"Parts of the ledger {entry.name}", right=(1, 2)),
    )
    return Element("div", shown, "ledger card")


def _table(name: str, table: Table) -> Folded:
    """A table's name and number of rows, and its columns when it is opened."""
    count = f" – {len(table):,} row{'' if len(table) == 1 else 's'}"
    meaning = f". {table.schema.meaning}" if table.schema.meaning else ""
    rows = [(column.name, readable_unit(column.unit), column.meaning) for column in table.schema.columns]
    columns = DataTable(("Column", "Unit", "Meaning"), rows, label=f"Columns of the table {name}")
    return Folded((Element("code", f"{name}.parquet"), count, meaning), columns)


def provenance(id: str, said: Mapping[str, Any], scenario: Mapping[str, Any]) -> Provenance:
    """Run id, versions, host and wall time. said: what the run says of them."""
    rows = [(path.replace("_", " "), Estimate(value)) for path, value in _leaves(said)]
    return Provenance([("run id", id), *rows], scenario)
