"""What a page says about a run, before any layout: figures, ledgers as figures, scenario text, labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from forerun.domain import find_domain
from forerun.errors import StoreError, UnknownName
from forerun.report.images import stems
from forerun.report.quantities import readable_unit
from forerun.report.stored import StoredComparison, StoredDocument, figures_of_document
from forerun.result.figures import Axis, Figure
from forerun.result.ledger import Ledger
from forerun.result.run import Result, SavedRun
from forerun.scenario.spec import to_data
from forerun.study.differences import figures as comparison_figures
from forerun.study.figures import figures as study_figures
from forerun.study.saved import SavedStudy

Run: TypeAlias = Result | SavedRun
Other: TypeAlias = SavedStudy | StoredComparison | StoredDocument
Item: TypeAlias = Run | Other

#: lines of scenario text above which the rest is left to scenario.json
MOST_LINES: Final = 1_500
_PLAIN: Final = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./+ -]*\Z")
_WORDS: Final = {"true", "false", "null", "yes", "no", "on", "off", "~"}


def figures_of(run: Run) -> tuple[Figure, ...]:
    """The figures of a run; none if its domain is not installed here.

    Parameters
    ----------
    run : a result or a saved run.

    Raises
    ------
    StoreError : the run lacks a table or column that its figures need.
    """
    domain = find_domain(run.domain)
    try:
        return domain.figures(run) if domain is not None else ()
    except (KeyError, UnknownName) as error:
        where = run.folder if isinstance(run, SavedRun) else f"run {run.id}"
        raise StoreError.at(where, f"its figures need what the run does not contain: {error}") from error


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
        return study_figures(item)
    if isinstance(item, StoredComparison):
        return comparison_figures(item.comparison)
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
    """Plain data as YAML to read: short lists on one line, at most some 1,500 lines.

    Meant for people: what is cut says so, and a scenario that was cut cannot be read back.
    """
    lines: list[str] = []
    for line in _lines(data, 0):
        lines.append(line)
        if len(lines) >= MOST_LINES:
            lines.append("# ... the rest is in scenario.json")
            break
    return "\n".join(lines)


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
            return {
                prefix: ", ".join(_scalar(item) for item in data[:12]) + (" ..." if len(data) > 12 else "")
            }
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


def _lines(data: Any, depth: int) -> Iterator[str]:
    """The YAML lines of plain data, indented by `depth` levels of two spaces."""
    pad = "  " * depth
    if isinstance(data, Mapping):
        for key, value in data.items():
            if _nested(value):
                yield f"{pad}{_scalar(str(key))}:"
                yield from _lines(value, depth + 1)
            else:
                yield f"{pad}{_scalar(str(key))}: {_inline(value)}"
    elif isinstance(data, (list, tuple)):
        for value in data:
            inner = list(_lines(value, depth + 1)) if _nested(value) else [f"{pad}  {_inline(value)}"]
            yield f"{pad}- {inner[0].lstrip()}"
            yield from inner[1:]
    else:
        yield pad + _inline(data)


def _nested(value: Any) -> bool:
    """Whether a value needs lines of its own: a section that is not empty, or a list that has sections or lists."""
    if isinstance(value, Mapping):
        return bool(value)
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, (Mapping, list, tuple)) for item in value)
    return False


def _inline(value: Any) -> str:
    """A value on one line: a scalar, an empty section, or a list of at most 40 scalars and how many follow."""
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        shown = [_scalar(item) for item in value[:40]]
        return "[" + ", ".join(shown) + (f", ... {len(value) - 40:,} more" if len(value) > 40 else "") + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """A scalar as YAML: text in quotes where YAML would read it as anything else."""
    if isinstance(value, str):
        plain = _PLAIN.match(value) and value.lower() not in _WORDS and not value.endswith(" ")
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)
