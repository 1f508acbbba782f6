"""Tuners in scenarios: what is refused, what a result tells, and controllers compared on common traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import ScenarioError, UnknownName, UsageError
from forerun.core.scenarios import from_data
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.engine.tuning import controlled
from forerun.serving.figures import figures
from forerun.serving.inputs.prepare import prepare
from forerun.serving.policies.inferline import InferLine
from forerun.serving.policy.batching import Batching

from .conftest import golden, read_gaps, read_json


class Foreign(Batching, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="foreign"):
    """A batching policy that kernels do not know."""


def two_stages(**changes: Any) -> dict[str, Any]:
    """A pipeline whose load doubles after 10 s for 20 s; one replica a stage carries the first load."""
    phases = [
        {"process": {"name": "poisson", "rate_rps": rate}, "duration_s": length}
        for rate, length in ((30.0, 10.0), (60.0, 20.0), (30.0, 60.0))
    ]
    data = {
        "domain": "serving",
        "seed": 4,
        "trace": {"process": {"name": "phases", "phases": phases}, "horizon_s": 90.0},
        "sample": {"process": {"name": "poisson", "rate_rps": 30.0}, "queries": 3000},
        "stages": [{"name": "first", "parents": ["source"]}, {"name": "second", "parents": ["first"]}],
        "edges": [{"parent": "first", "stage": "second", "share": 0.5}],
        "configuration": {"first": {"hardware": "cpu"}, "second": {"hardware": "TXP", "max_batch": 2}},
        "service": {"tables_ms": {"first": [22.0], "second": [30.0, 40.0]}},
        "slo_ms": 200.0,
        "tuner": {"name": "inferline"},
        "intervals": {"replications": 0},
    }
    return data | changes


class TestWhatAResultTells:
    def test_decisions_replicas_costs_and_envelopes(self) -> None:
        scenario = from_data(two_stages())
        result = forerun.simulate(scenario).check()
        summary, decisions, replicas = result.summary, result.table("decisions"), result.table("replicas")
        assert summary["tuner"] == "inferline" and summary["decisions"] >= 2
        assert summary["decisions"] == len(set(decisions["at_ms"].tolist()))
        up = decisions["after"] > decisions["before"]
        assert np.array_equal(decisions["active_ms"] - decisions["at_ms"], np.where(up, 5000.0, 0.0))
        # Paid from the first arrival to the last finish, by the prices; replicas are paid before they are there.
        arrivals = prepare(scenario).arrivals_ms
        assert replicas["cost_usd"].sum() == pytest.approx(summary["cost_usd"])
        hours = (summary["makespan_ms"] - arrivals[0]) / 3.6e6
        assert summary["cost_usd_per_h"] == pytest.approx(summary["cost_usd"] / hours)
        assert summary["planned_cost_usd_per_h"] == pytest.approx(0.0665 + 2.1)
        coming = replicas["paid"] > replicas["count"]
        assert coming.any() and np.allclose((replicas["to_ms"] - replicas["from_ms"])[coming].max(), 5000.0)
        for stage, price in (("first", 0.0665), ("second", 2.1)):
            mine = replicas["stage"] == stage
            spent = (replicas["paid"] * (replicas["to_ms"] - replicas["from_ms"]))[mine].sum() * price / 3.6e6
            assert result.ledgers[-1].parts[stage] == pytest.approx(spent)
        envelopes = result.table("envelopes")
        assert (envelopes["run"] > envelopes["sample"]).any()
        assert "the tuner inferline changed replicas" in result.why
        shown = {figure.id: figure for figure in figures(result)}
        assert {"load-over-time", "replicas-over-time", "misses-over-time", "envelopes"} <= set(shown)
        load = shown["load-over-time"].data
        spans = np.diff([*load["at_s"], arrivals[-1] / 1e3])
        assert float(np.dot(spans, load["rate_rps"])) == pytest.approx(len(arrivals), rel=0.02)
        assert max(shown["replicas-over-time"].data["paid"]) == replicas["paid"].max()

    @pytest.mark.parametrize("tuner", ["fixed", "ongoing", "coarse", "rehearsal"])
    def test_a_backlog_is_paid_until_it_is_drained(self, tuner: str) -> None:
        """Twice what two replicas carry for 90 s: the same replicas cost the same, whoever decided to have them."""
        wanted = {"process": {"name": "poisson", "rate_rps": 90.0}, "horizon_s": 90.0}
        steady = {"name": tuner, "period_s": 1000.0} if tuner != "fixed" else {"name": tuner}
        result = forerun.simulate(from_data(two_stages(trace=wanted, tuner=steady))).check()
        summary, first_ms = result.summary, float(result.table("queries")["arrival_ms"][0])
        hours = (summary["makespan_ms"] - first_ms) / 3.6e6
        assert summary["makespan_ms"] > 150_000
        assert summary["cost_usd"] == pytest.approx((0.0665 + 2.1) * hours)
        assert result.table("replicas")["cost_usd"].sum() == pytest.approx(summary["cost_usd"])

    def test_counting_only_gives_the_same_misses_and_cost(self) -> None:
        full = forerun.simulate(from_data(two_stages())).summary
        counts = forerun.simulate(from_data(two_stages(record="counts"))).summary
        for name in ("misses", "cost_usd_per_h", "decisions", "tie_count"):
            assert counts[name] == full[name]

    def test_the_run_is_the_one_that_was_decided_for(self) -> None:
        """The same finish instants as the pipeline with those changes written into the scenario."""
        scenario = from_data(
            two_stages(tuner={"name": "ongoing", "target": 1.0, "up_delay_s": 2.0, "look_s": 2.0})
        )
        inputs, control = controlled(prepare(scenario))
        assert control.schedule.decisions
        data = two_stages(tuner={"name": "fixed"})
        for name, changes in zip(inputs.pipeline.names, control.schedule.active):
            data["configuration"][name]["changes"] = [
                {"at_s": at_ms / 1e3, "replicas": count} for at_ms, count in changes
            ]
        written = forerun.simulate(from_data(data))
        tuned = forerun.simulate(scenario)
        assert np.array_equal(written.table("queries")["finish_ms"], tuned.table("queries")["finish_ms"])

    def test_a_run_repeats_itself_byte_for_byte(self) -> None:
        for name in ("inferline", "rehearsal", "utilisation"):
            scenario = from_data(two_stages(tuner={"name": name}))
            first, second = forerun.simulate(scenario), forerun.simulate(scenario)
            assert first.summary == second.summary
            for table in ("decisions", "queries"):
                columns = [column.name for column in first.table(table).schema.columns]
                left, right = (
                    [str(made.table(table)[name].tolist()) for name in columns] for made in (first, second)
                )
                assert left == right

    def test_replications_draw_fresh_traffic_for_the_same_sample(self) -> None:
        result = forerun.simulate(from_data(two_stages(intervals={"replications": 4})))
        span = result.intervals["attainment"]
        assert 0 <= span.low < span.high <= 1


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"sample": None}, "compares with the traffic that the configuration was planned for"),
            ({"tie_rules": "both"}, "knows no changes of replicas; write own"),
            ({"tuner": {"name": "inferline", "bin_s": 7.0}}, "does not divide look_s"),
            ({"tuner": {"name": "inferlin"}}, "no tuner named 'inferlin'"),
            ({"tuner": {"name": "coarse", "look": -1}}, "tuner"),
            ({"tuner": {"name": "rehearsal", "headroom": 0.5}}, "headroom"),
        ],
    )
    def test_by_name(self, changes: dict[str, Any], says: str) -> None:
        with pytest.raises(ScenarioError, match=says):
            from_data(two_stages(**changes))

    @pytest.mark.parametrize("arrivals_ms", [[7.0], [0.0, 0.0, 0.0]])
    def test_a_sample_without_a_rate(self, arrivals_ms: list[float], tmp_path: Path) -> None:
        data = two_stages(sample={"arrivals_ms": arrivals_ms})
        with pytest.raises(ScenarioError, match=r"\$\.sample: .* have no rate"):
            prepare(from_data(data))
        (tmp_path / "tuned.json").write_text(json.dumps(data))
        assert command_line(["check", str(tmp_path / "tuned.json")]) == 2

    def test_a_tuner_that_sees_queues_beside_a_batching_policy_without_a_compiled_form(self) -> None:
        scenario = from_data(two_stages(tuner={"name": "ongoing"}))
        first = scenario.configuration["first"]
        beside = scenario.configuration | {"first": first.with_(batching=Foreign())}
        with pytest.raises(
            ScenarioError, match=r"configuration.first.batching: .* Foreign has no compiled form"
        ):
            scenario.with_(configuration=beside)
        scenario.with_(configuration=beside, tuner=InferLine())

    def test_changes_beside_a_tuner_and_too_many_replicas(self) -> None:
        data = two_stages()
        data["configuration"]["first"] |= {"replicas": 61, "changes": [{"at_s": 3.0, "replicas": 2}]}
        with pytest.raises(ScenarioError) as caught:
            from_data(data)
        assert "leave out the changes, or the tuner" in str(caught.value)
        assert "61 is above the tuner's max_replicas, 60" in str(caught.value)

    def test_compat_mode(self) -> None:
        with pytest.raises(ScenarioError, match="mode compat knows no changes of replicas"):
            from_data(two_stages(mode="compat", edges=[]))


def test_the_reference_from_a_file_at_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference loop as a user would run it: arrivals and sample from files."""
    wanted = read_json(golden("tuner", "loop_step.json"))
    for name, key in (("live", "arrivals"), ("sample", "sample")):
        times = read_gaps(golden("tuner", wanted[key]))
        (tmp_path / f"{name}.csv").write_text("arrival_ms\n" + "\n".join(map(repr, times.tolist())) + "\n")
    order = {"ResNet": "source", "Inception": "source", "KSVM": "ResNet", "LogReg": "Inception"}
    data = {
        "domain": "serving",
        "trace": "live.csv",
        "sample": "sample.csv",
        "stages": [{"name": name, "parents": [parent]} for name, parent in order.items()],
        "configuration": {
            name: {"hardware": hardware, "max_batch": batch, "replicas": replicas}
            for name, (hardware, batch, replicas) in wanted["config"].items()
        },
        "slo_ms": wanted["slo_ms"],
        "tuner": "inferline",
    }
    (tmp_path / "tuned.json").write_text(json.dumps(data))
    assert command_line(["simulate", str(tmp_path / "tuned.json"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["attainment"] == pytest.approx(wanted["attainment_tuned"], abs=1e-12)
    assert summary["latency_p99_ms"] == pytest.approx(wanted["p99_tuned_ms"], abs=1e-9)
    # The reference pays up to the last arrival, a run up to its last finish.
    last_ms = read_gaps(golden("tuner", wanted["arrivals"]))[-1]
    replicas = forerun.simulate(from_data(data, base=tmp_path)).table("replicas")
    spare_ms = replicas["to_ms"] - np.clip(last_ms, replicas["from_ms"], replicas["to_ms"])
    spare_usd = replicas["cost_usd"] * spare_ms / (replicas["to_ms"] - replicas["from_ms"])
    assert spare_usd.sum() > 0
    assert summary["cost_usd"] - spare_usd.sum() == pytest.approx(wanted["cost_usd"], rel=1e-9)
    assert summary["decisions"] == len(wanted["decisions"])


def test_controllers_are_compared_on_the_same_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tuned.json").write_text(json.dumps(two_stages()))
    words = [
        "compare",
        str(tmp_path / "tuned.json"),
        "--policy",
        "fixed",
        "--policy",
        "inferline",
        "--policy",
        "coarse",
    ]
    assert command_line([*words, "--seeds", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    values = {standing["variant"]["name"]: standing["value"] for standing in found["standings"]}
    assert set(values) == {"fixed", "inferline", "coarse"}
    assert values["inferline"] > values["fixed"]
    listed = [
        "--with",
        "ray:tuner={name: ongoing, target: 8},seed=5",
        "--objective",
        "cost_usd_per_h",
        "--seeds",
        "2",
    ]
    assert command_line([*words[:2], *listed, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["standings"]) == 2


def test_a_schedule_is_what_the_kernels_would_give_from_the_start() -> None:
    scenario = from_data(two_stages(tuner={"name": "coarse", "rate": "peak"}))
    inputs, _ = controlled(prepare(scenario))
    run = simulate_stagewise(inputs.pipeline, inputs.arrivals_ms, scenario.slo_ms)
    assert run.misses == forerun.simulate(scenario).summary["misses"]


def test_policies_that_no_field_of_the_scenario_takes_are_named() -> None:
    """A batching policy belongs to a stage, and a name that nothing has is not looked for in a field that is not there."""
    from forerun.core.study.compare import policy_field

    scenario = forerun.load(forerun.demo("serving").scenario)
    assert policy_field(scenario, "inferline") == "tuner"
    with pytest.raises(
        UsageError, match=r"a batching policy, which parts of the scenario choose.*batching\.name=greedy"
    ):
        policy_field(scenario, "greedy")
    with pytest.raises(UnknownName, match="no tuner named 'nosuch'; known: attainment, coarse, fixed"):
        policy_field(scenario, "nosuch")


def test_a_ledger_of_one_variant_alone_moves_nothing() -> None:
    """Fixed replicas have no ledger of costs; what a tuner's says in full is not what it costs beyond them."""
    found = forerun.compare(
        from_data(two_stages()), ["fixed", "utilisation"], objective="cost_usd:lower", seeds=2
    )
    other = next(one for one in found.standings if one.difference is not None)
    assert other.parts and not any("(usd)" in ledger for ledger in other.parts)
