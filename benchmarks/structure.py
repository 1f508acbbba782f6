"""How large each part of the product is, and what its parts take from each other.

    python -m benchmarks.structure [--json]

Code lines are those that are not blank, comment or docstring. A package is a folder or a file directly below `src/forerun`;
its layer is that of the contract of packages in pyproject.toml. An import runs upward if it names a higher layer, for type
checking or not. A circle of types is a set of files that reach each other when imports for type checking count. Complexity
is one more than the branches of a function.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "forerun"
#: functions with more code lines, or a higher complexity, are listed
MOST_LINES: Final = 100
MOST_COMPLEX: Final = 40
_BLANK: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip
_BRANCHES: Final = (
    ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case, ast.Assert
)  # fmt: skip


class Module:
    """A file of the product.

    Parameters
    ----------
    path : of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text()
        self.tree = ast.parse(self.text)
        parts = ("forerun", *path.relative_to(SOURCE).with_suffix("").parts)
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.package = "forerun" if len(parts) == 2 and parts[1] == "__init__" else ".".join(parts[:2])

    @functools.cached_property
    def imported(self) -> tuple[tuple[ast.Import | ast.ImportFrom, bool, bool], ...]:
        """Its imports, each with whether it is for type checking alone, and whether inside a function, which runs later."""
        return tuple(_imports(self.tree.body))

    @functools.cached_property
    def code(self) -> set[int]:
        """The numbers of its code lines."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _BLANK:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                match node.body:
                    case [ast.Expr(value=ast.Constant(value=str())) as doc, *_]:
                        lines.difference_update(range(doc.lineno, (doc.end_lineno or 0) + 1))
        return lines

    def functions(self) -> Iterator[tuple[str, int, int]]:
        """Each function: its name, its code lines, its complexity."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = len(self.code & set(range(node.lineno, (node.end_lineno or 0) + 1)))
                branches = sum(isinstance(part, _BRANCHES) for part in ast.walk(node))
                either = sum(len(part.values) - 1 for part in ast.walk(node) if isinstance(part, ast.BoolOp))
                yield f"{self.path.relative_to(ROOT)}:{node.name}", lines, 1 + branches + either

    def imports(self, known: Mapping[str, Module]) -> Iterator[tuple[Module, bool]]:
        """The files of the product that this one imports, and whether for type checking alone."""
        for node, typed, _ in self.imported:
            for other in self.named(node, known):
                yield other, typed

    def named(self, node: ast.Import | ast.ImportFrom, known: Mapping[str, Module]) -> Iterator[Module]:
        """The files of the product that an import names."""
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        names = [f"{above}{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name and known[name] is not self:
                yield known[name]


def _imports(
    body: Iterable[ast.AST], typed: bool = False, later: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """The imports among statements and inside them; no expression holds one."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, typed, later
            continue
        inside = later or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            below = getattr(node, part, None)
            if isinstance(below, list):
                yield from _imports(below, typed or (checking and part == "body"), inside)


def layers() -> dict[str, int]:
    """The layer of each package, 0 the lowest, as pyproject.toml declares it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rows,) = (one["layers"] for one in contracts if one.get("containers") == ["forerun"])
    return {
        f"forerun.{name}": height
        for height, row in enumerate(reversed(rows))
        for name in re.findall(r"\w+", row)
    }


def circles(ties: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of two or more names that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in ties:
        seen, todo = set(), [start]
        while todo:
            for there in ties[todo.pop()] - seen:
                seen.add(there)
                todo.append(there)
        reached[start] = seen
    found = {
        frozenset(there for there in reached[name] if name in reached[there])
        for name in ties
        if name in reached[name]
    }
    return sorted(sorted(circle) for circle in found)


def modules() -> dict[str, Module]:
    """The files of the product, by name."""
    found = map(Module, sorted(SOURCE.rglob("*.py")))
    return {module.name: module for module in found}


def ties(known: Mapping[str, Module], *, for_types: bool) -> dict[str, set[str]]:
    """The names that each file imports; for_types: those for type checking, too."""
    return {
        name: {other.name for other, typed in module.imports(known) if for_types or not typed}
        for name, module in known.items()
    }


def loaded(known: Mapping[str, Module]) -> dict[str, set[str]]:
    """The names that importing each file runs first: what it imports outside functions, and the packages around that."""
    found: dict[str, set[str]] = {}
    for name, module in known.items():
        others = [
            other.name
            for node, typed, later in module.imported
            if not (typed or later)
            for other in module.named(node, known)
        ]
        around = {
            ".".join(other.split(".")[:length])
            for other in others
            for length in range(2, other.count(".") + 2)
        }
        found[name] = {one for one in around & known.keys() if not f"{name}.".startswith(f"{one}.")}
    return found


def measured() -> dict[str, Any]:
    """All figures."""
    known = modules()
    height = layers()
    lines: Counter[str] = Counter()
    upward: list[str] = []
    for module in known.values():
        lines[module.package] += len(module.code)
        for other, _ in module.imports(known):
            if height.get(other.package, -1) > height.get(module.package, len(height)) or (
                other.name == "forerun" and module.package not in ("forerun", "forerun.__main__")
            ):
                upward.append(f"{module.name} -> {other.name}")
    functions = [row for module in known.values() for row in module.functions()]
    switches = re.compile(r"\bis_corrected\(")
    return {
        "lines": dict(sorted(lines.items())),
        "lines_in_all": lines.total(),
        "files": len(known),
        "packages": len({module.package for module in known.values() if module.path.parent != SOURCE}),
        "layers": len(set(height.values())),
        "imports_upward": sorted(set(upward)),
        "circles": circles(ties(known, for_types=False)),
        "circles_of_types": circles(ties(known, for_types=True)),
        "is_corrected": sum(
            len(switches.findall(module.path.read_text()))
            for module in known.values()
            if module.package != "forerun.replication"
        ),
        "words_of_docs": sum(
            len(path.read_text().split())
            for path in (ROOT / "docs").rglob("*.md")
            if path.name != "benchmarks.md"
        ),
        "words_of_forerun_docs": sum(map(words_printed, domains())),
        "long_functions": sorted(row for row in functions if row[1] > MOST_LINES),
        "complex_functions": sorted(row for row in functions if row[2] > MOST_COMPLEX),
    }


def domains() -> list[str]:
    """The domains that `forerun docs` describes."""
    return sorted(path.parent.name for path in SOURCE.glob("*/demo.yaml"))


def words_printed(domain: str) -> int:
    """The words that `forerun docs` prints of a domain."""
    command = [sys.executable, "-m", "forerun", "docs", domain]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = measured()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return
    for name, count in found["lines"].items():
        print(f"{name:40} {count:7,}")
    print(f"{'in all':40} {found['lines_in_all']:7,}")
    for key in ("files", "packages", "layers", "is_corrected", "words_of_docs", "words_of_forerun_docs"):
        print(f"{key.replace('_', ' '):40} {found[key]:7,}")
    for key in ("imports_upward", "circles", "circles_of_types", "long_functions", "complex_functions"):
        print(f"{key.replace('_', ' '):40} {len(found[key]):7,}")
        for row in found[key]:
            print("   ", *(row if isinstance(row, tuple | list) else (row,)))


if __name__ == "__main__":
    main()
