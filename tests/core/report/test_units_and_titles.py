"""Pages of many sizes: the scenario's title, one unit for axis, caption and table, lines that stay visible, costs."""

from __future__ import annotations

import html
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.report import html_page
from forerun.core.report.compose import any_page
from forerun.core.report.drawing import draw
from forerun.core.report.stored import StoredComparison
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.numbers import quantity, readable_scale
from forerun.core.study.compare import moved_parts
from forerun.core.study.differences import figures, moved_scale

CLUSTER = (
    "domain: cluster\ntitle: A week of jobs\ntrace: {generate: {jobs: 60, mean_gap_s: 600}}\n"
    "machines: {nodes: [{count: 2, gpus: 8}]}\npolicy: fifo\n"
)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("cluster") / "jobs.yaml"
    path.write_text(CLUSTER)
    return forerun.compare(forerun.load(path), ["fifo", "srtf"], objective="jct_mean_s", seeds=3)


def test_a_page_has_the_title_of_its_scenario(compared: Any, tmp_path: Any) -> None:
    (tmp_path / "jobs.yaml").write_text(CLUSTER)
    run = forerun.simulate(forerun.load(tmp_path / "jobs.yaml"))
    assert "<h1>A week of jobs</h1>" in html_page([run])
    assert "<h1>Comparison: A week of jobs</h1>" in any_page([StoredComparison("cmp", compared)])
    # A policy's name begins the sentence as it is written.
    assert compared.why.startswith("srtf has the best mean completion time, ")
    assert f">{html.escape(compared.why)}<" in any_page([StoredComparison("cmp", compared)])
    untitled = forerun.simulate(forerun.load(tmp_path / "jobs.yaml", ["title=''"]))
    assert "<h1>Cluster</h1>" in html_page([untitled])
    for runs in ([run], [untitled], [run, untitled]):
        heading = html_page(runs).partition("<main")[0].partition("<h1>")[2].partition("</h1>")[0]
        assert not any(one.id[:8] in heading for one in runs)


def test_differences_have_the_unit_of_their_axis(compared: Any) -> None:
    """Captions, tables and axes of a ledger's differences: the same unit and the same formatter."""
    text = any_page([StoredComparison("cmp", compared)])
    drawn = {figure.id: figure for figure in figures(compared, moved_parts(compared))}
    for moved in moved_parts(compared):
        unit, size = moved_scale(moved)
        figure = next(one for one in drawn.values() if one.title == f"What moved in {moved.name}")
        axes = [draw(figure).titles[name] for name in ("y", "x") if name in draw(figure).titles]
        assert any(f"({unit})" in axis for axis in axes), (unit, axes)
        whole = moved.whole["srtf"] / size
        shown = f"{'+' if whole > 0 else ''}{quantity(whole, '', 0.0).strip()} {unit}"
        assert shown in figure.caption and "e+" not in figure.caption
        assert f"({unit})</h3>" in text
    assert any(moved_scale(moved)[1] > 1 for moved in moved_parts(compared))
    assert "e+0" not in compared.why


def test_a_quantity_has_the_unit_of_the_axis_it_stands_beside() -> None:
    assert quantity(350.0, "ms", 800.0) == "350 ms"
    assert quantity(350.0, "ms", 60_000.0) == "0.35 s"
    assert quantity(796_800.0, "GPU-s", 796_800.0) == "221.3 GPU-h"
    assert readable_scale("gpu_s", 10.0) == ("GPU-s", 1.0)


def lines(first: Any, second: Any, kind: str = "line") -> Figure:
    at = list(range(30))
    return Figure(
        id="f", title="F", kind=kind, x=Axis("x", "x"), y=Axis("y", "y"), series="of", series_label="of",
        data={"x": at * 2, "y": [*map(float, first), *map(float, second)], "of": ["a"] * 30 + ["b"] * 30},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["line", "step"])
def test_lines_on_top_of_each_other_have_different_dashes(kind: str) -> None:
    rising = np.arange(30.0)
    hidden, apart = draw(lines(rising, rising, kind)), draw(lines(rising, rising + 20, kind))
    assert len({entry.dash for entry in hidden.legend}) == 2
    assert {entry.dash for entry in apart.legend} == {()}
    partly = draw(lines(rising, np.where(rising < 10, rising, 40 - rising), kind))
    assert len({entry.dash for entry in partly.legend}) == 2
    gaps = rising.copy()
    gaps[3:9] = math.nan
    assert len({entry.dash for entry in draw(lines(rising, gaps, kind)).legend}) == 2


def test_rankings_show_what_a_variant_costs(compared: Any) -> None:
    free = any_page([StoredComparison("cmp", compared)])
    costly = replace(
        compared,
        standings=tuple(
            replace(one, figures={**one.figures, "cost_usd": 1234.5 + at})
            for at, one in enumerate(compared.standings)
        ),
    )
    ranked = any_page([StoredComparison("cmp", costly)]).partition('id="figures"')[0]
    assert "Cost (USD)" not in free and "Cost (USD)" in ranked and "1,234" in ranked and "1,236" in ranked
