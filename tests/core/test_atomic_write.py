"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import forerun
from forerun.blocks.container.convert import convert
from forerun.blocks.container.pack import JOURNAL, PackSpec, pack
from forerun.blocks.container.tar import write_tar
from forerun.core.atomic_write import beside, refuse_foreign, write_bytes, write_file, write_text
from forerun.core.cli.main import run as command_line
from forerun.core.errors import StoreError, TraceError


def test_what_goes_wrong_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    path = write_text(tmp_path / "made" / "a.txt", "old")

    def interrupted(file: Path) -> None:
        file.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, interrupted)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match="folder: cannot be written"):
        write_bytes(tmp_path / "folder", b"x", error=TraceError)
    with pytest.raises(StoreError, match="cannot be written"):
        write_bytes(path / "below-a-file", b"x")
    assert path.read_text() == "old" and [one.name for one in path.parent.iterdir()] == ["a.txt"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "made"]


def test_the_mode_is_what_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = write_text(tmp_path / "private", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_long_names_and_lone_surrogates(tmp_path: Path) -> None:
    path = write_text(tmp_path / ("n" * 250 + ".txt"), "a\udcffb")
    assert path.read_bytes() == b"a?b"
    assert len(beside(path).name) < 40 and beside(path) != beside(path)


VICTIM = b"a file of another program\n"


def test_files_of_other_programs_are_refused_by_name(tmp_path: Path) -> None:
    refuse_foreign(tmp_path, ["a", "b"], marker="a", sign=b"ours")
    (tmp_path / "b").write_bytes(VICTIM)
    with pytest.raises(StoreError, match="b: exists and is not of this program"):
        refuse_foreign(tmp_path, ["a", "b"], marker="a", sign=b"ours")
    (tmp_path / "a").write_bytes(b"ours, written before")
    refuse_foreign(tmp_path, ["a", "b"], marker="a", sign=b"ours")


def test_reference_logs_replace_only_reference_logs(tmp_path: Path) -> None:
    (tmp_path / "job.csv").write_bytes(VICTIM)
    demo = forerun.demo("cluster").scenario
    assert command_line(["simulate", str(demo), "-q", "--reference-logs", str(tmp_path)]) == 2
    assert (tmp_path / "job.csv").read_bytes() == VICTIM
    (tmp_path / "job.csv").unlink()
    for _ in range(2):
        assert command_line(["simulate", str(demo), "-q", "--reference-logs", str(tmp_path)]) == 0


def test_the_log_of_repairs_replaces_only_a_log_of_repairs(tmp_path: Path) -> None:
    (tmp_path / "gaps.txt").write_text("10\n20\n15\n")
    log = tmp_path / "out.parquet.repairs.json"
    log.write_bytes(VICTIM)
    arguments = [str(tmp_path / "gaps.txt"), "--format", "deltas", "-o", str(tmp_path / "out.parquet")]
    assert command_line(["trace", "import", *arguments]) == 2
    assert log.read_bytes() == VICTIM and not (tmp_path / "out.parquet").exists()
    log.unlink()
    codes = [command_line(["trace", "import", *arguments]) for _ in range(2)]
    assert codes == [0, 0] and log.exists()


@pytest.mark.parametrize("to", ["blocks", "files"])
def test_packing_leaves_folders_beside_its_target_alone(tmp_path: Path, to: str) -> None:
    """Names once derived from the target's are taken by others; a half-written part is a link to a victim."""
    source, target = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    write_tar(source / "0.tar", [(f"{number}.bin", bytes([number])) for number in range(4)])
    victims = [tmp_path / f".out.files/{name}" for name in ("0.bin", "notes.txt")]
    victims.append(tmp_path / f".out.partial-{os.getpid()}" / "notes.txt")
    for victim in victims:
        victim.parent.mkdir(exist_ok=True)
        victim.write_bytes(VICTIM)
    assert convert(source, target, to, spec=PackSpec(2)) == 4  # type: ignore[arg-type]
    assert [victim.read_bytes() for victim in victims] == [VICTIM] * 3


def test_a_pack_goes_on_past_a_link_in_place_of_a_half_written_part(tmp_path: Path) -> None:
    source, target, victim = tmp_path / "source", tmp_path / "out", tmp_path / "victim"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.bin").write_bytes(bytes([number]))
    victim.write_bytes(VICTIM)
    target.mkdir()
    (target / f"{JOURNAL}.part").symlink_to(victim)
    assert len(pack(source, target, PackSpec(2))) == 4
    assert victim.read_bytes() == VICTIM


def test_measuring_replaces_only_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before anything is measured."""
    for command, name in ((["serving", "--quiet"], "scenario.json"), (["energy"], "power.csv")):
        folder = tmp_path / command[0]
        folder.mkdir()
        (folder / name).write_bytes(VICTIM)
        assert command_line(["measure", *command, "-o", str(folder)]) == 2
        assert f"{name}: exists and is not of this program" in " ".join(capsys.readouterr().err.split())
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: VICTIM}
