"""`forerun schema`: the JSON Schema of a domain's scenario files."""

from __future__ import annotations

import click

from forerun.core.cli import _show


@click.command(name="schema")
@click.argument("domain", metavar="DOMAIN")
def command(domain: str) -> None:
    """Print the JSON Schema of the scenario files of DOMAIN."""
    from forerun.core.catalog import schema

    _show.print_json(schema(domain))
