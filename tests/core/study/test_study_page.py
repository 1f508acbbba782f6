"""Pages of studies: from the store alone, beside runs, the same bytes after any interruption, fast at 10,000 cells."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.report import html_page, write_pictures
from forerun.core.result.run import load_result
from forerun.core.study.cell import Done, Failed, run_cell
from forerun.core.study.executors import Here
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import StudyPlan, load_study
from forerun.core.study.run import run_study
from forerun.core.study.saved import load_saved
from forerun.core.study.store import Store

from ...conftest import cases

STUDY = """
base: {domain: toy, noise: 1.0, unlucky_x: 3}
axes:
  x: {start: 0, stop: 3, step: 1}
  policy: [plain, half]
seeds: 5
"""


def plan_of(tmp_path: Path, text: str = STUDY) -> StudyPlan:
    (tmp_path / "study.yaml").write_text(text)
    return load_study(tmp_path / "study.yaml")


def words(page: str) -> str:
    """What a page says, scripts and styles apart, its markup well-formed in every element that is opened and closed."""
    texts: list[str] = []
    open_elements: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag != "img"
            if tag not in ("meta", "br", "hr"):
                open_elements.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_elements.pop() == tag

        def handle_data(self, data: str) -> None:
            if open_elements and open_elements[-1] not in ("script", "style"):
                texts.append(data)

    Reader(convert_charrefs=True).feed(page)
    assert not open_elements
    return " ".join(" ".join(texts).split())


def test_the_page_tells_the_whole_study(tmp_path: Path) -> None:
    run_study(plan_of(tmp_path), tmp_path / "s.sqlite", Here())
    found = load_saved(tmp_path / "s.sqlite")
    shown = words(html_page([found]))
    best = found.ranked()[0]
    for text in (
        "Toy: study s", "8 combinations × 5 seeds", "30 cells done · 10 failed", f"study {found.id}",
        "x 0, policy half has the lowest total time", "0 best half", "Significant", "Total time along x",
        "Total time over x and policy", "Total time against cost", "What each axis does", "Best trade-offs",
        "toy: x is unlucky", "x 3, policy plain, seed 0 (cell 30)", "and 5 more", "--retry", "0, 1, 2, 3",
        "unlucky_x: 3", "forerun simulate SCENARIO.yaml --set 'x=0'",
        f"{best.means['total_s']:.4g}",
    ):  # fmt: skip
        assert text in shown, text


def test_an_interrupted_study_gives_the_same_page(tmp_path: Path) -> None:
    """One store is filled in one go; one backwards, cell by cell, reopened each time; one by a pool of two."""
    plan = plan_of(tmp_path)
    folders = [tmp_path / name for name in ("whole", "pieces", "pool")]
    for folder in folders:
        folder.mkdir()
    run_study(plan, folders[0] / "s.sqlite", Here())
    for cell in reversed(list(plan.cells())):
        with Store(folders[1] / "s.sqlite", plan, writing=True) as store:
            store.add([run_cell(plan, cell)])
    run_study(plan, folders[2] / "s.sqlite", Processes(2))
    pages = {html_page([load_saved(folder / "s.sqlite")]) for folder in folders}
    assert len(pages) == 1


def test_a_store_beside_runs_of_any_room(tmp_path: Path) -> None:
    run_study(plan_of(tmp_path), tmp_path / "s.sqlite", Here())
    run = forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run")
    items = [load_saved(tmp_path / "s.sqlite"), load_result(run), load_saved(tmp_path / "s.sqlite")]
    page = html_page(items)
    shown = words(page)
    assert "1 run and 2 studies" in shown and "it adds up" in shown and shown.count("x is unlucky") >= 2
    ids = re.findall(r'<[a-z0-9]+ [^>]*?\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_verb_takes_stores_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_study(plan_of(tmp_path), tmp_path / "s.sqlite", Here())
    forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "run")
    page = tmp_path / "both.html"
    assert (
        command_line(["report", str(tmp_path / "s.sqlite"), str(tmp_path / "run"), "-o", str(page), "-q"])
        == 0
    )
    assert "1 run and 1 study" in words(page.read_text())
    capsys.readouterr()
    pictures = tmp_path / "pictures"
    assert command_line(["report", str(tmp_path / "s.sqlite"), "--svg", str(pictures), "-q"]) == 0
    names = sorted(path.name for path in pictures.iterdir())
    assert names == ["along-cost.svg", "along-total.svg", "frontier.svg", "over-total.svg"]
    assert all(path.read_text().startswith("<svg") for path in pictures.iterdir())
    assert command_line(["report", str(tmp_path / "absent.sqlite"), "-q"]) == 2
    assert "no such study store" in capsys.readouterr().err


def test_two_axes_of_names_are_drawn(tmp_path: Path) -> None:
    """Neither axis has numbers: bars, and a heat map whose both sides are names."""
    plan = plan_of(
        tmp_path,
        "base: {domain: toy}\naxes: {policy: [plain, half], misfortune: [error, bug, die]}\nseeds: 2",
    )
    run_study(plan, tmp_path / "s.sqlite", Here())
    shown = words(html_page([load_saved(tmp_path / "s.sqlite")]))
    assert "Total time of each combination" in shown and "Total time over misfortune and policy" in shown


def test_pictures_as_png(tmp_path: Path) -> None:
    run_study(plan_of(tmp_path), tmp_path / "s.sqlite", Here())
    written = write_pictures([load_saved(tmp_path / "s.sqlite")], tmp_path / "pictures", "png")
    assert written and all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    plan = plan_of(tmp_path, "base: {domain: toy}\naxes: {policy: [plain, half], x: [1, 2]}\nseeds: 2")
    plan = StudyPlan(
        plan.name, plan.base, plan.folder, (("policy", ("plain", hostile)), plan.axes[1]), plan.seeds, ()
    )
    with Store(tmp_path / "s.sqlite", plan, writing=True) as store:
        store.add([Done(n, {"total_s": float(n), hostile: 1.0 * n}) for n in range(7)] + [Failed(7, hostile)])
    page = html_page([load_saved(tmp_path / "s.sqlite")])
    assert hostile in words(page)  # as text: an element would have been noticed


def test_thousands_of_cells_are_reported(tmp_path: Path) -> None:
    """2,500 combinations of up to 4 seeds with 25 metrics: page and ranking stay small."""
    axis = "{start: 1, stop: 50, count: 50}"
    plan = plan_of(tmp_path, f"base: {{domain: toy}}\naxes: {{x: {axis}, y: {axis}}}\nseeds: {cases(1, 4)}")

    def figures(n: int) -> dict[str, float]:
        more = {f"m{k}": n / (k + 1) for k in range(23)}
        return {"total_s": (n * 37) % 1009 / 7, "cost_usd": (n * 53) % 997, **more}

    with Store(tmp_path / "s.sqlite", plan, writing=True) as store:
        store.add(Done(n, figures(n)) for n in range(len(plan)))
    page = html_page([load_saved(tmp_path / "s.sqlite")])
    assert len(page) < 3_000_000
    assert re.search("The first [0-9]+ of 2,500 combinations[.]", words(page))


def test_the_study_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY + "metrics: [total_s, totl_s]\n")
    assert command_line(["study", "study.yaml", "-o", "cells.csv"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "why: x 0, policy half has the lowest total time", "failed: 10 of 40 cells: toy: x is unlucky",
        "no cell has the metric 'totl_s'; did you mean 'total_s'?", "next: forerun report study.sqlite",
    ):  # fmt: skip
        assert text in shown, text
    assert len((tmp_path / "cells.csv").read_text().splitlines()) == 41
    assert command_line(["study", "study.yaml", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["best"] == {"x": 0, "policy": "half"} and data["done"] == 30 and data["failed"] == 10
    assert len(data["points"]) == 8 and data["points"][0]["seeds"] == 5
    for arguments, message in (
        (["-o", "cells.xls"], "ends in .csv or .parquet"),
        (["--address", "localhost:1"], "belongs to --executor ray"),
        (["--executor", "ray"], "name the Ray cluster's address"),
    ):
        assert command_line(["study", "study.yaml", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_ctrl_c_says_how_far_it_is_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)

    def interrupted(self: Processes, plan: StudyPlan, cells):  # type: ignore[no-untyped-def]
        for _, cell in zip(range(7), cells):
            yield run_cell(plan, cell)
        raise KeyboardInterrupt

    monkeypatch.setattr(Processes, "run", interrupted)
    assert command_line(["study", "study.yaml"]) == 130
    assert "7 of 40 cells are in study.sqlite; the same command goes on from there" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert command_line(["study", "study.yaml"]) == 0
    assert "failed: 10 of 40 cells" in capsys.readouterr().out


def test_how_far_behind_is_over_common_seeds_where_some_cells_failed(tmp_path: Path) -> None:
    """The means are 5.5 and 6; over the seeds that both have, the second is 1.5 behind."""
    plan = plan_of(tmp_path, "base: {domain: toy}\naxes: {x: [0, 1]}\nseeds: 3\n")
    totals = [1.0, None, 10.0, 2.0, 4.0, 12.0]
    with Store(tmp_path / "s.sqlite", plan, writing=True) as store:
        store.add(
            [
                Failed(number, "no luck") if total is None else Done(number, {"total_s": total})
                for number, total in enumerate(totals)
            ]
        )
    page = words(html_page([load_saved(tmp_path / "s.sqlite")]))
    assert "+1.5" in page and "+0.5" not in page
