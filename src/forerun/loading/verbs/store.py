"""`forerun store`: serve a local folder over HTTP with given latency, bandwidth and failures."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import click

from forerun.core.cli import _options


@click.command(name="store")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--latency", default="0ms", show_default=True, help="Mean latency of a request.")
@click.option(
    "--sigma",
    type=_options.Number(min=0),
    default=0.2,
    show_default=True,
    help="Standard deviation of its logarithm.",
)
@click.option(
    "--then", "changes", multiple=True, metavar="TIME=LATENCY",
    help="Change the mean latency this long after the start, such as 30s=40ms; repeatable, in ascending order.",
)  # fmt: skip
@click.option("--bandwidth", default="", metavar="RATE", help="Bandwidth of one connection, such as 600MB/s.")
@click.option("--shared", default="", metavar="RATE", help="Total bandwidth of all connections.")
@click.option(
    "--slots", type=click.IntRange(min=0), default=0, help="Maximum concurrent requests; 0 is no limit."
)
@click.option(
    "--requests-per-s",
    type=_options.Number(min=0),
    default=0.0,
    help="Maximum requests per second; 0 is no limit.",
)
@click.option(
    "--errors", type=_options.Number(0, 1), default=0.0, help="Share of requests answered with status 503."
)
@click.option(
    "--resets", type=_options.Number(0, 1), default=0.0, help="Share of responses cut off in the middle."
)
@click.option(
    "--stalls",
    type=_options.Number(0, 1),
    default=0.0,
    help="Share of responses that pause in the middle for a minute.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--token", default="", envvar="FORERUN_STORE_TOKEN", help="Require this bearer token.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Interface to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 picks a free one.")
@click.option("--for", "seconds", default="", metavar="TIME", help="Stop after this time, such as 10min.")
def command(
    folder: Path,
    latency: str,
    sigma: float,
    changes: tuple[str, ...],
    bandwidth: str,
    shared: str,
    slots: int,
    requests_per_s: float,
    errors: float,
    resets: float,
    stalls: float,
    seed: int,
    token: str,
    host: str,
    port: int,
    seconds: str,
) -> None:
    """Serve the files below DIR over HTTP until interrupted; prints the URL first."""
    import time

    from forerun.core.errors import UsageError
    from forerun.core.units import parse_quantity
    from forerun.loading.measure.store import LatencyStore, StoreSpec

    try:
        spec = StoreSpec(
            latency_s=parse_quantity(latency, "s"),
            sigma=sigma,
            conn_bytes_per_s=parse_quantity(bandwidth, "bytes_per_s") if bandwidth else math.inf,
            shared_bytes_per_s=parse_quantity(shared, "bytes_per_s") if shared else math.inf,
            slots=slots,
            requests_per_s=requests_per_s or math.inf,
            error_share=errors,
            reset_share=resets,
            stall_share=stalls,
            seed=seed,
            token=token,
            changes=tuple(map(_change, changes)),
        )
        limit_s = parse_quantity(seconds, "s") if seconds else math.inf
    except ValueError as error:
        raise UsageError.at("forerun store", str(error)) from error
    if any(later[0] <= earlier[0] for earlier, later in pairwise(spec.changes)):
        raise UsageError.at("--then", "times are given in ascending order")
    with LatencyStore(folder, spec, host, port) as store:
        click.echo(store.url)
        end = time.monotonic() + limit_s
        try:
            while time.monotonic() < end:
                time.sleep(min(0.5, max(0.0, end - time.monotonic())))
        except KeyboardInterrupt:
            pass
        seen = store.counters
        click.echo(
            f"{seen.requests} requests, {seen.bytes} bytes, at most {seen.most_in_service} at a time",
            err=True,
        )


def _change(text: str) -> tuple[float, float]:
    """When the mean latency changes [s], and to what [s], from a text such as `30s=40ms`.

    Parameters
    ----------
    text : a value of `--then`.

    Raises
    ------
    ValueError : it is not a time and a latency.
    """
    from forerun.core.units import parse_quantity

    when, equals, latency = text.partition("=")
    if not equals:
        raise ValueError(f"--then {text!r}: a time and a latency are wanted, such as 30s=40ms")
    return parse_quantity(when, "s"), parse_quantity(latency, "s")
