"""Clusters fitted to logs of failures: known parameters come back, laws are rejected where they are wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.errors import TraceError
from forerun.core.scenario.spec import to_data
from forerun.core.trace.reader import read_trace
from forerun.spot.inputs.recorded import of_membership
from forerun.spot.reserved.failures import (
    FailureLog,
    fit_cluster,
    gap_shape,
    generated,
    law_tests,
    lemons,
)
from forerun.spot.reserved.scenario import Cluster, Exponential, Failures, LogNormal

from ..conftest import cases

YEAR_S = 365 * 86_400.0


def cluster(shape: float = 1.0, repair: Any = None, **changes: Any) -> Cluster:
    failures = Failures(
        name="node", per_1000_node_days=8.0, gap_shape=shape, repair=repair or Exponential(mean_s=40_000.0)
    )
    return Cluster(gpus=8 * 300, failures=(failures,), **changes)


def test_equal_exponential_nodes_are_not_rejected_and_lemons_are() -> None:
    """At 5 %, a law that holds is rejected in about one log of twenty; one that does not in every log."""
    wrong = cluster(0.6, LogNormal(median_s=10_000.0, mean_s=60_000.0), lemon_share=0.1, lemon_factor=10.0)
    rejected, logs = np.zeros((2, 3)), cases(4, 8)
    for trial in range(logs):
        for i, one in enumerate((cluster(), wrong)):
            tests = law_tests(generated(one, YEAR_S, seed=3, trial=trial), trial)
            rejected[i] += [not test.ok for test in tests]
    assert np.all(rejected[0] <= 3)  # binomial(8, .05): more than 3 has a chance of 4e-4 at each, of 4 6e-6
    assert np.all(rejected[1] == logs)


def test_known_parameters_come_back() -> None:
    law = LogNormal(median_s=20_000.0, mean_s=70_000.0)
    true = cluster(0.6, law, lemon_share=0.1, lemon_factor=9.0)
    found = fit_cluster(generated(true, 6 * YEAR_S, seed=5, trial=0), traces=cases(12, 40), seed=1)
    rates = {rate.name: rate for rate in found.rates}
    assert rates["node: per_1000_node_days"].value == pytest.approx(8.0, rel=0.06)
    assert rates["gap_shape"].value == pytest.approx(0.6, rel=0.1)
    assert rates["lemon_share"].value == pytest.approx(0.1, abs=0.03)
    assert rates["lemon_factor"].value == pytest.approx(9.0, rel=0.1)
    assert rates["repair median"].value == pytest.approx(20_000 / 3600, rel=0.1)
    assert rates["repair mean"].value == pytest.approx(70_000 / 3600, rel=0.15)
    assert sum(feature.ok for feature in found.features) >= len(found.features) - 1


@pytest.mark.parametrize("shape", [0.4, 0.7, 1.0, 2.5])
def test_the_shape_of_gaps_is_that_of_their_spread(shape: float) -> None:
    cv = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    assert gap_shape(cv) == pytest.approx(shape, rel=1e-5)


def test_nodes_that_fail_alike_have_no_lemons_that_matter() -> None:
    """Whatever the mixture calls them, the variance that it explains is small."""
    counts = np.random.default_rng(1).poisson(3.0, 2000)
    share, factor = lemons(counts)
    low = 3.0 / (1 - share + share * factor)
    assert share * (1 - share) * (low * (factor - 1)) ** 2 < 0.1 * 3.0


def test_the_public_log_is_represented(data_folder: Path, tmp_path: Path) -> None:
    """One exponential law for all nodes is rejected; every figure of the log lies in the band of the fit; it can be run."""
    trace = read_trace(data_folder / "infinitehbd/fault_trace.json", "spot_faults")
    until_s: Any = trace.provenance.options["until_s"]
    found = fit_cluster(FailureLog.of_rows(of_membership(trace).rows(), until_s), traces=120, seed=0)
    assert not any(test.ok for test in found.tests)
    assert [feature.name for feature in found.features if not feature.ok] == []
    recorded = {feature.name: feature.recorded for feature in found.features}
    assert recorded["CV of gaps between failures"] == pytest.approx(1.638, abs=1e-3)
    assert recorded["share of failures of the worst tenth of nodes"] == pytest.approx(0.4155, abs=1e-4)
    scenario = {
        "domain": "spot",
        "fleet": to_data(found.cluster) | {"gpus": 512, "spares": 8},
        "horizon_s": 60 * 86_400,
        "trials": 20,
        "job": {
            "depth": 64, "max_pipelines": 1, "step_s": {64: 10}, "samples_per_step": 1, "reconfig_s": 600,
            "write_s": 60,
        },
    }  # fmt: skip
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    summary = forerun.simulate(forerun.load(tmp_path / "scenario.json")).summary
    assert 0.5 < summary["ettr"] < 1 and summary["interruptions_per_day"] > 0.1


def test_a_log_whose_nodes_do_not_come_back_is_one_line() -> None:
    short = FailureLog(4, 100.0, np.array([5.0]), np.array([1]), np.array([]), 95.0)
    with pytest.raises(TraceError, match="fewer than three failures with a repair"):
        fit_cluster(short, traces=1, seed=0)
