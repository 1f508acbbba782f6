"""All published results at once: what failed, what was absent and why is told, and nothing takes the rest with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.cli.main import run as cli
from forerun.core.errors import DataError, Infeasible
from forerun.replication import reproductions as module
from forerun.replication.reproduction import Attempt, Progress, Reproduced, Reproduction, Row
from forerun.replication.reproductions import reproduce_all, reproductions

from ..conftest import cases

SPECIFIED = {
    "inferline-driver1", "inferline-planner", "inferline-tuner", "ef-fig6a", "ef-fig6a-live", "ef-fig6b-live",
    "ef-fig7", "ef-fig12", "ef-fig8a", "ef-fig8b",
    "ef-fig9", "ef-fig10", "ef-fig11", "zeus-savings-potential", "zeus-single", "zeus-regret",
    "zeus-groups", "bamboo-notebook", "bamboo-run86", "bamboo-table", "oobleck-throughput",
    "cant-be-late", "meta-ettr", "llama3-reliability",
    "blocks-librispeech-remote", "blocks-imagenet-local", "blocks-early-stop",
    "blocks-no-merge-law", "blocks-pooled-workers", "blocks-placement",
}  # fmt: skip


def found(ours: float, note: str = "") -> Callable[[Progress], Reproduced]:
    return lambda progress: Reproduced((Row("figure", 1.0, ours, None, 0.1),), notes=(note,) if note else ())


def raising(error: Exception) -> Callable[[Progress], Reproduced]:
    def run(progress: Progress) -> Reproduced:
        raise error

    return run


FAKES = (
    Reproduction("holds", "it holds", "a paper", found(1.0)),
    Reproduction("differs", "it differs", "a paper", found(2.0)),
    Reproduction(
        "absent", "no data", "a paper", raising(DataError.at("room/file.csv", "get it by hand from X"))
    ),
    Reproduction("infeasible", "no plan", "a paper", raising(Infeasible.at("plan", "nothing fits"))),
    Reproduction("broken", "a defect", "a paper", raising(ZeroDivisionError("by zero"))),
    Reproduction("long", "takes long", "a paper", found(2.0), minutes=2.0),
    Reproduction(
        "shorter", "has a quick form", "a paper", found(2.0), minutes=1.9, quick=found(1.0, "2 seeds")
    ),
)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "reproductions", lambda: FAKES)


def test_every_outcome_is_told_and_the_order_is_kept(fakes: None) -> None:
    seen: list[str] = []
    attempts = reproduce_all(progress=lambda attempt: seen.append(attempt.entry.id))
    assert [each.entry.id for each in attempts] == [entry.id for entry in FAKES]
    assert seen[:2] == ["long", "shorter"]  # longest first, where all are run whole
    by = {each.entry.id: each for each in attempts}
    assert [each.entry.id for each in attempts if each.failed] == [
        "differs", "infeasible", "broken", "long", "shorter",
    ]  # fmt: skip
    assert by["absent"].absent == ("room/file.csv: get it by hand from X",)
    assert "nothing fits" in by["infeasible"].error and by["broken"].error == "ZeroDivisionError: by zero"


def test_quick_takes_the_quick_form_or_says_why_it_leaves_out(fakes: None) -> None:
    by = {each.entry.id: each for each in reproduce_all(quick=True)}
    assert by["shorter"].reproduced is not None and by["shorter"].reproduced.notes == ("2 seeds",)
    assert by["long"].left_out == "takes about 2 minutes: run `forerun reproduce long`"


def test_long_ones_run_by_name_alone_and_are_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    hours = Reproduction("hours", "takes hours", "a paper", found(1.0), minutes=120.0)
    monkeypatch.setattr(module, "reproductions", lambda: (FAKES[0], hours))
    holds, left = reproduce_all()
    assert holds.reproduced is not None and left.reproduced is None and not left.failed
    (named,) = reproduce_all(["hours"])
    assert named.reproduced is not None
    assert cli(["reproduce", "--all", "-j", "1"]) == 0
    assert "left out, as they take long; run them one by one: hours (120 min)" in capsys.readouterr().out
    assert cli(["reproduce", "--list"]) == 0
    assert re.search(r"hours +takes hours +120 ", capsys.readouterr().out)


def test_the_page_and_the_exit_code(fakes: None, tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "all.html"
    assert cli(["reproduce", "--all", "-j", "1", "-o", str(page)]) == 4
    told = capsys.readouterr()
    assert "differs: figure is not within its tolerance" in told.err
    assert "broken: ZeroDivisionError: by zero" in told.err
    assert "absent: absent: room/file.csv: get it by hand from X" in told.out
    text = page.read_text()
    for entry in FAKES:
        assert f'id="{entry.id}"' in text
    assert "room/file.csv: get it by hand from X" in text and "Traceback" not in text
    assert cli(["reproduce", "--all", "-j", "1", "--json"]) == 4
    data = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in data] == [entry.id for entry in FAKES]
    assert data[2]["absent"] and data[4]["error"] and data[0]["rows"][0]["ok"] is True
    assert cli(["reproduce", "--all", "holds"]) == 2


def test_processes_change_no_number() -> None:
    names = [
        "zeus-savings-potential",
        "bamboo-run86",
        "oobleck-throughput",
        "inferline-driver1",
        "blocks-placement",
    ]
    names = names[: cases(2, 5)]

    def told(attempts: tuple[Attempt, ...]) -> list[Any]:
        return [
            (each.entry.id, each.absent, each.reproduced and [row.data() for row in each.reproduced.rows])
            for each in attempts
        ]

    assert told(reproduce_all(names, workers=2)) == told(reproduce_all(names, workers=1))


def test_every_specified_result_can_be_reproduced() -> None:
    known = {entry.id for entry in reproductions()}
    assert known >= SPECIFIED, SPECIFIED - known
    assert len(known) == len(reproductions())


def test_the_document_lists_every_result() -> None:
    text = (Path(__file__).parents[2] / "docs" / "replication" / "published.md").read_text()
    assert set(re.findall(r"`([a-z0-9]+-[a-z0-9-]+)`", text)) == {entry.id for entry in reproductions()}


def test_ok_is_computed() -> None:
    assert Row("a", 0.30, 0.31, None, 0.01).ok is True
    assert Row("a", 0.30, 0.32, None, 0.01).ok is False
    assert Row("a", 0.30, None, 0.305, 0.01).ok is True
    assert Row("a", 0.30, math.nan, None, 0.01).ok is False
    # What was measured is judged by the simulation of the same, not by another machine's number.
    assert Row("a", 0.30, None, 0.50, 0.01, measured=0.51).ok is True
    assert Row("a", 0.50, None, 0.30, 0.01, measured=0.50).ok is False
    assert Row("a", 0.50, None, None, 0.01, measured=0.50).ok is None
    assert Row("a", 0.50, None, 0.50, 0.01, measured=math.nan).ok is False
    assert Row("a", 0.30, None, None, 0.01).ok is False
    assert Row("a", None, 0.3, None, 0.01).ok is None
    assert Row("a", 0.30, 0.3, None).data()["ok"] is None
