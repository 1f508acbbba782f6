"""An unmodified slurmctld beside the reference model, on workloads that no recording holds: ``make validate-slurm``."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.slurm import workloads
from validation.slurm.daemon import build, why_not
from validation.slurm.differences import judge
from validation.slurm.sites import beside, drawn

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tool"))


@pytest.mark.parametrize("kind", ["whole", "shared"])
def test_micro_runs(kind: str, tool: Path, tmp_path: Path) -> None:
    """Each printed plan is made again, and at least 95 % of the jobs that waited start in the same cycle."""
    same = []
    for seed in range(200, 206):
        given, likeness = judge(
            tool, workloads.micro(kind, seed), tmp_path / f"{kind}-{seed}", workloads.machine(4)
        )
        assert given.cycles > 10
        assert given.f1 > 0.95, (seed, given.first)
        same.append(likeness.same_cycle)
    assert sum(same) / len(same) >= 0.95


def test_a_trace(tool: Path, tmp_path: Path) -> None:
    """Alone, a run may fall into another order than Slurm's, which it also does against itself; plans may not."""
    machine = workloads.machine(8)
    given, _ = judge(tool, workloads.trace("shared", 200, 80, machine, 0.9), tmp_path / "trace", machine)
    assert given.cycles > 100
    assert given.f1 > 0.95, given.first


@pytest.mark.parametrize("kind", workloads.PARTITIONS)
def test_partitions(kind: str, tool: Path, tmp_path: Path) -> None:
    """Partitions apart, sharing nodes, and of two tiers; some jobs name both. Alone, the mean wait is within 7 %."""
    machine = workloads.machine(12, kind)
    jobs = workloads.trace("shared", 200, 100, machine, 1.0)
    given, likeness = judge(tool, jobs, tmp_path / kind, machine)
    assert given.cycles > 50
    assert given.f1 > 0.95, given.first
    assert likeness.mean_wait_off <= 0.07


def test_a_whole_site(tool: Path, tmp_path: Path) -> None:
    """Its files are answered, every job that the daemon started has a wait, and an added node shortens waits in both."""
    site = drawn(4, 250, 3)
    found = beside(tool, site, tmp_path / "site")
    assert found.row.scored > 100
    assert found.tops_right >= len(found.row.tops) - 1
    if abs(found.node_s) > 0.05 * found.row.truth_s and found.node_said_s is not None:
        assert found.node_s * found.node_said_s[0] > 0
