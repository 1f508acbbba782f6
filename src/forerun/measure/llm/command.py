"""`forerun measure llm`: a load sent to a real server of a language model, and the simulation of the same load beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.measure.tables import print_rows

if TYPE_CHECKING:
    from forerun.measure.llm.study import Traffic


@click.command(name="llm")
@click.argument("url", metavar="URL")
@click.option(
    "--scenario", type=click.Path(path_type=Path), metavar="FILE",
    help="Send its requests, and simulate them beside what happens.",
)  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="A=B", help="Change a value of the scenario.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE",
    help="Send the requests of a trace with tokens instead; nothing is simulated.",
)  # fmt: skip
@click.option(
    "--format", "format_", default="", metavar="NAME", help="Of the trace [detected from its content]."
)
@click.option("--model", default="", metavar="NAME", help="As the server calls it [the only one it serves].")
@click.option("--chat", is_flag=True, help="Ask for chat completions instead of completions.")
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Only the first N requests.")
@click.option("--rate", default="", metavar="RATE", help="Stretch the gaps to this rate, such as 2rps.")
@click.option(
    "--in-flight", type=click.IntRange(min=1), metavar="N",
    help="Hold requests back while N are under way [never].",
)  # fmt: skip
@click.option(
    "--timeout", default="2min", show_default=True, metavar="TIME",
    help="A request has failed when nothing came for so long.",
)  # fmt: skip
@click.option(
    "--token-ids", default="", metavar="LOW-HIGH",
    help="Send numbers of tokens between these instead of words (completions only).",
)  # fmt: skip
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Contains the bearer token of the server.",
)
@click.option("--token-env", default="", metavar="NAME", help="The environment variable with that token.")
@click.option("--remote", is_flag=True, help="Allow a server that is not on this machine.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the words [the scenario's, else 0].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="DIR",
    help="Write requests.csv, failed.csv and measured.json there.",
)  # fmt: skip
def command(
    url: str,
    scenario: Path | None,
    overrides: tuple[str, ...],
    trace: Path | None,
    format_: str,
    model: str,
    chat: bool,
    requests: int | None,
    rate: str,
    in_flight: int | None,
    timeout: str,
    token_ids: str,
    token_file: Path | None,
    token_env: str,
    remote: bool,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    out: Path | None,
) -> None:
    """Send the requests of a scenario or a trace to the OpenAI-compatible server at URL, and measure what comes back.

    Requests are sent at their instants, whatever becomes of those before them, or at most --in-flight at once. Each answer
    is streamed: its time to first token, the times between tokens and the time to its last token are measured, and with
    --scenario stand beside a simulation of the requests as they were sent. No request is sent twice; what fails is
    counted, with its reason. The table requests.csv is what `forerun fit` reads.
    """
    import json

    from forerun.errors import UsageError
    from forerun.measure.llm.exchange import Address
    from forerun.measure.llm.study import check_folder, measure
    from forerun.measure.llm.trial import Server

    if (scenario is None) == (trace is None):
        raise UsageError.at("forerun measure llm", "give exactly one of --scenario and --trace")
    address = Address.of(url, remote=remote)
    token = _token(token_file, token_env)
    if token and not (address.secure or address.here):
        raise UsageError.at(f"URL {url}", "the token would be readable on its way: use https")
    ids = _ids(token_ids)
    if ids is not None and chat:
        raise UsageError.at("--token-ids", "chat completions take words, not numbers of tokens")
    wait_s = _quantity("--timeout", timeout, "s")
    traffic = _traffic(scenario, overrides, trace, format_, seed)
    rate_rps = _quantity("--rate", rate, "rps") if rate else None
    traffic = traffic.limited(requests, rate_rps, in_flight)
    if out is not None:
        check_folder(out)

    def tell(message: str) -> None:
        if not (quiet or as_json):
            click.echo(message, err=True)

    server = Server(address, model, chat, token, wait_s, {})
    measured = measure(url, server, traffic, ids, out, tell)
    if as_json:
        click.echo(json.dumps(measured, indent=1, allow_nan=False))
    else:
        _show(measured)
    where = f"; what was measured is saved to {out}" if out is not None else ""
    if stopped := measured.get("stopped"):
        interrupted = stopped.startswith("interrupted")
        click.echo(f"forerun: {stopped if interrupted else f'URL {url}: {stopped}'}{where}", err=True)
        raise click.exceptions.Exit(130 if interrupted else 2)
    if out is not None and not (quiet or as_json):
        click.echo(f"saved to {out}; next: forerun fit SERVER.yaml {out / 'requests.csv'} -o cost.yaml")


def _traffic(
    scenario: Path | None, overrides: tuple[str, ...], trace: Path | None, format_: str, seed: int | None
) -> Traffic:
    """What is to be sent. Raises UsageError for options that do not go together."""
    from forerun.errors import UsageError
    from forerun.measure.llm.study import Traffic
    from forerun.scenarios import load

    if scenario is None:
        assert trace is not None
        if overrides:
            raise UsageError.at("--set", "changes a value of a scenario; none was given")
        return Traffic.of_trace(trace, format_, seed or 0)
    if format_:
        raise UsageError.at("--format", "is of --trace; a scenario names the format of its trace itself")
    resolved: Any = load(scenario, overrides, seed=seed)
    if resolved.domain != "serving":
        what = f"is a {resolved.domain} scenario; expected a serving scenario"
        raise UsageError.at(str(scenario), what)
    return Traffic.of_scenario(resolved)


def _quantity(option: str, text: str, unit: str) -> float:
    """A quantity above 0. Raises UsageError."""
    from forerun.errors import UsageError
    from forerun.units import parse_quantity

    try:
        value = parse_quantity(text, unit)
    except ValueError as error:
        raise UsageError.at(option, str(error)) from None
    if not value > 0:
        raise UsageError.at(option, f"{text} is not above 0")
    return value


def _ids(text: str) -> tuple[int, int] | None:
    """The lowest and the highest number of a token. Raises UsageError."""
    from forerun.errors import UsageError
    from forerun.units import whole_number

    if not text:
        return None
    low, dash, high = text.partition("-")
    numbers = (whole_number(low), whole_number(high))
    if not dash or numbers[0] is None or numbers[1] is None or not 0 <= numbers[0] < numbers[1] < 2**31:
        raise UsageError.at("--token-ids", f"{text!r} is no range of numbers of tokens, such as 1000-9999")
    return numbers[0], numbers[1]


def _token(file: Path | None, variable: str) -> str:
    """The bearer token, which is never printed. Raises UsageError where it is not where it should be."""
    import os

    from forerun.errors import UsageError
    from forerun.regular import read_regular

    if file is not None and variable:
        raise UsageError.at("--token-file, --token-env", "give one of them")
    where, token = f"--token-env {variable}", os.environ.get(variable, "") if variable else ""
    if file is not None:
        where = f"--token-file {file}"
        try:
            token = read_regular(file, most_bytes=1 << 16).decode("utf-8", "replace").strip()
        except OSError as error:
            raise UsageError.at(where, f"cannot be read: {error.strerror}") from None
    if (file is not None or variable) and not token:
        raise UsageError.at(where, "contains no token" if file is not None else "is not set")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError.at(where, "is no token: it has blanks, or characters that no header may have")
    return token


#: columns of what is printed: heading, and name in a measurement's record
_LATENCIES: Final = (
    ("time", "time"),
    ("mean ms", "mean_ms"),
    ("P50", "p50_ms"),
    ("P90", "p90_ms"),
    ("P99", "p99_ms"),
)
_COMPARED: Final = (
    ("figure", "figure"),
    ("measured ms", "measured_ms"),
    ("predicted", "predicted_ms"),
    ("off", "error"),
    ("95 % from", "error_low"),
    ("to", "error_high"),
    ("90 % fit from", "low_ms"),
    ("to", "high_ms"),
    ("", "saturating"),
)


def _show(measured: dict[str, Any]) -> None:
    for name, columns in (("latencies", _LATENCIES), ("compared", _COMPARED)):
        print_rows(measured[name], columns, _text)
    click.echo(f"answer: {measured['answer']}")
    for note in measured["notes"]:
        click.echo(f"note: {note}")
    host = measured["host"]
    if not host["quiet"]:
        click.echo("note: the load average was above twice the cores: measure again on a quiet machine")


def _text(name: str, value: Any) -> str:
    if name == "saturating":
        return "saturating" if value else ""
    if value is None:
        return "-"
    if name.startswith("error"):
        return f"{value:+.1%}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
