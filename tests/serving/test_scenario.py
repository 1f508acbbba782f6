"""What a serving scenario may say, and how bad input is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from forerun.core.errors import ForerunError, InputError
from forerun.core.scenario.spec import to_data
from forerun.core.scenarios import loads
from forerun.serving.inputs.prepare import prepare
from forerun.serving.scenario import Scenario

GOOD = """
domain: serving
trace: {process: {name: poisson, rate_rps: 20rps}, queries: 200}
stages:
  - {name: ResNet, parents: [source]}
  - {name: KSVM, parents: [ResNet]}
configuration:
  ResNet: {hardware: V100, max_batch: 8, replicas: 2}
  KSVM: {hardware: cpu, max_batch: 4, batching: {name: timeout, delay_ms: 5ms}}
slo_ms: 350ms
"""


def load(text: str = GOOD, *overrides: str) -> Scenario:
    """The resolved scenario of a text."""
    scenario = loads(text, overrides)
    assert isinstance(scenario, Scenario)
    return scenario


def test_units_and_defaults_are_written_out() -> None:
    scenario = load(GOOD, "slo_ms=0.35s", "configuration.KSVM.batching.delay_ms=2500us")
    assert scenario.slo_ms == 350.0
    assert scenario.attainment == 0.99
    assert to_data(scenario)["configuration"]["KSVM"]["batching"] == {"name": "timeout", "delay_ms": 2.5}


#: what is wrong, the override or the replaced text, what the message must name
BAD = {
    "unknown key": (("slow_ms=3",), ["slow_ms", "did you mean 'slo_ms'"]),
    "objective not positive": (("slo_ms=0",), ["slo_ms", "0"]),
    "objective not a number": (("slo_ms=.nan",), ["slo_ms", "nan"]),
    "objective of another dimension": (("slo_ms=3GB",), ["slo_ms", "a time is wanted"]),
    "attainment above one": (("attainment=1.5",), ["attainment", "1.5"]),
    "unknown hardware": (("configuration.ResNet.hardware=A100",), ["$.configuration.ResNet", "A100", "TXP, V100"]),
    "misspelt hardware": (("configuration.ResNet.hardware=TPX",), ["TPX", "did you mean 'TXP'"]),
    "unknown model": (("stages[0].model=Resnet",), ["'Resnet'", "did you mean 'ResNet'", "LogReg"]),
    "batch above the rows": (("configuration.ResNet.max_batch=64",), ["ResNet on V100", "batches 1 to 32, not 64"]),
    "batch not whole": (("configuration.ResNet.max_batch=2.5",), ["max_batch", "2.5"]),
    "batch below one": (("configuration.ResNet.max_batch=0",), ["max_batch", "0"]),
    "no replica": (("configuration.ResNet.replicas=0",), ["replicas", "0"]),
    "unknown parent": (("stages[1].parents=[Resnet]",), ["stages[1].parents[0]", "did you mean 'ResNet'", "source"]),
    "no parent": (("stages[1].parents=[]",), ["stages[1].parents", "no parent"]),
    "a cycle": (("stages[0].parents=[KSVM]",), ["'ResNet' is part of a cycle", "'KSVM' is part of a cycle"]),
    "a parent twice": (("stages[1].parents=[ResNet, ResNet]",), ["stands twice among the parents"]),
    "two stages of one name": (("stages[1].name=ResNet",), ["names two stages"]),
    "a stage called source": (("stages[1].name=source",), ["'source' cannot name a stage"]),
    "a stage nobody placed": (("stages[1].name=Other",), ["does not say how to run Other", "no stage named 'KSVM'"]),
    "unknown batching": (("configuration.KSVM.batching=timeouts",), ["did you mean 'timeout'", "delay, greedy"]),
    "negative patience": (("configuration.KSVM.batching.delay_ms=-1",), ["delay_ms", "-1"]),
    "share above one": (("edges=[{parent: ResNet, stage: KSVM, share: 1.5}]",), ["edges[0].share", "1.5"]),
    "edge that does not exist": (
        ("edges=[{parent: KSVM, stage: ResNet, share: 0.5}]",),
        ["edges[0]", "no edge KSVM>ResNet", "ResNet>KSVM"],
    ),
    "edge without a rule": (("edges=[{parent: ResNet, stage: KSVM}]",), ["exactly one of share and recorded"]),
    "routing column absent": (
        ("edges=[{parent: ResNet, stage: KSVM, recorded: true}]",),
        ["no routing column 'ResNet>KSVM'"],
    ),
    "changes out of order": (
        ("configuration.ResNet.changes=[{at: 9s, replicas: 2}, {at: 5s, replicas: 1}]",),
        ["changes[1].at_s", "5 s is not after 9 s"],
    ),
    "both counts": (("trace.horizon_s=5",), ["exactly one of queries", "both"]),
    "cv and scv": (
        ("trace.process={name: gamma, rate: 5rps, cv: 1.0, scv: 1.0}",),
        ["exactly one of cv and scv"],
    ),
    "neither cv nor scv": (("trace.process={name: gamma, rate: 5rps}",), ["exactly one of cv and scv"]),
    "arrivals that go back": (("trace={arrivals_ms: [1.0, 5.0, 3.0]}",), ["arrivals_ms[2]", "3.0 comes after 5.0"]),
    "negative arrival": (("trace={arrivals_ms: [-1.0]}",), ["arrivals_ms[0]", "-1.0"]),
    "no arrival": (("trace={arrivals_ms: []}",), ["lists no arrival"]),
    "no price": (
        ("service={tables_ms: {ResNet: [1, 1, 1, 1, 1, 1, 1, 1], KSVM: [1, 1, 1, 1]}}",
         "configuration.ResNet.hardware=abacus"),
        ["no price of 'abacus'", "prices_usd_per_h.abacus"],
    ),
    "too few service times": (
        ("service={tables_ms: {ResNet: [5.0], KSVM: [1, 1, 1, 1]}}",),
        ["1 service times for stage 'ResNet'", "8"],
    ),
    "service time not positive": (
        ("service={tables_ms: {ResNet: [0, 1, 1, 1, 1, 1, 1, 1], KSVM: [1, 1, 1, 1]}}",),
        ["service.tables_ms.ResNet[0]"],
    ),
    "log-normal without spread": (("service={law: lognormal}",), ["service.cv", "lognormal needs one"]),
    "nothing measured": (
        ("service={law: measured, measured_ms: {ResNet: {1: [5.0]}}}",),
        ["no value was measured for stage 'ResNet' at batch 2", "stage 'KSVM' at batch 1"],
    ),
    "compat options elsewhere": (("compat.batching_delay_ms=5",), ["compat", "in mode compat only"]),
    "compat with patience": (("mode=compat",), ["configuration.KSVM.batching", "greedy batching"]),
    "one replication": (("intervals.replications=1",), ["1 gives no interval"]),
    "a clock too coarse": (
        ("trace={arrivals_ms: [0.0, 1.0e18]}",),
        ["instants near 1e+18 ms cannot tell a service of"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_scenarios_are_named(case: str) -> None:
    overrides, wanted = BAD[case]
    with pytest.raises(InputError) as caught:
        prepare(load(GOOD, *overrides))
    assert caught.value.exit_code == 2
    text = str(caught.value)
    for part in wanted:
        assert part in text, text
    assert all(problem.where for problem in caught.value.problems), text


def test_all_problems_at_once() -> None:
    with pytest.raises(ForerunError) as caught:
        load(GOOD, "slo_ms=-1", "attainment=2", "configuration.ResNet.replicas=0")
    assert len(caught.value.problems) == 3


BAD_PROFILES = {
    "duplicate row": ("m,h,1,5,100\nm,h,1,6,90\n", "batch 1 stands twice"),
    "unsorted rows": ("m,h,2,5,100\nm,h,1,6,90\n", "batch 1 comes after 2"),
    "no throughput": ("m,h,1,5,0\n", "throughput_qps 0.0 is not above 0"),
    "throughput is nan": ("m,h,1,5,nan\n", "throughput_qps"),
    "throughput is text": ("m,h,1,5,fast\n", "throughput_qps"),
    "batch not whole": ("m,h,1.5,5,10\n", "batch"),
    "batch below one": ("m,h,0,5,10\n", "batch"),
    "row too short": ("m,h,1\n", ":2"),
    "no rows": ("", "no rows"),
}


@pytest.mark.parametrize("case", BAD_PROFILES)
def test_bad_profiles_are_named(case: str, tmp_path: Path) -> None:
    rows, wanted = BAD_PROFILES[case]
    path = tmp_path / "mine.csv"
    path.write_text("model,hardware,batch,p99_ms,throughput_qps\n" + rows)
    with pytest.raises(InputError) as caught:
        prepare(load(GOOD, f"profiles=['{path}']"))
    assert wanted in str(caught.value)
    assert "mine.csv" in str(caught.value)


def test_own_profiles_and_prices(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "# mine\nmodel,hardware,batch,p99_ms,throughput_qps\nResNet,A100,1,9,200\nResNet,A100,8,20,500\n"
    )
    inputs = prepare(
        load(
            GOOD,
            f"profiles=['{path}']",
            "configuration.ResNet.hardware=A100",
            "prices_usd_per_h={A100: $4/h}",
        )
    )
    assert inputs.prices_usd_per_h == (4.0, 0.0665)
    assert inputs.pipeline.stages[0].service.table_ms[1] == 5.0
    assert inputs.pipeline.stages[0].service.table_ms[8] == 16.0


def test_recorded_traces_and_routing(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("arrival_s,ResNet>KSVM\n0.5,1\n1.5,0\n2.0,1\n")
    edges = "edges=[{parent: ResNet, stage: KSVM, recorded: true}]"
    inputs = prepare(load(GOOD, f"trace={{file: '{path}'}}", edges))
    assert inputs.arrivals_ms.tolist() == [500.0, 1500.0, 2000.0]
    recorded = inputs.pipeline.stages[1].edges[0].recorded
    assert recorded is not None and recorded.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"1.0\n-2.0\n", "calls.deltas:2"),
        (b"1.0\nnan\n", "calls.deltas:2"),
        (b"", "calls.deltas"),
        (b"x\n", "calls.deltas"),
    ],
)
def test_bad_traces_are_named(content: bytes, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "calls.deltas"
    path.write_bytes(content)
    with pytest.raises(InputError, match=wanted):
        prepare(load(GOOD, f"trace={{file: '{path}', format: deltas}}"))


def test_a_gzip_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.deltas.gz"
    path.write_bytes(gzip.compress(b"1.0\n" * 5000)[:-9])
    with pytest.raises(InputError, match=r"calls\.deltas\.gz"):
        prepare(load(GOOD, f"trace={{file: '{path}', format: deltas}}"))


def test_compat_reads_the_notebooks_spellings() -> None:
    text = GOOD.replace(", batching: {name: timeout, delay_ms: 5ms}", "")
    scenario = load(
        text, "mode=compat", "configuration.ResNet.hardware=TPX", "configuration.KSVM.hardware=none"
    )
    inputs = prepare(scenario)
    assert inputs.hardware == ("TXP", "cpu")
    assert len(inputs.notes) == 2
    assert "'TPX' was read as 'TXP'" in inputs.notes[0]


def test_allowed_misses_are_exact() -> None:
    """0.99 of 20,000 allows 200, though (1 - 0.99) * 20,000 is 199.99999999999... in binary."""
    scenario = load()
    assert scenario.allowed_misses(20_000) == 200
    assert load(GOOD, "attainment=0.999").allowed_misses(10_000) == 10
