"""`forerun docs`: the keys, policies, tables and figures of a domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show

if TYPE_CHECKING:
    from forerun.core.reference import Policy, Section

_KEY: Final = ("key", "value", "unit", "default", "meaning")


@click.command(name="docs")
@click.argument("domain", metavar="DOMAIN")
@click.argument("part", required=False, type=click.Choice(["keys", "policies", "tables", "figures"]))
@_options.json_option
def command(domain: str, part: str | None, as_json: bool) -> None:
    """Print the keys of scenarios of DOMAIN with their defaults and units, its policies, tables and figures.

    PART is keys, policies, tables or figures (default: all).
    """
    from forerun.core.domain import get_domain
    from forerun.core.reference import reference

    found = reference(get_domain(domain))
    if as_json:
        data: dict[str, Any] = {
            "keys": found.sections,
            "policies": found.policies,
            "tables": [schema.data() for schema in found.tables],
            "figures": found.figures,
        }
        about = {"domain": found.domain, "about": found.about}
        _show.print_json(about | {name: rows for name, rows in data.items() if part in (None, name)})
        return
    if part is None:
        _show.prose(found.about)
    if part in (None, "keys"):
        for section in found.sections:
            _print(f"Keys of {section.name}", _KEY, _keys(section), section.about)
    if part in (None, "policies"):
        for policy in found.policies:
            title = f"Policy {policy.section.name} ({policy.kind})"
            _print(title, _KEY, _keys(policy.section), _about(policy))
    if part in (None, "tables"):
        for schema in found.tables:
            columns = [(column.name, column.unit, column.meaning) for column in schema.columns]
            _print(f"Table {schema.name}", ("column", "unit", "meaning"), columns, schema.meaning)
    if part in (None, "figures"):
        _print("Figures", ("figure", "title"), found.figures.items(), "figure: the name of its file")


def _keys(section: Section) -> list[tuple[str, ...]]:
    return [(key.name, key.value, key.unit, key.default or "required", key.meaning) for key in section.keys]


def _about(policy: Policy) -> str:
    paper = f" Paper: {policy.paper}." if policy.paper else ""
    guarantees = f" Guarantees: {policy.guarantees}." if policy.guarantees else ""
    return f"{policy.section.about}{paper}{guarantees}"


def _print(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], about: str) -> None:
    """A table below an empty line; what has no rows is its title and what it is about."""
    click.echo()
    if rows := list(rows):
        _show.print_table(columns, rows, title=title, about=about)
    else:
        _show.prose(f"{title}\n{about}")
