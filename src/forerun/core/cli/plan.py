"""`forerun plan`: find the best configuration and say why no other is better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Asked, Output

if TYPE_CHECKING:
    pass


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
    from forerun.core.result.plan import document, write_document
    from forerun.core.scenario.resolve import located

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
    _show.print_plan(planned)
    if out is not None:
        output.hint(f"saved to {out}; next: forerun check {out}")
