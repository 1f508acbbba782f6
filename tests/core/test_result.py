"""Results: tables with units, ledgers that sum, run directories that appear whole or not at all."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.errors import CheckFailed, StoreError, UnknownName
from forerun.core.result import run as run_module
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import format_number
from forerun.core.result.run import Result, load_result
from forerun.core.result.stats import Interval
from forerun.core.result.tables import Column, Table, TableSchema, read_parquet, spreadsheet_safe
from forerun.core.scenario.spec import Spec


class Tiny(Spec, frozen=True, kw_only=True):
    """A scenario of no domain."""

    domain: Literal["tiny"] = "tiny"
    seed: int = 0


SCHEMA = TableSchema(
    "queries", (Column("id"), Column("latency_ms", "ms", "end - arrival"), Column("name")), "a query"
)


def table(n: int = 3) -> Table:
    names = ["=cmd()", "ok", "-x"]
    return Table.of(
        SCHEMA,
        id=np.arange(n),
        latency_ms=np.linspace(0, 1, n),
        name=np.array([names[i % 3] for i in range(n)], object),
    )


def result(seed: int = 0) -> Result:
    ledger = Ledger("time", "s", 3.0, {"useful": 2.0, "idle": 1.0})
    return Result(
        Tiny(seed=seed),
        {"latency_p99_ms": 1.5, "queries": 3, "nothing": math.nan},
        {"queries": table()},
        (ledger,),
        why="because",
        notes=("one",),
        intervals={"latency_p99_ms": Interval(1.0, 2.0, method="batch means")},
        headline=("latency_p99_ms",),
    )


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "provenance.json"
    }


def test_a_run_directory_reads_back(tmp_path: Path) -> None:
    saved = load_result(result().save(tmp_path / "run"))
    assert saved.summary == {"latency_p99_ms": 1.5, "queries": 3, "nothing": None}
    assert saved.intervals["latency_p99_ms"] == Interval(1.0, 2.0, method="batch means")
    assert (saved.domain, saved.why, saved.notes, saved.id) == ("tiny", "because", ("one",), result().id)
    assert saved.ledgers[0].parts == {"useful": 2.0, "idle": 1.0}
    assert saved.tables["queries"]["latency_ms"].tolist() == [0.0, 0.5, 1.0]
    assert saved.tables["queries"].schema == SCHEMA


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    assert files(result().save(tmp_path / "a")) == files(result().save(tmp_path / "b"))
    assert result(1).id != result(0).id


def test_units_stand_in_the_parquet_metadata(tmp_path: Path) -> None:
    import polars

    digest = table().write_parquet(tmp_path / "t.parquet")
    about = json.loads(polars.read_parquet_metadata(tmp_path / "t.parquet")["forerun"])
    assert about["columns"]["latency_ms"] == {"unit": "ms", "meaning": "end - arrival"}
    assert read_parquet(tmp_path / "t.parquet", digest).schema.version == 1


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    target = result(0).save(tmp_path / "run")
    before = files(target)
    with pytest.raises(StoreError, match="already holds a run"):
        result(1).save(target)
    assert files(target) == before
    result(1).save(target, overwrite=True)
    assert load_result(target).id == result(1).id
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    with pytest.raises(StoreError, match="not a run"):
        result().save(tmp_path / "photos", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "run"]


@pytest.mark.parametrize("there", ["nothing", "an empty folder"])
@pytest.mark.parametrize("moment", ["before", "while", "after"])
def test_of_two_runs_for_one_folder_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, moment: str
) -> None:
    """Another process saves before this one writes its first file, between two of them, or after its last."""
    target = tmp_path / "run"
    if there != "nothing":
        target.mkdir()
    write = Result._write

    def interleaved(mine: Result, folder: Path) -> None:
        monkeypatch.setattr(Result, "_write", write)
        write_json = run_module._write_json

        def then(path: Path, data: object) -> None:
            write_json(path, data)
            if path.name == "summary.json" and moment == "while":
                monkeypatch.setattr(run_module, "_write_json", write_json)
                result(1).save(target)

        if moment == "before":
            result(1).save(target)
        monkeypatch.setattr(run_module, "_write_json", then)
        write(mine, folder)
        if moment == "after":
            result(1).save(target)

    monkeypatch.setattr(Result, "_write", interleaved)
    with pytest.raises(StoreError, match="already holds a run"):
        result(0).save(target)
    assert load_result(target).id == result(1).id and list(tmp_path.iterdir()) == [target]


def test_many_at_once_save_one_run(tmp_path: Path) -> None:
    def save(number: int) -> str:
        try:
            result(number).save(tmp_path / "run")
        except StoreError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(save, range(8)))
    (won,) = [number for number, problem in enumerate(ended) if not problem]
    assert all("already holds a run" in problem for problem in ended if problem)
    assert load_result(tmp_path / "run").id == result(won).id and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_run_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Table, "write_parquet", fail)
    with pytest.raises((StoreError, KeyboardInterrupt)):
        result().save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_overwrite_keeps_the_old_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = result(0).save(tmp_path / "run")
    before = files(target)
    monkeypatch.setattr(run_module, "_write_json", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(StoreError, match="full"):
        result(1).save(target, overwrite=True)
    assert files(target) == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", ["scenario.json", "summary.json", "provenance.json", "queries.parquet"])
def test_a_damaged_run_is_named(tmp_path: Path, damage: str) -> None:
    target = result().save(tmp_path / "run")
    (target / damage).write_bytes(b'{"cut')
    with pytest.raises(StoreError, match=damage):
        load_result(target)


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "absent", "no such run"), (tmp_path, "scenario.json")):
        with pytest.raises(StoreError, match=message):
            load_result(path)
    with pytest.raises(UnknownName, match="known: queries"):
        result().table("visits")


def test_csv_is_safe_in_a_spreadsheet(tmp_path: Path) -> None:
    table().write_csv(tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines == ["id,latency_ms,name", "0,0.0,'=cmd()", "1,0.5,ok", "2,1.0,'-x"]
    assert [spreadsheet_safe(text) for text in ("+1", "@x", "\tx", "a=1", "")] == [
        "'+1",
        "'@x",
        "'\tx",
        "a=1",
        "",
    ]


def test_hostile_names_are_inert_in_notebooks() -> None:
    hostile = Result(Tiny(), {"<script>alert(1)</script>": 1}, why="<img onerror=x>")
    assert "<script>" not in hostile._repr_html_() and "<img" not in hostile._repr_html_()


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_a_ledger_holds_what_sums_and_nothing_else(parts: list[float], extra: float) -> None:
    named = {str(i): part for i, part in enumerate(parts)}
    whole = math.fsum(parts)
    Ledger("x", "s", whole, named).check()
    with pytest.raises(CheckFailed, match="the parts sum to"):
        Ledger("x", "s", whole + extra + whole * 1e-6, named).check()


def test_a_negative_part_is_named() -> None:
    with pytest.raises(CheckFailed, match="'b' is -1"):
        Ledger("x", "s", 1.0, {"a": 2.0, "b": -1.0}).check()
    with pytest.raises(CheckFailed):
        Ledger("x", "s", 1.0, {"a": math.nan}).check()


def test_a_figure_needs_its_columns() -> None:
    with pytest.raises(AssertionError, match="no column"):
        Figure("f", "t", "line", Axis("x", "time", "s"), Axis("y", "rate"), {"x": [1]})
    assert Axis("x", "time", "s").title == "time (s)"


def test_numbers_as_people_read_them() -> None:
    shown = [format_number(v) for v in (1234567, 12345.6, 1.23456, 1e-7, 0.0, math.nan, True, None, "x")]
    assert shown == ["1,234,567", "12,346", "1.235", "1.000e-07", "0", "–", "yes", "–", "x"]
