"""Figures made of tables: axes from names and schemas, intervals by name, curves one behind the other."""

import math

import numpy as np

from forerun.core.result.figures import Axis, Figure, by_series
from forerun.core.result.stats import Interval
from forerun.core.result.tables import Column, Table, TableSchema

TABLE = Table.of(
    TableSchema("attempts", (Column("number"), Column("taken", "gpu_s"), Column("low"), Column("high"))),
    number=[1, 2],
    taken=[3.0, 4.0],
    low=[2.0, 3.0],
    high=[4.0, 5.0],
)


def test_an_axis_named_by_its_column_has_the_schemas_unit() -> None:
    drawn = Figure.of("points", "taken", "Taken", TABLE, x="number", y="taken")
    assert (drawn.x, drawn.y) == (Axis("number", "number"), Axis("taken", "taken", "GPU-s"))
    assert (drawn.low, drawn.high, list(drawn.data)) == ("low", "high", ["number", "taken", "low", "high"])


def test_an_axis_of_plain_columns_has_the_unit_of_its_name() -> None:
    columns = {"latency_ms": [1.0], "share": [1.0], "left_out": [0]}
    drawn = Figure.of("cdf", "latency", "Latency", columns, x="latency_ms", y=Axis("share", "share of all"))
    assert (drawn.x.title, drawn.y.title, list(drawn.data)) == (
        "latency (ms)",
        "share of all",
        ["latency_ms", "share"],
    )


def test_curves_lie_one_behind_the_other() -> None:
    columns = by_series("of", {"a": {"x": [1, 2], "y": [0.5, 1.0]}, "b": {"x": [3], "y": np.array([1.0])}})
    assert {name: values.tolist() for name, values in columns.items()} == {
        "x": [1, 2, 3],
        "y": [0.5, 1.0, 1.0],
        "of": ["a", "a", "b"],
    }


def test_intervals_are_drawn_where_there_are_some() -> None:
    data = {"x": [1, 2], "y": [1.5, 3.0]}
    figure = Figure.of("line", "f", "F", data, x="x", y="y", intervals=[Interval(1.0, 2.0), None])
    assert (figure.low, figure.high) == ("low", "high")
    assert figure.data["low"][0] == 1.0 and math.isnan(figure.data["high"][1])
    plain = Figure.of("line", "f", "F", data, x="x", y="y", intervals=[None, None])
    assert (plain.low, plain.high) == ("", "") and set(plain.data) == {"x", "y"}
