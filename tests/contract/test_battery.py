"""The public battery: built-in classes pass it, a stranger's class from one file passes it, and what is broken is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.domain import get_domain
from forerun.core.errors import UsageError
from forerun.core.testing import check_policy, check_reader
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.requests import arrival
from forerun.core.trace.rows import Field
from forerun.core.trace.table import Column, Provenance, Trace
from forerun.core.trace.tabular import TableReader
from forerun.serving.policy.batching import Batching, Start, Wait

LOG = "when_s,words\n0.5,12\n1.25,7\n3,9\n"


class HalfFull(Batching, tag="half-full", frozen=True, kw_only=True):
    """A batch starts when it is half full, or when its oldest query has waited `patience_ms`."""

    patience_ms: float = 20.0

    def build(self, rng: Any) -> HalfFull:
        return self

    def decide(self, view: Any) -> Start | Wait:
        until_ms = view.oldest_ms + self.patience_ms
        ready = 2 * view.queued >= view.max_batch or view.now_ms >= until_ms
        return Start() if view.queued and ready else Wait(until_ms)


class Moody(HalfFull, tag="moody", frozen=True, kw_only=True):
    """Remembers across runs how often it was asked."""

    def build(self, rng: Any) -> Moody:
        RUNS.append(1)
        return self

    def decide(self, view: Any) -> Start | Wait:
        until_ms = view.oldest_ms + 20.0 * len(RUNS)
        return Start() if view.queued and view.now_ms >= until_ms else Wait(until_ms)


RUNS: list[int] = []


class Words(TableReader, tag="words", frozen=True, kw_only=True):
    """CSV of requests: when they come, and how many words they have."""

    about = "requests with their words (CSV, seconds)"
    makes = "requests"
    signature = ("when_s", "words")
    columns = (arrival("s", "when_s"), Field(name="words", kind="int", minimum=0))
    time = "arrival_s"


class Careless(TraceReader, tag="careless", frozen=True, kw_only=True):
    """Takes what it finds for numbers."""

    makes = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("when_s", "words")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        lines = path.read_text().splitlines()[1:]
        times = sorted(float(line.split(",")[0]) for line in lines)
        column = Column("arrival_s", "s")
        provenance = Provenance(format="careless", source=path.name, sha256="", options={}, repairs=())
        return Trace("requests", (column,), {"arrival_s": times}, time="arrival_s", provenance=provenance)


SERVING = forerun.load(forerun.demo("serving").scenario, ["trace.queries=500"])


def test_a_policy_in_a_file_of_ones_own() -> None:
    forerun.testing.check_policy(HalfFull(), SERVING)


def test_a_policy_that_remembers_is_named() -> None:
    with pytest.raises(AssertionError, match="gives another run when it is simulated again"):
        check_policy(Moody(), SERVING)


def test_what_is_no_policy_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no kind of policy that a domain knows"):
        check_policy(Words())  # type: ignore[arg-type]


def test_a_reader_in_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text(LOG)
    forerun.testing.check_reader(Words(), tmp_path / "words.csv")
    assert (tmp_path / "words.csv").read_text() == LOG


def test_a_reader_that_ends_in_a_traceback_is_named(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text(LOG)
    with pytest.raises(
        AssertionError, match=r"damage \d+ ends in (ValueError|UnicodeDecodeError|IndexError)"
    ):
        check_reader(Careless(), tmp_path / "words.csv")


def test_a_format_that_another_reader_takes_for_its_own_is_named(tmp_path: Path) -> None:
    class Greedy(Words, tag="greedy", frozen=True, kw_only=True):
        signature = ("TIMESTAMP",)

    (tmp_path / "log.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,4,2\n")
    with pytest.raises(AssertionError, match=r"azure_llm recognises log\.csv as well"):
        check_reader(Greedy(), tmp_path / "log.csv")


@pytest.mark.parametrize(
    ("domain", "kind", "name", "smaller"),
    [
        ("cluster", "policy", "las", "trace.generate.jobs=40"), ("serving", "batching", "greedy", ""),
        ("energy", "policy", "random", ""), ("spot", "growth", "lazy", "trials=100"), ("spot", "deadline", "greedy", ""),
        ("spot", "recovery", "restart", "trials=100"),
    ],
)  # fmt: skip
def test_built_in_policies_pass(domain: str, kind: str, name: str, smaller: str) -> None:
    """In their demonstration, or in a smaller one where that takes seconds."""
    scenario = forerun.load(forerun.demo(domain).scenario, [smaller]) if smaller else None
    check_policy(get_domain(domain).policy_kinds[kind].get(name)(), scenario)
