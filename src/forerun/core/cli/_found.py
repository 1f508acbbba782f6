"""Groups whose subcommands are in modules of their own, wherever these are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click

from forerun.core.cli._inputs import guarded


class Found(click.Group):
    """A group of subcommands, each in a module that is imported on use and has it as `command`.

    Parameters
    ----------
    modules : gives the name of the module for the name of each subcommand.
    """

    def __init__(self, *args: Any, modules: Callable[[], Mapping[str, str]], **given: Any) -> None:
        super().__init__(*args, **given)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all subcommands."""
        return list(self.modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A subcommand by name, or None. Only the module of that subcommand is imported."""
        module = self.modules().get(cmd_name)
        return None if module is None else guarded(importlib.import_module(module).command)
