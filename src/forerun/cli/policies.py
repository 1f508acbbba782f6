"""`forerun policies`: list the policies of each domain."""

from __future__ import annotations

import click

from forerun.cli import _options, _show


@click.command(name="policies")
@click.argument("domain", required=False)
@_options.json_option
def command(domain: str | None, as_json: bool) -> None:
    """List the policies of every domain, or of DOMAIN: name, kind, what it does."""
    from forerun.catalog import policies

    entries = policies(domain or "")
    if as_json:
        names = ("domain", "kind", "name", "about")
        _show.print_json(
            [dict(zip(names, (each.domain, each.kind, each.name, each.about))) for each in entries]
        )
    else:
        rows = [(each.domain, each.kind, each.name, each.about) for each in entries]
        _show.print_table(
            ("domain", "kind", "name", "about"),
            rows,
            title=f"Policies of {domain or 'every domain'}",
            about="kind: what the policy decides; name: as scenarios write it",
        )
