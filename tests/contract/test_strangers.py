"""A policy, a reader, a figure and a domain, each in one file of a package of their own, pass the public battery."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.testing import check_figure

POLICY = '''
from forerun.serving.policy.batching import Batching, Start, Wait


class HalfFull(Batching, tag="half-full", frozen=True, kw_only=True):
    """A batch starts when it is half full, or when its oldest query has waited `patience_ms`."""

    patience_ms: float = 20.0

    def build(self, rng):
        return self

    def decide(self, view):
        until_ms = view.oldest_ms + self.patience_ms
        ready = 2 * view.queued >= view.max_batch or view.now_ms >= until_ms
        return Start() if view.queued and ready else Wait(until_ms)
'''
READER = '''
from forerun.core.trace.requests import arrival
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import TableReader


class Words(TableReader, tag="words", frozen=True, kw_only=True):
    """CSV of requests: when they come, and how many words they have."""

    about = "requests with their words (CSV, seconds)"
    makes = "requests"
    signature = ("when_s", "words")
    columns = (arrival("s", "when_s"), Field(name="words", kind="int", minimum=0))
'''
FIGURE = '''
from forerun.core.result.figures import Axis, Figure


def tried(run):
    """How many attempts each batch size had."""
    sizes = {}
    for size in run.table("attempts")["batch_size"].tolist():
        sizes[str(size)] = sizes.get(str(size), 0) + 1
    return Figure.of(
        "bar",
        "attempts-by-size",
        "Attempts of each batch size",
        {"size": list(sizes), "attempts": list(sizes.values())},
        x=Axis("attempts", "attempts"),
        y="size",
        caption=f"{sum(sizes.values())} attempts in all.",
    )
'''
DOMAIN = '''
import functools
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np

from forerun.core.domain import Domain
from forerun.core.registry import Registry
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.rng import stream
from forerun.core.scenario.spec import NamedSpec, Spec, chosen_from

BACKUPS = TableSchema(
    "backups",
    (Column("backup", "", "its number, from 0"), Column("took_s", "s", "how long it took")),
    "one row for each backup",
)


class Pace(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast backups are written."""

    def factor(self, number: int) -> float:
        raise AssertionError(f"{type(self).__name__} has no pace")


class Steady(Pace, tag="steady", frozen=True, kw_only=True):
    """All at the same speed."""

    def factor(self, number: int) -> float:
        return 1.0


@functools.cache
def paces() -> Registry[Pace]:
    return Registry("pace", __name__, base=Pace, group="forerun.backups.policy")


class Scenario(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backups one after the other. mean_s: of their duration. window_s: they should end in."""

    domain: Literal["backups"] = "backups"
    spec_version: int = 1
    seed: int = 0
    title: str = ""
    backups: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 12
    mean_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    window_s: Annotated[float, msgspec.Meta(gt=0)] = 28_800.0
    policy: Annotated[NamedSpec, chosen_from(paces)] = Steady()


class Observer(Protocol):
    """Sees backups end."""

    def ended(self, number: int, took_s: float) -> None: ...


class Backups(Domain[Scenario, Scenario, Any]):
    """Nightly backups."""

    name = "backups"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds = {"policy": paces()}

    def prepare(self, scenario):
        return scenario

    def run(self, inputs, *, observers=()):
        drawn = stream(inputs.seed, "duration").exponential(inputs.mean_s, inputs.backups)
        took_s = np.array([one / inputs.policy.factor(at) for at, one in enumerate(drawn)])
        for number, one in enumerate(took_s.tolist()):
            for observer in observers:
                observer.ended(number, one)
        return inputs, took_s

    def summarize(self, outcome):
        scenario, took_s = outcome
        whole_s = float(took_s.sum())
        late_s = max(0.0, whole_s - scenario.window_s)
        return Result(
            scenario,
            {"makespan_s": whole_s, "late_s": late_s},
            tables={"backups": Table.of(BACKUPS, backup=np.arange(len(took_s)), took_s=took_s)},
            ledgers=(Ledger("time", "s", whole_s, {"in the window": whole_s - late_s, "late": late_s}),),
            why=f"{len(took_s)} backups take {whole_s:,.0f} s",
            headline=("makespan_s",),
        )

    def figures(self, run):
        table = run.table("backups")
        return (
            Figure.of(
                "points",
                "took",
                "How long each backup took",
                {"backup": table["backup"].tolist(), "took": table["took_s"].tolist()},
                x=Axis("backup", "backup"),
                y=Axis("took", "time", "s"),
                caption="One after the other.",
            ),
        )


DOMAIN = Backups()
'''


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., str]:
    """Install a package of one file that announces something, and run a check of it in a process that has the package."""

    def run(module: str, group: str, announced: str, code: str, **beside: str) -> str:
        site = tmp_path / "site"
        info = site / "strangers-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{announced}\n")
        (site / "stranger.py").write_text(module)
        for name, text in beside.items():
            (site / name.replace("_", ".")).write_text(text)
        where = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-c", f"import forerun, forerun.core.testing as battery, stranger\n{code}"],
            env={**os.environ, "PYTHONPATH": where},
            capture_output=True,
            text=True,
            cwd=site,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_policy(check: Callable[..., str]) -> None:
    code = (
        "small = forerun.load(forerun.demo('serving').scenario, ['trace.queries=500'])\n"
        "battery.check_policy(stranger.HalfFull(), small)\nprint([p.name for p in forerun.policies('serving')])"
    )
    assert "'half-full'" in check(POLICY, "forerun.serving.batching", "half-full = stranger:HalfFull", code)


def test_a_reader(check: Callable[..., str]) -> None:
    code = (
        "battery.check_reader(stranger.Words(), 'log.csv')\n"
        "from forerun.core.trace.reader import read_trace\nprint(len(read_trace('log.csv')))"
    )
    log = "when_s,words\n0.5,12\n1.25,7\n3,9\n"
    assert check(READER, "forerun.trace_readers", "words = stranger:Words", code, log_csv=log) == "3\n"


def test_a_figure(check: Callable[..., str]) -> None:
    """It stands on the page of a run, and among its pictures."""
    code = (
        "battery.check_figure(stranger.tried, 'energy')\n"
        "run = forerun.simulate(forerun.load(forerun.demo('energy').scenario, ['trials=0']))\n"
        "print(forerun.write_page([run], 'page.html').read_text())\nprint(sorted(run.figures))"
    )
    out = check(FIGURE, "forerun.energy.figures", "attempts-by-size = stranger:tried", code)
    page, _, names = out.rpartition("</html>")
    assert "Attempts of each batch size" in page and "'attempts-by-size'" in names


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("{sum(sizes.values())} attempts in all", "{type(run)}", "is another figure of the stored run"),
        ("    sizes = {}\n", "    sizes = SEEN\n", "is another figure when it is made again"),
        ("\n\ndef tried(run)", "\n\ndef tried(run):\n    pass\n\n\ndef other(run)", "has no such figure"),
        ('caption=f"{sum(sizes.values())} attempts in all.",', "", "attempts-by-size"),
        (
            '{"size": list(sizes), "attempts": list(sizes.values())}',
            '{"size": [], "attempts": []}',
            "no data",
        ),
    ],
)
def test_a_figure_that_breaks_a_promise_is_named(was: str, now: str, says: str) -> None:
    assert was in FIGURE
    stranger: dict[str, Any] = {"SEEN": {}}
    exec(FIGURE.replace(was, now), stranger)
    with pytest.raises(AssertionError, match=re.escape(says)):
        check_figure(stranger["tried"], "energy")


def test_what_is_no_function_is_refused(check: Callable[..., str]) -> None:
    code = (
        "run = forerun.simulate(forerun.load(forerun.demo('energy').scenario, ['trials=0']))\n"
        "try: run.figures\nexcept forerun.core.errors.UsageError as error: print(error)"
    )
    out = check(FIGURE + "\nN = 3\n", "forerun.energy.figures", "n = stranger:N", code)
    assert "entry point 'n' of forerun.energy.figures: is no function of a run but of type int" in out


def test_a_domain(check: Callable[..., str]) -> None:
    """Its one file, and beside it the scenario of its demonstration."""
    code = (
        "battery.check_domain('backups')\nbattery.check_policy(stranger.Steady())\n"
        "print(forerun.simulate(forerun.load(forerun.demo('backups').scenario)).why)"
    )
    demo = "# Twelve backups in a night: do they end in time?\ndomain: backups\n"
    out = check(DOMAIN, "forerun.domains", "backups = stranger:DOMAIN", code, demo_yaml=demo)
    assert out.startswith("12 backups take")
