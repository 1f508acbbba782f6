"""The numbers of the README and of what is composed are what was measured, and records say how they were made."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from .claims import (
    GAP,
    RESULTS,
    ROOT,
    Claim,
    agrees,
    claims,
    folded,
    restated,
    shown_as,
)
from .test_documents import run_document

CLAIMS = tuple(claims())
RECORDS = sorted(RESULTS.glob("*.json"))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.document}: {folded(claim.text)[:50]}")
def test_a_document_says_what_was_measured(claim: Claim) -> None:
    found = claim.places(folded((ROOT / claim.document).read_text(encoding="utf-8")))
    assert len(found) == 1, f"{claim.document} says {len(found)} times: {claim.text}"
    shown = found[0].groups()
    assert len(shown) == len(claim.values), claim.text
    for text, value in zip(shown, claim.values, strict=True):
        assert agrees(text, value), f"{claim.document}: {text} where {value} is meant: {folded(claim.text)}"


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
