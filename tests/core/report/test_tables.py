"""Tables made of records and of parts, and their rows as plain data."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from forerun.core.result.tables import Column, Table, TableSchema

SCHEMA = TableSchema("attempts", (Column("name"), Column("size"), Column("taken_s", "s")))


@dataclass(frozen=True)
class Attempt:
    name: str
    taken_s: float
    batch: tuple[int, ...]


ATTEMPTS = [Attempt("a", 1.5, (1, 2)), Attempt("b", math.nan, ())]


def test_records_become_rows_by_the_names_of_attributes() -> None:
    table = Table.of_records(SCHEMA, ATTEMPTS, size=lambda attempt: len(attempt.batch))
    assert table.records() == [
        {"name": "a", "size": 2, "taken_s": 1.5},
        {"name": "b", "size": 0, "taken_s": None},
    ]
    assert [values.dtype.kind for values in table.columns.values()] == ["O", "i", "f"]
    assert len(Table.of_records(SCHEMA, (attempt for attempt in ATTEMPTS), size="name")) == 2
    assert Table.of_records(SCHEMA, [], size=[]).records() == []


def test_a_column_that_is_in_no_schema_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"attempts: no columns \['sise'\]"):
        Table.of_records(SCHEMA, ATTEMPTS, sise=[1, 2])
    with pytest.raises(AttributeError, match="size"):
        Table.of_records(SCHEMA, ATTEMPTS)


def test_parts_lie_one_below_the_other() -> None:
    parts = [
        {"name": "a", "size": np.array([1, 2]), "taken_s": 0.5},
        {"name": "b", "size": np.arange(0), "taken_s": 0.5},
        {"name": "c", "size": [3], "taken_s": [1.5]},
    ]
    table = Table.of_parts(SCHEMA, parts)
    assert list(table["name"]) == ["a", "a", "c"] and table["size"].dtype == np.int64
    assert table["taken_s"].tolist() == [0.5, 0.5, 1.5]
    assert len(Table.of_parts(SCHEMA, [])) == 0


def test_rows_are_chosen_by_mask_and_by_number() -> None:
    table = Table.of(SCHEMA, name=["a", "b", "c"], size=[1, 2, 3], taken_s=[0.1, 0.2, 0.3])
    assert table.rows(table["size"] > 1)["name"].tolist() == ["b", "c"]
    assert table.rows(np.array([2, 0]))["name"].tolist() == ["c", "a"]
