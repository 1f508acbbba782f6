"""Every format through forerun's own files and back: the same trace, whatever the log leaves empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forerun.core.errors import InputError, TraceError
from forerun.core.trace.files import save_trace
from forerun.core.trace.reader import read_trace
from forerun.core.trace.table import Column, Provenance, Trace

from .seeds import Seed, trace_seeds

#: a quoted text, or what stands between two delimiters
CELL = re.compile(rb'"[^"\n]*"|[^,|"\n\[\]{}: ][^,|"\n\[\]{}]*')
#: of a format with 1,440 counts a row, its names and the first few counts
MOST_CELLS = 120
SEEDS = tuple(trace_seeds())


def comes_back(trace: Trace, folder: Path) -> None:
    for name in ("out.csv", "out.parquet"):
        save_trace(trace, folder / name)
        back = read_trace(folder / name)
        assert back.digest == trace.digest and back.provenance.data() == trace.provenance.data()


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_every_format_comes_back_with_each_cell_emptied_in_turn(seed: Seed, tmp_path: Path) -> None:
    read_at = seed.write(tmp_path)
    out = tmp_path / "out"
    comes_back(seed.read(read_at), out)
    for name, data in seed.files.items():
        cells = [cell for cell in CELL.finditer(data) if cell.group().strip(b'"')]
        for cell in cells[:MOST_CELLS] if len(cells) > 2 * MOST_CELLS else cells:
            empty = b'""' if cell.group().startswith(b'"') else b""
            (tmp_path / name).write_bytes(data[: cell.start()] + empty + data[cell.end() :])
            try:
                trace = seed.read(read_at)
            except InputError:
                continue
            comes_back(trace, out)
        (tmp_path / name).write_bytes(data)


#: one optional text of a format, as the seed has it
OPTIONAL = {
    "sacct": "|ann|", "helios": ",vcA,", "alibaba_openb": ",BE,", "alibaba_spot": ",57,", "philly_csv": ",11cb48",
    "cluster_jobs": ",vgg16,", "job_history": ",7\n", "burstgpt": ",s1,", "philly": "ee9e8c", "sacct_json": "ann",
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_text_that_a_log_leaves_empty_is_an_empty_text(name: str, tmp_path: Path) -> None:
    seed = next(seed for seed in SEEDS if seed.name == name)
    (file, data), text = next(iter(seed.files.items())), OPTIONAL[name].encode()
    assert data.count(text) >= 1
    word = re.search(rb"[A-Za-z0-9]+", text)
    assert word is not None
    path = tmp_path / file
    path.write_bytes(data.replace(text, text.replace(word.group(), b""), 1))
    trace = seed.read(path)
    texts = [values.tolist() for values in trace.columns.values() if values.dtype.kind == "T"]
    assert any("" in column for column in texts) and not any(None in column for column in texts)
    comes_back(trace, tmp_path)


@pytest.mark.parametrize("text", ["two\nlines", " padded", "a\x85b", "nul\0"])
def test_a_text_that_no_line_can_hold_is_refused_with_file_row_and_column(text: str, tmp_path: Path) -> None:
    trace = Trace(
        "prices",
        [Column("t_s", "s"), Column("zone")],
        {"t_s": [0.0, 1.0], "zone": ["a", text]},
        time="t_s",
        provenance=Provenance(format="test"),
    )
    with pytest.raises(TraceError, match=r"out\.csv: column zone.*row 2"):
        save_trace(trace, tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


def test_texts_that_look_like_something_else_come_back(tmp_path: Path) -> None:
    names = ["# forerun trace x", "#", "'", "''a", '"', 'a "b", c', "=1", "-", "None", "nan", "a|b", ""]
    trace = Trace(
        "prices",
        [Column("zone"), Column("t_s", "s")],
        {"zone": names, "t_s": range(len(names))},
        time="t_s",
        provenance=Provenance(format="test"),
    )
    comes_back(trace, tmp_path)


@pytest.mark.parametrize("escape", [rb"\uD800", rb"\udfff"])
@pytest.mark.parametrize("name", ["sacct_json", "philly", "spot_price_history"])
def test_half_a_character_is_refused_with_its_line(name: str, escape: bytes, tmp_path: Path) -> None:
    seed = next(seed for seed in SEEDS if seed.name == name)
    ((file, data),) = seed.files.items()
    text = {"sacct_json": b"ann", "philly": b"ee9e8c", "spot_price_history": b"0.9"}[name]
    (tmp_path / file).write_bytes(data.replace(text, escape, 1))
    line = data[: data.index(text)].count(b"\n") + 1
    with pytest.raises(TraceError, match=rf"{file}:{line}: has the escape .*half a character"):
        seed.read(tmp_path / file)
