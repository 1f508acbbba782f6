"""Where compiled kernels are kept: what is named, else beside the installation, else the user's, else ours alone."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from forerun.kernels.jit import cache_root


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FORERUN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_cache_that_make_filled_is_used(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cache_root.__wrapped__
    assert found() == places / "user" / "forerun" / "kernels"
    (places / "venv" / "cache" / "kernels").mkdir(parents=True)
    assert found() == places / "venv" / "cache" / "kernels"
    monkeypatch.setattr(
        sys, "base_prefix", sys.prefix
    )  # no virtual environment: the folder is somebody else's
    assert found() == places / "user" / "forerun" / "kernels"
    monkeypatch.setenv("FORERUN_CACHE_DIR", str(places / "named"))
    assert found() == places / "named" / "kernels"


def test_where_nothing_can_be_written_a_private_folder_serves(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "file").write_text("")
    monkeypatch.setenv("FORERUN_CACHE_DIR", str(places / "file"))
    folder = cache_root.__wrapped__()
    assert folder is not None and folder.parent == places and folder.name.startswith("forerun-kernels-")
    folder.chmod(0o777)
    assert cache_root.__wrapped__() is None, "a folder that others may write is never loaded from"
