"""Each published figure names the public data that it needs: all of them, and no others."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from forerun.core.data.fetch import dataset
from forerun.core.data.registry import select
from forerun.replication.elasticflow import live, overheads, public, reproduce

from .conftest import DATA, shared_or_skip


class NoProcesses(Exception):
    """Raised where a figure would start real ones."""


@pytest.mark.parametrize("entry", reproduce.REPRODUCTIONS, ids=lambda entry: entry.id)
def test_a_figure_opens_what_it_names(monkeypatch: pytest.MonkeyPatch, entry: Any) -> None:
    """Runs are left out, and real processes: their settings are read, and every outcome is the same."""
    shared_or_skip()
    monkeypatch.setenv("FORERUN_DATA_DIR", str(DATA.parent))
    opened: set[str] = set()
    find = dataset

    def told(name: str) -> Any:
        opened.update(source.name for source, _ in select(name))
        return find(name)

    def play(job: reproduce.Job) -> reproduce.RunFigures:
        reproduce._setting(job)
        reproduce._parameters(job)
        return reproduce.RunFigures(0.5, 0.5, 1.0, 1.0, (0.0,), (0.5,))

    def read(progress: Any, schedules: Sequence[str], nodes: int, first: int) -> NoReturn:
        for schedule in schedules:
            live.scenario_of(schedule, nodes, first)
        raise NoProcesses

    def measured(program: str, plan: Any) -> NoReturn:
        raise NoProcesses

    monkeypatch.setattr(live, "_results", read)
    monkeypatch.setattr(overheads, "profiled", measured)
    monkeypatch.setattr(public, "dataset", told)
    monkeypatch.setattr(reproduce, "play", play)
    monkeypatch.setattr(reproduce, "play_all", lambda jobs, progress, workers=1: [play(job) for job in jobs])
    public.public_profile.cache_clear()
    with contextlib.suppress(NoProcesses):
        (entry.quick or entry.run)(lambda _: None)
    public.public_profile.cache_clear()
    assert opened == set(entry.datasets)
