"""`forerun policies`: what can be chosen in each room."""

from __future__ import annotations

import click

from forerun.cli import _options, _show


@click.command(name="policies")
@click.argument("domain", required=False)
@_options.json_option
def command(domain: str | None, as_json: bool) -> None:
    """List the policies of every room, or of DOMAIN: name, kind, what it does."""
    from forerun.domains.listing import policies

    found = policies(domain or "")
    if as_json:
        names = ("domain", "kind", "name", "about")
        _show.print_json([dict(zip(names, (each.room, each.kind, each.name, each.about))) for each in found])
    else:
        rows = [(each.room, each.kind, each.name, each.about) for each in found]
        _show.print_table(
            ("room", "kind", "name", "about"),
            rows,
            title=f"Policies of {domain or 'every domain'}",
            about="room: the domain; kind: what the policy decides; name: as scenarios write it",
        )
