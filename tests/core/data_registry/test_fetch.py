"""Getting data: mirror, cache, a server on this machine; and what is said when none has it."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import tarfile
import threading

import pytest

from forerun.core.cli.main import run
from forerun.core.data import registry
from forerun.core.data.fetch import dataset, fetch, status
from forerun.core.data.registry import File, Source, known_sources
from forerun.core.errors import DataError
from forerun.core.slices import folder, slices
from forerun.core.trace.generate import process_from

ONE, TWO = b"arrival_s\n1\n2\n", b"arrival_s\n5\n"


def file_of(path, data, **more):
    return File(path=path, sha256=hashlib.sha256(data).hexdigest(), size=len(data), **more)


def archive_of(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(f"folder/{name}.csv")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


SOURCE = Source(
    name="made_up",
    title="a made-up source",
    licence="CC0-1.0",
    citation="nobody",
    repository="https://github.com/owner/repo",
    commit="c0ffee",
    note="",
    domain="serving",
    files=(
        file_of("plain.csv", ONE, upstream="data/plain.csv"),
        file_of("packed/two.csv", TWO, archive="data/both.tar.gz"),
        file_of("wrong.csv", b"what it was once\n", upstream="data/wrong.csv"),
        file_of("gone.csv", ONE, upstream="data/gone.csv"),
        file_of("derived.csv", ONE, how="derived by hand"),
        file_of("packed/absent.csv", b"not inside\n", archive="data/both.tar.gz"),
    ),
)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A server on this machine with the made-up source, an empty cache, no mirror. Returns the list of
    requests.
    """
    root = tmp_path / "server" / "owner" / "repo" / "c0ffee" / "data"
    root.mkdir(parents=True)
    (root / "plain.csv").write_bytes(ONE)
    (root / "wrong.csv").write_bytes(b"what it is now...\n")
    (root / "both.tar.gz").write_bytes(archive_of(one=ONE, two=TWO))
    asked = []

    class Handler(_Quiet):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

    handler = functools.partial(Handler, directory=str(tmp_path / "server"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(registry, "RAW", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setattr(registry, "known_sources", lambda: (SOURCE,))
    monkeypatch.setenv("FORERUN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FORERUN_DATA_DIR", raising=False)
    yield asked
    server.shutdown()
    server.server_close()


def left_behind(tmp_path):
    return sorted(
        p.name for p in (tmp_path / "cache").rglob("*") if p.name.startswith(".") or p.suffix == ".partial"
    )


def test_a_file_is_downloaded_once_verified_and_kept(published, tmp_path):
    assert status(SOURCE, SOURCE.files[0]) == "to fetch"
    path = dataset("serving/plain.csv")
    assert path == tmp_path / "cache" / "data" / "serving" / "plain.csv"
    assert path.read_bytes() == ONE
    assert dataset("serving/plain.csv") == path
    assert published == ["/owner/repo/c0ffee/data/plain.csv"]
    assert status(SOURCE, SOURCE.files[0]) == "cached"
    assert left_behind(tmp_path) == []


def test_a_file_inside_an_archive_is_unpacked_and_verified(published, tmp_path):
    path = dataset("serving/packed/two.csv")
    assert path.read_bytes() == TWO
    assert left_behind(tmp_path) == []


def test_a_file_that_changed_at_its_publisher_is_refused(published, tmp_path):
    with pytest.raises(DataError, match=r"serving/wrong.csv: http://.*/wrong.csv no longer serves the file"):
        dataset("serving/wrong.csv")
    assert not (tmp_path / "cache" / "data" / "serving" / "wrong.csv").exists()


def test_an_archive_without_the_file_is_refused(published):
    with pytest.raises(
        DataError, match=r"serving/packed/absent.csv: no file in the archive data/both.tar.gz is the one"
    ):
        dataset("serving/packed/absent.csv")


def test_a_missing_page_names_address_and_mirror(published):
    with pytest.raises(DataError) as raised:
        dataset("serving/gone.csv")
    assert "serving/gone.csv: could not be fetched from http://" in str(raised.value)
    assert "FORERUN_DATA_DIR" in str(raised.value)


def test_a_dead_server_names_address_and_mirror(published, monkeypatch):
    monkeypatch.setattr(registry, "RAW", "http://127.0.0.1:9/")
    with pytest.raises(
        DataError, match=r"could not be fetched from http://127.0.0.1:9/.*ConnectionError.*FORERUN_DATA_DIR"
    ):
        dataset("serving/plain.csv")


def test_a_file_without_an_address_says_how_to_get_it(published):
    with pytest.raises(
        DataError,
        match=r"no address serves it: derived by hand; put it at FORERUN_DATA_DIR/serving/derived.csv",
    ):
        dataset("serving/derived.csv")
    assert status(SOURCE, SOURCE.files[4]) == "by hand"


def test_with_a_mirror_nothing_is_downloaded(published, tmp_path, monkeypatch):
    mirror = tmp_path / "mirror"
    (mirror / "serving").mkdir(parents=True)
    monkeypatch.setenv("FORERUN_DATA_DIR", str(mirror))
    with pytest.raises(
        DataError, match=r"is not in the mirror .*/mirror \(FORERUN_DATA_DIR\).*it is served at http://"
    ):
        dataset("serving/plain.csv")
    (mirror / "serving" / "plain.csv").write_bytes(ONE)
    assert dataset("serving/plain.csv") == mirror / "serving" / "plain.csv"
    assert published == []


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (ONE[:-1], "has 13 bytes, 14 are expected"),
        (ONE.replace(b"2", b"3"), "has sha256 .* is expected"),
        (b"", "has 0 bytes, 14 are expected"),
    ],
)
@pytest.mark.parametrize("place", ["mirror", "cache/data"])
def test_a_file_that_is_not_what_was_promised_is_refused(published, tmp_path, monkeypatch, data, what, place):
    if place == "mirror":
        monkeypatch.setenv("FORERUN_DATA_DIR", str(tmp_path / place))
    path = tmp_path / place / "serving" / "plain.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"serving/plain.csv: .*{what}"):
        dataset("serving/plain.csv")


def test_a_folder_in_place_of_a_file_is_refused(published, tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_DATA_DIR", str(tmp_path / "mirror"))
    (tmp_path / "mirror" / "serving" / "plain.csv").mkdir(parents=True)
    with pytest.raises(DataError, match="is not a file"):
        dataset("serving/plain.csv")


def test_scenario_files_may_name_public_data(published, tmp_path):
    process = tmp_path / "replay.yaml"
    process.write_text("name: scale\ntrace: data:serving/plain.csv\nstretch: 2\n")
    replay = process_from(str(process))
    assert replay.trace.path == str(tmp_path / "cache" / "data" / "serving" / "plain.csv")
    assert replay.trace.sha256 == SOURCE.files[0].sha256
    assert replay.arrivals_ms(0, n=2).tolist() == [0, 2000]


def test_all_failures_of_a_source_are_named(published):
    with pytest.raises(DataError) as raised:
        fetch("made_up")
    assert [problem.where for problem in raised.value.problems] == [
        "serving/wrong.csv",
        "serving/gone.csv",
        "serving/derived.csv",
        "serving/packed/absent.csv",
    ]


def test_without_a_network_one_file_is_named(published, monkeypatch):
    monkeypatch.setattr(registry, "RAW", "http://127.0.0.1:9/")
    with pytest.raises(DataError) as raised:
        fetch("made_up")
    assert [problem.where for problem in raised.value.problems] == ["serving/plain.csv"]


def test_the_command_line_lists_and_fetches(published, capsys):
    assert run(["data", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert run(["data", "list", "made_up", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)
    assert {file["status"] for file in files} == {"to fetch", "by hand"}
    assert {"name", "url", "sha256", "size_bytes", "licence", "citation", "domain"} <= set(files[0])
    assert run(["data", "fetch", "serving/plain.csv", "serving/packed/two.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit("/", 1)[-1] for line in lines] == ["plain.csv", "two.csv"]
    assert run(["data", "fetch", "serving/gone.csv", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("forerun: serving/gone.csv: could not be fetched")
    assert run(["data", "list"]) == 0
    assert run(["data", "list", "made_up"]) == 0
    assert "CC0-1.0; cite nobody" in capsys.readouterr().out


def test_derived_tables_come_with_the_program(tmp_path, monkeypatch):
    """Without a mirror, a network or a cache; each with a licence beside it, and none is large."""
    monkeypatch.delenv("FORERUN_DATA_DIR", raising=False)
    monkeypatch.setenv("FORERUN_CACHE_DIR", str(tmp_path))
    shipped = {
        f"{name}/{path.name}": path for name in slices() for path in (folder(name) / "packaged").glob("*.csv")
    }
    (source,) = (source for source in known_sources() if source.name == "cndlsys_derived")
    listed = {source.full_name(file): file for file in source.files}
    assert set(shipped) == set(listed) and len(shipped) == 5
    for name, file in listed.items():
        path = dataset(name)
        assert path.is_relative_to(tmp_path) and path.read_bytes() == shipped[name].read_bytes()
        assert path.stat().st_size < 2**20
        (licence,) = shipped[name].parent.glob("LICENSE.*")
        assert source.licence == "MIT" and "MIT License" in licence.read_text()
        assert status(source, file) == "cached"
