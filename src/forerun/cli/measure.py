"""`forerun measure`: what real machines do, one subcommand a room that can be measured."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

import click


class Measurable(click.Group):
    """The rooms under `forerun.measure` that have a `command`, imported when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The rooms that can be measured."""
        package = importlib.import_module("forerun.measure")
        return sorted(
            info.name
            for info in pkgutil.iter_modules(package.__path__)
            if info.ispkg and importlib.util.find_spec(f"forerun.measure.{info.name}.command") is not None
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of a room, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"forerun.measure.{cmd_name}.command").command
        return command


command = Measurable(name="measure", help="Measure real storage or hardware, and say what it means.")
