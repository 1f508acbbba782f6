"""Scenario files as a stranger may write them: a scenario, or a refusal with file and line; never a traceback or a hang."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.errors import InputError, ScenarioError
from forerun.core.scenario.text import MAX_DEPTH, parse_document, path_text, read_document
from forerun.core.scenarios import load

from ...conftest import cases
from .generated import scenarios, written

KINDS = (".yaml", ".json", ".toml")
#: scenarios drawn for each domain in a run of the suite; set FORERUN_CASES for more, of all domains together
CASES = max(20, cases(0) // len(forerun.domain_names()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a pipe, a loop of links, a folder, and the inputs of every example."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    for domain in forerun.domain_names():
        for path in Path(forerun.demo(domain).scenario).parent.glob("*.csv"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("domain", forerun.domain_names())
def test_generated_scenarios_are_read_or_refused_with_their_line(domain: str, folder: Path) -> None:
    drawn = scenarios(0, domain)
    read = refused = 0
    for number in range(CASES):
        path = folder / f"case{KINDS[number % 3]}"
        path.write_text(written(next(drawn), path.suffix))
        try:
            load(path)
            read += 1
        except InputError as error:
            refused += 1
            for problem in error.problems:
                assert problem.where.startswith(f"{path}:"), f"no line is named: {problem}"
                assert "cannot be checked" not in problem.what, problem
    assert read >= CASES // 40 and refused >= CASES // 4


NOT_FILES = {
    "/dev/zero": "is a pipe or device",
    "pipe": "is a pipe or device",
    "loop": "Too many levels of symbolic links",
    "folder": "is a directory",
    "none.csv": "no such file",
    "~nosuchuser/x": "could not determine home directory",
    "a\0b": "embedded null byte",
    "n" * 300: "File name too long",
}
#: where each domain's scenario names a file of its own
TAKES_A_FILE = {
    "cluster": "trace.file", "energy": "trace.train", "loading": "dataset.sample_bytes.empirical", "serving": "trace.file",
    "spot": "prices.spot_file.file",
}  # fmt: skip


def with_file(domain: str, name: str) -> dict[str, object]:
    """The domain's example with a name where a file is expected."""
    data = json.loads(json.dumps(read_document(Path(forerun.demo(domain).scenario)).data))
    section, last = TAKES_A_FILE[domain].rsplit(".", 1)
    holder = data
    for step in section.split("."):
        kept = holder.get(step, {}) if (domain, step) in (("energy", "trace"), ("loading", "dataset")) else {}
        holder[step] = kept
        holder = kept
    holder[last] = name
    return data


@pytest.mark.parametrize("name", NOT_FILES, ids=lambda name: name.replace("\0", "NUL")[:12])
@pytest.mark.parametrize("domain", forerun.domain_names())
def test_what_is_no_file_is_refused_in_every_domain(domain: str, name: str, folder: Path) -> None:
    """Devices and pipes are refused before their digest is taken: neither is ever read to its end."""
    path = folder / "scenario.yaml"
    path.write_text(written(with_file(domain, name), ".yaml"))
    with pytest.raises(ScenarioError) as caught:
        load(path)
    said = [problem for problem in caught.value.problems if NOT_FILES[name] in problem.what]
    assert said and all(problem.where.startswith(f"{path}:") for problem in said), str(caught.value)


@pytest.mark.parametrize("place", ["", "/dev/zero", "pipe", "folder", "loop"])
@pytest.mark.parametrize("command", [["simulate"], ["check"], ["trace", "check"], ["report"], ["plan"]])
def test_commands_refuse_what_is_no_file(
    command: list[str], place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, str(folder / place) if place != "/dev/zero" else place]) == 2
    assert "Traceback" not in capsys.readouterr().err


MALFORMED = {
    "no-such-character.yaml": (b'domain: spot\ntitle: "\\U00110000"\n', ":2: is not YAML: an escape names no character"),
    "beyond-all-characters.yaml": (b'domain: spot\ntitle: "\\UFFFFFFFF"\n', ":2: is not YAML: an escape"),
    "half-a-character.yaml": (b'domain: spot\ntitle: "\\uD800"\n', ":2: at $.title: has the escape \\ud800"),
    "half-a-character.json": (b'{"domain": "spot",\n"title": "\\ud800"}', ":2: at $.title: has the escape \\ud800"),
    "control-character.yaml": (b"domain: spot\ntitle: a\x01b\n", ":2: has the character U+0001"),
    "control-character.toml": (b'domain = "spot"\ntitle = "a\x01b"\n', ":2: is not TOML"),
    "nul.yaml": (b"domain: spot\ntitle: a\0b\n", ":2: has a NUL byte"),
    "digits.toml": (b'domain = "spot"\nseed = ' + b"9" * 6000, ":2: a number of 6000 digits"),
    "hexadecimal.toml": (b'domain = "spot"\nseed = 0x' + b"f" * 6000, ":2: a number of 6002 digits"),
    "day.toml": (b'domain = "spot"\nseed = 2024-02-31\n', ":2: is not TOML"),
    "dotted-key.toml": (b'domain = "spot"\n' + b"a." * 5000 + b"a = 1\n", ":2: is nested deeper"),
    "dotted-table.toml": (b'domain = "spot"\n[' + b"a." * 5000 + b"a]\n", ":2: is nested deeper"),
    "open-string.toml": (b'domain = "spot"\ntitle = "', ":2: is not TOML"),
    "unknown-key.toml": (b'domain = "spot"\n\n[fleet]\nname = "poisson"\nrat = 1\n', ":5: at $.fleet.rat: unknown key"),
    "twice.json": (b'{"domain": "spot",\n\t"seed": 1,\n\t"seed": 2}', ":3: the key 'seed' is given twice"),
    "tabs.json": (b'{\n\t"domain": "spot",\n\t"sed": 1}', ":3: at $.sed: unknown key"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused_at_their_line(name: str, tmp_path: Path) -> None:
    content, said = MALFORMED[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert f"{path}{said}" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "²=3",
        "trials[²]=1",
        f"a.{'9' * 5000}=1",
        f"[{'9' * 5000}]=1",
        "a." * 5000 + "a=1",
        'title="\\U00110000"',
    ],
)
def test_overrides_without_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        forerun.load(forerun.demo("spot").scenario, [text])


def test_json_is_read_in_time_linear_in_its_keys() -> None:
    """Counted in lines of Python that run: four times the keys take at most five times as many."""

    def lines_run(keys: int) -> int:
        text = json.dumps({f"key{number}": number for number in range(keys)})
        count = 0

        def trace(*_: object) -> object:
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)
        try:
            document = parse_document(text, name="many.json", kind=".json")
        finally:
            sys.settrace(None)
        assert len(document.data) == keys
        return count

    assert lines_run(4000) < 5 * lines_run(1000)


NESTED = '{"a": [1,\n {"b": [[], {}], "c d": "x\\"]"}],\n "e": {"f": null, "g.h": [{"i": -1.5}]}}'


def test_lines_are_those_of_the_text_in_all_formats() -> None:
    """One document in three formats; the line of each value is that of its text."""
    toml = (
        "a = [1, # one ]\n {b = [[], {}], 'c d' = \"x\\\"]\"}]\n[e]\n'g.h' = [\n\n{i = -1.5}]\n"
        "s = \"\"\"\n[no] = 1\n\"\"\"\n[[t]]\nk = 1979-05-27 07:32:00\n[[t]]\n[t.u]\nv.w = '''\n'''\nz = 1\n"
    )
    lines = parse_document(toml, name="t", kind=".toml").lines
    assert {path_text(place): line for place, line in lines.items()} == {
        "$": 1, "$.a": 1, "$.a[0]": 1, "$.a[1]": 2, "$.a[1].b": 2, "$.a[1].b[0]": 2, "$.a[1].b[1]": 2, "$.a[1].c d": 2,
        "$.e": 3, "$.e.g.h": 4, "$.e.g.h[0]": 6, "$.e.g.h[0].i": 6, "$.e.s": 7,
        "$.t": 10, "$.t[0]": 10, "$.t[0].k": 11, "$.t[1]": 12, "$.t[1].u": 13, "$.t[1].u.v": 14, "$.t[1].u.v.w": 14,
        "$.t[1].u.z": 16,
    }  # fmt: skip
    as_json = parse_document(NESTED, name="j", kind=".json")
    as_yaml = parse_document(NESTED, name="y", kind=".yaml")
    assert as_json.data == as_yaml.data == json.loads(NESTED)
    assert as_json.lines == as_yaml.lines


def test_brackets_in_strings_are_no_nesting() -> None:
    many = "[" * (MAX_DEPTH + 10)
    assert parse_document(f"a = '{many}'", name="t", kind=".toml").data == {"a": many}
    assert parse_document(f'a = "{"1." * 100}"', name="t", kind=".toml").data == {"a": "1." * 100}
    assert parse_document(json.dumps({"a": many}), name="j", kind=".json").data == {"a": many}


def test_more_jobs_than_can_be_drawn_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"trace\.generate\.jobs|10000000"):
        forerun.load(forerun.demo("cluster").scenario, [f"trace.generate.jobs={2**62}"])
