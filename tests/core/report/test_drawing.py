"""Figures to Vega-Lite: valid, titled with units, safe from names, at a readable size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from altair import Chart

import forerun.core.report
from forerun.core.errors import UsageError
from forerun.core.report.drawing import Drawing, draw
from forerun.core.report.palette import DARK, LIGHT, VARIABLES
from forerun.core.result.figures import Axis, Figure, Rule

KINDS = ("line", "step", "cdf", "bar", "stacked_bar", "points", "heatmap", "gantt", "histogram")


def nodes(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        for inner in value.values():
            yield from nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from nodes(inner)


def channel(spec: Any, name: str) -> dict[str, Any]:
    """The first encoding of a channel that has a title."""
    found = [layer["encoding"][name] for layer in spec["layer"] if "title" in layer["encoding"].get(name, {})]
    return found[0]


def test_every_kind_is_in_the_gallery(gallery: Any) -> None:
    assert {figure.kind for figure in gallery.every_kind()} == set(KINDS)


def validate(drawing: Drawing) -> None:
    # Altair checks against the schema and raises where a property or value is unknown. A row or two do.
    Chart.from_dict({**drawing.vega_lite(), "data": {"values": drawing.rows[:2]}})


def test_specifications_are_valid_vega_lite(gallery: Any) -> None:
    for figure in gallery.every_kind():
        validate(draw(figure, VARIABLES))
    validate(draw(gallery.cdf(), LIGHT, width=640))


def test_a_figure_becomes_an_altair_chart(gallery: Any) -> None:
    figure = gallery.cdf()
    chart = forerun.core.report.chart(figure).properties(title="mine")
    drawn = chart.to_dict(validate=False)
    assert drawn["title"] == "mine"
    rows = drawn["datasets"][drawn["data"]["name"]]
    assert len(rows) == 6_000
    assert {"x", "y", "series"} == set(rows[0])


def test_without_altair_a_chart_names_the_extra(gallery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(UsageError, match=r"forerun\[altair\]"):
        forerun.core.report.chart(gallery.cdf())


def test_the_schema_check_can_fail(gallery: Any) -> None:
    spec = draw(gallery.bar(), LIGHT).vega_lite()
    spec["layer"][0]["mark"] = {"type": "barr"}
    with pytest.raises(Exception, match="barr"):
        Chart.from_dict(spec)


def test_axes_are_titled_with_units(gallery: Any) -> None:
    for figure in gallery.every_kind():
        spec = draw(figure, VARIABLES).spec
        sides = [channel(spec, "x")["title"], channel(spec, "y")["title"]]
        for axis in (figure.x, figure.y):
            title = next(title for title in sides if title.startswith(axis.label))
            assert bool(axis.unit) == title.endswith(")"), (figure.id, title)
    assert channel(draw(gallery.cdf(), LIGHT).spec, "x")["title"] == "latency (ms)"


@pytest.mark.parametrize(
    ("unit", "largest", "title", "drawn"),
    [
        ("s", 3_000.0, "t (s)", 3_000.0),
        ("s", 36_000.0, "t (h)", 10.0),
        ("s", 864_000.0, "t (d)", 10.0),
        ("ms", 30_000.0, "t (s)", 30.0),
        ("gpu_s", 72_000.0, "t (GPU-h)", 20.0),
        ("bytes", 2e10, "t (GB)", 20.0),
        ("j", 5e4, "t (kJ)", 50.0),
        ("usd_per_h", 1e6, "t (USD/h)", 1e6),
        ("", 1e6, "t", 1e6),
    ],
)
def test_units_suit_the_size(unit: str, largest: float, title: str, drawn: float) -> None:
    figure = Figure(
        "f", "F", "line", Axis("a", "t", unit), Axis("b", "y"), {"a": [0.0, largest], "b": [1, 2]},
        rules=(Rule(largest / 2, "half"),),
    )  # fmt: skip
    drawing = draw(figure, LIGHT)
    assert channel(drawing.spec, "x")["title"] == title
    assert drawing.columns["x"] == [0.0, drawn]
    datums = [
        layer["encoding"]["x"]["datum"]
        for layer in drawing.spec["layer"]
        if "datum" in layer["encoding"].get("x", {})
    ]
    assert datums and all(value == pytest.approx(drawn / 2) for value in datums)


def test_hostile_names_are_only_data(gallery: Any) -> None:
    for figure in (gallery.hostile(), gallery.hostile_series()):
        spec = draw(figure, LIGHT).spec
        for node in nodes(spec):
            if isinstance(node, dict):
                assert "alert" not in json.dumps(
                    [node.get(key) for key in ("field", "expr", "labelExpr", "signal", "test")]
                )
    columns = {"a.b": [1, 2], "c[0]": [3, 4], "d'": ["x", "y"]}
    odd = Figure("f", "F", "line", Axis("a.b", "a"), Axis("c[0]", "c"), columns, series="d'")
    fields = {
        node["field"] for node in nodes(draw(odd, LIGHT).spec) if isinstance(node, dict) and "field" in node
    }
    assert fields <= {"x", "y", "series"}


def test_a_long_label_has_two_lines() -> None:
    """No word is cut, and the rows have space for both lines; one too long for two lines is cut in its middle."""
    names = ["1 h more between failures of the job", "1 spare more", "x" * 30 + " " + "y" * 30]
    names += [f"row {i}" for i in range(12)]
    columns = {"change": names, "worth": [float(i) for i in range(len(names))]}
    figure = Figure.of("bar", "f", "F", columns, x=Axis("change", "change"), y=Axis("worth", "worth"))
    picture = forerun.svg(figure)
    assert (
        ">1 h more between<" in picture and ">failures of the job<" in picture and ">1 spare more<" in picture
    )
    assert "x" * 12 + "…" + "y" * 11 in picture
    short = Figure.of(
        "bar", "f", "F", {**columns, "change": [f"row {i}" for i in range(len(names))]}, x="change", y="worth"
    )
    assert draw(figure, LIGHT).spec["height"] == 30 * len(names) > draw(short, LIGHT).spec["height"]


def test_crowded_categories_lie_on_their_side(gallery: Any) -> None:
    upright, lying = draw(gallery.bar(), LIGHT), draw(gallery.bar_crowded(), LIGHT)
    assert channel(upright.spec, "y")["type"] == "quantitative"
    assert channel(lying.spec, "x")["type"] == "quantitative"
    rule = [layer for layer in lying.spec["layer"] if layer["mark"]["type"] == "rule" and "data" in layer]
    assert rule[0]["encoding"]["x"]["datum"] == 1_900.0


def test_order_of_categories_and_series(gallery: Any) -> None:
    assert draw(gallery.bar(), LIGHT).columns["x"] == ["exact", "sweep", "greedy"]
    assert [entry.name for entry in draw(gallery.stacked(), LIGHT).legend] == [
        "running",
        "waiting",
        "restoring",
        "lost",
    ]
    assert [entry.name for entry in draw(gallery.gantt(), LIGHT).legend][:2] == ["run", "wait"]


def test_the_label_of_a_bar_below_zero_stands_off_the_bar(gallery: Any) -> None:
    figure = replace(gallery.bar(), data=gallery.bar().data | {"cost_usd_per_h": [9.0, -8.0, 0.0]})
    drawing = draw(figure, LIGHT)
    assert drawing.columns["beside"] == [0.0, 0.0, 9.0]
    assert '"field": "beside"' in json.dumps(drawing.spec)


def test_more_series_than_colours_are_told_apart_by_dashes(gallery: Any) -> None:
    legend = draw(gallery.many_lines(), LIGHT).legend
    assert len({(entry.colour, entry.dash) for entry in legend}) == len(legend) == 12
    shapes = draw(gallery.points(), LIGHT).legend
    assert len({entry.shape for entry in shapes}) == 2


def test_more_parts_than_colours_are_told_apart_by_tints(gallery: Any) -> None:
    drawing = draw(gallery.stacked_many(), LIGHT)
    assert len({entry.colour for entry in drawing.legend}) == 11
    assert list(dict.fromkeys(drawing.columns["x"])) == ["b", "a"]


def test_outlines_of_histograms_end_at_zero() -> None:
    data = {"from": [0, 1, 5, 1], "to": [1, 2, 6, 3], "n": [4, 2, 1, 7], "who": ["a", "a", "a", "b"]}
    figure = Figure("f", "F", "histogram", Axis("from", "x"), Axis("n", "n"), data, x2="to", series="who")
    columns = draw(figure, LIGHT).columns
    rows = list(zip(columns["series"], columns["x"], columns["y"]))
    assert rows == [("a", 0, 4), ("a", 1, 2), ("a", 2, 0), ("a", 5, 1), ("a", 6, 0), ("b", 1, 7), ("b", 3, 0)]


def test_a_gap_stays_a_gap_and_what_cannot_be_drawn_is_counted() -> None:
    data = {"x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, float("nan"), float("inf"), 2.0]}
    drawing = draw(Figure("f", "F", "line", Axis("x", "x"), Axis("y", "y"), data), LIGHT)
    assert drawing.columns["y"] == [1.0, None, None, 2.0]
    assert any("1 infinite" in note for note in drawing.notes)
    logged = Figure(
        "f",
        "F",
        "line",
        Axis("x", "x"),
        Axis("y", "y", log=True),
        {"x": [1, 2], "y": [0, 5]},
        rules=(Rule(0.0, "no", "y"),),
    )
    drawing = draw(logged, LIGHT)
    assert drawing.columns["y"] == [None, 5.0]
    assert any("logarithmic" in note for note in drawing.notes)
    assert not [layer for layer in drawing.spec["layer"] if layer["mark"]["type"] == "rule"]


def test_near_rules_have_their_labels_on_different_lines(gallery: Any) -> None:
    spec = draw(gallery.cdf(), LIGHT).spec
    labels = [layer["mark"] for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    assert len({label["dy"] for label in labels}) == 2
    # Lines first: none runs through a label.
    kinds = [layer["mark"]["type"] for layer in spec["layer"][1:]]
    assert kinds == sorted(kinds)


def test_page_charts_use_variables_and_pictures_use_colours(gallery: Any) -> None:
    for figure in gallery.every_kind():
        text = json.dumps(draw(figure, VARIABLES).spec)
        assert not any(colour in text for colour in (*LIGHT.variables().values(), *DARK.variables().values()))
        assert "var(--" not in json.dumps(draw(figure, DARK, width=640).spec)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.1."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out(palette: Any) -> None:
    for behind in (palette.paper, palette.card):
        assert min(contrast(colour, behind) for colour in palette.series) >= 3.0
        assert (
            min(
                contrast(colour, behind)
                for colour in (palette.ink, palette.soft, palette.accent, palette.good, palette.bad)
            )
            >= 4.5
        )


def test_empty_figures_and_single_rows_draw() -> None:
    for kind in KINDS:
        text = np.array(["a"], dtype=object) if kind in ("gantt", "bar") else np.array([1.0])
        data = {
            "x": np.array([1.0]),
            "x2": np.array([2.0]),
            "y": text,
            "z": np.array([3.0]),
            "series": ["one"],
        }
        whole = Figure(
            "f", "F", kind, Axis("x", "x"), Axis("y", "y"), data, z=Axis("z", "z"), x2="x2", series="series"
        )
        for figure in (whole, replace(whole, data={name: values[:0] for name, values in data.items()})):
            validate(draw(figure, LIGHT))


def test_the_line_of_equality_is_in_the_units_drawn() -> None:
    """Seconds on both axes, drawn in h and in min: the line goes from the lowest to the highest of both, y = x."""
    data = {"m": [60.0, 7200.0], "p": [120.0, 1800.0]}
    figure = Figure(
        "e", "e", "points", Axis("m", "measured", "s"), Axis("p", "predicted", "s"), data, equal=True
    )
    drawing = draw(figure)
    ends = drawing.spec["layer"][-1]["data"]["values"]
    factors = {"s": 1.0, "min": 60.0, "h": 3600.0}
    units = [drawing.titles[side].rpartition("(")[2].rstrip(")") for side in ("x", "y")]
    for end, seconds in zip(ends, (60.0, 7200.0)):
        assert [end[side] * factors[unit] for side, unit in zip(("x", "y"), units)] == pytest.approx(
            [seconds] * 2
        )
    apart = replace(figure, y=Axis("p", "predicted", "J"))
    assert all("values" not in layer.get("data", {}) for layer in draw(apart).spec["layer"])
