"""What the README says in numbers, as sentences with gaps, and the values that belong into the gaps.

A value comes from a record of a benchmark (`benchmarks/results`, renewed by `python -m benchmarks --keep`) or a constant.
`python -m tests.docs.claims` puts the values into the README, to as many digits as stand there.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "benchmarks" / "results"

#: a number as the documents write them: 4,100 or 0.36 or .36 or 7.2e5 or −8.5
NUMBER: Final = re.compile(r"[-+−]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")

#: numbers in words, by what they say
WORDS: Final = tuple(
    re.findall(
        r"\w+",
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty",
    )
)
#: what may stand in a gap
GAP: Final = rf"{NUMBER.pattern}|\b(?i:{'|'.join(WORDS)})\b"


@dataclass(frozen=True)
class Claim:
    """A piece of a document with gaps `{}`, and the value of each."""

    document: str
    text: str
    values: tuple[float, ...]

    def places(self, page: str) -> list[re.Match[str]]:
        """Where a page, with blanks folded, says this: its only place, unless it says it never or too often."""
        return list(pattern(self).finditer(page))


@functools.cache
def record(name: str) -> Any:
    """The figures of a benchmark's record."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["figures"]


@functools.cache
def constant(script: str, name: str) -> Any:
    """A constant of a script that is not imported, such as a benchmark's: what it is set to, from its text."""
    for statement in ast.parse((ROOT / script).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return ast.literal_eval(statement.value)
    raise LookupError(f"{script} sets no {name}")


def folded(text: str) -> str:
    """A text with each run of blanks as one."""
    return " ".join(text.split())


def shown_as(text: str) -> tuple[float, float]:
    """(value, half a unit of its last significant place) of a number as it is written."""
    if text.lower() in WORDS:
        return float(WORDS.index(text.lower())), 0.5
    plain = text.replace(",", "").replace("−", "-").lstrip("+")
    mantissa, _, exponent = plain.partition("e")
    whole, point, part = mantissa.lstrip("-").partition(".")
    if point:
        place = -len(part)
    else:
        place = len(whole) - len(whole.rstrip("0")) if whole.strip("0") else 0
    return float(plain), 0.5 * 10.0 ** (place + int(exponent or 0))


def agrees(text: str, value: float) -> bool:
    """Whether a shown number is the value, rounded to what is shown."""
    shown, half = shown_as(text)
    return abs(shown - value) <= half * (1 + 1e-9)


def restated(text: str, value: float) -> str:
    """A value written as the number that stands there: in words, or as many places, or as many digits before zeros."""
    if agrees(text, value) or re.search(r"\de", text):
        return text
    if text.lower() in WORDS:
        word = WORDS[round(value)] if value < len(WORDS) - 0.5 else f"{value:,.0f}"
        return word.capitalize() if text[0].isupper() else word
    plain = text.lstrip("+-−")
    point = plain.partition(".")
    if point[1]:
        found = f"{abs(value):,.{len(point[2])}f}"
        found = found.removeprefix("0") if not point[0] else found
    else:
        digits = len(plain.replace(",", "").rstrip("0")) or 1
        size = math.floor(math.log10(abs(value))) + 1 if value else 1
        found = f"{round(abs(value), min(0, digits - size)):,.0f}"
    sign = "-" if value < 0 else "+" if text[0] in "-+−" else ""
    return sign.replace("-", "−" if "−" in text else "-") + found


def renewed(document: str, text: str) -> str:
    """A document's text with every gap filled with its value."""
    for claim in claims():
        if claim.document == document:
            blanks = re.compile(pattern(claim).pattern.replace("\\ ", r"\s+"))
            found = blanks.search(text)
            for at in range(len(claim.values), 0, -1) if found else ():
                start, end = found.span(at)
                text = text[:start] + restated(found[at], claim.values[at - 1]) + text[end:]
    return text


def pattern(claim: Claim) -> re.Pattern[str]:
    """The claim's text as a pattern whose groups are the numbers in its gaps."""
    pieces = [re.escape(piece) for piece in folded(claim.text).split("{}")]
    return re.compile(f"({GAP})".join(pieces))


def claims() -> Iterator[Claim]:
    """Every claim."""
    yield from importlib.import_module(f"{__package__}.readme").claims()


@dataclass(frozen=True)
class TableRow:
    """A row of a table in a document: its header's first cell, and its cells."""

    head: str
    cells: Sequence[str]
    line: str


def table_rows(text: str) -> Iterator[TableRow]:
    """Every body row of every table outside code blocks."""
    head: str | None = None
    lines = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    for at, line in enumerate(lines):
        if not line.startswith("|"):
            head = None
        elif head is None and at + 1 < len(lines) and re.match(r"^\|[-:| ]+\|$", lines[at + 1]):
            head = _cells(line)[0]
        elif head is not None and not re.match(r"^\|[-:| ]+\|$", line):
            yield TableRow(head, _cells(line), line)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def main() -> None:
    """Put the values into the documents."""
    for name in sorted({claim.document for claim in claims()}):
        before = (ROOT / name).read_text(encoding="utf-8")
        after = renewed(name, before)
        if after != before:
            (ROOT / name).write_text(after, encoding="utf-8")
            print(f"renewed: {name}")


if __name__ == "__main__":
    # By its name in the package, whose classes are those that the pages use.
    importlib.import_module("tests.docs.claims").main()
