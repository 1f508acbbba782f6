"""The folder of a run: a run begins whole, or can be begun again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.errors import StoreError
from forerun.core.scenarios import from_data
from forerun.live import folder as folders
from forerun.live import journal, run_files
from forerun.live.folder import RunFolder
from forerun.live.journal import Journal
from forerun.live.run_files import controller_of, create_run

JOBS = "job_id,submission_time,duration,num_gpu,deadline\na,0,20,1,500\n"


def scenario(folder: Path) -> Any:
    (folder / "jobs.csv").write_text(JOBS)
    data = {
        "domain": "cluster",
        "trace": {"file": str(folder / "jobs.csv")},
        "machines": {"nodes": [{"name": "a", "count": 1, "gpus": 4}]},
        "policy": "fifo",
    }
    return from_data(data)


class Disk:
    """Becomes full at a write, the first being 0."""

    def __init__(self, full_at: int) -> None:
        self.full_at, self.writes = full_at, 0

    def stands_before(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(module, name)

        def either(path: Any, *given: Any, **named: Any) -> Any:
            self.writes += 1
            if self.writes > self.full_at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return call(path, *given, **named)

        monkeypatch.setattr(module, name, either)


@pytest.mark.parametrize("full_at", range(5))
def test_a_run_that_could_not_begin_on_a_full_disk_begins_once_there_is_space(
    full_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, run = Disk(full_at), tmp_path / "run"
    with monkeypatch.context() as patch:
        disk.stands_before(patch, folders, "write_bytes")
        disk.stands_before(patch, run_files, "write_bytes")
        disk.stands_before(patch, run_files, "write_text")
        disk.stands_before(patch, run_files.shutil, "copyfile")
        patch.setattr(journal, "_TABLES", f"PRAGMA max_page_count = 1;{journal._TABLES}")
        with pytest.raises(StoreError, match=r"cannot be written: (No space left|database or disk is full)"):
            create_run(run, scenario(tmp_path), is_open=True)
    assert disk.writes == min(full_at + 1, 4)
    made = create_run(run, scenario(tmp_path), is_open=True)
    controller_of(made, Journal(made.journal, read_only=True).run)
    assert not list(run.glob("*.new*"))
    with pytest.raises(StoreError, match="exists and is not empty"):
        create_run(run, scenario(tmp_path), is_open=True)


@pytest.mark.parametrize(
    "names", [["jobs"], ["inputs", "nonce"], ["lock", "thesis.tex"], ["lock", "journal.db"]]
)
def test_a_folder_of_something_else_is_left_alone(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("mine")
    with pytest.raises(StoreError, match="exists and is not empty"):
        RunFolder.create(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "mine")


def test_a_run_has_one_controller_and_what_a_killed_one_wrote_goes(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    for name in (".forerun-0", ".forerun-1.json", ".forerun-2.sessions"):
        (run.path / name).mkdir() if name == ".forerun-0" else (run.path / name).touch()
    with run.locked():
        assert [path.name for path in run.path.glob(".forerun-*")] == [".forerun-2.sessions"]
        with pytest.raises(StoreError, match="another controller serves this run"), run.locked():
            pass
