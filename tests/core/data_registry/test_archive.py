"""Archives from the network: what is hostile is refused by name, and nothing lands outside the folder."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from forerun.core.data import archive as archive_module
from forerun.core.data.archive import unpacked
from forerun.core.errors import DataError


def tar_of(path, *members, mode="w:gz"):
    """A tar archive of (name, data) or TarInfo members."""
    with tarfile.open(path, mode) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_regular_files_are_unpacked_below_the_folder(tmp_path):
    archive = tar_of(tmp_path / "a", ("x/one.csv", b"1"), ("two.csv", b"22"), ("./y/three.csv", b"333"))
    with unpacked(archive) as files:
        assert [path.read_bytes() for path in files] == [b"1", b"22", b"333"]
        folder = files[1].parent
        assert all(path.is_relative_to(folder) for path in files)
    assert not folder.exists()
    with unpacked(archive, wanted=["three.csv"]) as files:
        assert [path.name for path in files] == ["three.csv"]


HOSTILE_TARS = {
    "way out": ([("../../evil", b"x")], "leads out of the folder"),
    "way out inside": ([("a/../../evil", b"x")], "leads out of the folder"),
    "absolute": ([("/tmp/evil", b"x")], "leads out of the folder"),
    "drive": ([("C:/evil", b"x")], "leads out of the folder"),
    "backslashes": ([("..\\..\\evil", b"x")], "leads out of the folder"),
    "symbolic link": ([special("link", tarfile.SYMTYPE, "/etc")], "is a link"),
    "link then file": ([special("d", tarfile.SYMTYPE, "/tmp"), ("d/evil", b"x")], "is a link"),
    "hard link": ([special("link", tarfile.LNKTYPE, "/etc/passwd")], "is a link"),
    "device": ([special("dev", tarfile.CHRTYPE)], "neither a file nor a folder"),
    "pipe": ([special("pipe", tarfile.FIFOTYPE)], "neither a file nor a folder"),
    "twice": ([("a.csv", b"x"), ("a.csv", b"y")], "stands twice"),
    "empty name": ([("./", b"")], "is no name of a file"),
}


# What is not unpacked cannot be overwritten: a name that stands twice only matters if it is wanted.
CASES = [
    (name, wanted)
    for name in HOSTILE_TARS
    for wanted in ((), ("harmless.csv",))
    if name != "twice" or not wanted
]


@pytest.mark.parametrize(("name", "wanted"), CASES)
def test_hostile_tars_are_refused(tmp_path, name, wanted):
    members, what = HOSTILE_TARS[name]
    archive = tar_of(tmp_path / "hostile.tar.gz", ("harmless.csv", b"1"), *members)
    with pytest.raises(DataError, match=f"hostile.tar.gz.*{what}"), unpacked(archive, wanted=wanted):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.tar.gz"]


@pytest.mark.parametrize("wanted", [(), ("other.csv",)], ids=["all", "some"])
def test_bombs_are_refused_in_bounded_time(tmp_path, wanted):
    archive = tar_of(tmp_path / "bomb", ("zeros.csv", bytes(100 << 20)))
    with pytest.raises(DataError, match=r"bomb.*taken for a bomb"), unpacked(archive, wanted=wanted):
        pass


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "MOST_MEMBERS", 20)
    archive = tar_of(tmp_path / "many.tar", *((f"{i}.csv", b"") for i in range(30)), mode="w")
    with pytest.raises(DataError, match="has more than 20 members"), unpacked(archive):
        pass


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_archives_cut_short_are_refused(tmp_path, share):
    whole = tar_of(
        tmp_path / "a.tar.gz", *((f"{i}.csv", str(i).encode() * 5000) for i in range(50))
    ).read_bytes()
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"cut.tar.gz.*(damaged|no tar)"), unpacked(path):
        pass


@pytest.mark.parametrize("data", [b"", b"hello", gzip.compress(b"hello", mtime=0), b"PK\x03\x04"])
def test_what_is_no_archive_is_refused(tmp_path, data):
    path = tmp_path / "not-an-archive"
    path.write_bytes(data)
    with pytest.raises(DataError, match="is no tar archive"), unpacked(path):
        pass
