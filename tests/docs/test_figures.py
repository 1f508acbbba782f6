"""No number of the documents drifts from what was measured: each comes from a record, a constant or a recomputation."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from forerun.replication.reproductions import reproductions

from .claims import (
    GAP,
    NUMBER,
    RESULTS,
    ROOT,
    Claim,
    agrees,
    by_tests,
    claims,
    folded,
    listed,
    record,
    restated,
    shown_as,
    table_rows,
)
from .test_documents import DOCUMENTS, run_document

CLAIMS = tuple(claims())
RECORDS = sorted(RESULTS.glob("*.json"))
TESTED, LISTED = by_tests(), listed()
#: a number of a program
CODED = re.compile(r"(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?")
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

#: numbers of prose; parts of names, versions and numbers of sections and figures are none
IN_PROSE = re.compile(rf"(?<![\w.§/'’-]){NUMBER.pattern}")
#: code, where a link leads, years, versions, headings of figures and sections, exit codes, the level of every interval
NO_FIGURE = re.compile(
    r"`[^`]*`|\]\([^)]*\)|(?<![\w.,])(?:19|20)\d\d(?:-\d\d)*(?![\w,]|\.\d)|\d+\.\d+\.\d+"
    r"|(?i:exit code)(?: is)? \d|95 % (?:intervals?|bands?)"
    r"|(?i:figures?|fig\.|sections?|tables?|python) [\d.()a-z]+(?:(?:,| and| to) \d[\d.()a-z]*)*"
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.document}: {folded(claim.text)[:50]}")
def test_a_document_says_what_was_measured(claim: Claim) -> None:
    found = claim.places(folded((ROOT / claim.document).read_text(encoding="utf-8")))
    assert len(found) == 1, f"{claim.document} says {len(found)} times: {claim.text}"
    shown = found[0].groups()
    assert len(shown) == len(claim.values), claim.text
    for text, value in zip(shown, claim.values, strict=True):
        assert agrees(text, value), f"{claim.document}: {text} where {value} is meant: {folded(claim.text)}"


@pytest.mark.parametrize("document", NAMES)
def test_no_number_of_a_table_is_held_by_nobody(document: str) -> None:
    """First cells and code name what is told; every other number of a row lies in a claim, or the table has its test."""
    text = (ROOT / document).read_text(encoding="utf-8")
    page, unheld = folded(text), []
    spans = claimed(document, page)
    for row in table_rows(text):
        place = (document, f"| {row.head} |" if row.head else "| |")
        if place in TESTED or place in LISTED:
            continue
        line = folded(row.line)
        start = page.index(line)
        first = len(line.split("|")[1]) + 2
        named = [match.span() for match in re.finditer(r"`[^`]*`", line)]
        for where, piece in {*TESTED, *LISTED}:
            if where == document and (at := line.find(piece)) >= first:
                named.append((at, at + len(piece)))
        unheld += [
            f"{number[0]} in {line}"
            for number in NUMBER.finditer(line)
            if number.start() >= first and not within(number.start(), named)
            if not within(start + number.start(), spans)
        ]
    assert not unheld, "\n".join(unheld)


@pytest.mark.parametrize("document", NAMES)
def test_no_number_of_prose_is_held_by_nobody(document: str) -> None:
    """Every number of a sentence lies in a claim, or in a piece of text that a named test holds or that is listed."""
    page, unheld = folded(prose(document)), []
    tables = folded(" ".join(row.line for row in table_rows((ROOT / document).read_text(encoding="utf-8"))))
    spans = claimed(document, page) + [match.span() for match in NO_FIGURE.finditer(page)]
    for where, piece in {*TESTED, *LISTED}:
        if where == document and not piece.startswith("|"):
            assert page.count(piece) + tables.count(piece) == 1, f"{document} does not say once: {piece}"
            if piece in tables:
                continue
            spans.append((page.index(piece), page.index(piece) + len(piece)))
    for number in IN_PROSE.finditer(page):
        if not within(number.start(), spans):
            unheld.append(f"{number[0]} in ...{page[max(0, number.start() - 60) : number.end() + 40]}...")
    assert not unheld, "\n".join(unheld)


def prose(document: str) -> str:
    """A document without its code blocks, tables and numbers of lists."""
    text = re.sub(
        r"^```.*?^```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return re.sub(r"^(?:\|.*$|\d+\. )", "", text, flags=re.MULTILINE)


def claimed(document: str, page: str) -> list[tuple[int, int]]:
    """Where a document's claims lie in its folded text (a claim that stands elsewhere in it lies nowhere here)."""
    mine = [claim for claim in CLAIMS if claim.document == document and folded(claim.after) in page]
    return [found.span() for claim in mine for found in claim.places(page)]


def within(at: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(first <= at < last for first, last in spans)


@pytest.mark.parametrize(("place", "test"), TESTED.items(), ids=lambda value: str(value)[:60])
def test_tests_that_hold_numbers_are_there_and_know_them(place: tuple[str, str], test: str) -> None:
    """The test exists; and its module has the numbers of a piece of prose (tables are read by their tests)."""
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {name}(" in text, test
    if not place[1].startswith("|"):
        known = {float(number[0].replace(",", "").replace("_", "")) for number in CODED.finditer(text)}
        for number in IN_PROSE.finditer(place[1]):
            value = shown_as(number[0])[0]
            assert {value, -value, value / 100, round(1 - value / 100, 9)} & known, (
                f"{number[0]} is not in {path}"
            )


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_says_when_where_and_how(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert datetime.date.fromisoformat(record["date"]) and record["figures"]
    assert record["machine"]["cores"] >= 1 and record["machine"]["processor"]
    if script := re.search(r"benchmarks/\S+\.py", record["command"]):
        assert (ROOT / script[0]).is_file(), record["command"]
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|usr)\b", path.read_text(encoding="utf-8"))


def test_no_benchmark_hides_a_module() -> None:
    """A script's folder comes first on its path: `coverage.py` there is what numba finds for the package of that name."""
    names = {path.stem for path in (ROOT / "benchmarks").glob("*/*.py")}
    assert not names & {*sys.stdlib_module_names, "coverage"}
    assert not [name for name in names if PathFinder.find_spec(name) is not None]


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        ("4,100", 4100, 50),
        ("0.36", 0.36, 0.005),
        (".962", 0.962, 0.0005),
        ("7.2e5", 7.2e5, 5e3),
        ("−8.5", -8.5, 0.05),
        ("20", 20, 5),
        ("0", 0, 0.5),
        ("twelve", 12, 0.5),
    ],
)
def test_a_shown_number_stands_for_what_rounds_to_it(text: str, value: float, half: float) -> None:
    assert re.fullmatch(GAP, text)
    assert shown_as(text) == (pytest.approx(value), pytest.approx(half))
    assert agrees(text, value + 0.99 * half) and agrees(text, value - 0.99 * half)
    assert not agrees(text, value + 1.01 * half) and not agrees(text, value - 1.01 * half)


def test_a_number_in_words_is_renewed_in_words() -> None:
    assert [restated("nine", 10.0), restated("Nine", 10.0), restated("nine", 25.0)] == ["ten", "Ten", "25"]
    assert restated("eight", 8.4) == "eight" and restated("4,100", 4388.0) == "4,400"


def test_the_list_of_results_is_the_programs() -> None:
    """Id, domain, title and data of each; to renew it, put the lines below into the document."""
    domains = {
        "cluster": {"elasticflow"},
        "serving": {"inferline"},
        "spot": {"bamboo", "oobleck", "cant_be_late", "reliability"},
        "loading": {"cndlsys"},
        "energy": {"zeus"},
    }
    page = (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")
    for entry in reproductions():
        system = entry.run.__module__.split(".")[2]
        (domain,) = (name for name, systems in domains.items() if system in systems)
        data = ", ".join(f"`{name}`" for name in entry.datasets) or "with the package"
        assert f"| `{entry.id}` | {domain} | {entry.title} | {data} |" in page


def test_switches_do_what_their_record_says() -> None:
    """Jobs accepted and mean completion times, as published and with a switch: every full row of the room's table."""
    found, compared = record("cluster-switches"), 0
    rows = table_rows((ROOT / "docs" / "domains" / "cluster-reference.md").read_text(encoding="utf-8"))
    for schedule, label, accepted, mean_s in (row.cells for row in rows if row.head == "schedule"):
        switch = " + ".join(re.findall(r"`(\w+)`", label)) or label
        if switch not in found.get(schedule, {}):
            continue
        for cell, what in ((accepted, "accepted"), (mean_s, "mean_s")):
            shown = re.fullmatch(r"(\d+)→(\d+) / (\d+)→(\d+)", cell)
            if shown is None:
                continue
            pairs = zip(found[schedule]["published"], found[schedule][switch], strict=True)
            assert [int(text) for text in shown.groups()] == [
                round(one[what]) for pair in pairs for one in pair
            ], f"{schedule} {label}: {cell}"
            compared += 1
    assert compared >= 40


def test_the_composed_figures_come_out(tmp_path: Path) -> None:
    """The commands of the page run, and the table is what they give."""
    path = ROOT / "docs" / "composition.md"
    run_document(path, tmp_path)
    runs = [
        json.loads((tmp_path / "runs" / name / "summary.json").read_text())["summary"]
        for name in ("slow", "hidden", "merged")
    ]
    for line in composed(runs):
        assert line in path.read_text(encoding="utf-8"), line


def composed(runs: list[Mapping[str, Any]]) -> list[str]:
    """The rows of the table of docs/composition.md."""
    rows = {
        "deadlines met": [f"{100 * run['deadline_ratio']:.1f} %" for run in runs],
        "jobs refused": [f"{run['refused_jobs']}" for run in runs],
        "GPU time waiting for data": [
            f"{100 * share:.1f} %" if (share := run.get("gpu_time_waiting_for_data_share")) else "–"
            for run in runs
        ],
        "energy": [f"{run['energy_j'] / 1e6:,.0f} MJ" for run in runs],
        "cost": [f"${run['cost_usd']:,.0f}" for run in runs],
        "cost of a met deadline": [f"${run['cost_usd_per_met_deadline']:,.0f}" for run in runs],
        "CO2e": [f"{run['co2e_g'] / 1e3:,.0f} kg" for run in runs],
    }
    return [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
