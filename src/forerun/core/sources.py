"""The source files that decide what code does: a module's own file, and those of the modules that it imports, however deep.

Imports are read from the files, also those inside functions; nothing is run. A package's own file counts where something
is imported from it. What code imports by a computed name, or reads from other files, is not seen.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Final

#: folders of installed packages
_INSTALLED = ("site-packages", "dist-packages")


def reached(module: str, file: Path, belongs: Callable[[str], bool]) -> dict[str, Path]:
    """The file of a module, and those of the modules that it reaches through imports, by name.

    belongs: whether a module of this name is one that counts; what it imports counts through it alone.
    """
    found = {module: file}
    waiting = [module]
    while waiting:
        for name in _imports(waiting.pop(), found):
            place = file_of(name) if name not in found and belongs(name) else None
            if place is not None:
                found[name] = place
                waiting.append(name)
    return found


def digest(files: dict[str, Path], *also: str) -> str:
    """A digest of files by the names of their modules, and of texts."""
    made = hashlib.blake2b(" ".join(also).encode(), digest_size=12)
    for name in sorted(files):
        content = _content(name, files[name])
        made.update(f"\0{name} {len(content)}\0".encode() + content)
    return made.hexdigest()


def is_built_in(kind: type[Any]) -> bool:
    """Whether a class is forerun's own."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def qualified(kind: type[Any]) -> str:
    """A class by its module and name."""
    return f"{kind.__module__}:{kind.__qualname__}"


def identity(kind: type[Any]) -> str:
    """A digest of the source of a class: its module, and what that reaches of its distribution or of no distribution.

    Empty where no file has the class: one of a notebook or of standard input, one that was made by a call, or one that
    depends on variables of the function that defines it.
    """
    file = file_of(kind.__module__) or Path()
    if not _defines(kind, file) or any(map(_captures, vars(kind).values())):
        return ""
    own = distribution(kind.__module__, file)

    def belongs(name: str) -> bool:
        if name.partition(".")[0] == __name__.partition(".")[0]:
            return False
        return uninstalled(name) or (own != "" and distribution(name, file_of(name) or Path()) == own)

    return digest(reached(kind.__module__, file, belongs))


def uninstalled(module: str) -> bool:
    """Whether a module is neither of the standard library nor of an installed distribution."""
    file = None if module.partition(".")[0] in sys.stdlib_module_names else file_of(module)
    return file is not None and not _installed(file)


def distribution(module: str, file: Path) -> str:
    """The installed distribution that a module is from, with its version; empty if it is from none, or only linked to."""
    names = _distributions().get(module.partition(".")[0], ()) if _installed(file) else ()
    return f"{names[0]} {version(names[0])}" if names else ""


def _installed(file: Path) -> bool:
    return not set(file.parts).isdisjoint(_INSTALLED)


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


def _defines(kind: type[Any], file: Path) -> bool:
    """Whether a source file defines a class of this name."""
    nodes = _nodes(_content(kind.__module__, file)) if file.suffix == ".py" else ()
    return any(isinstance(node, ast.ClassDef) and node.name == kind.__name__ for node in nodes)


def _captures(member: Any) -> bool:
    """Whether a method uses variables of a function around its class."""
    code = getattr(getattr(member, "__func__", member), "__code__", None)
    return code is not None and bool(set(code.co_freevars) - {"__class__"})


def _imports(module: str, files: dict[str, Path]) -> Iterator[str]:
    """The names of modules that a module may import, and names that only look like modules."""
    file = files[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in _nodes(_content(module, file)) if file.suffix == ".py" else ():
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            yield home
            yield from (f"{home}.{alias.name}" for alias in node.names)


def _content(module: str, file: Path) -> bytes:
    """The content of a module's file when it was first read since the module was last loaded: that is what runs.

    An edit counts from the next process on, or from `importlib.reload`. A file that cannot be read is empty.
    """
    loaded = getattr(sys.modules.get(module), "__spec__", None)
    if file not in _READ or _READ[file][0] is not loaded:
        try:
            _READ[file] = loaded, file.read_bytes()
        except OSError:
            return b""
    return _READ[file][1]


#: by file, what was loaded from it when it was read, and the content
_READ: Final[dict[Path, tuple[object, bytes]]] = {}


@functools.cache
def _nodes(source: bytes) -> tuple[ast.AST, ...]:
    """The classes and imports of a source; none of one that cannot be read as Python."""
    try:
        waiting: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError):
        return ()
    found = []
    for node in waiting:  # statements alone: expressions, most of a source, contain neither
        if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
            found.append(node)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, block, ())
    return tuple(found)


def file_of(name: str) -> Path | None:
    """The file of a module, without importing it; None where there is none."""
    if not name:
        return None
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return Path(file) if file else None
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    if parent and path is None:
        home = file_of(parent)
        if home is None or home.name != "__init__.py":
            return None
        path = [str(home.parent)]
    try:
        spec = PathFinder.find_spec(name, path)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
