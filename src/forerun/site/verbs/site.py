"""`forerun site`: one answer from the files of a site, without a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output


@click.command(name="site")
@click.argument("files", type=_options.PATH, metavar="FILES...", nargs=-1)
@_options.out_option("DIR", "Folder for the page, the scenario and the answer [site].")
@click.option("--zone", default="", metavar="PLACE", help="Whose clock times are on that name no zone.")
@click.option(
    "--changes",
    "most",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many changes are tried (default: by the number of jobs).",
)
@click.option("--names", is_flag=True, help="Show users and accounts by their names, not by pseudonyms.")
@_options.path_option("--key", metavar="FILE", help="Key of the pseudonyms (default: one is made for DIR).")
@click.option(
    "--collect", is_flag=True, help="Print the commands that make the files of a site; none is run here."
)
@_options.output_options
def command(
    files: tuple[Path, ...],
    out: Path | None,
    zone: str,
    most: int | None,
    names: bool,
    key: Path | None,
    collect: bool,
    output: Output,
) -> None:
    """Say why jobs wait at a site, how well that is known, what would help, and when jobs start.

    FILES are what Slurm or Kueue print of it, or folders of such files: a log of jobs, and, as far as there are any,
    slurm.conf, partitions, reservations, qualities of service, accounts, ClusterQueues. Each is known by its content.
    """
    from forerun.core.errors import UsageError
    from forerun.site.survey import collect as commands
    from forerun.site.survey.answer import survey
    from forerun.site.survey.document import DOCUMENT, content_of
    from forerun.site.survey.files import listed, recognised
    from forerun.site.survey.output import PAGE, building, earlier, key_of, publish
    from forerun.site.survey.pseudonyms import Pseudonyms
    from forerun.site.survey.setting import unknown, write_setting

    if collect:
        click.echo(commands.text())
        return
    if not files:
        raise UsageError.at(
            "FILES", "name files of a site or a folder of them; --collect prints how to make them"
        )
    if names and key is not None:
        raise UsageError.at("--key", "is of pseudonyms, which --names does without")
    if zone:
        from forerun.site.reading import Reading

        Reading("", (), zone).place()
    target = out or Path("site")
    earlier(target)
    secret = b"" if names else key_of(target, key)
    with building(target) as folder, output.working("looking into the files") as say:
        found = [recognised(path) for path in listed(files)]
        if not output.silent:
            for line in unknown(found):
                _show.say(f"forerun: not used: {line}")
        setting = write_setting(found, folder, Pseudonyms(secret), zone, say)
        made = survey(setting, folder, most=most or 0, say=say)
        content = content_of(made, folder)
        say("drawing the page")
        from forerun.core.report import write_page

        write_page([DOCUMENT.read("site", content)], folder / PAGE)
        publish(folder, target, content, secret)
    if output.as_json:
        _show.print_json(content)
        return
    _print(content)
    output.hint(f"saved to {target}: {PAGE} is the page; next: forerun simulate {target / 'site.yaml'}")


def _print(content: Mapping[str, Any]) -> None:
    """The tables of a survey, its answer, and its notes."""
    from forerun.site.survey.document import DOCUMENT

    page = DOCUMENT.read("site", content)
    for title, rows in sorted(page.tables.items(), key=lambda one: one[0] != "files"):
        shown = [{name: cell for name, cell in row.items() if name != "try"} for row in rows]
        _show.print_rows(shown, title=title.capitalize(), about="")
        click.echo()
    _show.prose(f"why: {page.answer}")
    for note in page.notes:
        _show.prose(f"note: {note}")
