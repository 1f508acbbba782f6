"""What the verbs print on a terminal of 80 characters: words stay whole, and tables say what they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.cli import _show
from forerun.core.cli.main import run
from forerun.core.result.stats import Interval

TINY = (
    "domain: cluster\ntrace: {generate: {jobs: 12, mean_gap_s: 60}}\n"
    "machines: {nodes: [{count: 1, gpus: 8}]}\npolicy: fifo\n"
)
STUDY = "base: jobs.yaml\naxes: {policy: [fifo, srtf], 'machines.nodes[0].count': [1, 2]}\nseeds: 2\n"
ARRIVALS = "".join(f"{at * 0.7:.3f}\n" for at in range(400))
FLEET = "".join(
    f"{at * 60_000},{'remove' if at % 3 == 2 else 'add'},n{at // 3}{at % 3 % 2}\n" for at in range(60)
)
SPOT = [
    "--set", "choices.trials=100", "--set", "choices.growth=[hazard]", "--set", "choices.every_steps=[4, 8]",
    "--set", "goal.deadline=20h",
]  # fmt: skip

SMALLER = {
    "cluster": ["trace.generate.jobs=100"],
    "energy": ["trials=2"],
    "loading": ["dataset.samples=1000"],
    "spot": ["trials=200"],
}

Print = Callable[[int], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Output of something at a width; words that are too long for it are left out of account."""

    def at(width: int, action: Callable[[], object]) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        action()
        return capsys.readouterr().out

    return at


def whole(printed: Callable[..., str], action: Callable[[], object]) -> str:
    """Check the output at 80 characters against that at 2,000: the same words, none broken, no line too long."""
    narrow, wide = printed(80, action), printed(2_000, action)
    assert wide.split(), "nothing was printed"
    long = "".join(word for word in wide.split() if len(word) > 60)
    pieces = {word for word in narrow.split() if word not in (*wide.split(), "\\") and word not in long}
    assert not pieces, f"broken words: {sorted(pieces)}"
    assert {word for word in wide.split() if len(word) <= 60} <= set(narrow.split())
    for line in narrow.splitlines():
        assert len(line.rstrip()) <= 80 or len(line.split()) == 1, line
    return narrow


def verb(*words: str | Path) -> Callable[[], object]:
    """A run of the command line."""

    def action() -> None:
        assert run([*map(str, words)]) == 0, words

    return action


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.yaml").write_text(TINY)
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "arrivals.csv").write_text("arrival_s\n" + ARRIVALS)
    (tmp_path / "fleet.csv").write_text(FLEET)
    return tmp_path


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The title and the explanation of every table printed."""
    seen: list[tuple[str, str]] = []
    plain = _show.print_table

    def noted(columns: Any, rows: Any, **words: Any) -> None:
        seen.append((words["title"], words["about"]))
        plain(columns, rows, **words)

    monkeypatch.setattr(_show, "print_table", noted)
    return seen


def titled(tables: list[tuple[str, str]], narrow: str) -> None:
    """Every table has a title on a line of its own and is explained, and no two say the same."""
    assert tables
    text = " ".join(narrow.split())
    for title, about in tables:
        assert title.strip() and about.strip()
        assert " ".join(title.split()) in text and " ".join(about.split()) in text
    half = tables[: len(tables) // 2]  # the second half is the wide one
    assert len({title for title, _ in half}) == len(half)


@pytest.mark.parametrize("domain", ["cluster", "energy", "loading", "serving", "spot"])
def test_results_of_the_demonstrations(
    domain: str, printed: Callable[..., str], tables: list[tuple[str, str]]
) -> None:
    scenario = forerun.demo(domain).scenario
    result = forerun.simulate(forerun.load(scenario, SMALLER.get(domain, [])))
    narrow = whole(printed, lambda: _show.print_result(result, scenario="demo.yaml --set 'a={b: 1, c: 2}'"))
    titled(tables, narrow)


@pytest.mark.parametrize("domain", ["energy", "loading", "spot"])
def test_plans(domain: str, printed: Callable[..., str], tables: list[tuple[str, str]], folder: Path) -> None:
    words = ["plan", forerun.demo(domain).scenario, *(SPOT if domain == "spot" else [])]
    titled(tables, whole(printed, verb(*words)))


def test_comparisons_studies_and_explanations(
    printed: Callable[..., str], tables: list[tuple[str, str]], folder: Path
) -> None:
    verb("simulate", "jobs.yaml", "-o", "run")()
    for words in (
        ["compare", "jobs.yaml", "--policy", "fifo", "--policy", "ef-accessctrl", "--seeds", "3"],
        ["study", "study.yaml"],
        ["explain", "run", "--ties", "2"],
    ):
        tables.clear()
        titled(tables, whole(printed, verb(*words)))


def test_traces_and_lists(printed: Callable[..., str], tables: list[tuple[str, str]], folder: Path) -> None:
    verb("trace", "generate", "cluster", "--set", "jobs=40", "-o", "log.csv")()
    for words in (
        ["trace", "stats", "arrivals.csv"],
        ["trace", "stats", "cluster", "log.csv"],
        ["trace", "stats", "spot", "fleet.csv"],
        ["trace", "formats"],
        ["trace", "processes"],
        ["policies"],
        ["data", "list"],
        ["reproduce", "--list"],
    ):
        tables.clear()
        titled(tables, whole(printed, verb(*words)))


def test_commands_that_are_too_long_go_on_behind_a_backslash(printed: Callable[..., str]) -> None:
    import shlex

    words = ["forerun", "simulate", "my jobs.yaml", *(f"--set=axis{at}=[{at}, {at}]" for at in range(9))]
    narrow = printed(80, lambda: _show.prose(f"kept; next: {shlex.join(words)}"))
    assert narrow.count("\\\n") >= 3 and max(map(len, narrow.splitlines())) <= 80
    assert shlex.split(narrow.partition("next: ")[2].replace("\\\n", "")) == words


def test_output_to_a_pipe_keeps_its_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    _show.prose("word " * 100)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_table_too_wide_goes_on_below_with_the_columns_that_name_a_row(printed: Callable[..., str]) -> None:
    columns = ["place", "size", *(f"figure{at}" for at in range(12))]
    rows = [["here", 1, *(1_234_567.0,) * 12], ["here", 2, *(7_654_321.0,) * 12]]
    narrow = printed(80, lambda: _show.print_table(columns, rows, title="Figures", about="one a column"))
    heads = [line.split() for line in narrow.splitlines() if line.startswith("place")]
    assert len(heads) > 1 and all(head[:2] == ["place", "size"] for head in heads)
    assert [name for head in heads for name in head[2:]] == columns[2:]
    assert narrow.splitlines()[0] == "Figures" and narrow.splitlines()[-1] == "one a column"


def test_intervals_stand_under_their_own_confidence(printed: Callable[..., str]) -> None:
    """The heading says what all of them cover; where they differ, the line below says it of each."""
    ninety = Interval(1.0, 3.0, 0.9, "errors of a fit")
    usual = Interval(4.0, 6.0, 0.95, "batch means")
    for intervals, head, about in (
        ({"wait_s": usual}, "95 % interval", "95 % interval: batch means"),
        ({"wait_s": ninety}, "90 % interval", "90 % interval: errors of a fit"),
        ({"wait_s": ninety, "cost_usd": usual}, "interval", "90 %: errors of a fit, 95 %: batch means"),
    ):
        result = replace(
            forerun.simulate(forerun.load(forerun.demo("serving").scenario)),
            summary={"wait_s": 2.0, "cost_usd": 5.0},
            headline=("wait_s", "cost_usd"),
            intervals=intervals,
        )
        text = printed(120, partial(_show.print_result, result, scenario="demo.yaml"))
        assert head in text.splitlines()[1] and about in " ".join(text.split())
