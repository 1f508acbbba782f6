"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from forerun.errors import StoreError, TraceError
from forerun.whole import beside, whole_bytes, whole_file, whole_text


def test_what_goes_wrong_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    path = whole_text(tmp_path / "made" / "a.txt", "old")

    def interrupted(file: Path) -> None:
        file.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        whole_file(path, interrupted)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match="folder: cannot be written"):
        whole_bytes(tmp_path / "folder", b"x", error=TraceError)
    with pytest.raises(StoreError, match="cannot be written"):
        whole_bytes(path / "below-a-file", b"x")
    assert path.read_text() == "old" and [one.name for one in path.parent.iterdir()] == ["a.txt"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "made"]


def test_the_mode_is_what_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = whole_text(tmp_path / "private", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_long_names_and_lone_surrogates(tmp_path: Path) -> None:
    path = whole_text(tmp_path / ("n" * 250 + ".txt"), "a\udcffb")
    assert path.read_bytes() == b"a?b"
    assert len(beside(path).name) < 40 and beside(path) != beside(path)
