"""Everything that is read, mutated: a value, or a problem that names the file; never a traceback, never a hang."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.core.errors import InputError
from forerun.core.testing import damaged
from forerun.core.trace.reader import readers

from ...conftest import cases
from .seeds import SEEDS_BY_NAME, Seed, trace_seeds

SEEDS = tuple(SEEDS_BY_NAME.values())
TRACES = SEEDS[: sum(1 for _ in trace_seeds())]
#: mutations of each valid file in a run of the suite; set FORERUN_CASES for more, of all files together
MUTATIONS = max(8, cases(0) // len(SEEDS))
WORD = re.compile(rb"[A-Za-z0-9_.+\-]+")
by_seed = pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name.replace(" ", "-"))


def outcome(seed: Seed, path: Path, changed: Path) -> InputError | None:
    """Reads; what is wrong with the file, after checking what every refusal must have."""
    try:
        seed.read(path)
    except InputError as error:
        assert error.exit_code == 2
        lines = str(error).splitlines()
        assert len(lines) == len(error.problems)
        for line in lines:
            assert changed.name in line or changed.parent.name in line, f"no file is named: {line}"
            assert len(line) < 2000
        return error
    return None


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Path, Path]]]:
    """Every seed, written: its folder and what is read."""
    base = tmp_path_factory.mktemp("malformed")
    written = {}
    for number, seed in enumerate(SEEDS):
        folder = base / f"malformed-{number}"
        folder.mkdir()
        written[seed.name] = (folder, seed.write(folder))
    yield written
    shutil.rmtree(base, ignore_errors=True)


def test_every_registered_format_is_mutated() -> None:
    """A new reader without a seed here fails this test."""
    assert {seed.name.partition("/")[0] for seed in TRACES} == set(readers().names())
    assert len({seed.name for seed in SEEDS}) == len(SEEDS) >= 55


@by_seed
def test_the_seeds_are_valid(seed: Seed, folders: Any) -> None:
    seed.read(folders[seed.name][1])


@by_seed
@settings(
    max_examples=MUTATIONS, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(number=st.integers(0, 2**20), which=st.integers(0, 7))
def test_mutations_are_read_or_refused_by_name(seed: Seed, folders: Any, number: int, which: int) -> None:
    folder, path = folders[seed.name]
    name = list(seed.files)[which % len(seed.files)]
    changed = folder / name
    changed.write_bytes(damaged(seed.files[name], number))
    try:
        outcome(seed, path, changed)
    finally:
        changed.write_bytes(seed.files[name])


TABLES = [
    seed
    for seed in SEEDS
    if seed.name != "kept run"  # which would be simulated now
    and all(name.endswith((".csv", ".txt")) for name in seed.files)
    and not any(data.lstrip()[:1] in (b"{", b"[") for data in seed.files.values())
    and seed.name != "azure_functions_2019"  # 1,440 columns; its own malformed inputs are in tests/trace
]


#: formats without named columns, and readers that name the field in the sentence
IN_WORDS = {
    "forerun", "swf", "pbs", "spot_counts", "spot_counts/dates", "spot_counts/steps", "cluster jobs", "cluster of nodes",
    "cluster throughputs", "cluster applications", "spot statistics",
}  # fmt: skip


@pytest.mark.parametrize("seed", TABLES, ids=lambda seed: seed.name.replace(" ", "-"))
def test_what_is_wrong_in_a_cell_is_named_with_its_line(seed: Seed, folders: Any) -> None:
    """Every cell of every row under the header, one after the other: the line is named, and the field."""
    folder, path = folders[seed.name]
    refused = named = 0
    for name, data in seed.files.items():
        text, changed = data.decode(), folder / name
        for word in WORD.finditer(data):
            line = text.count("\n", 0, word.start()) + 1
            if line == 1 and "\n" in text[word.end() :] and not text[:1].isdigit():
                continue
            for junk in ("soon?", "1e999"):
                changed.write_bytes(data[: word.start()] + junk.encode() + data[word.end() :])
                error = outcome(seed, path, changed)
                if error is not None:
                    refused += 1
                    assert f"{changed.name}:{line}" in str(error) or f"{changed.name}:1" in str(error), str(
                        error
                    )
                    named += bool(re.search(rf"{re.escape(changed.name)}:\d+:\S", str(error)))
        changed.write_bytes(data)
    assert refused > 0 and (named == refused or seed.name in IN_WORDS)


def test_polls_of_memory_with_digits_without_end_are_refused(tmp_path: Path) -> None:
    seed = SEEDS_BY_NAME["loading recorded run"]
    folder = seed.write(tmp_path)
    next(tmp_path.rglob("memory.csv")).write_text(f"a,b\n{'9' * 5000},2\n")
    with pytest.raises(InputError, match=r"memory\.csv:2"):
        seed.read(folder)
