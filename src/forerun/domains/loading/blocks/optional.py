"""Libraries that only some formats need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from forerun.errors import UsageError


def optional_module(name: str, extra: str, where: object) -> Any:
    """A module.

    Parameters
    ----------
    name : of the module.
    extra : of forerun that installs it.
    where : what is read, for the message.

    Raises UsageError, with how to install it, where it is absent.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError.at(
            where, f"is read through {name}, which is not installed: pip install 'forerun[{extra}]'"
        ) from error
