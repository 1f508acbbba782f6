"""Defects that public traces really have, each with a small file that shows it and the data set it is known from.

The expected message is not written here: reading the file gives it. `python -m tests.core.malformed.examples` prints the
table of outcomes.md beside this file, and a test compares the two.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.core.errors import ForerunError
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import RepairLog

from .seeds import KUEUE, PHILLY, SACCT, SACCT_JSON, SEEDS_BY_NAME

#: a malformed input is read as this format, or by this function
Reading = str | Callable[[Path, RepairLog], Any]


@dataclass(frozen=True)
class BadFile:
    """A defect, where it is known from, and a file that has it."""

    defect: str
    known_from: str
    file: str
    data: bytes = field(repr=False)
    read: Reading
    options: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""  # of several repairs, the one that is about the defect

    def outcome(self) -> tuple[str, str]:
        """(verdict, what forerun says): `refused`, `repaired` (and counted) or `kept`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.file
            path.write_bytes(self.data)
            log = RepairLog()
            try:
                if callable(self.read):
                    self.read(path, log)
                else:
                    read_trace(path, self.read, options=self.options, repairs=log)
            except ForerunError as error:
                return "refused", str(error.problems[0]).replace(f"{folder}/", "")
            lines = [line.replace(f"{folder}/", "") for line in log.lines()]
            lines = [line for line in lines if self.says in line and not line.startswith("column not used")]
            return ("repaired", lines[0]) if lines else ("kept", "")


def changed(name: str, old: str, new: str) -> bytes:
    """A seed's file with one place replaced."""
    data = next(iter(SEEDS_BY_NAME[name].files.values())).decode()
    assert data.count(old) >= 1, f"{name} holds no {old!r}"
    return data.replace(old, new, 1).encode()


def kueue_queues(path: Path, _repairs: RepairLog) -> None:
    """ClusterQueues, read as a scenario does."""
    from forerun.cluster.inputs.kueue import read_kueue

    read_kueue([path])


def philly(**changes: Any) -> bytes:
    """Two Philly jobs, the first changed."""
    other = {**PHILLY[0], "jobid": "application_2"}
    return json.dumps([{**PHILLY[0], **changes}, other]).encode()


def attempt(start: str | None, end: str | None) -> list[dict[str, Any]]:
    """One attempt on one GPU."""
    return [{"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]


def fits(gpus: int) -> Callable[[Path, RepairLog], Any]:
    """Reads jobs, and asks whether they can have run on so many GPUs."""

    def read(path: Path, repairs: RepairLog) -> None:
        from forerun.cluster.traces.job_logs import cannot_have_run_on
        from forerun.core.errors import TraceError

        said = cannot_have_run_on(read_trace(path, repairs=repairs), gpus)
        if said:
            raise TraceError.at(path, said)

    return read


def power(path: Path, repairs: RepairLog) -> Any:
    """Measured epochs."""
    from forerun.energy.readers.energy_tables import read_power

    return read_power(path, repairs)


def windows(path: Path, repairs: RepairLog) -> Any:
    """Measured windows."""
    from forerun.replication.zeus.windows import read_windows

    return read_windows(path, repairs)


def trainings(path: Path, repairs: RepairLog) -> Any:
    """Recorded trainings."""
    from forerun.energy.readers.energy_tables import read_train

    return read_train(path, repairs)


def records(path: Path, repairs: RepairLog) -> Any:
    """An array of records."""
    from forerun.replication.cndlsys.npy import read_records

    return read_records(path)


def samples(path: Path, repairs: RepairLog) -> Any:
    """The samples in a folder, or in a tar."""
    from forerun.blocks.container.convert import samples_of

    return list(samples_of(path if path.suffix == ".tar" else path.parent))


def tokens(path: Path, repairs: RepairLog) -> Any:
    """Requests for a language model."""
    from forerun.serving.inputs.inputs import ScenarioFiles
    from forerun.serving.llm.inputs.resolve import language_model_of
    from forerun.serving.llm.scenario.language_model import Coefficients, LanguageModelSpec

    trace = read_trace(path, repairs=repairs)
    spec = LanguageModelSpec(max_seqs=1, token_budget=1, kv_blocks=10**6, cost=Coefficients(a_ms=1.0))
    return language_model_of(spec, "Chat", ScenarioFiles(), trace, len(trace), 0)


class _Runs:
    """Pickles as a call of a harmless function that a reader must not make."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must not run",))


def pickled_call() -> bytes:
    """An object array whose pickle calls a function."""
    import io

    import numpy as np

    values = np.empty(1, dtype=object)
    values[0] = _Runs()
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


LFS = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 5231982\n"
)
LLM = "azure_llm"
FOLD = "2017-11-05 01:30:00"

MALFORMED_INPUTS = (
    BadFile("start is null: the attempt never began", "Philly job log", "cluster_job_log.json",
            philly(attempts=attempt(None, None)), "philly"),
    BadFile("no attempts at all", "Philly job log", "cluster_job_log.json", philly(attempts=[]), "philly"),
    BadFile("an hour that occurs twice: clocks went back", "Philly job log, Pacific time", "cluster_job_log.json",
            philly(submitted_time="2017-11-05 00:50:00", attempts=attempt(FOLD, "2017-11-05 01:10:00")), "philly",
            says="repeated in autumn"),
    BadFile("an hour that does not exist: clocks went forward", "wall-clock logs in March", "cluster_job_log.json",
            philly(submitted_time="2018-03-11 01:50:00", attempts=attempt("2018-03-11 02:30:00", "2018-03-11 03:40:00")),
            "philly"),
    BadFile("a pointer left by Git LFS instead of the file", "Philly traces, cloned without LFS", "cluster_job_log.json",
            LFS, "philly"),
    BadFile("GPU time that is not duration times GPUs", "Philly, derived job list", "philly.csv",
            changed("philly_csv", "66.0,1,66.0", "66.0,1,67.5"), "philly_csv"),
    BadFile("jobs without GPUs among GPU jobs", "Helios", "cluster_log.csv",
            changed("helios", "vcA,1,1", "vcA,0,1"), "helios"),
    BadFile("no submission time", "Helios, `None`", "cluster_log.csv",
            changed("helios", "2020-06-09 18:41:27,", "None,"), "helios"),
    BadFile("ends before it starts", "Helios", "cluster_log.csv",
            changed("helios", "2020-06-10 04:55:09,36848", "2020-06-08 04:55:09,"), "helios", says="ends before"),
    BadFile("milliseconds where seconds are meant", "Slurm exports", "cluster_log.csv",
            changed("helios", "36848,0", "36848000,0"), "helios", says="recorded duration"),
    BadFile("`NA` for a missing end", "exports from R", "openb_pod_list.csv",
            changed("alibaba_openb", "9973826,", "NA,"), "alibaba_openb"),
    BadFile("missing end", "Alibaba GPU pods 2023, running at the end", "openb_pod_list.csv",
            changed("alibaba_openb", "9973826,", ","), "alibaba_openb"),
    BadFile("demand above all GPUs there are (133 %)", "Alibaba GPU traces, against the published cluster",
            "openb_pod_list.csv", changed("alibaba_openb", "p2,4000,15258,1,220", "p2,4000,15258,4,1000"), fits(9)),
    BadFile("a share of a GPU together with whole GPUs", "Alibaba GPU pods 2023", "openb_pod_list.csv",
            changed("alibaba_openb", "8,1000,,", "8,500,,"), "alibaba_openb"),
    BadFile("the same id twice", "Slurm after a requeue", "sacct.txt", SACCT.replace("11|bob", "10|bob").encode(), "sacct",
            says="used again"),
    BadFile("job steps between the jobs", "Slurm, `sacct` without -X", "sacct.txt",
            (SACCT + SACCT.splitlines()[1].replace("10|", "10.batch|", 1) + "\n").encode(), "sacct", says="step"),
    BadFile("`Unknown` for an end", "Slurm, running jobs", "sacct.txt",
            SACCT.replace("2024-03-01T10:16:00", "Unknown").encode(), "sacct", says="no end"),
    BadFile("an end that reads earlier than its start", "Slurm, across the end of daylight saving time", "sacct.txt",
            SACCT.replace("2024-03-01T11:05:00", "2024-03-01T10:01:00").encode(), "sacct", says="clock was set back"),
    BadFile("a job that was suspended for an hour", "Slurm, preemption by suspending", "sacct.txt",
            SACCT.replace("2024-03-01T11:05:00", "2024-03-01T12:05:00").encode(), "sacct", says="suspended"),
    BadFile("a slice of a GPU", "Slurm, multi-instance GPUs", "sacct.txt",
            SACCT.replace("gres/gpu:a100=2", "gres/gpu:nvidia_a100_1g.5gb=2").encode(), "sacct", says="slices"),
    BadFile("shares of GPUs and no GPU", "Slurm, shards", "sacct.txt",
            SACCT.replace("gres/gpu:a100=2|gres/gpu=2", "gres/shard=2|gres/shard=2").encode(), "sacct", says="shares"),
    BadFile("GPUs in ReqGRES only", "Slurm that does not account for GPUs", "sacct.txt",
            SACCT.replace("AllocTRES|ReqTRES", "ReqTRES|ReqGRES").replace("gres/gpu:a100=2|gres/gpu=2", "|gpu:2").encode(),
            "sacct", says="ReqGRES"),
    BadFile("two rows for one heterogeneous job", "Slurm, `sbatch` with `hetjob`", "sacct.txt",
            SACCT.replace("10|ann", "10+0|ann").replace("11|bob", "10+1|ann").replace("10:01:00", "10:00:00").encode(),
            "sacct", says="heterogeneous"),
    BadFile("`|` in a job's name", "Slurm, a name in mid-row", "sacct.txt",
            "\n".join("|".join((cells := line.split("|"))[:1] + cells[-1:] + cells[1:-1]) for line in SACCT.splitlines())
            .replace("train", "a|b").encode(), "sacct", says="pieces joined"),
    BadFile("the last row cut in the middle", "Slurm, a full disk", "sacct.txt", SACCT[:-40].encode(), "sacct",
            says="cut short"),
    BadFile("an admission check, which is not simulated", "Kueue", "queues.yaml",
            KUEUE.replace("  cohort: c\n", "  cohort: c\n  admissionChecks: [prov]\n").encode(), kueue_queues),
    BadFile("parents of cohorts that form a cycle", "Kueue", "queues.yaml",
            (KUEUE + "---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: c}\nspec: {parent: c}\n")
            .encode(), kueue_queues),
    BadFile("an infinite number, 1e999", "JSON written by hand", "sacct.json",
            json.dumps(SACCT_JSON).replace('"job_id": 100', '"job_id": 1e999').encode(), "sacct_json"),
    BadFile("-1 for everything unknown", "Parallel Workloads Archive", "log.swf",
            changed("swf", "1 0 10 100 8", "1 0 10 100 -1").replace(b"-1 -1 8 200", b"-1 -1 -1 200"), "swf"),
    BadFile("int64's smallest number for none", "exports of missing times, NaT", "log.swf",
            changed("swf", "1 0 10 100", "1 0 10 -9223372036854775808"), "swf"),
    BadFile("a duration of 236 years", "a missing end read as int64's largest, in ns", "philly.csv",
            changed("philly_csv", "66.0,1,66.0", "7451827200.0,1,7451827200.0"), "philly_csv"),
    BadFile("an instant in the year 2262", "int64's largest, in ns", "llm.csv",
            changed(LLM, "2023-11-16 18:17:04.03", "2262-04-11 23:47:16.854775807"), LLM),
    BadFile("a whole number beyond 2^53", "ids and counts as doubles", "llm.csv",
            changed(LLM, "3180", "9007199254740993"), LLM),
    BadFile("`NA` where a number must be", "exports from R", "vidur.csv",
            changed("vidur", "4.3,396", "4.3,NA"), "vidur"),
    BadFile("a decimal comma", "spreadsheets of half of Europe", "plain.csv",
            changed("csv", "b,1.5,8,0", 'b,"1,5",8,0'), "csv"),
    BadFile("columns separated by semicolons", "spreadsheets of half of Europe", "plain.csv",
            changed("csv", "id,arrival_s", "id,arrival_s").replace(b",", b";"), "csv"),
    BadFile("a byte-order mark and CRLF", "spreadsheets", "plain.csv",
            b"\xef\xbb\xbf" + changed("csv", "a,0.5", "a,0.5").replace(b"\n", b"\r\n"), "csv"),
    BadFile("UTF-16", "spreadsheets, `Unicode text`", "plain.csv",
            changed("csv", "a,0.5", "a,0.5").decode().encode("utf-16"), "csv"),
    BadFile("rows out of order", "BurstGPT, merged logs", "burst.csv",
            changed("burstgpt", "45,,0.9", "4,,0.9"), "burstgpt"),
    BadFile("no answer came: zero response tokens", "BurstGPT, failed requests", "burst.csv",
            changed("burstgpt", "GPT-4,10,25,35", "GPT-4,10,0,10"), tokens),
    BadFile("a total that is not the sum of its parts", "BurstGPT", "burst.csv",
            changed("burstgpt", "472,18,490", "472,18,491"), "burstgpt", says="total"),
    BadFile("the last line is cut short", "downloads that stopped", "vidur.csv",
            changed("vidur", "4.3,396,109\n", "4.3,39"), "vidur"),
    BadFile("gzip cut short", "downloads that stopped", "llm.csv.gz",
            gzip.compress(next(iter(SEEDS_BY_NAME[LLM].files.values())) * 50, mtime=0)[:-20], LLM),
    BadFile("a web page instead of the file", "expired links", "llm.csv",
            b"<!DOCTYPE html><html><body>Not found</body></html>\n", LLM),
    BadFile("polarity not said: is 1 up or preempted?", "SkyNomad and spot-traces disagree", "ticks.json",
            b'{"metadata": {"gap_seconds": 300}, "data": [1, 0, 0, 1]}', "spot_ticks"),
    BadFile("tick length that contradicts the README", "SkyNomad: prices every 195 s beside ticks of 300 s and 600 s",
            "ticks.json", b'{"metadata": {"gap_seconds": "10 min"}, "data": [1, 0]}', "spot_ticks",
            {"polarity": "available"}),
    BadFile("invented ticks that fill a gap", "SkyNomad, 60 of them", "ticks.json",
            json.dumps({"metadata": {"gap_seconds": 600, "gap_filled": {"gap_start_index": 1, "gap_end_index": 2,
                        "gap_points": 2}}, "data": [1, 1, 1, 0]}).encode(), "spot_ticks", {"polarity": "available"}),
    BadFile("a node removed that was never there", "Bamboo and Oobleck membership logs", "members.csv",
            changed("spot_membership", "5000,remove,a", "5000,remove,z"), "spot_membership"),
    BadFile("a node added while it is alive", "membership logs joined from two files", "members.csv",
            changed("spot_membership", "0,add,b", "0,add,a"), "spot_membership"),
    BadFile("the operator's teardown recorded as preemptions", "Bamboo, 63 nodes to 0 in the last row", "counts.csv",
            b"timestamp,count\n2021-07-26T17:00:00Z,4\n2021-07-26T17:20:00Z,3\n2021-07-26T17:40:00Z,0\n", "spot_counts"),
    BadFile("a fault of length 0", "InfiniteHBD", "faults.json",
            changed("spot_faults", '"event_time": 2.0', '"event_time": 1.5').replace(
                b"}]", b'}, {"node_id": "y", "event_time": 3, "event_type": "fault_start"}]'), "spot_faults"),
    BadFile("a second fault while the node is down", "InfiniteHBD", "faults.json",
            changed("spot_faults", '"event_time": 2.0, "event_type": "fault_end"',
                    '"event_time": 2.0, "event_type": "fault_start"').replace(
                b"}]", b'}, {"node_id": "x", "event_time": 3, "event_type": "fault_end"}]'), "spot_faults"),
    BadFile("milliwatts for watts", "NVML counts milliwatts, Zeus's tables watts", "power.csv",
            changed("energy epochs", "250,31.2,182.5", "250,31.2,182500"), power),
    BadFile("draw above the power limit", "Zeus, up to 1.21 times on the public GPUs", "power.csv",
            changed("energy epochs", "250,31.2,182.5", "250,31.2,400"), power),
    BadFile("an energy counter that was reset: negative joules", "NVML total energy after a driver restart", "windows.csv",
            changed("energy windows", "12.5,900", "12.5,-4.1e6"), windows),
    BadFile("an epoch between two epochs", "Zeus's target_epoch, averaged by hand", "train.csv",
            changed("energy trainings", "0.6,31", "0.6,31.5"), trainings),
    BadFile("a pickle that calls a function when it is loaded", "object arrays among published measurements",
            "memory.npy", pickled_call(), records),
    BadFile("Parquet files where files of samples are wanted", "data sets of Hugging Face",
            "train-00000-of-00001.parquet", b"PAR1" + bytes(500), samples),
    BadFile("MDS shards where files of samples are wanted", "MDSWriter", "shard.00000.mds", bytes(8), samples),
    BadFile("a tar that is compressed", "tar -cz, downloads", "shard.tar", gzip.compress(b"x" * 2000, mtime=0), samples),
)  # fmt: skip


def rows() -> list[tuple[str, str, str, str]]:
    """(defect, known from, verdict, message) of every malformed input."""
    return [(malformed.defect, malformed.known_from, *malformed.outcome()) for malformed in MALFORMED_INPUTS]


def table() -> str:
    """The rows as Markdown."""
    lines = ["| defect | known from | | forerun says |", "|---|---|---|---|"]
    for defect, known_from, verdict, said in rows():
        code = f"`{said}`" if said else ""
        code = code.replace("|", "\\|")
        lines.append(f"| {defect} | {known_from} | {verdict} | {code} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
