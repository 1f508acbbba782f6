"""Registries: classes by the names that files use for them.

A registry contains the policy specs of one kind (schedulers, batching policies, arrival processes, readers ...). Its members
are *discovered*: every public class derived from the kind's base, in the modules of some packages, and whatever
installed packages announce under the kind's entry point group. Nothing is listed by hand, so a new policy is one new
file.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from forerun.core import slices
from forerun.core.errors import Problem, UnknownName, UsageError, known_names
from forerun.core.sources import qualified

T = TypeVar("T")


class Registry(Generic[T]):
    """The members of one kind, by name.

    `kind` is the word for messages ("scheduling policy"); `packages` the dotted names of the packages whose modules contain
    built-in members, besides those that slices announce; `base` the class they derive from; `group` the entry point group
    for plugins; `unnamed` why a name that results contain cannot be chosen in a file. A member's name is its `tag` (a named
    spec's name in files), else its `name` attribute.
    """

    def __init__(
        self,
        kind: str,
        *packages: str,
        base: type[T],
        group: str,
        unnamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kind = kind
        self.packages = packages
        self.base = base
        self.group = group
        self.unnamed = unnamed

    def names(self) -> tuple[str, ...]:
        """All known names, sorted."""
        return tuple(sorted(self._members.keys() | self._plugins.keys()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._members or name in self._plugins

    def get(self, name: str, *, where: str = "") -> type[T]:
        """The member called `name`.

        Raises UnknownName with what is known, UsageError if a plugin announces something unfit, or a name that is taken.
        """
        if name in self._plugins:
            return self._load(name)
        if name in self._members:
            return self._members[name]
        raise UnknownName(Problem(where, self.refusal(name)))

    def refusal(self, name: str) -> str:
        """Why there is no member called `name`."""
        unknown = f"no {self.kind} named {name!r}; {known_names(name, self.names())}"
        return self.unnamed.get(name, unknown)

    def refuse_namesake(self, member: type[Any]) -> None:
        """Raise UsageError, which names both, if a class that is not announced has the name of another of this kind."""
        name = member_name(member)
        known = self.get(name) if name in self else member
        if qualified(known) != qualified(member):
            raise UsageError.at(qualified(member), self._taken(name, qualified(known)))

    def _taken(self, name: str, by: str) -> str:
        return f"calls itself {name!r}, which is the {self.kind} {by}; give it a name of its own"

    @cached_property
    def _members(self) -> dict[str, type[T]]:
        members: dict[str, type[T]] = {}
        for module in self._modules():
            for member in vars(module).values():
                if self._is_member(member, module.__name__):
                    name = member_name(member)
                    if name in members and members[name] is not member:
                        where = " and ".join(self.packages)
                        raise AssertionError(f"two {self.kind}s are named {name!r} in {where}")
                    members[name] = member
        return members

    def _modules(self) -> Iterator[ModuleType]:
        for package in (*self.packages, *slices.members(self.group)):
            home = importlib.import_module(package)
            if not hasattr(home, "__path__"):
                yield home
                continue
            found = pkgutil.iter_modules(home.__path__)
            for name in sorted(info.name for info in found if not info.name.startswith("_")):
                yield importlib.import_module(f"{package}.{name}")

    def _is_member(self, member: Any, module: str) -> bool:
        return (
            inspect.isclass(member)
            and issubclass(member, self.base)
            and member is not self.base
            and member.__module__ == module
            and not member.__name__.startswith("_")
            and not inspect.isabstract(member)
            and bool(member_name(member))
        )

    @cached_property
    def _plugins(self) -> dict[str, dict[str, EntryPoint]]:
        points: dict[str, dict[str, EntryPoint]] = {}
        for point in entry_points(group=self.group):
            points.setdefault(point.name, {})[point.value] = point
        return points

    def _load(self, name: str) -> type[T]:
        where = f"entry point {name!r} of {self.group}"
        taken = self._members.get(name)
        (point, *_) = self._plugins[name].values()
        if taken is not None or len(self._plugins[name]) > 1:
            *others, last = self._plugins[name]
            by = qualified(taken) if taken is not None else ", ".join(others)
            raise UsageError.at(f"{where}, {last}", self._taken(name, by))
        try:
            member = point.load()
        except Exception as error:  # a plugin may fail in any way; it must not look like our fault
            raise UsageError(Problem(where, f"cannot be loaded: {type(error).__name__}: {error}")) from error
        if not (inspect.isclass(member) and issubclass(member, self.base)):
            raise UsageError(Problem(where, f"is not a subclass of {self.base.__name__}"))
        if member_name(member) != point.name:
            raise UsageError(Problem(where, f"announces a member that calls itself {member_name(member)!r}"))
        return member


def member_name(member: type[Any]) -> str:
    """The name that files use for a member: its record tag, else its `name` attribute, else an empty string."""
    config = getattr(member, "__struct_config__", None)
    if config is not None and isinstance(config.tag, str):
        return config.tag
    name = getattr(member, "name", "")
    return name if isinstance(name, str) else ""
