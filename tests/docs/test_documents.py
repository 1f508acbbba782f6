"""What the documents say is true: their commands run, their links lead somewhere, their code works."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.catalog import demos
from forerun.core.cli.main import run as command_line

from ..conftest import cases
from .claims import claims, pattern

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BIN = Path(sys.executable).parent

#: documents whose examples other tests run, with the files they need, and those tests
ELSEWHERE = {
    "core/traces.md": ("tests/core/trace/test_traces_page.py", "tests/cluster/test_cluster_traces.py"),
    "composition.md": ("tests/docs/test_figures.py",),
    "CONTRIBUTING.md": ("tests/cluster/test_cluster_contract.py",),
    "live/index.md": ("tests/live/test_live_page.py",),
}
RUN_HERE = [
    path
    for path in DOCUMENTS
    if re.search("```(?:console|python)", path.read_text())
    and str(path.relative_to(ROOT)).removeprefix("docs/") not in ELSEWHERE
]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def environment() -> dict[str, str]:
    """The tests' own environment, with this Python's commands first."""
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "120"}


@pytest.mark.parametrize("path", RUN_HERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_run(path: Path, tmp_path: Path) -> None:
    run_document(path, tmp_path)


def run_document(path: Path, folder: Path) -> None:
    """Blocks in order: yaml and csv blocks that name a file are written, python blocks and console lines run.

    Lines that a console block shows below a command must be lines that it prints. DOMAIN.yaml is there from the start (the
    domain's demonstration, as the documents ask the reader to copy it), and so are scenarios among the examples.
    """
    for example in ("failures", "site", "slurm"):
        shutil.copytree(ROOT / "examples" / example, folder / "examples" / example)
    for demo in demos():
        (folder / f"{demo.domain}.yaml").write_text(demo.scenario.read_text())
    for kind, text in BLOCK.findall(path.read_text()):
        named = re.match(r"# file: (\S+)\n", text)
        if named and kind in {"yaml", "csv", "text"}:
            (folder / named[1]).write_text(text.partition("\n")[2] if kind == "csv" else text)
        elif kind == "console":
            for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, *shown = command.splitlines()
                said = run_line(line, folder)
                for expected in (one for one in shown if one.strip() not in {"", "..."}):
                    assert " ".join(expected.split()) in said, f"{line}\n{expected}\n{said}"
        elif kind == "python":
            with inside(folder):
                exec(compile(text, str(path), "exec"), {"__name__": "example"})


def run_line(line: str, folder: Path) -> str:
    """Run one command; what it printed, with each run of blanks as one."""
    command, _, comment = line.partition("  #")
    wanted = int(found[1]) if (found := re.search(r"exit (\d+)", comment)) else 0
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        return ""
    if words[0] == "forerun":
        code, stdout, stderr = run_here(words[1:], folder)
    else:
        done = subprocess.run(
            words, cwd=folder, env=environment(), capture_output=True, text=True, check=False
        )
        code, stdout, stderr = done.returncode, done.stdout, done.stderr
    assert code == wanted, f"{line}\n{stdout}\n{stderr}"
    assert "Traceback" not in stderr
    return " ".join(stdout.split())


def run_here(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """A command line of forerun in this process, which need not start: its exit code, and what it printed."""
    with inside(folder) as streams:
        code = command_line(arguments)
    return code, *map(printed, streams)


def printed(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[list[io.TextIOWrapper]]:
    """What a process of its own has: a working folder, the documents' environment, and streams, which are yielded."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        patch.chdir(folder)
        for name, value in environment().items():
            patch.setenv(name, value)
        yield streams


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target, part in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", path.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            file = path.parent / target if target else path
            assert file.exists(), f"{path}: {target}"
            assert not part or part in anchors(file), f"{path}: {target}#{part}"


def anchors(path: Path) -> set[str]:
    """What can be linked to in a document: its headings, as forges write them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_document_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs" / "index.md"]
    while todo:
        path = todo.pop().resolve()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        todo += [path.parent / target for target in re.findall(r"\]\(([^)#\s:]+)[^)]*\)", path.read_text())]
    assert {path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs")} <= seen


def test_the_example_plugin_installs_and_runs(tmp_path: Path) -> None:
    """examples/batching-plugin, installed as a user would, is found and used by a scenario."""
    place = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(place),
    ]
    source = tmp_path / "plugin"
    source.mkdir()
    for file in (ROOT / "examples" / "batching-plugin").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = source / file.relative_to(ROOT / "examples" / "batching-plugin")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    done = subprocess.run([*install, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    scenario = ROOT / "src" / "forerun" / "serving" / "demo.yaml"
    setting = "configuration.LogReg.batching={name: half-full, patience: 5ms}"
    commands = (
        ["policies", "serving"],
        ["simulate", str(scenario), "--set", "trace.queries=500", "--set", setting],
    )
    code = f"from forerun.core.cli.main import run; raise SystemExit(any([run(one) for one in {commands}]))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment(), "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    policies, simulated = done.stdout.split("half-full", maxsplit=1)
    assert "latency p99" in simulated and "latency p99" not in policies


def test_the_shown_policy_is_the_example_plugins() -> None:
    """What CONTRIBUTING.md shows of examples/batching-plugin stands there."""
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)[0]
    source = next((ROOT / "examples" / "batching-plugin").rglob("half_full.py")).read_text()
    assert shown in source


def test_pages_whose_examples_run_elsewhere_do() -> None:
    for page, tests in ELSEWHERE.items():
        for test in tests:
            text = (ROOT / test).read_text()
            quoted = " / ".join(f'"{part}"' for part in page.split("/"))
            assert page in text or quoted in text, (page, test)


def test_pictures_are_there() -> None:
    """Every picture of a document exists; each domain's picture is shown on light and on dark ground."""
    shown = set()
    for path in DOCUMENTS:
        for picture in re.findall(r'(?:src|srcset)="([^"]+)"', path.read_text()):
            assert (path.parent / picture).is_file(), f"{path}: {picture}"
            shown.add(Path(picture).name)
    assert {f"{demo.domain}-{ground}.svg" for demo in demos() for ground in ("light", "dark")} <= shown


#: reproductions that take long, whose parts other tests compare with the same references
SLOW = {"ef-fig8a", "inferline-planner", "meta-ettr"}


def test_published_numbers_are_reproduced(monkeypatch: pytest.MonkeyPatch, shared: Any) -> None:
    """Each row against the reproduction that it names, to the digits that it shows; each of the README against a record."""
    monkeypatch.setenv("FORERUN_DATA_DIR", str(shared("data")))
    page = (ROOT / "docs" / "replication" / "published.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+?) \| (\S+) \| (\S+) \| (\S+) \|$", page, re.M)
    assert len(rows) >= 8
    rows = [row for row in rows if cases(0) or row[0] not in SLOW]
    measured = [one for one in claims() if one.document == "README.md"]
    for line in re.findall(r"^\| .+ \|$", (ROOT / "README.md").read_text().partition("| result |")[2], re.M)[
        1:
    ]:
        said = any(pattern(one).search(" ".join(line.split())) for one in measured)
        assert said, f"no record has {line}"
    for identifier in dict.fromkeys(row[0] for row in rows):
        reproduced = {row.name: row for row in forerun.reproduce(identifier).rows}
        for _, name, *shown in (row for row in rows if row[0] == identifier):
            row = reproduced[name]
            for text, value in zip(shown, (row.published, row.compat, row.corrected)):
                if value is None:
                    assert text == "–", (name, text)
                else:
                    assert float(text) == pytest.approx(value, rel=5e-4), (name, text, value)
            if name == "chronus deadline ratio":
                said = f"it meets {row.compat:.3f} of the deadlines, not {row.published:g}"
                assert said in " ".join(page.split())


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path: Path, tmp_path: Path) -> None:
    with inside(tmp_path) as (stdout, _):
        runpy.run_path(str(path), run_name="__main__")
    assert printed(stdout).strip()


def test_every_domain_has_an_example() -> None:
    assert {path.stem for path in EXAMPLES} >= {demo.domain for demo in demos()}
