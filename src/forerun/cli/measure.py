"""`forerun measure`: measure real machines, with one subcommand per domain that can be measured."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

import click

from forerun.cli._inputs import guarded


class Measurable(click.Group):
    """The packages of `forerun.measure` that have a `command`, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The domains that can be measured."""
        package = importlib.import_module("forerun.measure")
        return sorted(
            info.name
            for info in pkgutil.iter_modules(package.__path__)
            if info.ispkg and importlib.util.find_spec(f"forerun.measure.{info.name}.command") is not None
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of a domain, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return guarded(importlib.import_module(f"forerun.measure.{cmd_name}.command").command)


command = Measurable(name="measure", help="Measure real storage, hardware and servers.")
