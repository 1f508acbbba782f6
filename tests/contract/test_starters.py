"""`forerun init`: the scenario that it writes runs, and nothing that exists is replaced."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import click
import pytest

import forerun
from forerun.core.catalog import demos, starters, write_starter
from forerun.core.cli.main import forerun_command, run
from forerun.core.errors import StoreError


@pytest.mark.parametrize("domain", [*forerun.domain_names(), "llm"])
def test_the_scenario_of_every_domain_runs(
    domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", domain]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: forerun simulate {domain}/scenario.yaml"
    scenario = tmp_path / domain / "scenario.yaml"
    text = scenario.read_text()
    assert text.startswith("# ") and text.count("#") >= 5 and len(text) < 3000
    assert run(["check", str(scenario)]) == 0
    assert run(["simulate", str(scenario), "--json"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out[out.index("{") :])
    assert told["why"] and not [
        note for note in told["notes"] if "dropped" in note or "before submission" in note
    ]
    for path in (tmp_path / domain).iterdir():
        assert path.name in text or path == scenario, f"{path.name} is an input of nothing"


@pytest.mark.parametrize("there", ["file", "link", "folder"])
def test_nothing_that_exists_is_replaced(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    victim = folder / "jobs.csv"
    if there == "file":
        victim.write_text("mine")
    elif there == "link":
        victim.symlink_to(tmp_path / "elsewhere")
    else:
        victim.mkdir()
    assert run(["init", "cluster", str(folder)]) == 2
    assert f"{victim}: exists already" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["jobs.csv"] and not (tmp_path / "elsewhere").exists()
    assert there != "file" or victim.read_text() == "mine"


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert run(["init", "spot", str(tmp_path / "file")]) == 2
    assert run(["init", "sopt"]) == 2
    said = capsys.readouterr().err
    assert (
        "cannot be written" in said
        and "did you mean 'spot'" in said
        and (tmp_path / "file").read_text() == "mine"
    )


def test_a_write_that_fails_half_way_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "starter"
    shutil.copytree(starters()["energy"], copy)
    (copy / "train.csv").unlink()
    (copy / "train.csv").mkdir()  # cannot be read
    monkeypatch.setattr("forerun.core.catalog.starters", lambda: {"energy": copy})
    with pytest.raises(StoreError):
        write_starter("energy", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("domain", forerun.domain_names())
def test_the_commands_in_the_comments_are_commands(
    domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only their arguments are read: each verb exists and takes the options and operands that the comment gives it."""
    write_starter(domain, tmp_path / domain)
    monkeypatch.chdir(tmp_path / domain)
    Path("FILE").touch()
    text = re.sub(r"\n *# ?", " ", Path("scenario.yaml").read_text())
    commands = re.findall(r"forerun ([^`\n]+)", text)
    assert len(commands) == text.count("forerun ")
    for words in map(str.split, commands):
        command: click.Command = forerun_command
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None
            command = found
        if words:  # without any, the verb is named, not called
            command.make_context("forerun", words)


def test_the_demonstration_of_a_wing_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert run(["demo", "llm", "-o", str(page)]) == 0
    out = capsys.readouterr().out
    assert "is a prefix cache worth it?" in out and "without a prefix cache" in out and "vllm serve" in out
    assert forerun.demo("llm").question in page.read_text()
    assert "llm" not in {one.domain for one in demos()} and "llm" in starters()
