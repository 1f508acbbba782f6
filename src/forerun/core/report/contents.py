"""What a page says about a run, before any layout: figures, ledgers as figures, scenario text, labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

import yaml

from forerun.core import slices
from forerun.core.domain import announced_figures, find_domain
from forerun.core.errors import StoreError, UnknownName, worded
from forerun.core.report.images import stems
from forerun.core.report.stored import DAMAGE, StoredComparison, figures_of_document
from forerun.core.result.document import StoredDocument
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import capital
from forerun.core.result.run import Result, SavedRun
from forerun.core.scenario.spec import to_data
from forerun.core.study.compare import moved_parts
from forerun.core.study.differences import figures as comparison_figures
from forerun.core.study.figures import figures as study_figures
from forerun.core.study.ranking import SavedStudy, ranking_of
from forerun.core.units import readable_unit

Run: TypeAlias = Result | SavedRun
Item: TypeAlias = Run | SavedStudy | StoredComparison | StoredDocument

#: lines of scenario text above which the rest is left to scenario.json
MOST_LINES: Final = 1_500
#: items of a list in scenario text above which the rest is counted
MOST_ITEMS: Final = 1_500


def figures_of(run: Run) -> tuple[Figure, ...]:
    """The figures of a run, and what other packages draw of it; none if its domain is not installed here.

    Parameters
    ----------
    run : a result or a saved run.

    Raises
    ------
    StoreError : the run lacks a table or column that its figures need.
    """
    domain = find_domain(run.domain)
    if domain is None:
        return ()
    others = announced_figures(run.domain)
    try:
        beside = [
            figure for module in slices.figures(run.domain) for figure in import_module(module).figures(run)
        ]
        return (*domain.figures(run), *beside, *filter(None, (make(run) for make in others)))
    except (UnknownName, *DAMAGE) as error:
        if not isinstance(run, SavedRun) and not isinstance(error, (KeyError, UnknownName)):
            raise  # of a result in memory: a fault of the domain
        where = run.folder if isinstance(run, SavedRun) else f"run {run.id}"
        what = f"its figures need what the run does not contain: {worded(error)}"
        raise StoreError.at(where, what) from error


def named_figures(run: Run) -> dict[str, Figure]:
    """The figures of a run and of its ledgers, by names that are all different: what `Result.figures` is.

    Raises
    ------
    StoreError : the run lacks a table or column that its figures need.
    """
    shown = (*figures_of(run), *ledger_figures(run.ledgers))
    return dict(zip(stems(shown), shown))


def figures_of_item(item: Item) -> tuple[Figure, ...]:
    """The figures of whatever is shown: a run, study, comparison, plan or measurement. Ledgers are not among them.

    Raises
    ------
    StoreError : the item lacks what its figures need.
    """
    if isinstance(item, SavedStudy):
        return study_figures(item, ranking_of(item))
    if isinstance(item, StoredComparison):
        return comparison_figures(item.comparison, moved_parts(item.comparison))
    if isinstance(item, StoredDocument):
        return figures_of_document(item)
    return figures_of(item)


def ledger_figures(ledgers: Sequence[Ledger]) -> tuple[Figure, ...]:
    """One stacked bar for each ledger, for pictures; ledgers whose parts are all 0 have none.

    Parameters
    ----------
    ledgers : of one run.
    """
    bars = []
    for ledger in ledgers:
        parts = [name for name, amount in ledger.parts.items() if amount]
        if not parts:
            continue
        bars.append(
            Figure.of(
                "bar",
                f"ledger-{ledger.name}",
                f"Where the {ledger.name} went",
                {"amount": [float(ledger.parts[name]) for name in parts], "part": parts},
                x=Axis("amount", ledger.name, readable_unit(ledger.unit)),
                y="part",
                caption=f"The parts sum to the whole. {_shares(ledger, parts)}",
            )
        )
    return tuple(bars)


def label(run: Item) -> str:
    """A short name of an item: its folder or file, else its scenario's title or its domain."""
    if isinstance(run, SavedStudy):
        return run.path.stem
    if isinstance(run, (StoredComparison, StoredDocument)):
        return run.name
    if isinstance(run, SavedRun) and run.folder.name:
        return run.folder.name
    return title_in(scenario_data(run)) or run.domain


def title_in(scenario: Mapping[str, Any]) -> str:
    """The title that a scenario has; empty if none."""
    return str(scenario.get("title") or "")


def item_title(kind: str, domain: str, name: str, scenario: Mapping[str, Any] = {}) -> str:
    """The title of a page about what is no run: its kind and its scenario's title; without one, its domain and name."""
    if titled := title_in(scenario):
        return f"{capital(kind)}: {titled}"
    return f"{capital(domain)}: {name if kind in name.lower() else f'{kind} {name}'}"


def labels(runs: Sequence[Item]) -> list[str]:
    """Short, distinct names of the items, in their order.

    Runs in folders of the same name get the folder above as well; names that are still equal get a number.
    """
    names = [label(run) for run in runs]
    if len(set(names)) == len(names):
        return names
    longer = ["/".join(run.folder.parts[-2:]) if isinstance(run, SavedRun) else label(run) for run in runs]
    return [
        name if longer.count(name) == 1 else f"{name} ({number})"
        for number, name in enumerate(longer, start=1)
    ]


def scenario_data(run: Run) -> dict[str, Any]:
    """The resolved scenario as plain data."""
    data: dict[str, Any] = to_data(run.scenario)
    return data


def as_yaml(data: Any) -> str:
    """Plain data as YAML to read: short sections and lists on one line, at most some 1,500 lines.

    Meant for people: what is cut says so, and a scenario that was cut cannot be read back.
    """
    # Cut before it is written: writing YAML takes far longer than a page shows of it.
    text: str = yaml.safe_dump(
        _shortened(data), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )
    lines = text.splitlines()
    cut = ["# ... the rest is in scenario.json"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + cut)


def _shortened(data: Any) -> Any:
    """Plain data whose long lists end with how many items follow."""
    if isinstance(data, Mapping):
        return {key: _shortened(value) for key, value in data.items()}
    if not isinstance(data, (list, tuple)):
        return data
    more = len(data) - MOST_ITEMS
    return [_shortened(item) for item in data[:MOST_ITEMS]] + ([f"... {more:,} more"] if more > 0 else [])


def flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Plain data as path -> scalar: {"a": {"b": [[1], 2]}} becomes {"a.b[0]": "1", "a.b[1]": 2}.

    A list of scalars stays one text, with its first twelve items.

    Parameters
    ----------
    data : dictionaries, lists and scalars.
    prefix : path of the data itself (default: none).
    """
    if isinstance(data, Mapping):
        flattened: dict[str, Any] = {}
        for key, value in data.items():
            flattened |= flat(value, f"{prefix}.{key}" if prefix else str(key))
        return flattened
    if isinstance(data, (list, tuple)):
        if all(not isinstance(item, (Mapping, list, tuple)) for item in data):
            return {prefix: ", ".join(map(_scalar, data[:12])) + (" ..." if len(data) > 12 else "")}
        flattened = {}
        for number, value in enumerate(data):
            flattened |= flat(value, f"{prefix}[{number}]")
        return flattened
    return {prefix: data}


def _shares(ledger: Ledger, parts: Sequence[str]) -> str:
    """The three largest parts of a ledger with their shares, as a sentence."""
    shares = ledger.shares()
    largest = sorted(parts, key=lambda name: -shares[name])[:3]
    return "Largest: " + ", ".join(f"{name} {shares[name]:.1%}" for name in largest) + "."


def _scalar(value: Any) -> str:
    """A scalar as text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
