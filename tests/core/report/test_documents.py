"""Files whose format is announced: report, check and explain find the owner, and import none."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from forerun.core import documents, slices
from forerun.core.cli.main import run
from forerun.core.documents import JobDocument
from forerun.core.report.stored import figures_of_document, open_stored
from forerun.core.result.document import ExplainedJob, StoredDocument
from forerun.core.result.figures import Axis, Figure


class Diary(JobDocument):
    """A format of somebody else."""

    format = "somebody.diary/1"

    def read(self, name: str, content: Any, file: str = "") -> StoredDocument:
        """A page of one fact."""
        return StoredDocument(
            name, "measurement", "energy", "", content["says"], (), {"days": 3}, {}, content=content
        )

    def figures(self, content: Any) -> tuple[Figure, ...]:
        """One curve."""
        data = {"day": [1, 2], "jobs": [3.0, 4.0]}
        return (
            Figure.of("line", "diary", "Jobs by day", data, x=Axis("day", "day"), y=Axis("jobs", "jobs")),
        )

    def check(self, content: Any, name: str, scenario: Any = None) -> str:
        """Nothing to verify."""
        return f"{name}: true"

    def explain_job(self, content: Any, file: Path, job: str, progress: Any) -> ExplainedJob:
        """A row for the job."""
        rows = [{"job": job, "wait_s": 4.0}]
        return ExplainedJob(self.read(job, content), [(rows, "Its wait", "as written")], {"job": job})


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = ModuleType("tests_somebodys_diary")
    module.DOCUMENT = Diary()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(slices.documents(), Diary.format, module.__name__)
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"format": Diary.format, "says": "It rained."}))
    return path


def test_whoever_announces_a_format_is_found(diary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = open_stored(diary)
    assert isinstance(stored, StoredDocument) and stored.answer == "It rained."
    assert [figure.id for figure in figures_of_document(stored)] == ["diary"]
    assert run(["check", str(diary)]) == 0 and capsys.readouterr().out == f"{diary}: true\n"
    page = diary.with_suffix(".html")
    assert run(["explain", str(diary), "--job", "j7", "--report", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "why: It rained." in shown and "Its wait" in shown and "j7" in shown
    assert "It rained." in page.read_text()


@pytest.mark.parametrize("key", slices.documents())
def test_what_is_announced_is_of_its_format(key: str) -> None:
    owner = documents.announced(key)
    assert owner.format == key.partition(" ")[0] in documents.FORMATS
    assert documents.document_of(dict(zip(("format", "what"), key.split()))) is owner


def test_logs_that_are_announced_can_be_written() -> None:
    for module in slices.reference_logs().values():
        assert callable(importlib.import_module(module).Logs().write)


def test_a_file_of_no_known_format_says_what_is_known(
    diary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diary.write_text('{"format": "nobody/1"}')
    known = "plan/1, forerun.measurement/1, forerun.bounds/1, forerun.site/1, forerun.replay/1"
    assert run(["report", str(diary)]) == 2
    assert f"has format 'nobody/1'; known: forerun.comparison/1, forerun.{known};" in capsys.readouterr().err
    assert run(["check", str(diary)]) == 2
    assert "is no plan: its format is 'nobody/1', not 'forerun.plan/1'" in capsys.readouterr().err
    assert run(["explain", str(diary), "--job", "1"]) == 2
    assert "has format 'nobody/1'; forerun.replay/1 is expected" in capsys.readouterr().err


def test_reading_a_report_imports_no_owner() -> None:
    """A page of an energy run needs no replay of a queue, nor the compiler that it brings."""
    code = "import sys, forerun.core.report.stored, forerun.core.planning; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"forerun.cluster.domain", "forerun.site.replay", "numba"} & set(done.stdout.split())
