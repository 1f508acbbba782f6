"""`forerun plan`: find the best configuration and say why no other is better."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Asked, Output

if TYPE_CHECKING:
    from forerun.core.result.tables import Table


#: options that the planners of some domains have; the others are common to all
OWN_OPTIONS: Final = (
    "method", "budget_usd_per_h", "confidence", "traces", "frontier", "max_replicas", "share", "most_nodes", "group"
)  # fmt: skip


class _OfTheDomain(click.Command):
    """A command whose help shows only the options of the scenario's domain, if a scenario is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, but look up the scenario's domain first, since --help is handled while arguments are parsed."""
        if {"-h", "--help"} & set(args):
            ctx.meta["forerun.core.domain"] = next(filter(None, map(_domain_of, args)), "")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the scenario's domain; without a scenario, all options with their domains.

        For a domain that cannot be planned, say so instead.
        """
        from forerun.core.domain import domain_names, get_domain, not_available

        domain = ctx.meta.get("forerun.core.domain", "")
        if domain and (said := not_available(domain)):
            formatter.write_paragraph()
            formatter.write_text(said)
            return
        planners = {name: get_domain(name).planner for name in ([domain] if domain else domain_names())}
        rows = []
        for option in self.get_params(ctx):
            owners = [
                name for name, one in planners.items() if one is not None and option.name in one.options
            ]
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None and (not domain or owners or option.name not in OWN_OPTIONS):
                whose = f" [{', '.join(owners)}]" if owners and not domain else ""
                rows.append((record[0], record[1] + whose))
        with formatter.section(f"Options of the {domain} domain" if domain else "Options"):
            formatter.write_dl(rows)


def _domain_of(word: str) -> str:
    """The domain that a scenario file names; empty if the argument is not such a file."""
    from forerun.core.errors import ForerunError
    from forerun.core.scenario.text import read_document

    if word.startswith("-") or not Path(word).is_file():
        return ""
    try:
        data = read_document(Path(word)).data
    except ForerunError:
        return ""
    domain = data.get("domain") if isinstance(data, dict) else None
    return domain if isinstance(domain, str) else ""


@click.command(name="plan", cls=_OfTheDomain)
@_options.scenario_options
@click.option("--objective", default="", metavar="NAME", help="Objective (default: the domain's).")
@click.option("--method", metavar="NAME", help="Use a published method instead of the exact search.")
@click.option(
    "--budget-usd-per-h",
    "--budget",
    type=float,
    metavar="USD",
    help="Maximum $ per hour, for objective throughput.",
)
@click.option("--confidence", type=float, metavar="P", help="Meet the objective on this share of new traces.")
@click.option("--traces", type=int, metavar="N", help="Number of new traces to plan for.")
@click.option(
    "--frontier",
    is_flag=True,
    help="Also plan for other objectives and loads; add the Pareto front.",
)
@click.option("--max-replicas", type=int, metavar="N", help="Maximum replicas of one stage.")
@click.option("--share", type=float, metavar="P", help="Share of the deadlines to meet [0.95].")
@click.option("--most-nodes", type=int, metavar="N", help="Try no more nodes [four times the present].")
@click.option("--group", metavar="NAME", help="Group of nodes to plan, of several.")
@_options.accept_fit_option
@_options.out_option("FILE", "Save the plan; forerun check verifies it.")
def command(
    asked: Asked, output: Output, objective: str, accept_fit: bool, out: Path | None, **own: Any
) -> None:
    """Plan SCENARIO: what to run, what it costs, and why no other choice is better.

    Exit code 3 if no configuration keeps the objective, naming what binds.
    """
    from forerun.core.errors import InputError
    from forerun.core.planning import plan
    from forerun.core.result.numbers import capital, summary_rows
    from forerun.core.result.plan import ShownPlan, document, write_document
    from forerun.core.scenario.resolve import located
    from forerun.core.units import readable_unit, split_name

    resolved = asked.load(*([_options.ACCEPTED] if accept_fit else []))
    # Of the domains' own options, those that were given; the planner of the domain knows which it has.
    given = {name: own[name] for name in OWN_OPTIONS if own[name] is not None and own[name] is not False}
    with output.working(f"planning {asked.path.name}"):
        try:
            planned = plan(resolved, objective, **given)
        except InputError as error:
            raise located(error, asked.path) from error
    if out is not None:
        write_document(document(planned, resolved, objective, given), out)
    if output.as_json:
        _show.print_json(planned.data())
        return
    # Tables of many rows belong into files, not onto a screen.
    for table in _worth_showing(planned.tables.values()):
        columns = list(table.schema.columns)
        if len(columns) > 8:
            # A candidate's name only repeats its other columns: it is what files refer to it by.
            columns = [column for column in columns if column.name != "name"]
        heads = [f"{name} ({unit})" if unit else name for name, unit in (split_name(c.name) for c in columns)]
        _show.print_table(
            heads,
            zip(*(table[column.name].tolist() for column in columns)),
            title=capital(": ".join(filter(None, (table.schema.name, table.schema.meaning)))),
            about=_show.columns_about(
                (head, "" if split_name(column.name)[1] else readable_unit(column.unit), column.meaning)
                for head, column in zip(heads, columns)
            ),
        )
        click.echo()
    rows = summary_rows(planned.summary, {}, tuple(planned.summary))
    _show.print_figures("The plan", (row for row in rows if row[1] not in ("", None)))
    _show.prose(f"\nwhy: {planned.why}")
    for note in planned.notes:
        _show.prose(f"note: {note}")
    if isinstance(planned, ShownPlan) and planned.code:
        click.echo(f"\nnext, in the training program:\n\n{planned.code}")
    if out is not None:
        output.hint(f"saved to {out}; next: forerun check {out}")


def _worth_showing(tables: Iterable[Table]) -> list[Table]:
    """The tables to print: those with few rows that do not repeat an earlier table.

    Few are 1 to 40. A table repeats an earlier one if that has the same columns and all of its rows.

    Parameters
    ----------
    tables : of a plan, in order.
    """
    shown: list[tuple[Table, set[str]]] = []
    for table in tables:
        rows = {repr(row) for row in zip(*(table[column.name].tolist() for column in table.schema.columns))}
        repeats = any(
            before.schema.columns == table.schema.columns and rows <= known for before, known in shown
        )
        if 0 < len(table) <= 40 and not repeats:
            shown.append((table, rows))
    return [table for table, _ in shown]
