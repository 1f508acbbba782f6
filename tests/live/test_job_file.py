"""Job files: what is read, and what each problem says."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.core.errors import ScenarioError
from forerun.live.job_file import read_job

GOOD = """
name: bert-1
command: [python, train.py, --lr, "0.1"]
iterations: 500
slots: 2
deadline: 5min
environment: [HF_HOME]
checkpoints: {every: 30s}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    return tmp_path


def written(folder: Path, text: str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_job_is_read_with_its_folder_and_units(folder: Path) -> None:
    job = read_job(written(folder, GOOD))
    assert job.command == ("python", "train.py", "--lr", "0.1")
    assert (job.deadline_s, job.checkpoints.every_s, job.folder) == (300.0, 30.0, str(folder.resolve()))
    (folder / "inner").mkdir()
    (folder / "inner" / "train.py").write_text("")
    assert read_job(written(folder, GOOD + "folder: inner\n")).folder == str(folder.resolve() / "inner")


def test_overrides_win(folder: Path) -> None:
    job = read_job(written(folder, GOOD), ["name=second", "deadline=10min", "checkpoints.keep=4"])
    assert (job.name, job.deadline_s, job.checkpoints.keep) == ("second", 600.0, 4)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("iterations: 500", "iterations: 0", 4, "0 is not between 1 and"),
        ("iterations: 500", "iterations: many", 4, "'many'"),
        ("iterations: 500", "iteration: 500", 4, "did you mean 'iterations'"),
        ("slots: 2", "slots: -1", 5, "-1 is not between 1 and 131,072"),
        ("slots: 2", "slots: 2\nslots: 3", 6, "twice"),
        ("5min", "-5min", 6, "is not above 0"),
        ("5min", "5W", 6, "time is wanted"),
        ("name: bert-1", "name: ../up", 2, "regex"),
        ("[python, train.py, --lr, \"0.1\"]", "python train.py", 3, "a list is wanted"),
        ("[python, train.py, --lr, \"0.1\"]", "[]", 3, "is empty; one entry at least is wanted"),
        ("[python, train.py, --lr, \"0.1\"]", "[no-such-program-here]", 3, "no program 'no-such-program-here' on PATH"),
        ("[python, train.py, --lr, \"0.1\"]", "[./absent.sh]", 3, "no program './absent.sh' in"),
        ("train.py", "absent.py", 3, "no script 'absent.py' in"),
        ("[HF_HOME]", "[\"HF_HOME=/x\"]", 7, "no name of a variable"),
        ("slots: 2", "slots: 2\nfolder: nowhere", 6, "no such folder"),
        ("{every: 30s}", "{every: 30s, keep: 1}", 8, "1 is not between 2 and"),
        ("{every: 30s}", "{evry: 30s}", 8, "unknown key 'evry'"),
    ],
)  # fmt: skip
def test_a_problem_names_file_and_line(folder: Path, old: str, new: str, line: int, said: str) -> None:
    path = written(folder, GOOD.replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        read_job(path)
    (problem, *_) = [one for one in caught.value.problems if said in one.what] or [None]
    assert problem is not None, str(caught.value)
    assert problem.where.startswith(f"{path}:{line}"), problem


def test_all_problems_are_said_at_once(folder: Path) -> None:
    text = GOOD.replace("500", "0").replace("slots: 2", "slots: 0").replace("name: bert-1", "nam: x")
    with pytest.raises(ScenarioError) as caught:
        read_job(written(folder, text))
    assert len(caught.value.problems) == 4  # nam, iterations, slots, and that name is missing


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text\n"])
def test_what_is_no_job_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_job(written(folder, text))
    assert len(caught.value.problems) == 1


def test_an_absent_file_and_one_of_another_kind(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        read_job(folder / "absent.yaml")
    with pytest.raises(ScenarioError, match=r"ends in \.yaml"):
        read_job(written(folder, GOOD, "job.txt"))
