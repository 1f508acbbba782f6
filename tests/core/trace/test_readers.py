"""Readers of public formats against the reference results, and what each format means."""

from __future__ import annotations

import json

import numpy as np
import pytest
from trace_samples import CSV_SAMPLES, MOONCAKE

from forerun.core.errors import TraceError, UnknownName, UsageError
from forerun.core.trace.reader import described_formats, head_of, options_from, read_trace, readers, sniff
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.requests import arrivals_ms

from ...conftest import cases

FORMATS = {
    "gaps.deltas": "deltas",
    "azure_functions_2019.csv": "azure_functions_2019",
    "azure_functions_2021.csv": "azure_functions_2021",
    "burstgpt_v1.csv": "burstgpt",
    "burstgpt_v2.csv": "burstgpt",
    "mooncake.jsonl": "mooncake",
    "vidur.csv": "vidur",
    "splitwise.csv": "splitwise",
    "AzureLLMInferenceTrace_code.csv.gz": "azure_llm",
    "AzureLLMInferenceTrace_conv.csv.gz": "azure_llm",
}


@pytest.fixture
def golden(shared):
    folder = shared("golden", "serving", "readers")
    return folder, json.loads((folder / "expected.json").read_text())


def test_every_reference_file_has_a_reader(golden):
    assert set(golden[1]) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_reference_columns_are_equal(golden, name):
    folder, expected = golden
    trace = read_trace(folder / name, strict=True)
    for column in set(expected[name]) & set(trace.columns):
        missing = "" if trace[column].dtype.kind == "T" else None  # the reference writes null
        wanted = [missing if value is None else value for value in expected[name][column]]
        assert trace[column].tolist() == wanted, column


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_told_from_content_and_from_nothing_else(golden, name, tmp_path):
    folder, _ = golden
    assert sniff(folder / name) == (FORMATS[name],)
    if FORMATS[name] != "deltas":  # a column of numbers may be anything: here the file's name speaks
        renamed = tmp_path / "unnamed"
        renamed.write_bytes((folder / name).read_bytes())
        assert sniff(renamed) == (FORMATS[name],)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('{"metadata": {"a": [1, {"x": 2}], "gap_seconds": 3}, "data": [1]}',
         "metadata metadata.a metadata.a[].x metadata.gap_seconds data"),
        ('[{"event_time": 1, "node_id": "a,\\"b\\":{"}]', "[].event_time [].node_id"),
        ('{"note": "\\"metadata\\": {\\"gap_seconds\\": 3", "of": {"c": "gap_seconds"}}', "note of of.c"),
        ('{"a": 1}\n{"b": [[1], [{"z": 1}]], "cut in the mid', "a b b[].[].z"),
        ("x,y\n1,2", ""),
    ],
)  # fmt: skip
def test_keys_of_a_document_are_those_at_its_beginning(tmp_path, text, keys):
    path = tmp_path / "f.json"
    path.write_text(text)
    assert head_of(path).json_keys() == set(keys.split())


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        (json.dumps({"metadata": {"about": "x" * 3000, "gap_seconds": 300}, "data": [1, 0]}), ["spot_ticks"]),
        (json.dumps({"metadata": {"about": "no gap_seconds here"}, "gap_seconds": 1, "data": []}), []),
        (json.dumps({"metadata": {"inner": {"gap_seconds": 300}}, "data": []}), []),
        (json.dumps({"notes": "like \"SpotPriceHistory\" and \"spot_advisor\"", "data": {"spot_advisor": 1}}), []),
        (json.dumps([{"text": "\"event_time\" of \"node_id\"", "attempts of": 1}]), []),
        (json.dumps({"body": "\"resourceSpans\""}), []),
    ],
)  # fmt: skip
def test_a_document_is_known_by_its_keys_and_not_by_what_it_mentions(tmp_path, text, formats):
    path = tmp_path / "f.json"
    path.write_text(text)
    assert sniff(path) == tuple(formats)


def test_reference_figures_of_the_azure_functions(golden):
    folder, expected = golden
    wanted = expected["azure_functions_2019.csv"]
    trace = read_trace(folder / "azure_functions_2019.csv")
    ours = {name: int((trace["function"] == name).sum()) for name in wanted["invocations"]}
    assert ours == wanted["invocations"]
    of_f1 = trace["arrival_ms"][trace["function"] == "f1"]
    assert of_f1.tolist() == wanted["even_placement_of_f1_ms"]
    minutes = {
        str(int(m) + 1): int(n) for m, n in zip(*np.unique(of_f1 // 60_000, return_counts=True), strict=True)
    }
    assert minutes == wanted["minutes_of_f1"]
    trace = read_trace(folder / "azure_functions_2021.csv")
    order = [f"{app}/{function}" for app, function in zip(trace["app"], trace["function"], strict=True)]
    assert order == expected["azure_functions_2021.csv"]["order"]


@pytest.mark.parametrize("name", ["code", "conv"])
def test_reference_means_of_the_llm_traces(golden, name):
    folder, expected = golden
    wanted = expected[f"AzureLLMInferenceTrace_{name}.csv.gz"]
    trace = read_trace(folder / f"AzureLLMInferenceTrace_{name}.csv.gz", strict=True)
    assert len(trace) == wanted["rows"]
    assert trace["arrival_s"][-1] == wanted["span_s"]
    assert trace["prompt_tokens"].mean() == wanted["mean_prompt_tokens"]
    assert trace["output_tokens"].mean() == wanted["mean_output_tokens"]
    assert trace.provenance.options["first_arrival"].startswith("2023-11-16T18:1")
    assert not trace.provenance.repairs


def test_stamps_keep_their_seventh_digit(tmp_path):
    """100 ns apart at an instant where seconds as doubles are 119 ns apart."""
    path = tmp_path / "t.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,1,1\n2023-11-16 18:17:03.9799601,1,1\n2023-11-16 18:17:03.9799602,1,1\n"
    )
    assert read_trace(path)["arrival_s"].tolist() == [0, 1e-7, 2e-7]


@pytest.mark.parametrize("sample", CSV_SAMPLES, ids=lambda sample: sample.format)
def test_samples_read_without_repairs(sample, tmp_path):
    path = tmp_path / sample.name
    path.write_bytes(sample.data())
    trace = read_trace(path, sample.format, options=sample.options, strict=True)
    assert len(trace) >= len(sample.rows)
    assert trace.provenance.format == sample.format
    assert len(trace.provenance.sha256) == 64
    assert (np.diff(trace.instants) >= 0).all()


def test_gaps_make_one_query_more_or_as_many(tmp_path):
    path = tmp_path / "x.deltas"
    path.write_text("1\n2\n")
    assert read_trace(path)["arrival_ms"].tolist() == [0, 1, 3]
    assert read_trace(path, options={"queries": "gaps"})["arrival_ms"].tolist() == [0, 1]


@pytest.mark.parametrize(("unit", "last_ms"), [("ns", 3e-6), ("us", 3e-3), ("ms", 3.0), ("s", 3000.0)])
def test_intervals_are_in_the_unit_named(tmp_path, unit, last_ms):
    path = tmp_path / "intervals"
    path.write_text("1\n2\n")
    assert read_trace(path, "intervals", options={"unit": unit})["arrival_ms"][-1] == pytest.approx(last_ms)


@pytest.mark.parametrize("options", [{}, {"unit": "minutes"}])
def test_intervals_without_a_known_unit_are_refused(tmp_path, options):
    path = tmp_path / "intervals"
    path.write_text("1\n2\n")
    with pytest.raises(UsageError, match="unit must be one of ns, us, ms, s"):
        read_trace(path, "intervals", options=options)


@pytest.mark.parametrize("placement", ["even", "uniform", "poisson"])
def test_invocations_fall_within_their_minute(tmp_path, placement):
    sample = next(s for s in CSV_SAMPLES if s.format == "azure_functions_2019")
    path = tmp_path / "day.csv"
    path.write_bytes(sample.with_cell(0, 6, "10000"))
    trace = read_trace(path, options={"placement": placement, "functions": ["f1"]})
    third = trace["arrival_ms"][trace["arrival_ms"] < 180_000]
    assert third.min() >= 120_000
    count = len(third)
    assert count == 10_000 if placement != "poisson" else abs(count - 10_000) < 400
    # Uniform on a minute: the mean has standard error 60000/sqrt(12 n).
    assert abs(third.mean() - 150_000) < 4 * 60_000 / np.sqrt(12 * count)


def test_placement_streams_belong_to_functions(tmp_path):
    sample = next(s for s in CSV_SAMPLES if s.format == "azure_functions_2019")
    path = tmp_path / "day.csv"
    path.write_bytes(sample.data())
    everything = read_trace(path, options={"placement": "uniform", "seed": 4})
    alone = read_trace(path, options={"placement": "uniform", "seed": 4, "functions": ["f2"]})
    assert alone["arrival_ms"].tolist() == everything["arrival_ms"][everything["function"] == "f2"].tolist()
    other = read_trace(path, options={"placement": "uniform", "seed": 5})
    assert other["arrival_ms"].tolist() != everything["arrival_ms"].tolist()


def test_too_many_invocations_are_refused_before_they_are_placed(tmp_path):
    sample = next(s for s in CSV_SAMPLES if s.format == "azure_functions_2019")
    path = tmp_path / "day.csv"
    path.write_bytes(sample.with_cell(1, 10, "9999999"))
    with pytest.raises(
        TraceError, match=r"day.csv:3: more than 1000 invocations up to here; choose functions"
    ):
        read_trace(path, options={"most_requests": 1000})
    with pytest.raises(TraceError, match="has no function f9"):
        read_trace(path, options={"functions": ["f9"]})


def test_invocations_from_before_the_trace_are_dropped_and_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("app,func,end_timestamp,duration\na,f,1.0,5.0\na,g,2.0,1.0\n")
    log = RepairLog()
    assert read_trace(path, repairs=log)["arrival_s"].tolist() == [1.0]
    assert log.lines() == [f"began before the trace's zero, dropped: 1 ({path}:2)"]


def test_failed_requests_are_marked_or_dropped(tmp_path):
    sample = next(s for s in CSV_SAMPLES if s.format == "burstgpt")
    path = tmp_path / "t.csv"
    path.write_bytes(sample.data())
    assert read_trace(path)["failed"].tolist() == [False, False, True]
    assert read_trace(path, options={"failed": "drop"})["arrival_s"].tolist() == [5, 45]
    path.write_bytes(sample.with_cell(0, 6, "491"))
    log = RepairLog()
    read_trace(path, repairs=log)
    assert log.lines() == [
        f"total is not the sum of request and response tokens, ignored: 1 ({path}:2:Total tokens)"
    ]


def test_prefix_blocks_keep_their_order(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(MOONCAKE)
    assert read_trace(path)["hash_ids"].tolist() == ["0 1 2", "0 3", ""]


def test_recorded_routing_is_zero_or_one(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_ms,source>ResNet,ResNet>KSVM\n1,1,0\n2,0,1\n")
    trace = read_trace(path)
    assert trace["source>ResNet"].tolist() == [1, 0]
    assert arrivals_ms(trace).tolist() == [1, 2]
    path.write_text("arrival_ms,source>ResNet\n1,2\n")
    with pytest.raises(TraceError, match=r"t.csv:2:source>ResNet: 2 is above 1"):
        read_trace(path)


def test_unsorted_rows_are_sorted_and_counted_or_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s\n3\n1\n2\n4\n")
    log = RepairLog()
    assert read_trace(path, repairs=log)["arrival_s"].tolist() == [1, 2, 3, 4]
    assert log.lines() == [f"row out of order, sorted: 2 ({path}:3, {path}:4)"]
    with pytest.raises(TraceError, match=r"t.csv:3: needs a repair, refused by strict: row out of order"):
        read_trace(path, strict=True)


def test_a_format_must_be_known_or_recognised(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("when\n1\n")
    with pytest.raises(
        UsageError, match=r"is of no format that is recognised; name it; known: .*azure_functions_2019"
    ):
        read_trace(path)
    with pytest.raises(UnknownName, match="no trace format named 'vidr'; did you mean 'vidur'"):
        read_trace(path, "vidr")
    with pytest.raises(UsageError, match=r"options of vidur: .* speed; it has none"):
        read_trace(path, "vidur", options={"speed": 2})
    with pytest.raises(UsageError, match=r"options of deltas: at \$\.queries: Invalid enum value 'all'"):
        read_trace(path, "deltas", options={"queries": "all"})


def test_options_are_read_from_texts():
    assert options_from(["unit=us", "seed=3", "functions=a,b"]) == {
        "unit": "us",
        "seed": 3,
        "functions": ["a", "b"],
    }
    with pytest.raises(UsageError, match="write an option as key=value"):
        options_from(["unit"])


def test_formats_are_described():
    rows = {row["format"]: row for row in described_formats()}
    assert set(rows) == set(readers().names())
    assert rows["deltas"]["options"] == "queries=gaps+1"
    assert all(row["about"] and row["makes"] for row in rows.values())


def test_many_rows_are_read(tmp_path):
    rows = cases(50_000, 200_000)
    path = tmp_path / "big.csv"
    path.write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{i / 8},{i},7\n" for i in range(rows))
    )
    assert len(read_trace(path)) == rows
