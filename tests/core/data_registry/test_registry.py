"""The list of public data: complete, consistent, and true of the mirror."""

from __future__ import annotations

import hashlib
import re

import pytest

from forerun.core.data.fetch import dataset, fetch, status
from forerun.core.data.registry import known_sources, select
from forerun.core.errors import UnknownName

EVERYTHING = [(source, file) for source in known_sources() for file in source.files]


def test_every_file_says_what_it_is_and_how_to_get_it():
    for source, file in EVERYTHING:
        assert source.title and source.licence and source.citation
        assert source.repository.startswith("https://github.com/")
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.size > 0
        assert bool(source.url(file)) != bool(file.how), "an address that serves it, or how to get it"
        assert source.describe_file(file)["licence"] == source.licence


def test_names_are_unique_and_stay_below_their_room():
    names = [source.full_name(file) for source, file in EVERYTHING]
    assert len(set(names)) == len(names)
    assert all(".." not in name and not name.startswith("/") and "\\" not in name for name in names)
    sources = [source.name for source in known_sources()]
    assert len(set(sources)) == len(sources)
    assert {source.domain for source in known_sources()} == {
        "cluster",
        "energy",
        "loading",
        "serving",
        "spot",
    }


def test_addresses_are_pinned_and_quoted():
    profile = next(f for f in select("zeus_power_profiles") if f[1].path.endswith("a40_resnet18_4gpu.csv"))
    assert profile[0].url(profile[1]) == (
        "https://raw.githubusercontent.com/ml-energy/zeus/75a8b9398034eb9baf74ca0a830c2c31bcce52cd/"
        "tests/profile_data/A40%2Bresnet18%2Bgpu0%2C1%2C2%2C3.csv"
    )
    for source, file in EVERYTHING:
        assert " " not in source.url(file)


def test_the_mirror_has_every_registered_file_as_registered(shared):
    """A mirror may hold more: data that no command reads yet."""
    mirror = shared("data")
    for source, file in EVERYTHING:
        if source.domain != "serving":
            data = (mirror / source.full_name(file)).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256), file.path


def test_published_digests_agree(shared):
    """The provenance notes carry the beginnings of digests; they must be of our files."""
    spot = shared("data", "spot", "PROVENANCE.md").read_text()
    rows = re.findall(r"^\| `([^`…]+)` \|.*?\| ([0-9]+) \| ([0-9a-f]{12}) \|", spot, flags=re.MULTILINE)
    ours = {file.path: file for source, file in EVERYTHING if source.domain == "spot"}
    assert len(rows) > 25
    for path, size, digest in rows:
        assert (ours[path].size, ours[path].sha256[:12]) == (int(size), digest)


def test_unpacked_llm_traces_are_the_reference_ones(shared):
    import gzip

    for _, file in select("azure_llm_2023"):
        data = gzip.decompress(shared("golden", "serving", "readers", f"{file.path}.gz").read_bytes())
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


def test_a_mirror_serves_files_folders_and_sources(shared, monkeypatch):
    mirror = shared("data")
    monkeypatch.setenv("FORERUN_DATA_DIR", str(mirror))
    assert dataset("energy/summary_train.csv") == mirror / "energy" / "summary_train.csv"
    assert dataset("spot/oobleck") == mirror / "spot" / "oobleck"
    assert dataset("cluster/pollux_t4/bert/") == mirror / "cluster" / "pollux_t4" / "bert"
    assert dataset("infinitehbd") == mirror / "spot" / "infinitehbd"
    assert len(fetch("zeus_power_profiles")) == 12
    source, file = select("energy/summary_train.csv")[0]
    assert status(source, file) == "mirror"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("zeuss", "did you mean 'zeus'?"),
        ("energy/summary_trian.csv", "did you mean 'energy/summary_train.csv'?"),
        ("", "no public data named ''"),
        ("../energy", "no public data named"),
    ],
)
def test_unknown_names_get_the_nearest(name, what):
    with pytest.raises(UnknownName, match=re.escape(what)):
        dataset(name)
