"""Public formats of preemptible fleets: what each file holds, and that no mutation of one brings a
traceback.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.errors import InputError, TraceError, UsageError
from forerun.core.trace.reader import read_trace, sniff
from forerun.spot.inputs.recorded import of_membership
from forerun.spot.traces.statistics import fleet_statistics

Golden = Callable[[str], Any]


def test_ticks_need_their_polarity(data_folder: Path, golden: Golden) -> None:
    folder, files = data_folder / "skynomad", golden("trace_stats.json")["files"]
    with pytest.raises(TraceError, match="polarity"):
        read_trace(folder / "h100-16-us-central1-a.json")
    for name, polarity in (("h100-16-us-central1-a", "preempted"), ("h100-16-us-west1-b", "preempted")):
        trace, theirs = (
            read_trace(folder / f"{name}.json", options={"polarity": polarity}),
            files[f"skynomad/{name}.json"],
        )
        ticks, gap_s = trace.provenance.options["ticks"], trace.provenance.options["gap_s"]
        assert (ticks, gap_s, len(trace) - 1) == (theirs["ticks"], theirs["gap_s"], theirs["changes"])
        edges = np.append(trace["t_s"], float(ticks) * float(gap_s))  # type: ignore[arg-type]
        assert (trace["nodes"] * np.diff(edges)).sum() / edges[-1] == pytest.approx(
            theirs["mean_available"], rel=1e-12
        )
        assert trace.provenance.repairs[0]["count"] == 60
    trace = read_trace(folder / "v100-16node-us-west-2c.json", options={"polarity": "available"})
    assert len(trace) - 1 == files["skynomad/v100-16node-us-west-2c.json"]["changes"]
    with pytest.raises(TraceError, match="neither 0 nor 1"):
        read_trace(folder / "v100-16node-us-west-2c.json", options={"polarity": "preempted"})


def test_parcae_events(data_folder: Path, golden: Golden) -> None:
    trace = read_trace(data_folder / "parcae/gpt-1.5b-trace_hh_55_65.jsonl")
    theirs = golden("trace_stats.json")["files"]["parcae/gpt-1.5b-trace_hh_55_65.jsonl"]
    seen = fleet_statistics(of_membership(trace))
    assert (seen.max_nodes, seen.alive_at_end) == (theirs["max_nodes"], theirs["final_nodes"])


def test_node_faults(data_folder: Path, golden: Golden) -> None:
    trace = read_trace(data_folder / "infinitehbd/fault_trace.json")
    theirs = golden("trace_stats.json")["files"]["infinitehbd/fault_trace.json"]
    repaired = {row["rule"]: row["count"] for row in trace.provenance.repairs}
    assert repaired["fault of length 0, dropped"] == theirs["zero_length_faults"]
    assert repaired["fault of a node that is down already, merged"] == theirs["starts_while_already_down"]
    seen = fleet_statistics(of_membership(trace))
    assert seen.max_nodes == theirs["nodes"]
    assert (
        len({node for node, added in zip(trace["node"], trace["added"]) if not added})
        <= theirs["nodes_with_faults"]
    )


def test_price_history(tmp_path: Path) -> None:
    entries = [
        {
            "Timestamp": f"2024-05-0{day}T10:00:00+00:00",
            "SpotPrice": price,
            "AvailabilityZone": zone,
            "InstanceType": "p3.2xlarge",
            "ProductDescription": "Linux/UNIX",
        }
        for day, price, zone in (
            (3, "0.9300", "us-east-1a"),
            (2, "0.9200", "us-east-1b"),
            (1, "0.9180", "us-east-1a"),
        )
    ]
    (tmp_path / "prices.json").write_text(json.dumps({"SpotPriceHistory": entries}))
    trace = read_trace(tmp_path / "prices.json", options={"zone": "us-east-1a"})
    assert trace["t_s"].tolist() == [0.0, 2 * 86_400.0]
    assert trace["usd_per_h"].tolist() == [0.918, 0.93]
    entries[0]["SpotPrice"] = "0,93"
    (tmp_path / "prices.json").write_text(json.dumps({"SpotPriceHistory": entries}))
    with pytest.raises(TraceError, match=r"SpotPriceHistory\[0\]"):
        read_trace(tmp_path / "prices.json")


def test_products_are_not_mixed(tmp_path: Path) -> None:
    """Windows costs more than Linux in the same zone and machine: one has to be chosen."""
    entries = [
        {
            "Timestamp": "2024-05-01T00:00:00Z",
            "SpotPrice": price,
            "AvailabilityZone": "a",
            "InstanceType": "m",
            "ProductDescription": product,
        }
        for product, price in (("Linux/UNIX", "0.9"), ("Windows", "1.3"))
    ]
    file = tmp_path / "both.json"
    file.write_text(json.dumps({"SpotPriceHistory": entries}))
    with pytest.raises(TraceError, match="2 products"):
        read_trace(file)
    assert read_trace(file, options={"product": "Windows"})["usd_per_h"].tolist() == [1.3]


def test_pages_of_a_price_history(tmp_path: Path) -> None:
    """Pages one after another are one history; what two pages list is kept once; a page that is not the last says so."""

    def page(days: tuple[int, ...], price: str = "0.9", **more: str) -> str:
        entry = {"AvailabilityZone": "a", "InstanceType": "m", "SpotPrice": price}
        listed = [entry | {"Timestamp": f"2024-05-{day:02d}T00:00:00Z"} for day in days]
        return json.dumps({"SpotPriceHistory": listed, **more}, indent=1)

    file = tmp_path / "pages.json"
    file.write_text(page((4, 3), NextToken="x}") + "\n" + page((3, 1)) + "\n")
    trace = read_trace(file)
    assert (trace["t_s"] / 86_400).tolist() == [0.0, 2.0, 3.0]
    assert [(r["rule"], r["count"]) for r in trace.provenance.repairs] == [
        ("price change listed twice, dropped", 1)
    ]
    file.write_text(page((4, 3), NextToken="more"))
    assert "further page" in str(read_trace(file).provenance.repairs[0]["rule"])
    with pytest.raises(TraceError, match="NextToken"):
        read_trace(file, strict=True)
    file.write_text(page((4, 3)) + page((3, 1), price="1.0"))
    with pytest.raises(TraceError, match=r"page 2:SpotPriceHistory\[0\].*is 1, but was 0\.9"):
        read_trace(file)
    file.write_text(page((4, 3)) + "\n" + page((3, 1))[:-1])
    with pytest.raises(TraceError, match=r"pages\.json:\d+"):
        read_trace(file)


def test_tick_prices(data_folder: Path, golden: Golden) -> None:
    """SkyNomad's prices: their own length of ticks, every change, the mean over time."""
    trace = read_trace(data_folder / "skynomad/v100-prices-us-east-2a.json", options={"zone": "us-east-2a"})
    theirs = golden("trace_stats.json")["files"]["skynomad/v100-prices-us-east-2a.json"]
    told, prices = trace.provenance.options, trace["usd_per_h"]
    assert (told["ticks"], told["gap_s"], len(trace) - 1) == (
        theirs["ticks"],
        theirs["gap_s"],
        theirs["changes"],
    )
    assert (prices.min(), prices.max()) == (theirs["min_usd"], theirs["max_usd"])
    assert len(set(prices.tolist())) == theirs["distinct"]
    edges = np.append(trace["t_s"], float(told["ticks"]) * float(told["gap_s"]))  # type: ignore[arg-type]
    assert (prices * np.diff(edges)).sum() / edges[-1] == pytest.approx(theirs["mean_usd"], rel=1e-12)
    assert set(trace["machine"]) == {"p3.2xlarge"} and set(trace["zone"]) == {"us-east-2a"}


def test_step_functions_of_scaling_groups(data_folder: Path, golden: Golden) -> None:
    """Two rows a change, in seconds or in hours; a file of one row is a fleet that never changes."""
    for name, theirs in golden("trace_stats.json")["files"].items():
        if "asg-counts" not in name:
            continue
        hours = theirs["last_x"] < 1000
        # One row says nothing of its format; fractions of an hour or of a second look alike.
        format_ = "spot_counts" if theirs["rows"] == 1 else ""
        if hours and theirs["rows"] > 1:
            with pytest.raises(TraceError, match=r"such as 0\.000, have fractions and no unit") as refused:
                read_trace(data_folder / name)
            assert len(refused.value.problems) == 1
        elif not hours:
            assert read_trace(data_folder / name, format_)["t_s"][-1] <= theirs["last_x"]
        trace = read_trace(data_folder / name, format_, options={"x_unit": "h" if hours else "s"})
        assert trace["nodes"].max() == theirs["max_nodes"], name
        assert trace["t_s"][-1] <= theirs["last_x"] * (3600 if hours else 1) + 1e-6
        assert (np.diff(trace["nodes"]) != 0).all()
        assert (len(trace) == 1) == (theirs["rows"] == 1)


@pytest.mark.parametrize(
    "text",
    ["0,0\n5,1\n9,2\n", "0,0\n5,0\n5,1\n9,2\n", "3,0\n5,0\n5,1\n", "0,0\n5,0\n", "0,0,1\n5,0,1\n5,1,1\n"],
)
def test_other_pairs_of_numbers_are_no_steps(tmp_path: Path, text: str) -> None:
    """Only from 0 on, and with two rows for each change, is a table without a header taken for counts."""
    (tmp_path / "pairs.csv").write_text(text)
    assert "spot_counts" not in sniff(tmp_path / "pairs.csv")


def test_terminations_alone_are_no_fleet(data_folder: Path) -> None:
    """They are not taken for counts, with and without `--format`, and one line says what they are for."""
    file = data_folder / "bamboo/full-64/full-64-terminate-trace.csv"
    for format_ in ("", "spot_counts"):
        with pytest.raises(
            TraceError, match=r"how many nodes were terminated.*after the file of counts"
        ) as refused:
            read_trace(file, format_)
        assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    "header, unit_s", [("time_s,nodes", 1), ("t_s,count", 1), ("t_h,nodes", 3600), ("time,nodes", 1)]
)
def test_counts_of_ones_own(tmp_path: Path, header: str, unit_s: int) -> None:
    """The header says what it is and in what unit; the file is recognised by it."""
    file = tmp_path / "counts.csv"
    file.write_text(f"{header}\n0,4\n1.5,3\n2,3\n2.5,6\n")
    trace = read_trace(file)
    assert trace["t_s"].tolist() == [0, 1.5 * unit_s, 2.5 * unit_s] and trace["nodes"].tolist() == [4, 3, 6]


def test_one_machine_by_dates(tmp_path: Path) -> None:
    """Irregular ticks, with a stated polarity."""
    file = tmp_path / "one.csv"
    file.write_text(
        "date,availability\n2024-01-01 00:00:00,1\n2024-01-01 00:10:00,0\n2024-01-01 00:25:00,0\n2024-01-01 01:00:00,1\n"
    )
    with pytest.raises(TraceError, match="polarity"):
        read_trace(file)
    up = read_trace(file, options={"polarity": "up"})
    assert (up["t_s"].tolist(), up["nodes"].tolist()) == ([0.0, 600.0, 3600.0], [1, 0, 1])
    gone = read_trace(file, options={"polarity": "preempted", "machines": 4})
    assert gone["nodes"].tolist() == [0, 4, 0]
    file.write_text(file.read_text() + "2024-01-01 02:00:00,3\n")
    with pytest.raises(TraceError, match=r"one\.csv:6"):
        read_trace(file, options={"polarity": "up"})


def test_spot_advisor_is_a_prior(tmp_path: Path) -> None:
    """A range of monthly interruption, and the hazard its middle needs."""
    file = tmp_path / "advisor.json"
    advice = {
        "ranges": [{"index": 0, "label": "<5%", "max": 5}, {"index": 1, "label": "5-10%", "max": 10}],
        "spot_advisor": {
            "us-east-1": {"Linux": {"p3.2xlarge": {"s": 70, "r": 1}, "c5.large": {"s": 50, "r": 0}}}
        },
    }
    file.write_text(json.dumps(advice))
    trace = read_trace(file, options={"machine": "p3.2xlarge"})
    assert (len(trace), trace["monthly_low"][0], trace["monthly_high"][0]) == (1, 0.05, 0.1)
    assert 1 - np.exp(-730 * trace["per_node_h"][0]) == pytest.approx(0.075)
    advice["spot_advisor"]["us-east-1"]["Linux"]["p3.2xlarge"]["r"] = 7  # type: ignore[index]
    file.write_text(json.dumps(advice))
    with pytest.raises(TraceError, match=r"us-east-1.Linux.p3.2xlarge.*r is 7"):
        read_trace(file)


SAMPLES = {
    "spot_membership": "0,add,a\n0,add,b\n5000,remove,a\n9000,add,c\n",
    "spot_counts": "timestamp,count\n2021-07-26T17:00:00Z,4\n2021-07-26T17:20:00Z,3\n2021-07-26T17:40:00Z,5\n",
    "spot_counts/dates": "2021-07-26, 17:00:00, 4\n2021-07-26, 17:10:00, 4\n2021-07-26, 17:05:00, 3\n",
    "spot_counts/steps": "0,0\n30,0\n30,4\n60,4\n60,2\n",
    "spot_counts/hours": "t_h,nodes\n0,4\n0.5,3\n1.25,5\n",
    "spot_counts/cloudwatch": "time,count\n2021-07-26T17:00:00Z,4.0\n2021-07-26T17:20:00Z,3.0\n",
    "spot_tick_prices": '{"prices": [0.9, 0.9, 1.0], "gap_seconds": 195, "price_info": {"currency": "USD"}}',
    "spot_advisor": '{"ranges": [{"index": 0, "max": 5}], "spot_advisor": {"r": {"Linux": {"m": {"s": 70, "r": 0}}}}}',
    "spot_availability": "date,availability\n2024-01-01 00:00:00,1\n2024-01-01 00:10:00,0\n",
    "spot_ticks": '{"metadata": {"gap_seconds": 300}, "data": [1, 0, 0, 1, 1]}',
    "spot_events": '[0, "add", {"nodes": ["a", "b"]}]\n[60000, "no-op", {"nodes": []}]\n'
    '[90000, "remove", {"nodes": ["a"]}]\n',
    "spot_faults": '[{"node_id": "x", "event_time": 1.5, "event_type": "fault_start"}, '
    '{"node_id": "x", "event_time": 2.0, "event_type": "fault_end"}]',
    "spot_price_history": '{"SpotPriceHistory": [{"Timestamp": "2024-05-01T10:00:00Z", "SpotPrice": "0.9", '
    '"AvailabilityZone": "a", "InstanceType": "m"}]}',
}
JUNK = [
    "",
    "-1",
    "1e999",
    "nan",
    "NaN",
    "9" * 40,
    "\x00",
    "é",
    '"',
    "[",
    "{",
    ",",
    "\n",
    "\r\n",
    "null",
    "true",
    "x" * 5000,
    "9007199254740993",
]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_no_mutation_brings_a_traceback(name: str, tmp_path: Path) -> None:
    """60 mutations of each sample: the file reads, or the error names it, and neither takes long."""
    format_ = name.partition("/")[0]
    rng, path = random.Random(name), tmp_path / "mutant.txt"
    options: dict[str, Any] = {"polarity": "available"} if name in ("spot_ticks", "spot_availability") else {}
    path.write_text(SAMPLES[name])
    assert len(read_trace(path, format_, options=options)) > 0
    for _ in range(60):
        text = SAMPLES[name]
        for _ in range(rng.randint(1, 3)):
            at, length = rng.randrange(len(text) + 1), rng.choice([0, 1, 1, 3, 20])
            text = text[:at] + rng.choice(JUNK) + text[at + length :]
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            read_trace(path, format_, options=options)
        except InputError as error:
            assert "mutant.txt" in str(error) or "option" in str(error), error


def test_no_mutation_of_a_measured_run_brings_a_traceback(data_folder: Path, tmp_path: Path) -> None:
    """The thirteenth: a folder of five logs, of which one is mutated at a time."""
    from forerun.spot.traces.measured_run import read_run

    folder = data_folder / "bamboo/run-86"
    names = (
        "reconfig.csv",
        "loop_times_0.csv",
        "load_times_0.csv",
        "async-checkpoint_0.csv",
        "crash-time.txt",
    )
    for name in names:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert read_run(tmp_path).executed == 623
    rng = random.Random("run")
    for _ in range(40):
        name = rng.choice(names)
        text = (folder / name).read_text()
        at = rng.randrange(len(text) + 1)
        (tmp_path / name).write_text(text[:at] + rng.choice(JUNK) + text[at + rng.choice([0, 1, 3, 20]) :])
        try:
            read_run(tmp_path)
        except InputError as error:
            assert any(part in str(error) for part in names), error
        (tmp_path / name).write_bytes((folder / name).read_bytes())


def test_metadata_alone_are_no_ticks(tmp_path: Path) -> None:
    """Results of benchmarks begin with metadata, too; those of ticks say how long one is."""
    path = tmp_path / "result.json"
    path.write_text('{"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "benchmarks": []}')
    with pytest.raises(UsageError, match="of no format that is recognised"):
        read_trace(path)
