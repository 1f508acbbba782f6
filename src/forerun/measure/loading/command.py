"""`forerun measure loading`: a few short probes of a real store, and what they say."""

from __future__ import annotations

import json
from pathlib import Path

import click

import forerun


@click.command(name="loading")
@click.argument("source", metavar="DIR_OR_URL")
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Samples a step.")
@click.option("--step", "step", default="100ms", show_default=True, help="Length of a training step.")
@click.option("--decode", "decode", default="1ms", show_default=True, help="Decoding a sample.")
@click.option("--busy", is_flag=True, help="Steps compute instead of sleeping.")
@click.option("--token", default="", envvar="FORERUN_STORE_TOKEN", help="Bearer token of the store.")
@click.option("--cold", is_flag=True, help="Ask the kernel to forget local files first.")
@click.option("--check", "checked", is_flag=True, help="Also measure cells and compare with the prediction.")
@click.option(
    "--samples", type=click.IntRange(min=64), default=640, show_default=True, help="Samples a checked cell."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Also write the JSON to a file."
)
def command(
    source: str,
    batch: int,
    step: str,
    decode: str,
    busy: bool,
    token: str,
    cold: bool,
    checked: bool,
    samples: int,
    as_json: bool,
    quiet: bool,
    out: Path | None,
) -> None:
    """Learn latency, bandwidth, decode and overhead of DIR_OR_URL in a few probes, and say what would hide loading.

    DIR holds files, or blocks as `forerun pack` writes them; URL is where such blocks are served.
    """
    from forerun.domains.loading.model import Cell
    from forerun.errors import UsageError
    from forerun.measure.loading.clients import LocalFiles
    from forerun.measure.loading.corpus import open_corpus
    from forerun.measure.loading.study import BLOCKS, THREADS, Checked, Job, answer, check
    from forerun.units import parse_quantity

    try:
        job = Job(
            batch, parse_quantity(step, "s"), parse_quantity(decode, "s"), step="busy" if busy else "sleep"
        )
    except ValueError as error:
        raise UsageError.at("--step, --decode", str(error)) from error

    def tell(message: str) -> None:
        if not (quiet or as_json):
            click.echo(message, err=True)

    with open_corpus(source, token=token) as corpus:
        clients = [client for client in (corpus.client, corpus.files) if isinstance(client, LocalFiles)]
        dropped = cold and bool(clients) and all(client.drop_cache() for client in clients)
        found = answer(corpus, job, progress=tell, cache="asked to be cold" if dropped else "warm or unknown")
        rows: tuple[Checked, ...] = ()
        if checked and found.profile is not None:
            cells = [
                Cell(block, threads)
                for block in BLOCKS
                for threads in THREADS
                if block <= corpus.largest_piece
            ]
            rows = check(corpus, job, found, cells, samples, progress=tell)
    data = {
        "format": "forerun.measurement/1", "domain": "loading", "forerun": forerun.__version__, **found.data(),
    }  # fmt: skip
    data["checked"] = [
        {
            "block_samples": row.cell.block,
            "threads": row.cell.threads,
            "measured_s": row.measured_s,
            "predicted_s": row.predicted_s,
            "error": row.error,
            "probe": row.probe,
            "noisy": row.noisy,
        }
        for row in rows
    ]
    text = json.dumps(data, indent=2, allow_nan=False)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
        return
    _show(data)


def _show(data: dict[str, object]) -> None:
    click.echo(f"answer: {data['answer']}")
    profile = data["profile"]
    if isinstance(profile, dict):
        for name in ("latency_s", "conn_bytes_per_s", "shared_bytes_per_s", "decode_s"):
            low, high = profile["intervals"][name]
            shown = "unlimited" if profile[name] is None else f"{profile[name]:.4g}"
            ends = " to ".join("unlimited" if end is None else f"{end:.4g}" for end in (low, high))
            click.echo(f"  {name:<20} {shown}   (95 %: {ends})")
        for note in profile["notes"]:
            click.echo(f"note: {note}")
    checked = data["checked"]
    if isinstance(checked, list) and checked:
        click.echo("  block  threads  measured s  predicted s   error")
        for row in checked:
            mark = "  probe" if row["probe"] else ("  noisy" if row["noisy"] else "")
            click.echo(
                f"  {row['block_samples']:>5}  {row['threads']:>7}  {row['measured_s']:>10.3f}"
                f"  {row['predicted_s']:>11.3f}  {row['error']:>+6.1%}{mark}"
            )
    host = data["host"]
    if isinstance(host, dict) and not host["quiet"]:
        click.echo(
            "note: too noisy: the load average was above twice the cores; measure again on a quiet machine"
        )
