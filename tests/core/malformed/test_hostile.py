"""Hostile names and archives: a report shows them, a spreadsheet does not run them, nothing is written outside."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import tarfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.data.archive import content_of
from forerun.core.domain import get_domain
from forerun.core.errors import DataError
from forerun.core.report import html_page
from forerun.core.result.run import load_result
from forerun.core.result.tables import Table, TableSchema, spreadsheet_safe
from forerun.core.scenarios import from_data
from forerun.core.trace.files import save_trace
from forerun.core.trace.reader import read_trace
from forerun.core.trace.table import Column

SCRIPT = "<script>window.pwned=1</script>"
BREAKOUT = '"></script><img src=x onerror=alert(2)>'
FORMULA = '=HYPERLINK("http://x","y")'
NAMES = (
    SCRIPT,
    BREAKOUT,
    FORMULA,
    "+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "${7*7}",
    "{{7*7}}",
    "javascript:alert(1)",
    "a\u202eb",
)
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def hostile_run() -> Any:
    """A pipeline whose stages have hostile names, a language model among them."""
    stages = [name.replace(">", "＞") if ">" in name else name for name in NAMES[:4]]
    data = {
        "domain": "serving", "seed": 1,
        "trace": {"arrivals_ms": [float(10 * i) for i in range(60)]},
        "stages": [
            {"name": name, "model": "KSVM", "parents": ["source"] if i == 0 else [stages[i - 1]]}
            for i, name in enumerate(stages)
        ],
        "configuration": {
            name: {"hardware": "cpu", "max_batch": 4} if i else {
                "hardware": SCRIPT,
                "llm": {"max_seqs": 4, "token_budget": 64, "kv_blocks": 100, "cost": {"a_ms": 1.0},
                        "tokens": {"prompt": 5, "output": 3}, "iterations": True},
            }
            for i, name in enumerate(stages)
        },
        "prices_usd_per_h": {SCRIPT: 1.0},
        "slo_ms": 500.0, "intervals": {"replications": 0},
    }  # fmt: skip
    return forerun.simulate(from_data(data)).check()


def hostile_jobs(folder: Path) -> Path:
    """A job log whose ids, users and models are hostile names."""
    rows = [["job_id", "submit_time", "num_gpu", "duration", "user"]]
    rows += [[name, str(10 * i), "1", "100", name] for i, name in enumerate(NAMES) if "\t" not in name]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    path = folder / "jobs.csv"
    path.write_text(out.getvalue())
    return path


class _Page(HTMLParser):
    """The elements of a page, with what their attributes say, and the scripts that would run."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.elements.append((tag, about))
        self._inside = tag == "script" and about.get("type") is None
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data
        else:
            self.texts.append(data)


def inert(page: str) -> _Page:
    """A page in which only our own scripts run."""
    found = _Page()
    found.feed(page)
    assert len(found.scripts) == 2 and not any("pwned" in text or "alert(" in text for text in found.scripts)
    assert not [
        tag for tag, _ in found.elements if tag in ("img", "iframe", "object", "embed", "base", "form")
    ]
    for tag, about in found.elements:
        assert not [name for name in about if name.startswith("on")], (tag, about)
        for name in ("href", "src", "xlink:href", "action"):
            assert not re.match(r"\s*(javascript|vbscript):", about.get(name) or "", re.IGNORECASE), (
                tag,
                about,
            )
    policies = [about for tag, about in found.elements if tag == "meta" and about.get("http-equiv")]
    assert any("script-src" in str(about.get("content")) for about in policies)
    return found


def test_a_report_of_hostile_names_is_inert(tmp_path: Path) -> None:
    result = hostile_run()
    page = inert(html_page([result]))
    assert "<script＞window.pwned=1</script＞" in " ".join(page.texts)
    assert FORMULA in " ".join(page.texts)
    inert(html_page([load_result(result.save(tmp_path / "run"))]))


def test_a_report_of_hostile_jobs_is_inert(tmp_path: Path) -> None:
    data = {
        "domain": "cluster", "seed": 1, "title": SCRIPT, "trace": {"file": str(hostile_jobs(tmp_path))},
        "machines": {"nodes": [{"name": BREAKOUT, "count": 1, "gpus": 4}]}, "policy": "fifo",
    }  # fmt: skip
    result = forerun.simulate(from_data(data)).check()
    page = inert(html_page([result]))
    assert SCRIPT in " ".join(page.texts)
    for name, table in result.tables.items():
        path = tmp_path / f"{name}.csv"
        table.write_csv(path)
        runs_nothing(path.read_text())


def test_pictures_of_hostile_names_hold_no_script() -> None:
    from forerun.core.report.images import svg

    for figure in get_domain("serving").figures(hostile_run()):
        for element in ElementTree.fromstring(svg(figure)).iter():
            assert not element.tag.endswith("}script"), figure.id
            assert not [name for name in element.attrib if name.lower().startswith("on")], figure.id


def spreadsheet_cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text)) for cell in row]


def runs_nothing(text: str) -> None:
    """No cell is a formula: what begins like one is a number."""
    for cell in spreadsheet_cells(text):
        if cell.startswith(FORMULAS):
            float(cell)


def test_tables_of_hostile_names_run_nothing_in_a_spreadsheet(tmp_path: Path) -> None:
    result = hostile_run()
    for name, table in result.tables.items():
        path = tmp_path / f"{name}.csv"
        table.write_csv(path)
        runs_nothing(path.read_text())
    schema = TableSchema("t", tuple(Column(name) for name in NAMES))
    path = tmp_path / "names.csv"
    Table(schema, {name: np.array(NAMES, dtype=object) for name in NAMES}).write_csv(path)
    runs_nothing(path.read_text())
    assert len(spreadsheet_cells(path.read_text())) == len(NAMES) * (len(NAMES) + 1)


def test_traces_of_hostile_names_come_back_and_run_nothing(tmp_path: Path) -> None:
    trace = read_trace(hostile_jobs(tmp_path))
    path = tmp_path / "out.csv"
    save_trace(trace, path)
    runs_nothing(path.read_text().split("\n", 1)[1])
    assert read_trace(path).digest == trace.digest


def test_generated_job_logs_run_nothing(tmp_path: Path) -> None:
    from forerun.cluster.inputs.files import read_jobs
    from forerun.cluster.traces.generate import jobs_csv

    runs_nothing(jobs_csv(read_jobs(hostile_jobs(tmp_path))))


@pytest.mark.parametrize("name", NAMES)
def test_formulas_are_text(name: str) -> None:
    assert not spreadsheet_safe(name).startswith(FORMULAS)


def tar_with(name: str, *, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        if link:
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
        else:
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    return out.getvalue()


def tar_of(*names: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    return out.getvalue()


def zip_with(name: str, data: bytes = b"abc") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


ABC = hashlib.sha256(b"abc").hexdigest()
HOSTILE: dict[str, Callable[[], bytes]] = {
    "traversal in tar": lambda: tar_with("../outside.txt"),
    "traversal in the middle": lambda: tar_with("a/../../outside.txt"),
    "absolute": lambda: tar_with("/tmp/outside.txt"),
    "backslashes": lambda: zip_with("..\\outside.txt"),
    "drive": lambda: zip_with("C:\\outside.txt"),
    "traversal in zip": lambda: zip_with("../outside.txt"),
    "link out": lambda: tar_with("link", link="/etc/passwd"),
    "link within": lambda: tar_with("link", link="other"),
    "file, then a folder of its name": lambda: tar_of("a", "a/b"),
    "folder, then a file of its name": lambda: tar_of("a/b", "a"),
    "long name in tar": lambda: tar_with("n" * 400),
    "long name in zip": lambda: zip_with("n" * 400),
    "3000 folders in tar": lambda: tar_with("a/" * 3000 + "b"),
    "3000 folders in zip": lambda: zip_with("a/" * 3000 + "b"),
    "bomb": lambda: zip_with("bomb.txt", b"\0" * (80 << 20)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_write_nothing(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "data.bin"
    archive.write_bytes(HOSTILE[name]())
    if "zip" in name or archive.read_bytes().startswith(b"PK"):
        with pytest.raises(DataError, match=r"data\.bin: is no tar archive"):
            content_of(archive, size=3, sha256=ABC)
    else:
        assert content_of(archive, size=3, sha256=ABC) == (None if "link" in name else b"abc")
    assert list(tmp_path.rglob("*")) == [archive]


def test_an_archive_that_is_none_or_absent_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, said in (("pipe", "is a pipe"), ("folder", "is a directory"), ("none", "No such file")):
        with pytest.raises(DataError, match=f"{name}: .*{said}"):
            content_of(tmp_path / name, size=3, sha256=ABC)
