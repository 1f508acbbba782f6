"""`forerun policies`: list the policies of each domain."""

from __future__ import annotations

import click

from forerun.core.cli import _options, _show


@click.command(name="policies")
@click.argument("domain", required=False)
@_options.json_option
def command(domain: str | None, as_json: bool) -> None:
    """List the policies of every domain, or of DOMAIN: name, kind, what it does."""
    from forerun.core.catalog import policies

    names = ("domain", "kind", "name", "about")
    _show.print_listing(
        [{name: getattr(entry, name) for name in names} for entry in policies(domain or "")],
        as_json=as_json,
        title=f"Policies of {domain or 'every domain'}",
        about="kind: what the policy decides; name: as scenarios write it",
    )
