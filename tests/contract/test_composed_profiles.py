"""Profiles that domains exchange: what they promise, and how the domain that reads them uses them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forerun
from forerun.core.atomic_write import WRITTEN
from forerun.core.catalog import demo
from forerun.core.cli.main import run as cli
from forerun.core.errors import ProfileError, UsageError
from forerun.core.profile.files import read_profile, write_profile
from forerun.core.profile.power import Draw, Power
from forerun.core.profile.supply import Supply
from forerun.core.scenario.spec import yaml_text
from forerun.core.scenarios import loads
from forerun.core.units import split_name

POSITIVE = st.floats(1e-3, 1e6)

STORE = """
domain: loading
seed: 5
dataset: {samples: 4000, sample_bytes: {mean_bytes: 100000, sigma: 0.3}}
store: {latency_s: 0.01, conn_bytes_per_s: 100MB/s, shared_bytes_per_s: %s}
cpu: {decode_s: 0.001}
loader: {mode: threads, threads: 2, buffer_samples: 128}
step: {step_s: 0.05}
run: {batch: 32, epochs: 1}
"""

CLUSTER = """
domain: cluster
seed: 1
trace: {file: jobs.csv}
machines: {nodes: [{name: a, count: 4, gpus: 4}]}
profile: [{tables: [vision.csv, language.csv]}]
policy: %s
"""

TABLE = "global_batch_size,1,2,4,8,16\n64,10,18,32,50,60\n"


@st.composite
def supplies(draw: Any) -> Supply:
    readers = tuple(sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=6))))
    rates = tuple(draw(st.lists(POSITIVE, min_size=len(readers), max_size=len(readers))))
    return Supply(source=draw(st.text("abc: '\"#é\n", max_size=8)), readers=readers, samples_per_s=rates)


@given(supplies())
def test_a_written_profile_is_read_back_the_same(supply: Supply) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write_profile(supply, Path(folder) / "supply.yaml")
        assert read_profile(path, Supply) == supply
        assert path.read_text() == WRITTEN + yaml_text(supply)


@given(supplies(), st.integers(1, 64))
def test_supply_is_within_its_neighbours_and_nothing_is_guessed_beyond(supply: Supply, readers: int) -> None:
    if not supply.readers[0] <= readers <= supply.readers[-1]:
        with pytest.raises(ProfileError, match=f"{supply.readers[0]} to {supply.readers[-1]} readers"):
            supply.at(readers)
        return
    found = supply.at(readers)
    above = next(i for i, n in enumerate(supply.readers) if n >= readers)
    ends = supply.samples_per_s[max(0, above - 1) : above + 1]
    assert min(ends) * (1 - 1e-12) <= found <= max(ends) * (1 + 1e-12)
    if readers in supply.readers:
        assert found == supply.samples_per_s[supply.readers.index(readers)]
    assert supply.step_s(1.0, 10.0, readers) == max(1.0, 10.0 / found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("profile: power\n", "is a 'power' profile"),
        ("readers: [1]\n", "is no profile"),
        ("profile: supply\nspec_version: 9\n", "reads version 1"),
        ("profile: supply\nreaders: [1, 2]\nsamples_per_s: [10.0]\n", "has 1 figures for 2"),
        ("profile: supply\nreaders: [2, 1]\nsamples_per_s: [10.0, 11.0]\n", "must rise"),
        ("profile: supply\nreaders: [1]\nsamples_per_s: [0.0]\n", "0.0 is not above 0"),
        ("profile: supply\nreaders: [1]\nsamples_per_s: [1.0]\nreader: 3\n", "reader"),
        ("profile: supply\nreaders: []\nsamples_per_s: []\n", "is empty"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "supply.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        read_profile(path, Supply)
    assert what in str(caught.value) and "supply.yaml" in str(caught.value)


def test_a_resolved_scenario_holds_a_profile_to_its_digest(tmp_path: Path) -> None:
    scenario = cluster(tmp_path, "srtf", loading=[Supply(readers=(1, 4), samples_per_s=(1e6, 4e6))])
    (tmp_path / "supply0.yaml").write_text(yaml_text(Supply(readers=(1, 4), samples_per_s=(1.0, 4.0))))
    with pytest.raises(ProfileError, match="has changed"):
        forerun.simulate(scenario)


def test_readers_share_the_link_that_binds_them() -> None:
    """Far below the link, readers do not feel each other; far above, they get the link together (closed forms)."""
    alone = forerun.profile_of(loads(STORE % "100GB/s"), [1, 2, 8])
    # Two threads, each 10 ms of latency, 1 ms of transfer at 100 MB/s and 1 ms of decoding a sample.
    assert alone.samples_per_s[0] == pytest.approx(2 / 0.012, rel=0.01)
    assert alone.samples_per_s[2] == pytest.approx(8 * alone.samples_per_s[0], rel=0.01)
    shared = forerun.profile_of(loads(STORE % "60MB/s"), [1, 8, 32])
    assert shared.samples_per_s[2] == pytest.approx(600.0, rel=0.02)
    assert shared.samples_per_s[0] <= 1.01 * alone.samples_per_s[0]
    assert shared.samples_per_s[1] < 0.8 * alone.samples_per_s[2]
    for supply in (alone, shared):
        bounds = zip(supply.low_per_s, supply.samples_per_s, supply.high_per_s)
        assert all(low <= rate <= high for low, rate, high in bounds)
        # The lesser of two rates is near what the domain simulates at its own step.
        assert abs(supply.min_law_error) < 0.05


def test_domains_without_a_profile_say_which_have_one() -> None:
    with pytest.raises(UsageError, match="exports no profile; domains that do: energy, loading"):
        forerun.profile_of(forerun.load(demo("serving").scenario))
    with pytest.raises(UsageError, match="at least 1"):
        forerun.profile_of(loads(STORE % "60MB/s"), [0])
    with pytest.raises(UsageError, match="was not measured; measured: 16"):
        forerun.profile_of(forerun.load(demo("energy").scenario), [17])


def test_a_power_profile_repeats_what_was_measured() -> None:
    power = forerun.profile_of(forerun.load(demo("energy").scenario))
    rows = [
        line.split(",")
        for line in (demo("energy").scenario.parent / "demo_power_gpu_a.csv").read_text().split()[1:]
    ]
    assert len(rows) == len(power.points)
    for _, _, batch, _, limit, epoch_s, watts in rows:
        draw_w, speed = power.at(float(batch), float(limit))
        top_s = next(float(r[5]) for r in rows if r[2] == batch and float(r[4]) == power.limits_w[0])
        assert draw_w == pytest.approx(float(watts))
        assert speed == pytest.approx(top_s / float(epoch_s))
    between = power.at(48, 250)[0]
    assert power.at(32, 250)[0] < between < power.at(64, 250)[0]
    assert power.at(4, 250) == power.at(16, 250) and not power.measured(4)
    with pytest.raises(ProfileError, match="33 W was not measured; measured limits: 250, 200, 150, 100"):
        power.at(64, 33)


def cluster(
    folder: Path,
    policy: str,
    jobs: str = "7,0,3200,vision,100000,64,4,100\n",
    loading: list[Supply] | None = None,
    bill: str = "",
    models: str = "",
) -> Any:
    (folder / "jobs.csv").write_text(
        "job_id,submit_s,iterations,model,deadline_s,batch,gpus,duration_s\n" + jobs
    )
    for model in ("vision", "language"):
        (folder / f"{model}.csv").write_text(TABLE)
    text = CLUSTER % policy
    for at, supply in enumerate(loading or []):
        write_profile(supply, folder / f"supply{at}.yaml")
        text += f"loading: [{{file: supply{at}.yaml{models}}}]\n"
    return loads(text + bill, base=folder)


@pytest.mark.parametrize("policy", ["srtf", "edf", "ef-accessctrl", "fifo"])
def test_an_ample_supply_changes_nothing_and_half_of_it_takes_twice_as_long(
    tmp_path: Path, policy: str
) -> None:
    plain = forerun.simulate(cluster(tmp_path, policy))
    ample = Supply(readers=(1, 4), samples_per_s=(1e6, 4e6))
    same = forerun.simulate(cluster(tmp_path, policy, loading=[ample]))
    assert same.frame("allocations").equals(plain.frame("allocations"))
    assert {name: same.summary[name] for name in plain.summary} == dict(plain.summary)
    assert same.summary["data_wait_gpu_s"] == 0
    if policy in ("srtf", "fifo"):  # on its four GPUs throughout: 32 it/s of 64 samples
        half = Supply(readers=(1, 4), samples_per_s=(16 * 64.0, 16 * 64.0))
        slow = forerun.simulate(cluster(tmp_path, policy, loading=[half]))
        assert slow.summary["jct_mean_s"] == pytest.approx(2 * plain.summary["jct_mean_s"], rel=0.05)


def test_only_the_named_models_wait_for_data(tmp_path: Path) -> None:
    jobs = "1,0,3200,vision,100000,64,4,100\n2,0,3200,language,100000,64,4,100\n"
    slow = Supply(readers=(1, 4), samples_per_s=(64.0, 64.0))
    frame = forerun.simulate(cluster(tmp_path, "srtf", jobs, [slow], models=", models: [vision]")).frame(
        "jobs"
    )
    end_s = dict(zip(frame["model"], frame["end_s"]))
    assert end_s["vision"] >= 3200 and end_s["language"] < 110
    with pytest.raises(forerun.ForerunError, match=r"given for 'speech'.*language, vision"):
        forerun.simulate(cluster(tmp_path, "srtf", jobs, [slow], models=", models: [speech]"))


def test_a_supply_that_ends_before_the_cluster_does_is_refused(tmp_path: Path) -> None:
    short = Supply(readers=(1, 2), samples_per_s=(64.0, 64.0))
    with pytest.raises(ProfileError, match="knows 1 to 2 readers; jobs here read from up to 4 nodes"):
        forerun.simulate(cluster(tmp_path, "srtf", loading=[short]))


def test_the_bill_of_one_job_in_closed_form(tmp_path: Path) -> None:
    """Four of sixteen GPUs for T seconds, half of it waiting for data; price and carbon change on the way."""
    supply = Supply(readers=(1, 4), samples_per_s=(16 * 64.0, 16 * 64.0))
    bill = (
        "bill:\n  idle: 50W\n  busy: 300W\n  pue: 1.5\n  gpu_usd_per_h: 3.6\n"
        "  price: {steps: [[0, 0.1], [30, 0.4]]}\n  carbon: {steps: [[0, 100], [10, 500]]}\n"
    )
    result = forerun.simulate(cluster(tmp_path, "srtf", loading=[supply], bill=bill)).check()
    end_s = result.summary["makespan_s"]
    assert end_s == pytest.approx(200, abs=1)  # 3200 iterations at 16 a second
    computing, waiting, free = 4 * 300 * end_s / 2, 4 * 50 * end_s / 2, 12 * 50 * end_s
    energy = next(ledger for ledger in result.ledgers if ledger.name == "energy")
    assert energy.parts["computing"] == pytest.approx(computing)
    assert energy.parts["waiting for data"] == pytest.approx(waiting)
    assert energy.parts["free"] == pytest.approx(free)
    whole_j = 1.5 * (computing + waiting + free)
    assert result.summary["energy_j"] == pytest.approx(whole_j)
    power_w = whole_j / end_s
    assert result.summary["electricity_usd"] == pytest.approx(
        power_w / 3.6e6 * (30 * 0.1 + (end_s - 30) * 0.4)
    )
    assert result.summary["co2e_g"] == pytest.approx(power_w / 3.6e6 * (10 * 100 + (end_s - 10) * 500))
    assert result.summary["rent_usd"] == pytest.approx(16 * end_s / 3600 * 3.6)
    row = result.frame("bill").row(0, named=True)
    assert row["energy_j"] == pytest.approx(1.5 * (computing + waiting))
    assert row["data_wait_gpu_s"] == pytest.approx(4 * end_s / 2)


@pytest.mark.parametrize("policy", ["srtf", "ef-accessctrl", "dlas-gpu", "themis", "gandiva", "fifo"])
def test_the_energy_ledger_sums_in_crowded_worlds(tmp_path: Path, policy: str) -> None:
    """The whole is the cluster's power over time, the parts are added up job by job; prices against a fine sum."""
    rng = np.random.default_rng(4)
    rows = ""
    at = 0
    for number in range(24):
        at += int(rng.integers(0, 90))
        model = rng.choice(["vision", "language"])
        rows += (
            f"{number},{at},{rng.integers(200, 8000)},{model},{at + 5000},64,{rng.choice([1, 2, 4, 8])},300\n"
        )
    bill = (
        "bill: {idle_w: 40, pue: 1.1, power: [{file: power.yaml, limit_w: 100}], price: {steps: [[0, 0.1], "
        "[70, 0.5], [200, 0.2]], repeat_s: 300}}\n"
    )
    power = Power(
        points=tuple(
            Draw(batch_size=batch, limit_w=limit, draw_w=90 + batch / 2, speed=0.8 if limit == 100 else 1.0)
            for batch in (8, 64)
            for limit in (100.0, 200.0)
        )
    )
    write_profile(power, tmp_path / "power.yaml")
    supply = Supply(readers=(1, 4), samples_per_s=(700.0, 1500.0))
    scenario = cluster(tmp_path, policy, rows, [supply], bill, models=", models: [vision]")
    result = forerun.simulate(scenario).check()
    assert {ledger.name for ledger in result.ledgers} >= {"GPU time", "energy", "cost"}
    energy = next(ledger for ledger in result.ledgers if ledger.name == "energy")
    assert min(energy.parts.values()) >= 0 and energy.parts["waiting for data"] > 0
    gpu = next(ledger for ledger in result.ledgers if ledger.name == "GPU time")
    free = gpu.whole - gpu.parts["useful"] - gpu.parts["waiting for data"] - gpu.parts["overhead"]
    assert energy.parts["waiting for data"] == pytest.approx(40 * gpu.parts["waiting for data"])
    assert energy.parts["free"] == pytest.approx(40 * free, abs=1e-6 * energy.whole)
    assert energy.parts["restarting"] == pytest.approx(40 * gpu.parts["overhead"], abs=1e-6 * energy.whole)
    # Electricity, against a sum over seconds built from the allocations alone (jobs spread their restarts evenly).
    jobs, stretches = result.frame("jobs"), result.frame("allocations")
    job_w = {
        row["job"]: row["energy_j"] / max(held, 1e-12)
        for row, held in zip(result.frame("bill").iter_rows(named=True), jobs["gpu_s"])
    }
    assert all(
        1.1 * 39.9 <= watts <= 1.1 * 123 for watts, held in zip(job_w.values(), jobs["gpu_s"]) if held > 0
    )
    assert result.summary["electricity_usd"] > 0
    assert math.fsum(result.frame("bill")["cost_usd"]) <= result.summary["cost_usd"] * (1 + 1e-12)
    assert stretches["gpus"].max() <= 16


def test_a_spot_job_waits_for_its_data(tmp_path: Path) -> None:
    """Steps take the longer of computing and reading, one reader a pipeline; readers beyond the profile are refused."""
    scenario = forerun.load(demo("spot").scenario, ["trials=0", "goal={}", "horizon=6h"])
    write_profile(Supply(readers=(1, 4), samples_per_s=(12.0, 48.0)), tmp_path / "supply.yaml")
    given = ["trials=0", "goal={}", "horizon=6h", f"job.loading={{file: {tmp_path / 'supply.yaml'}}}"]
    slower = forerun.load(demo("spot").scenario, given)
    # 288 samples a step at 12 samples a second and reader.
    assert slower.job.supplied_step_s(slower.job.read_supply()) == {16: 24.0, 32: 12.0, 48: 9.32, 64: 8.28}
    steps = [forerun.simulate(each).check().summary["steps_completed"] for each in (scenario, slower)]
    assert steps[1] < steps[0]
    short = Supply(readers=(1, 2), samples_per_s=(12.0, 24.0))
    write_profile(short, tmp_path / "supply.yaml")
    with pytest.raises(ProfileError, match="1 to 2 readers, 3 are asked for"):
        forerun.simulate(forerun.load(demo("spot").scenario, given))


def test_the_verb_writes_what_the_library_makes(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "energy.yaml"
    source = demo("energy").scenario
    path.write_text(source.read_text().replace("demo_", f"{source.parent}/demo_"))
    assert cli(["profile", str(path), "-o", str(tmp_path / "power.yaml"), "--at", "64,128", "-q"]) == 0
    made = read_profile(tmp_path / "power.yaml", Power)
    assert made == forerun.profile_of(forerun.load(path), [64, 128])
    assert {point.batch_size for point in made.points} == {64, 128}
    assert cli(["profile", str(path), "--at", "many"]) == 2
    assert "whole numbers" in capsys.readouterr().err


def test_names_of_profiles_carry_units() -> None:
    for kind in (Supply, Power, Draw):
        for name in kind.__struct_fields__:
            if name.endswith(("_w", "_s")):
                assert split_name(name)[1], name
