"""A command that does one thing by itself and others by subcommands: `wait-time LOG`, `wait-time backtest LOG`."""

from __future__ import annotations

import click


class DefaultGroup(click.Group):
    """A group whose subcommand `default` is meant where no other is named.

    Parameters
    ----------
    name : of the group.
    default : the name of that subcommand, which need not be given.
    help : what the group does, for the list of commands.
    """

    def __init__(self, name: str, default: str, help: str) -> None:
        super().__init__(name=name, add_help_option=False, help=help)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, with the default in front where the first word is no subcommand."""
        if not args:
            args = ["--help"]
        if args[0] not in self.commands:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of a name, else the default."""
        return self.commands.get(cmd_name, self.commands[self.default])
