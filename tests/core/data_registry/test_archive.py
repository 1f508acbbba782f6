"""Archives from the network: the file sought is found by its bytes, and nothing else in an archive has an effect."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import pytest

from forerun.core.data import archive as archive_module
from forerun.core.data.archive import content_of
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


def sought(data):
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_a_file_is_known_by_its_size_and_digest(tmp_path):
    archive = tar_of(tmp_path / "a", ("x/one.csv", b"1"), ("two.csv", b"22"), ("./y/two.csv", b"23"))
    for data in (b"1", b"22", b"23"):
        assert content_of(archive, **sought(data)) == data
    assert content_of(archive, **sought(b"24")) is None


HOSTILE_TARS = {
    "way out": ("../../evil", b"x"),
    "absolute": ("/tmp/evil", b"x"),
    "drive": ("C:/evil", b"x"),
    "backslashes": ("..\\..\\evil", b"x"),
    "symbolic link": special("link", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": special("link", tarfile.LNKTYPE, "/etc/passwd"),
    "device": special("dev", tarfile.CHRTYPE),
    "pipe": special("pipe", tarfile.FIFOTYPE),
    "empty name": ("./", b""),
}


@pytest.mark.parametrize("name", HOSTILE_TARS)
def test_names_and_kinds_of_members_lead_nowhere(tmp_path, name):
    archive = tar_of(tmp_path / "hostile.tar.gz", HOSTILE_TARS[name], ("harmless.csv", b"1"))
    assert content_of(archive, **sought(b"1")) == b"1"
    assert content_of(archive, **sought(b"root")) is None
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.tar.gz"]


def test_bombs_are_refused_in_bounded_time(tmp_path):
    archive = tar_of(tmp_path / "bomb", ("zeros.csv", bytes(100 << 20)), ("one.csv", b"1"))
    with pytest.raises(DataError, match=r"bomb.*taken for a bomb"):
        content_of(archive, **sought(b"1"))


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "MOST_MEMBERS", 20)
    archive = tar_of(tmp_path / "many.tar", *((f"{i}.csv", b"") for i in range(30)), mode="w")
    with pytest.raises(DataError, match="has more than 20 members"):
        content_of(archive, **sought(b"1"))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_archives_cut_short_are_refused(tmp_path, share):
    whole = tar_of(
        tmp_path / "a.tar.gz", *((f"{i}.csv", str(i).encode() * 5000) for i in range(50))
    ).read_bytes()
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"cut.tar.gz.*(damaged|no tar)"):
        content_of(path, **sought(b"absent"))


@pytest.mark.parametrize("data", [b"", b"hello", gzip.compress(b"hello", mtime=0), b"PK\x03\x04"])
def test_what_is_no_archive_is_refused(tmp_path, data):
    path = tmp_path / "not-an-archive"
    path.write_bytes(data)
    with pytest.raises(DataError, match="is no tar archive"):
        content_of(path, **sought(b"1"))
