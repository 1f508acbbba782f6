"""docs/core/traces.md: its examples run."""

from __future__ import annotations

import re
from pathlib import Path

from forerun.core.cli.main import run
from forerun.core.domain import domain_names

PAGE = (Path(__file__).parents[3] / "docs" / "core" / "traces.md").read_text()


def test_the_process_file_and_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = PAGE.split("```yaml\n", 1)[1].split("```", 1)[0]
    (tmp_path / "day.yaml").write_text(block)
    commands = [
        command
        for command in re.findall(r"^\$ forerun (trace generate .*)$", PAGE, flags=re.MULTILINE)
        if command.split()[2] not in domain_names()
    ]
    assert len(commands) == 2
    for command in commands:
        assert run(command.replace("24h", "1h").split()) == 0, capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"day.yaml", "bursty.parquet", "day.parquet"}


def test_the_check_example_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("arrival_s\n1\nsoon\n-1\n")
    assert run(["trace", "check", "bad.csv"]) == 2
    shown = PAGE.split("$ forerun trace check bad.csv\n", 1)[1].split("```", 1)[0]
    assert capsys.readouterr().err == shown


def test_the_import_example_prints_what_the_page_shows(tmp_path, monkeypatch, capsys, shared):
    name = "AzureLLMInferenceTrace_code.csv.gz"
    (tmp_path / name).write_bytes(shared("golden", "serving", "readers", name).read_bytes())
    monkeypatch.chdir(tmp_path)
    assert run(["trace", "import", name, "-o", "code.parquet"]) == 0
    captured = capsys.readouterr()
    shown = PAGE.split("-o code.parquet\n", 1)[1].split("```", 1)[0]
    assert captured.err + captured.out == shown
    block = PAGE.split("```python\n", 1)[1].split("```", 1)[0]
    names: dict[str, object] = {}
    exec(block, names)
    assert len(names["trace"]) == int(shown.split("code.parquet: ")[1].split()[0])


def test_the_commands_on_spot_fleets_run(tmp_path, monkeypatch, capsys, shared):
    """On the public recordings that the page names; the fit judged by fewer fleets than it would be."""
    bamboo = shared("data", "spot", "bamboo")
    for path in (*(bamboo / "traces").glob("*.csv"), *(bamboo / "full-64").glob("*.csv")):
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ forerun (trace \w+ spot .*)$", PAGE, flags=re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["stats", "fit", "generate"]
    for command in commands:
        fewer = ["--set", "traces=40"] if " fit " in command else []
        assert run([*command.split(), *fewer]) == 0, capsys.readouterr().err
    assert "changes of membership" in capsys.readouterr().out and (tmp_path / "fleet.csv").is_file()


def test_the_reader_of_the_page_reads(tmp_path):
    from forerun.core.trace.reader import head_of
    from forerun.core.trace.repair import RepairLog
    from forerun.core.trace.requests import arrival
    from forerun.core.trace.rows import Field
    from forerun.core.trace.tabular import Rows, TableReader

    block = next(
        part for part in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "class Mine" in part
    )
    names = {tool.__name__: tool for tool in (TableReader, Rows, Field, arrival)}
    exec(block, names)
    path = tmp_path / "gateway.log"
    path.write_text("when,size\n1.5,100\n1.7,0\n2,7\n")
    mine = names["Mine"]
    assert mine.recognises(head_of(path))
    repairs = RepairLog()
    trace = mine().read(path, repairs)
    assert trace["size_bytes"].tolist() == [100, 7]
    assert repairs.lines() == [f"empty request, dropped: 1 ({path}:3)"]
    assert trace.provenance.format == "mine"
