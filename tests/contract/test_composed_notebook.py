"""What a notebook shows: figures, bars and tables that hold what the result holds, and nothing from a name runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.catalog import demos
from forerun.core.result.ledger import Ledger
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.replication.reproduction import Reproduced, Row

HOSTILE = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Collects tags and checks that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(text: str) -> set[str]:
    found = Tags()
    found.feed(text)
    assert not found.open
    return found.seen


@pytest.mark.parametrize("entry", demos(), ids=lambda entry: entry.domain)
def test_every_room_shows_its_result_the_same_fresh_and_kept(entry: Any, tmp_path: Path) -> None:
    result = forerun.simulate(forerun.load(entry.scenario))
    text = result._repr_html_()
    assert tags(text) <= {"h4", "table", "thead", "tbody", "tr", "th", "td", "div", "svg", "rect", "title", "span",
                          "b", "p", "details", "summary", "ul", "li"}  # fmt: skip
    assert text.count("<svg") == len(result.ledgers) and "why:" in text
    kept = forerun.load_result(result.save(tmp_path / "run"))
    assert kept._repr_html_().partition("</h4>")[2] == text.partition("</h4>")[2]
    name = next(iter(result.tables))
    assert kept.frame(name).equals(result.frame(name))


def test_names_from_files_are_text() -> None:
    ledger = Ledger(HOSTILE, "s", 2.0, {HOSTILE: 0.5, "b": 1.5}, {})
    table = Table.of(
        TableSchema(HOSTILE, (Column("a", "s", HOSTILE), Column("b"))), a=np.arange(30.0), b=[HOSTILE] * 30
    )
    reproduced = Reproduced((Row(HOSTILE, 1.0, 2.0, None, 0.5, note=HOSTILE),))
    for shown in (ledger, table, reproduced):
        text = shown._repr_html_()
        assert "script" not in tags(text) and "&lt;script&gt;" in text
    assert "and 10 rows more" in table._repr_html_()


def test_a_bar_is_as_long_as_its_whole() -> None:
    ledger = Ledger("time", "s", 8.0, {"a": 1.0, "b": 3.0, "c": 4.0, "none": 0.0}, {})
    text = ledger._repr_html_()
    assert [float(width) for width in re.findall(r"rect x='[\d.]+%' width='([\d.]+)%'", text)] == [
        12.5,
        37.5,
        50.0,
        0.0,
    ]
    assert [float(x) for x in re.findall(r"rect x='([\d.]+)%'", text)] == [0.0, 12.5, 50.0, 100.0]
