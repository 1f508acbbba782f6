"""What forerun stored, damaged: runs, plans, bounds, comparisons, replays and study stores are read, or refused by name.

Nothing that is damaged ends in a traceback, and no text is drawn in place of a number.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.cluster.bound.document import content_of
from forerun.core.cli.main import run
from forerun.core.errors import InputError
from forerun.core.report import html_page
from forerun.core.report.stored import open_stored
from forerun.core.result.bound import Bracket
from forerun.core.result.plan import document, write_document
from forerun.core.scenario.spec import to_data
from forerun.core.study.compare import compare_variants
from forerun.core.study.compared import Variant, save_comparison
from forerun.core.study.executors import Here
from forerun.core.study.expand import load_study
from forerun.core.study.run import run_study
from forerun.core.units import unit_of

from ...conftest import cases

#: damaged copies in a run of the suite; set FORERUN_CASES for more
CASES = cases(60)

#: what may stand where another value is expected
JUNK: list[Any] = [
    None, True, "x", "", "soon", -1, 0, 1.5, 1e308, 10**30, "9" * 400, [], {}, [1], ["x"], {"a": 1}, "\ud800", -1e-320,
]  # fmt: skip
REPLAY = {
    "format": "forerun.replay/1", "forerun": "0", "why": "it waits", "notes": ["a note"], "policy": "easy fcfs",
    "named": None,
    "log": {"file": "log.swf", "format": "", "columns": [], "zone": "UTC", "sha256": "0", "complete_from_s": 10.0},
    "calibrate_until_s": 90000.0, "scored_until_s": 200000.0, "system": {"pools": []}, "pool": "all",
    "findings": [{"about": "pools", "what": "pool all: 9 nodes", "evidence": "seen"}],
    "card": [{"figure": "error of the mean wait", "measured": 0.1, "limit": 0.2, "bound": "at most", "met": "yes"}],
    "policies": [{"policy": "easy fcfs", "one-step F1": 0.9}],
    "classes": [{"class": "narrow", "jobs": 3, "history_s": 60.0, "replay_s": 70.0}],
    "over_time": {
        name: [0.5, 0.7]
        for name in ("day", "used in history", "used in the replay", "queued in history", "queued in the replay")
    },
}  # fmt: skip
MEASURED = {
    "format": "forerun.measurement/1", "domain": "energy", "forerun": "0", "sensor": "none", "notes": ["no joules"],
    "campaign": {"device": "cpu"}, "torch": "2", "host": {"machine": "x"},
    "points": [
        {"batch_size": size, "power_limit_w": None, "epoch_s": 1.0 / size, "repeats": 5, "power_w": None,
         "epoch_s_interval": [0.9 / size, 1.1 / size]} for size in (16, 32, 64)
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One of everything that forerun stores."""
    folder = tmp_path_factory.mktemp("stored")
    energy = forerun.load(forerun.demo("energy").scenario, ["trials=0"])
    serving = forerun.load(
        forerun.demo("serving").scenario, ["trace.queries=300", "intervals={replications: 0}"]
    )
    forerun.simulate(energy).save(folder / "run-energy")
    forerun.simulate(serving).save(folder / "run-serving")
    write_document(document(forerun.plan(energy), energy, "", {}), folder / "plan.json")
    bracket = Bracket(
        "deadlines_met", "deadlines met", "meets more than {}", "higher", 2.0, 3.0, 8, 4, 4,
        (("a", 0.0, 10.0, 4), ("b", 5.0, 20.0, 8)), None, ("a note",), ((0.0, 10.0, 0.5), (10.0, 20.0, 0.0)), "deadlines",
    )  # fmt: skip
    scenario = forerun.load(forerun.demo("cluster").scenario)
    write_document(content_of([bracket, bracket], scenario), folder / "bound.json")
    variants = [Variant(f"eta {eta}", (("eta", eta),)) for eta in (0.2, 0.8)]
    save_comparison(
        compare_variants(energy, variants, forerun_objective("energy"), seeds=3), folder / "compared.json"
    )
    for name, data in (("replay", REPLAY), ("measured", MEASURED)):
        (folder / f"{name}.json").write_text(json.dumps(data))
    made = folder / "study"
    made.mkdir()
    (made / "study.yaml").write_text(
        json.dumps({"base": to_data(energy), "axes": {"eta": [0.2, 0.8]}, "seeds": 2})
    )
    run_study(load_study(made / "study.yaml"), folder / "study.sqlite", Here())
    with closing(sqlite3.connect(folder / "study.sqlite")) as store:
        store.execute("PRAGMA journal_mode=DELETE")
    return sorted(path for path in folder.iterdir() if path != made and not path.name.endswith("-lock"))


def forerun_objective(domain: str) -> Any:
    """What the domain ranks by."""
    from forerun.core.domain import objectives_of

    return objectives_of(domain)[0]


def show(path: Path) -> None:
    """Reads what is stored and draws its page."""
    html_page([open_stored(path)])


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of plain data, the outermost first."""
    yield place
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(item, (*place, key))


def replaced(data: Any, place: tuple[Any, ...], value: Any) -> str:
    """The data as JSON with another value in a place; the key is dropped where the value is `...`."""
    data = json.loads(json.dumps(data))
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    if not place:
        data = None if value is ... else value
    elif value is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return json.dumps(data)


def altered(text: str, draw: random.Random) -> str:
    """A JSON text with one value replaced or dropped; outer ones as often as inner ones."""
    data = json.loads(text)
    every = sorted(places(data), key=len)
    depth = draw.randint(0, len(every[-1]))
    place = draw.choice([place for place in every if len(place) == depth])
    return replaced(data, place, ... if draw.random() < 0.3 else draw.choice(JUNK))


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Bytes with a few of them changed, lost, or cut off."""
    content = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(content)) if content else 0
        match draw.randrange(4):
            case 0:
                content[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del content[at:]
            case 2:
                content[at : at + 8] = draw.randbytes(8)
            case 3:
                content[at : at + 1] = b""
    return bytes(content)


CELLS = [
    "",
    "x",
    "[]",
    "null",
    '{"a":"x"}',
    '{"energy_j":"x"}',
    '{"energy":1}',
    '{"energy":{"x":"y"}}',
    "1e999",
    "-5",
    "99",
]


def damage_store(path: Path, draw: random.Random) -> None:
    """Change a cell, or what the store says of itself."""
    with closing(sqlite3.connect(path)) as store:
        if draw.random() < 0.5:
            column = draw.choice(["summary", "parts", "why", "reason", "number"])
            store.execute(
                f"UPDATE cells SET {column} = ? WHERE number = 1",
                (draw.choice([99, -5]) if column == "number" else draw.choice(CELLS),),
            )
        else:
            key, value = draw.choice(store.execute("SELECT key, value FROM about ORDER BY key").fetchall())
            changed = altered(value, draw) if value[:1] in ("[", "{") else draw.choice(CELLS)
            store.execute("UPDATE about SET value = ? WHERE key = ?", (changed, key))
        store.commit()


def damaged(original: Path, folder: Path, draw: random.Random) -> Path:
    """A damaged copy."""
    copy = folder / original.name
    if original.is_dir():
        shutil.copytree(original, copy)
        file = draw.choice(sorted(path for path in copy.iterdir() if path.suffix != ".gz"))
    else:
        file = Path(shutil.copy(original, copy))
    if file.suffix == ".json" and draw.random() < 0.75:
        file.write_text(altered(file.read_text(), draw))
    elif file.suffix == ".sqlite" and draw.random() < 0.75:
        damage_store(file, draw)
    else:
        file.write_bytes(flipped(file.read_bytes(), draw))
    return copy


def refusal(path: Path, act: Callable[[Path], None] = show) -> InputError | None:
    """What is said against a stored thing, after checking that every line names it."""
    try:
        act(path)
    except InputError as error:
        for problem in error.problems:
            assert path.name in str(problem), f"no file is named: {problem}"
            assert "\n" not in str(problem) and len(str(problem)) < 2000
        return error
    return None


def test_what_is_stored_is_shown(stored: list[Path]) -> None:
    assert len(stored) == 8
    for path in stored:
        show(path)


def test_damaged_results_are_read_or_refused_by_name(stored: list[Path], tmp_path: Path) -> None:
    draw = random.Random(20)
    refused = 0
    for number in range(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        refused += refusal(damaged(draw.choice(stored), folder, draw)) is not None
        shutil.rmtree(folder)
    assert CASES // 2 < refused < CASES


@pytest.mark.parametrize("row", [{}, {"size": 8}, {"size": 8, "cost": {}}])
def test_rows_that_are_all_alike_are_drawn(row: dict[str, Any], stored: list[Path], tmp_path: Path) -> None:
    plan = next(path for path in stored if path.name == "plan.json")
    data = json.loads(plan.read_text())
    data["plan"]["options"] = [row] * 3
    (tmp_path / "plan.json").write_text(json.dumps(data))
    show(tmp_path / "plan.json")


def test_no_text_stands_for_a_figure(stored: list[Path], tmp_path: Path) -> None:
    """A text in place of each number that has a unit, one after the other: refused with file and key."""
    tried = 0
    for path in stored:
        for file in sorted(path.glob("summary.json")) if path.is_dir() else [path]:
            if file.suffix != ".json":
                continue
            data = json.loads(file.read_text())
            for place in places(data):
                value = data
                for key in place:
                    value = value[key]
                named = place and isinstance(place[-1], str) and unit_of(place[-1])
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if (
                    not (named and number)
                    or "scenario" in place
                    or "certificate" in place
                    or "provenance" in place
                ):
                    continue
                copy = tmp_path / path.name
                shutil.copytree(path, copy, dirs_exist_ok=True) if path.is_dir() else shutil.copy(path, copy)
                (copy / file.name if path.is_dir() else copy).write_text(replaced(data, place, "x"))
                error = refusal(copy)
                if place[0] in ("log", "system"):  # what a replay is made again from
                    continue
                assert error is not None and str(place[-1]) in str(error), f"{path.name}: {place}: {error}"
                tried += 1
    assert tried > 50


@pytest.mark.parametrize("file", ["attempts.parquet", "provenance.json", "summary.json"])
def test_a_run_whose_files_are_not_those_that_were_saved_is_refused(
    file: str, stored: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a damaged table, which can end the process that decodes it, by its digest."""
    run_folder = next(path for path in stored if path.name == "run-energy")
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    another = (copy / "recurrences.parquet").read_bytes()  # a table, but not the one that was saved
    for content in (b"", b"PAR1", (copy / file).read_bytes()[:-9] + b"\xff" * 9, another):
        (copy / file).write_bytes(content)
        assert run(["report", str(copy), "-o", str(tmp_path / "page.html")]) == 2
        assert f"{copy / file}" in capsys.readouterr().err and not (tmp_path / "page.html").exists()
    (copy / file).unlink()
    assert run(["report", str(copy), "-o", str(tmp_path / "page.html")]) == 2
    assert f"{copy / file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "value"),
    [("summary", "[1]"), ("parts", '{"energy (J)": {"x": "y"}}'), ("summary", '{"energy_j": "x"}')],
)
def test_a_damaged_cell_is_named_with_the_way_to_save_the_others(
    column: str, value: str, stored: list[Path], tmp_path: Path
) -> None:
    store = Path(shutil.copy(next(path for path in stored if path.suffix == ".sqlite"), tmp_path))
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"UPDATE cells SET {column} = ? WHERE number = 1", (value,))
        connection.commit()
    error = refusal(store)
    assert error is not None and "cell 1" in str(error)
    assert "--salvage" in str(error) or "energy_j" in str(error)


def test_a_renderer_that_dies_is_one_line(
    stored: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As under a limit of memory, where it ends its process."""
    from forerun.core.report import images

    monkeypatch.setattr(images, "RENDERER", (sys.executable, "-c", "import os; os.abort()"))
    folder = next(path for path in stored if path.name == "run-energy")
    for kind in ("--svg", "--png"):
        assert run(["report", str(folder), kind, str(tmp_path / "pictures"), "-q"]) == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1 and "pictures cannot be drawn: the renderer ended by SIGABRT" in said[0]
    assert not list((tmp_path / "pictures").iterdir())


def test_a_store_that_cannot_be_begun_is_one_line(
    stored: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a disk with space for an empty database and no more."""
    from forerun.core.study import store

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *values)

    def full(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, factory=Full)
        connection.executescript(store._TABLES)
        return connection

    monkeypatch.setattr(store, "_for_writing", full)
    study = stored[0].parent / "study" / "study.yaml"
    assert run(["study", str(study), "--store", str(tmp_path / "s.sqlite"), "-q"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "s.sqlite: cannot be written: database or disk is full" in said[0]
