"""A store never changes a file of another program, and reads a healthy store wherever it lies."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.errors import StoreError
from forerun.core.study.cell import Done
from forerun.core.study.executors import Here
from forerun.core.study.expand import StudyPlan, load_study
from forerun.core.study.run import run_study
from forerun.core.study.store import LOCK_SUFFIX, Store, salvage

STUDY = "base: {domain: toy, noise: 1.0}\naxes: {x: [0, 1, 2]}\nseeds: 3\n"
VICTIM = b'[[package]]\nname = "a stranger\'s file"\n'


@pytest.fixture
def plan(tmp_path: Path) -> StudyPlan:
    (tmp_path / "study.yaml").write_text(STUDY)
    return load_study(tmp_path / "study.yaml")


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder, and what is in it."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_store_beside_a_foreign_lock_file_leaves_it_alone(tmp_path: Path, plan: StudyPlan) -> None:
    (tmp_path / "poetry.lock").write_bytes(VICTIM)
    assert run_study(plan, tmp_path / "poetry", Here()).done == 9
    assert (tmp_path / "poetry.lock").read_bytes() == VICTIM


def test_a_file_of_one_byte_is_not_taken_for_an_empty_store(tmp_path: Path, plan: StudyPlan) -> None:
    (tmp_path / "s").write_bytes(b"1")
    with pytest.raises(StoreError, match="is no study store"):
        run_study(plan, tmp_path / "s", Here())
    assert (tmp_path / "s").read_bytes() == b"1"


def test_a_loop_of_links_is_no_store(tmp_path: Path, plan: StudyPlan) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreError, match="Too many levels of symbolic links"):
        run_study(plan, tmp_path / "loop", Here())


def foreign_text(folder: Path) -> None:
    (folder / f"s{LOCK_SUFFIX}").write_bytes(VICTIM)


def link_to_text(folder: Path) -> None:
    (folder / "victim").write_bytes(VICTIM)
    (folder / f"s{LOCK_SUFFIX}").symlink_to("victim")


def link_to_empty(folder: Path) -> None:
    (folder / "victim").write_bytes(b"")
    (folder / f"s{LOCK_SUFFIX}").symlink_to("victim")


def link_to_nothing(folder: Path) -> None:
    (folder / f"s{LOCK_SUFFIX}").symlink_to("not-there")


def hard_link_to_empty(folder: Path) -> None:
    (folder / "victim").write_bytes(b"")
    (folder / f"s{LOCK_SUFFIX}").hardlink_to(folder / "victim")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / f"s{LOCK_SUFFIX}")


def foreign_database(folder: Path) -> None:
    connection = sqlite3.connect(folder / "s")
    connection.executescript("CREATE TABLE bookmarks (name TEXT); INSERT INTO bookmarks VALUES ('home');")
    connection.close()


def foreign_text_as_store(folder: Path) -> None:
    (folder / "s").write_bytes(VICTIM)


def foreign_log(folder: Path) -> None:
    (folder / "s-wal").write_bytes(VICTIM)


def foreign_index(folder: Path) -> None:
    (folder / "s-shm").write_bytes(VICTIM)


def foreign_journal(folder: Path) -> None:
    (folder / "s-journal").write_bytes(VICTIM)


def log_that_is_a_link(folder: Path) -> None:
    (folder / "victim").write_bytes(VICTIM)
    (folder / "s-wal").symlink_to("victim")


@pytest.mark.parametrize(
    "victim",
    [
        foreign_text, link_to_text, link_to_empty, link_to_nothing, hard_link_to_empty, pipe, foreign_database,
        foreign_text_as_store, foreign_log, foreign_index, foreign_journal, log_that_is_a_link,
    ],
)  # fmt: skip
def test_foreign_files_are_refused_and_unchanged(
    tmp_path: Path, plan: StudyPlan, victim: Callable[[Path], None]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    victim(folder)
    before = contents(folder)
    with pytest.raises(StoreError) as raised:
        run_study(plan, folder / "s", Here())
    assert str(folder) in str(raised.value)
    assert contents(folder) == before, "nothing is left beside it, the lock file included"


def test_two_names_of_one_store_have_one_lock(tmp_path: Path, plan: StudyPlan) -> None:
    (tmp_path / "linked.sqlite").symlink_to(tmp_path / "s.sqlite")
    with Store(tmp_path / "s.sqlite", plan, writing=True), pytest.raises(StoreError, match="being written"):
        Store(tmp_path / "linked.sqlite", plan, writing=True)


def test_the_claim_of_a_killed_process_is_no_obstacle(tmp_path: Path, plan: StudyPlan) -> None:
    (tmp_path / f"s.sqlite{LOCK_SUFFIX}").write_bytes(b"process 12345 on a-host\n")
    assert run_study(plan, tmp_path / "s.sqlite", Here()).done == 9


def logged(plan: StudyPlan, path: Path, cells: int = 9) -> None:
    """A store as a killed process leaves it: every cell in the write-ahead log, none in the main file."""
    original = path.with_name("original.sqlite")
    with Store(original, plan, writing=True) as store:
        store._connection.execute("PRAGMA wal_autocheckpoint = 0")
        store.add(Done(number, {"total_s": float(number)}) for number in range(cells))
        shutil.copyfile(original, path)
        shutil.copyfile(f"{original}-wal", f"{path}-wal")


def let_others_in(folder: Path) -> None:
    """Open the test's own folders to other users; a process of a parallel run has one more of them."""
    for each in (folder, *folder.parents):
        if each.stat().st_mode & 0o005 == 0o005:
            return
        each.chmod(0o755)


def as_nobody(work: Callable[[], None]) -> None:
    """Run in a child that owns no file, so that modes hold also where the tests run as root."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("state", ["closed", "logged"])
def test_a_healthy_store_is_read_where_nothing_can_be_written(
    tmp_path: Path, plan: StudyPlan, state: str
) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir()
    if state == "logged":
        logged(plan, tmp_path / "s.sqlite")
        for name in ("s.sqlite", "s.sqlite-wal"):
            (tmp_path / name).rename(folder / name)
    else:
        run_study(plan, folder / "s.sqlite", Here())
        (folder / f"s.sqlite{LOCK_SUFFIX}").unlink()
    before = contents(folder)
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    let_others_in(tmp_path)

    def read() -> None:
        with Store(folder / "s.sqlite", plan) as store:
            assert set(store.numbers("done")) == set(range(9))
            assert len(list(store.outcomes())) == 9
        with Store(folder / "s.sqlite") as store:
            assert store.stored_plan().axes == plan.axes
        try:
            Store(folder / "s.sqlite", plan, writing=True)
        except StoreError as error:
            assert "cannot be written" in str(error) and "damaged" not in str(error)
        else:
            raise AssertionError

    try:
        as_nobody(read)
    finally:
        folder.chmod(0o755)
    assert contents(folder) == before


def test_a_store_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, plan: StudyPlan) -> None:
    run_study(plan, tmp_path / "s.sqlite", Here())
    (tmp_path / "s.sqlite").chmod(0o000)
    let_others_in(tmp_path)

    def read() -> None:
        try:
            Store(tmp_path / "s.sqlite", plan)
        except StoreError as error:
            assert "damaged" not in str(error), error
        else:
            raise AssertionError

    as_nobody(read)


def test_salvage_keeps_what_stands_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("base: {domain: toy}\naxes: {x: {start: 1, stop: 300, step: 1}}\n")
    plan = load_study(tmp_path / "study.yaml")
    logged(plan, tmp_path / "s.sqlite", 300)
    assert salvage(tmp_path / "s.sqlite", tmp_path / "saved.sqlite") == 300
    with Store(tmp_path / "saved.sqlite", plan) as store:
        assert set(store.numbers("done")) == set(range(300))


def test_salvage_reads_around_a_log_of_nonsense(tmp_path: Path, plan: StudyPlan) -> None:
    run_study(plan, tmp_path / "s.sqlite", Here())
    (tmp_path / "s.sqlite-wal").write_bytes(b"\x37\x7f\x06\x82" + os.urandom(5000))
    assert salvage(tmp_path / "s.sqlite", tmp_path / "saved.sqlite") == 9


def test_the_command_says_which_file_is_not_its_own(
    tmp_path: Path, plan: StudyPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / f"s.sqlite{LOCK_SUFFIX}"
    lock.write_bytes(VICTIM)
    assert command_line(["study", str(tmp_path / "study.yaml"), "--store", str(tmp_path / "s.sqlite")]) == 2
    assert f"{lock}: belongs to another program" in " ".join(capsys.readouterr().err.split())
    assert lock.read_bytes() == VICTIM


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_neither_writes_nor_releases_its_parents_store(
    tmp_path: Path, plan: StudyPlan
) -> None:
    outcome = Done(0, {"x": 1.0}, {}, "")
    receiving, sending = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child(store: Store) -> None:
        said = []
        for use in (lambda: store.add([outcome]), lambda: list(store.outcomes()), store.about):
            try:
                use()
            except StoreError as error:
                said.append(str(error))
        store.__exit__(None, None, None)
        sending.send(said)

    with Store(tmp_path / "s", plan, writing=True) as store:
        process = multiprocessing.get_context("fork").Process(target=child, args=(store,))
        process.start()
        said = receiving.recv()
        process.join()
        assert len(said) == 3 and all("before a fork; open it again here" in line for line in said)
        with pytest.raises(StoreError, match=f"is being written by process {os.getpid()} "):
            Store(tmp_path / "s", plan, writing=True)
        store.add([outcome])
        assert set(store.numbers("done")) == {0}
