"""`forerun policies`: what can be chosen in each room."""

from __future__ import annotations

import click

from forerun.cli import _options, _show


@click.command(name="policies")
@click.argument("domain", required=False)
@_options.json_option
def command(domain: str | None, as_json: bool) -> None:
    """List the policies of every room, or of DOMAIN: name, kind, what it does."""
    from forerun.domains import room, rooms

    rows = []
    for name in (domain,) if domain else rooms():
        for registry in room(name).POLICIES.values():
            for policy in registry.names():
                text = (registry.get(policy).__doc__ or "").strip().split("\n\n")[0]
                rows.append((name, registry.kind, policy, " ".join(text.split())))
    if as_json:
        _show.print_json([dict(zip(("domain", "kind", "name", "about"), row)) for row in rows])
    else:
        _show.print_table(("room", "kind", "name", "about"), rows)
