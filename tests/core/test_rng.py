"""Named streams: independent, reproducible, undisturbed by new consumers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.rng import stream, stream_key

names = st.lists(st.one_of(st.text(min_size=1), st.integers(min_value=0)), min_size=1, max_size=3).map(tuple)


@given(st.integers(min_value=0), names)
def test_the_same_name_gives_the_same_stream(seed: int, purpose: tuple[str | int, ...]) -> None:
    assert stream(seed, *purpose).random(4).tolist() == stream(seed, *purpose).random(4).tolist()


@given(st.integers(0, 9), names, st.integers(0, 9), names)
def test_different_names_have_different_keys(
    seed: int, purpose: tuple[str | int, ...], other_seed: int, other: tuple[str | int, ...]
) -> None:
    same = seed == other_seed and [(type(p), p) for p in purpose] == [(type(p), p) for p in other]
    assert (stream_key(seed, *purpose) == stream_key(other_seed, *other)) == same


def test_streams_are_uncorrelated() -> None:
    """The correlation of 200 pairs of streams of 10,000 numbers stays within 5 standard errors."""
    drawn = np.array([stream(1, "x", i).random(10_000) for i in range(201)])
    correlation = np.corrcoef(drawn)[0, 1:]
    assert np.abs(correlation).max() < 5 / np.sqrt(10_000)


def test_a_stream_does_not_depend_on_the_hash_seed() -> None:
    code = "from forerun.core.rng import stream; print(stream(3, 'arrivals', 2).integers(1 << 60))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert found == {b"%d\n" % stream(3, "arrivals", 2).integers(1 << 60)}


def test_a_stream_needs_a_name_and_a_seed() -> None:
    with pytest.raises(ValueError, match="needs the name"):
        stream(1)
    with pytest.raises(ValueError, match="non-negative"):
        stream(-1, "x")
