"""`forerun pack`: pack many small files into few blocks, and unpack them."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output


@click.command(name="pack")
@click.argument("source", metavar="SOURCE")
@click.argument("target", type=_options.PATH, metavar="TARGET", required=False)
@click.option(
    "--block-samples", type=click.IntRange(min=1), default=64, show_default=True, help="Samples per block."
)
@click.option("--block-bytes", default="", metavar="SIZE", help="Target block size instead, such as 4MiB.")
@click.option(
    "--order", type=click.Choice(["shuffled", "sorted", "class"]), default="shuffled", show_default=True,
    help="Order of the samples.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the shuffle.")
@click.option(
    "--to", "kind", type=click.Choice(["blocks", "files", "tar"]), default="blocks", show_default=True,
    help="Output format: blocks, plain files or WebDataset tar shards.",
)  # fmt: skip
@click.option("--unpack", is_flag=True, help="Restore the files; same as --to files.")
@click.option("--verify", is_flag=True, help="Only verify the blocks in SOURCE.")
@click.option(
    "--upload",
    default="",
    metavar="URL",
    help="Also upload the blocks to this URL, such as s3://bucket/data.",
)
@click.option("--token", default="", envvar="FORERUN_STORE_TOKEN", help="Bearer token of an HTTP SOURCE.")
@_options.output_options
def command(
    source: str,
    target: Path | None,
    block_samples: int,
    block_bytes: str,
    order: str,
    seed: int,
    kind: str,
    unpack: bool,
    verify: bool,
    upload: str,
    token: str,
    output: Output,
) -> None:
    """Pack the files below SOURCE into blocks in TARGET; resumable, deterministic, verified.

    SOURCE may also contain blocks or WebDataset tar, to convert them; or be the URL of plain files (http, https, s3, gs,
    az, or what fsspec opens). With --upload and no TARGET the blocks in SOURCE are put there.
    """
    from forerun.blocks.container.container import Blocks
    from forerun.blocks.container.convert import convert, keys_repeat, kind_of, passed_over, shards_of
    from forerun.blocks.container.pack import PackSpec, pack
    from forerun.core.errors import UsageError
    from forerun.core.units import parse_quantity

    remote = "://" in source
    if verify:
        blocks = Blocks.open(Path(source))
        blocks.verify()
        whole = f"{source}: {len(blocks)} samples in {blocks.blocks} blocks are whole"
        _report(output, whole, samples=len(blocks))
        return
    if target is None and upload and not remote:
        _put(Path(source), upload, output)
        return
    if target is None:
        raise UsageError.at("forerun pack", "name a TARGET folder to write to")
    if upload and (unpack or kind != "blocks"):
        raise UsageError.at("--upload", "puts blocks; leave out --unpack and --to")
    try:
        size = round(parse_quantity(block_bytes, "bytes")) if block_bytes else 0
    except ValueError as error:
        raise UsageError.at("--block-bytes", str(error)) from error
    spec = PackSpec(block_samples, size, order, seed)  # type: ignore[arg-type]
    with output.working(f"packing {source}"):
        if remote:
            from forerun.blocks.reader.remote import remote_files

            if unpack or kind != "blocks":
                raise UsageError.at(
                    source, "files behind a URL are packed into blocks; turn these into others then"
                )
            packed: Blocks | None = pack(remote_files(source, token), target, spec)
        elif not unpack and kind == "blocks" and kind_of(Path(source)) == "files":
            packed = pack(Path(source), target, spec)
        else:
            packed = None
            count = convert(Path(source), target, "files" if unpack else kind, spec=spec)  # type: ignore[arg-type]
        made = ""
        if packed is not None:
            count, made = len(packed), f" in {packed.blocks} blocks"
    if not remote and kind_of(Path(source)) == "tar" and keys_repeat(shards_of(Path(source))):
        click.echo(
            "note: shards have members with the same name, so each key begins with its shard's name",
            err=True,
        )
    skipped = passed_over(target) if kind == "tar" and not unpack else []
    _report(output, f"{target}: {count} samples{made}", samples=count)
    if skipped:
        click.echo(
            f"note: webdataset passes over {len(skipped)} of them, such as {skipped[0]!r}: their names have no extension",
            err=True,
        )
    if not output.silent and not unpack and kind == "blocks":
        click.echo(f"next: forerun pack {target} --verify; forerun measure loading {upload or target}")
    if upload:
        _put(target, upload, output)


def _put(folder: Path, url: str, output: Output) -> None:
    """Upload a folder of blocks and print how much that was.

    Parameters
    ----------
    folder : with the blocks.
    url : where to, such as `s3://bucket/data`.
    output : how to print.
    """
    from forerun.blocks.reader.remote import upload

    with output.working(f"uploading {folder}"):
        count, size = upload(folder, url)
    _report(output, f"{url}: {count} files, {size} bytes", files=count, bytes=size)


def _report(output: Output, text: str, **data: int) -> None:
    """Print what was done: `text` for people, or `data` as JSON."""
    if output.as_json:
        _show.print_json(data)
    else:
        click.echo(text)
