"""Quotas of Kueue that are otherwise: what a site proposes, and what it does to a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome, run
from forerun.cluster.inputs.prepare import prepare
from forerun.core.errors import ScenarioError
from forerun.core.scenarios import load
from forerun.site.survey.changes import default_changes

KUEUE = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  resourceGroups:
  - coveredResources: ["nvidia.com/gpu"]
    flavors: [{{name: f, resources: [{{name: "nvidia.com/gpu", nominalQuota: {gpus}}}]}}]
---
"""


def test_a_run_with_more_quota_and_what_a_site_proposes(tmp_path: Path) -> None:
    """Two jobs of 4 GPUs at once in a queue of 4, beside one of 8 that is idle: either change lets both run."""
    (tmp_path / "queues.yaml").write_text(KUEUE.format(name="a", gpus=4) + KUEUE.format(name="b", gpus=8))
    rows = ["job_id,submission_time,duration,num_gpu,vc", "1,0,100,4,a", "2,0,100,4,a", "3,0,100,1,b", ""]
    (tmp_path / "jobs.csv").write_text("\n".join(rows))
    text = "domain: cluster\ntrace: jobs.csv\nmachines: {file: queues.yaml}\npolicy: kueue\n"
    (tmp_path / "s.yaml").write_text(text)

    def wait_s(*sets: str) -> float:
        return float(forerun.simulate(load(tmp_path / "s.yaml", list(sets))).tables["jobs"]["wait_s"].max())

    assert wait_s() == 100
    inputs = prepare(load(tmp_path / "s.yaml"))
    record = Record(inputs.setting)
    run(inputs, record)
    proposed = {one.name: one for one in default_changes(Outcome(inputs, record), ["a"])}
    for what in ("4 GPUs of the quota of b are a's instead", "4 GPUs more for a"):
        assert wait_s(*proposed[what].overrides) == 0
    with pytest.raises(ScenarioError, match="is of Kueue's files"):
        load(
            tmp_path / "s.yaml", ["machines={nodes: [{count: 1, gpus: 8}], otherwise: {more_quota: {a: 1}}}"]
        )
