"""What a user sees of refused jobs, what observers see of a run, and the names and pages for policies of one's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster import policy
from forerun.cluster.policy import schedulers
from forerun.cluster.summary.refusals import OTHER, bound_of, refusals
from forerun.core.catalog import demo
from forerun.core.cli.main import run as command_line

from ..conftest import ROOT

DEMO = demo("cluster").scenario
#: many jobs at once, some of which no cluster could end in time
CROWDED = (
    "trace.generate.mean_gap_s=150",
    "trace.generate.jobs=60",
    "trace.generate.least_slack=0.3",
    "trace.generate.most_slack=1.2",
    "seed=5",
)
#: schedules that refuse jobs
ADMITTING = ("ef-accessctrl", "edf-accessctrl")


@pytest.mark.parametrize("policy", ADMITTING)
@pytest.mark.parametrize("mode", ["compat", "corrected"])
def test_every_reason_names_a_constraint_that_is_counted(policy: str, mode: str) -> None:
    """No sentence of a schedule is of no kind, and the kinds are told by how many jobs they kept out."""
    seen = set()
    for crowded in (CROWDED[:3], CROWDED):
        result = forerun.simulate(forerun.load(DEMO, [f"policy={policy}", f"mode={mode}", *crowded]))
        jobs = result.tables["jobs"]
        reasons = [reason for reason in jobs["refused_because"].tolist() if reason]
        assert len(reasons) == result.summary["refused_jobs"] > 0
        found = refusals(zip(jobs["job"].tolist(), jobs["refused_because"].tolist(), strict=True))
        assert OTHER not in {one.bound for one in found}, reasons
        assert sum(one.jobs for one in found) == len(reasons)
        assert [one.jobs for one in found] == sorted((one.jobs for one in found), reverse=True)
        for one in found:
            assert sum(bound_of(reason) == one.bound for reason in reasons) == one.jobs
            assert f"{one.jobs} for {one.bound}" in result.why
        told = [note for note in result.notes if note.startswith("refused for ")]
        assert [re.findall(r": (\d+) jobs?, such as job", note) for note in told] == [
            [str(one.jobs)] for one in found
        ]
        seen |= {one.bound for one in found}
    assert "its own speed" in seen


def test_a_batch_is_a_constraint_of_its_own() -> None:
    assert bound_of("with it in one batch, job 3 would be late; alone it would be admitted") == (
        "jobs that came in the same batch"
    )
    assert bound_of("the moon") == OTHER
    assert refusals([("a", ""), ("b", "")]) == ()


def test_every_command_reports_refusals(tmp_path: Path, capsys: Any) -> None:
    """Text and JSON of `simulate` and `explain`, fresh and kept, and the page."""
    fewer = (*CROWDED, "trace.generate.jobs=12", "trace.generate.mean_gap_s=60", "seed=2")
    asked = [word for change in fewer for word in ("--set", change)]
    kept = tmp_path / "run"
    assert command_line(["simulate", str(DEMO), *asked, "-o", str(kept)]) == 0
    text = capsys.readouterr().out
    sentences = re.findall(r"^note: (refused for .*)$", text, re.MULTILINE)
    assert len(sentences) >= 2 and "jobs were refused (" in text
    counts = [int(re.findall(r": (\d+) job", sentence)[0]) for sentence in sentences]
    assert counts == sorted(counts, reverse=True)
    assert command_line(["simulate", str(DEMO), *asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [note for note in document["notes"] if note.startswith("refused for")] == sentences
    assert command_line(["explain", str(kept), "-q"]) == 0
    explained = capsys.readouterr().out
    assert all(sentence in explained for sentence in sentences)
    assert command_line(["explain", str(kept), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reasons"] == sentences
    assert command_line(["report", str(kept), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(sentence.partition(" (")[0] in page for sentence in sentences)


class Seen:
    """An observer that writes down when it was called, who had ended, and how many GPUs were held."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, int, int, int]] = []

    def instant(self, now_s: float, record: Any) -> None:
        ended = record.end_s[record.end_s >= 0]
        assert (ended <= now_s).all(), "nobody ends in the future"
        self.calls.append((float(now_s), len(ended), int(record.held.sum()), len(record.completed)))


@pytest.mark.parametrize("policy", sorted(schedulers().names()))
def test_observers_see_every_instant(policy: str) -> None:
    """Each row of the events table, with the GPUs held then; and the result is the same as unobserved."""
    asked = [f"policy={policy}", "mode=compat", "trace.generate.jobs=20", "trace.overestimate=3"]
    if policy == "chronus":
        asked.append("slot_s=240")
    scenario = forerun.load(DEMO, asked)
    seen = Seen()
    watched = forerun.simulate(scenario, observers=[seen])
    plain = forerun.simulate(scenario)
    assert watched.data() == plain.data()
    for name, table in plain.tables.items():
        for column, values in table.columns.items():
            assert values.tobytes() == watched.tables[name][column].tobytes() or values.dtype == object
    events = plain.tables["events"]
    times = [call[0] for call in seen.calls]
    assert times == sorted(times)
    missed = set(events["time_s"].tolist()) - set(times)
    if getattr(scenario.policy, "round_s", 0):
        ends = set(plain.tables["jobs"]["end_s"].tolist())
        assert missed <= ends, "between two rounds, jobs only end"
    else:
        assert not missed
    held = dict(
        zip(events["time_s"].tolist(), (plain.summary["gpus"] - events["free"]).tolist(), strict=True)
    )
    for now_s, _, gpus, _ in seen.calls:
        assert gpus == held.get(now_s, gpus)
    assert [call[1] for call in seen.calls] == [call[3] for call in seen.calls]
    assert seen.calls[-1][1] == plain.summary["finished_jobs"]


def test_names_for_policies_are_public() -> None:
    """What a policy of one's own derives from and answers with, where the page says it is."""
    for name in ("Allocation", "Allocator", "Scheduler", "OracleAllocator", "OracleView", "View"):
        assert getattr(policy, name).__name__ == name and getattr(policy, name).__doc__


def test_the_policies_of_the_page_run_as_they_stand() -> None:
    """With the import lines shown beside them."""
    text = (ROOT / "docs" / "cluster" / "reference.md").read_text()
    blocks = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        names: dict[str, Any] = {}
        exec(compile(block, "docs/cluster/reference.md", "exec", dont_inherit=True), names)
        (own,) = [
            one
            for name, one in names.items()
            if isinstance(one, type) and issubclass(one, policy.Allocator) and name != "Allocator"
        ]
        scenario = forerun.load(DEMO, ["trace.generate.jobs=20", "policy=fifo", "machines.nodes[0].gpus=16"])
        result = forerun.simulate(scenario, policy=own()).check()
        assert result.summary["finished_jobs"] == 20


def test_a_printed_result_is_short(tmp_path: Path) -> None:
    result = forerun.simulate(forerun.load(DEMO, ["trace.generate.jobs=50"]))
    kept = forerun.load_result(result.save(tmp_path / "run"))
    for shown in (result, kept):
        text = str(shown)
        assert len(text) < 300 and "\n" not in text and "array" not in text
        assert text.startswith("<cluster run ") and "jobs (50 rows)" in text and "deadline_ratio=" in text
    assert len(repr(result.timeline)) < 100
    assert isinstance(result.tables["jobs"]["gpus"], np.ndarray)
