"""`forerun measure loading`: a few short probes of a real store, and the answer that follows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options
from forerun.core.cli._options import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from forerun.loading.measure.answers import Answer, Job
    from forerun.loading.measure.corpus import Corpus

    Report = Callable[[str], None]


@click.command(name="loading")
@click.argument("source", metavar="DIR_OR_URL", default="")
@click.option(
    "--dataset", "dataset", default="", metavar="MODULE:FUNCTION",
    help="Measure your own data set of torch instead, which the function makes, in torch's workers.",
)  # fmt: skip
@click.option(
    "--transform", default="", metavar="MODULE:FUNCTION",
    help="What your program does with every sample, in place of an emulated decoding.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Samples a step.")
@click.option("--step", default="100ms", show_default=True, help="Length of a training step.")
@click.option("--decode", default="1ms", show_default=True, help="Decoding a sample, emulated.")
@click.option(
    "--decoder", type=click.Choice(["pillow", "soundfile", "numpy"]), default=None,
    help="Decode your data in earnest instead.",
)  # fmt: skip
@click.option("--probe", default="4s", show_default=True, help="How long a probe may take.")
@click.option("--token", default="", envvar="FORERUN_STORE_TOKEN", help="Bearer token of an HTTP store.")
@click.option("--check", "checked", is_flag=True, help="Also measure cells and compare with the prediction.")
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE",
    help="A setting (see above); repeatable.",
)  # fmt: skip
@_options.output_options
@_options.out_option("FILE", "Also write the JSON to a file.")
def command(
    source: str,
    dataset: str,
    transform: str,
    batch: int,
    step: str,
    decode: str,
    decoder: str | None,
    probe: str,
    token: str,
    checked: bool,
    given: tuple[str, ...],
    output: Output,
    out: Path | None,
) -> None:
    """Measure latency, bandwidth, decoding and overhead of DIR_OR_URL in a few probes, and show what would hide loading.

    DIR contains files, or blocks as `forerun pack` writes them; URL is where such files or blocks are served: http, https,
    s3, gs, az, or what fsspec opens. With --dataset, modules are also looked for in the working directory.

    Nothing is written to the store. Local files are read through the page cache unless --set cold=true is given.

    \b
    Settings, as --set KEY=VALUE, with their defaults:
      step_by=sleep          or busy, torch: what a training step does
      decode_by=sleep        or busy, python, none: what decoding does
      memory=SIZE            that blocks in memory may take, such as 64MiB
      include='*.jpg'        files that are samples (no empty or hidden
                             ones, no tables beside others)
      cold=false             have the kernel forget local files first
      samples=640            of a checked cell
      loader=threads         or workers, pooled_workers: of torch
      workers=[1,2,4]        numbers of workers to measure
      pool_threads=2         threads a pool
      block=1                samples a worker's read
    """
    from forerun.core.errors import UsageError
    from forerun.core.trace.domain_traces import decoded
    from forerun.loading.measure.answers import Job
    from forerun.loading.measure.corpus import open_corpus
    from forerun.loading.measure.own import OwnTransform
    from forerun.loading.measure.probing import answer
    from forerun.loading.measure.settings import Settings
    from forerun.loading.measure.workers import measure_workers

    if bool(source) == bool(dataset):
        raise UsageError.at("DIR_OR_URL", "name either a folder or URL, or --dataset")
    start = {"step": step, "decode": decode, "probe": probe}
    settings = decoded("", start, given, Settings, name="measure loading")
    include = settings.include
    if dataset and include:
        raise UsageError.at("--set include", "is of plain files, not of --dataset")
    if transform and decoder:
        raise UsageError.at("--transform", f"{transform!r} and --decoder {decoder} both decode; name one")
    if (dataset or transform) and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    job = Job(
        batch, settings.step_s, settings.decode_s, step=settings.step_by, decode=decoder or settings.decode_by,
        transform=OwnTransform.of(transform) if transform else None,
    )  # fmt: skip
    many = sorted(set(settings.workers))

    def report(message: str) -> None:
        if not output.silent:
            click.echo(message, err=True)

    if dataset:
        data = _own(dataset, job, many, settings.probe_s, report)
        _tell(data, output.as_json, out)
        return
    with open_corpus(source, token=token, include=include) as corpus:
        if include and corpus.files is None:
            raise UsageError.at("--set include", f"{source} is no folder of plain files")
        if settings.loader != "threads":
            pool = settings.pool_threads if settings.loader == "pooled_workers" else 0
            measured = measure_workers(
                corpus, job, many, block=settings.block, pool_threads=pool, progress=report
            )
            data = measured.data()
        else:
            answered = answer(
                corpus, job, progress=report, probe_s=settings.probe_s,
                memory_bytes=settings.memory_bytes or float("inf"), cache=_page_cache(corpus, settings.cold),
            )  # fmt: skip
            data = answered.data() | {
                "checked": _checked(corpus, answered, settings.samples, report) if checked else []
            }
        data |= {"files_passed_over": len(corpus.passed_over), "passed_over": list(corpus.passed_over[:3])}
    _tell(data, output.as_json, out)


def _tell(data: dict[str, Any], as_json: bool, out: Path | None) -> None:
    """Write the answer to a file, where one is named, and print it.

    Parameters
    ----------
    data : the answer.
    as_json : print JSON.
    out : the file (None: none is written).
    """
    from forerun.core.version import VERSION

    head = {"format": "forerun.measurement/1", "domain": "loading", "forerun": VERSION}
    text = json.dumps(head | data, indent=2, allow_nan=False)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    else:
        _show(data)
        if out is not None:
            click.echo(f"written to {out}; next: forerun plan {out}; forerun report {out} -o report.html")


def _own(dataset: str, job: Job, many: list[int], probe_s: float, report: Report) -> dict[str, Any]:
    """A data set of the user's own, in torch's workers.

    Parameters
    ----------
    dataset : module and function.
    many : numbers of workers.
    probe_s : seconds of a run.
    report : called with a line about each run.
    """
    from forerun.loading.measure.own import OwnData, measure_own

    own = OwnData.of(dataset, job.transform)
    return measure_own(own, job, many, probe_s=probe_s, progress=report).data()


def _page_cache(corpus: Corpus, cold: bool) -> str:
    """The state of the kernel's page cache in words; made cold where that is asked for and can be.

    A remote store's own caches cannot be seen from here.

    Parameters
    ----------
    cold : whether it was asked for.
    """
    from forerun.blocks.reader.clients import LocalFiles, Wrapping
    from forerun.loading.measure.probing import COLD

    if not cold:
        return "warm or unknown"
    clients = [each.client if isinstance(each, Wrapping) else each for each in (corpus.client, corpus.files)]
    left = [client.drop_cache() for client in clients if isinstance(client, LocalFiles)]
    known = [share for share in left if share is not None]
    if not left or len(known) < len(left):
        return "unknown: nothing here shows whether a remote store is cold"
    worst = max(known)
    return "cold" if worst < COLD else f"{worst:.0%} of the pages stayed in memory: not cold"


def _checked(corpus: Corpus, answered: Answer, samples: int, report: Report) -> list[dict[str, Any]]:
    """Cells of a grid measured and compared with the prediction; none where nothing was stalled.

    Each cell is run three times, those that scatter six times.

    Parameters
    ----------
    corpus : what is read; blocks larger than its own are left out.
    answered : whose job is run and whose prediction is compared.
    samples : of each run.
    report : called with a line about each run.
    """
    from forerun.loading.measure.checking import check
    from forerun.loading.measure.probing import BLOCKS, THREADS
    from forerun.loading.policy import Cell

    if answered.profile is None:
        return []
    cells = [Cell(size, many) for size in BLOCKS for many in THREADS if size <= corpus.largest_piece]
    rows = check(corpus, answered.job, answered, cells, samples, progress=report)
    return [
        {"block_samples": row.cell.block, "threads": row.cell.threads, **row.data(), "probe": row.probe} for row in rows
    ]  # fmt: skip


def _show(data: dict[str, Any]) -> None:
    """Print the answer for people: what is measured, what would be enough, and what to know about it."""
    click.echo(f"answer: {data['answer']}")
    profile = data.get("profile")
    if isinstance(profile, dict):
        for name in ("latency_s", "conn_bytes_per_s", "shared_bytes_per_s", "decode_s"):
            low, high = profile["intervals"][name]
            shown = "unlimited" if profile[name] is None else f"{profile[name]:.4g}"
            ends = " to ".join("unlimited" if end is None else f"{end:.4g}" for end in (low, high))
            click.echo(f"  {name:<20} {shown}   (95 %: {ends})")
    if data.get("smallest_hiding"):
        enough = ", ".join(
            f"{row['threads']} threads: blocks of {row['block_samples']}" for row in data["smallest_hiding"]
        )
        click.echo(f"  smallest blocks that hide loading: {enough.replace('1 threads', '1 thread', 1)}")
    if data.get("verified_samples_per_s") is not None:
        click.echo(
            f"  verified: {data['verified_samples_per_s']:.4g} samples/s on a short run of that choice "
            f"(the model is {data['verified_error']:+.1%} off in seconds)"
        )
    if isinstance(profile, dict):
        for note in profile["notes"]:
            click.echo(f"note: {note}")
    _show_rows(data)
    host = data["host"]
    if isinstance(host, dict) and not host["quiet"]:
        click.echo(
            "note: too noisy: the load average was above twice the cores; measure again on a quiet machine"
        )
    if data.get("next"):
        click.echo(f"next: {data['next']}")


#: the tables of an answer: heading, key and format of each column
_TABLES: Final = {
    "checked": (
        ("block", "block_samples", "5"), ("threads", "threads", "7"), ("measured s", "measured_s", "10.3f"),
        ("predicted s", "predicted_s", "11.3f"), ("error", "error", "+6.1%"), ("from", "low_s", "7.3f"),
        ("to (95 %)", "high_s", "9.3f"),
    ),
    "workers": (
        ("workers", "workers", "7"), ("measured s", "measured_s", "10.3f"), ("predicted s", "predicted_s", "11.3f"),
        ("error", "error", "+6.1%"),
    ),
    "own": (
        ("workers", "workers", "7"), ("samples/s", "samples_per_s", "9.4g"), ("s a sample", "total_s", "10.3g"),
        ("waiting s", "waiting_s", "9.3g"), ("processor s", "cpu_s", "11.3g"), ("queued s", "queued_s", "8.3g"),
        ("transform s", "transform_s", "11.3g"), ("its processor s", "transform_cpu_s", "15.3g"),
    ),
}  # fmt: skip


def _show_rows(data: dict[str, Any]) -> None:
    """Print the tables that the answer has, a row each cell, number of workers or job."""
    for name, columns in _TABLES.items():
        if rows := data.get(name):
            widths = [int(form.strip("+").split(".")[0]) for _, _, form in columns]
            click.echo("".join(f"  {heading:>{wide}}" for (heading, _, _), wide in zip(columns, widths)))
        for row in rows or ():
            mark = "  probe" if row.get("probe") else "  too noisy" if row.get("noisy") else ""
            click.echo("".join(f"  {row[key]:>{form}}" for _, key, form in columns) + mark)
    if count := data.get("files_passed_over"):
        shown = ", ".join(map(repr, data["passed_over"]))
        click.echo(
            f"  note: files passed over as no samples: {count}, such as {shown}; --set include=PATTERN says which are"
        )
