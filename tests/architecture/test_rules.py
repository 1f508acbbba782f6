"""Rules of the architecture: which package may import which, and what the tree must not contain."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.structure import Module, circles, loaded, ties

from forerun.core import slices
from forerun.core.domain import Domain, get_domain

from .conftest import walk

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "forerun"
DOMAINS = [slices.folder(name) for name in slices.domains()]


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def dotted(called: ast.expr) -> str:
    """What is called, as `module.name`; what is no name is left out."""
    if isinstance(called, ast.Attribute):
        return f"{dotted(called.value)}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


def calls_of(module: Module, called: str) -> Iterator[ast.Call]:
    """The calls in a file whose text contains what matches `called`; none in another file."""
    if re.search(called, module.text):
        yield from (node for node in walk(module.tree) if isinstance(node, ast.Call))


def imports_of(module: Module) -> set[str]:
    """The modules imported at the top level of a file, and inside its functions."""
    found: set[str] = set()
    for node, _, _ in module.imported:
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        found |= {f"{above}{alias.name}" for alias in node.names}
    return found


def test_kernel_modules_import_numbers_and_kernels_only(known: dict[str, Module]) -> None:
    """Compiled code freezes what it imports; the cache's digest covers kernel modules, so nothing else may be reached."""
    kernels = [module for module in known.values() if re.search(r"^@kernel", module.text, re.MULTILINE)]
    assert len(kernels) > 20
    for path, name in ((one.path, name) for one in kernels for name in imports_of(one)):
        root = name.split(".")[0]
        if root != "forerun":
            assert root in {"numpy", "numba", "typing", "__future__", "math", "collections"}, (path, name)
            continue
        home = _file_of(name)
        assert "forerun.core.kernels" in home.read_text() or "kernels" in home.parts, (
            f"{path}: {name} is no kernel module"
        )


def test_kernels_subtract_no_comparisons(known: dict[str, Module]) -> None:
    """Compiled they are numbers, uncompiled numpy's booleans, which have no difference: int() makes them alike."""
    for module in known.values():
        for node in walk(module.tree) if re.search(r"^@kernel", module.text, re.MULTILINE) else ():
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                assert not {type(node.left), type(node.right)} & {ast.Compare}, f"{module.path}:{node.lineno}"


def _file_of(name: str) -> Path:
    parts = name.split(".")[1:]
    for length in range(len(parts), 0, -1):
        for candidate in (
            SOURCE.joinpath(*parts[:length]).with_suffix(".py"),
            SOURCE.joinpath(*parts[:length]) / "__init__.py",
        ):
            if candidate.is_file():
                return candidate
    raise AssertionError(f"{name} is not a module")


def test_every_file_compiles_on_every_python(known: dict[str, Module]) -> None:
    """Python 3.13 also encodes docstrings: half a character in one ends in an error that no other version gives."""
    half = re.compile(rb"\\u[dD][89a-fA-F]|\\U0000[dD][89a-fA-F]")
    scripts = (
        path for part in ("examples", "benchmarks", "validation") for path in (ROOT / part).rglob("*.py")
    )
    files = {module.path: module.tree for module in known.values()}
    for path, tree in (files | {path: ast.parse(path.read_bytes()) for path in scripts}).items():
        compile(tree, str(path), "exec")
        for node in ast.walk(tree) if half.search(path.read_bytes()) else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                (ast.get_docstring(node, clean=False) or "").encode()


#: calls that execute data, or open a shell
UNSAFE = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "yaml.load",
    "os.system",
    "marshal.loads",
    "shelve.open",
}


#: a call that is not allowed anywhere has one of these words, which few files have
SUSPECT = r"shell|allow_pickle|extractall|\brandom\b|" + "|".join(
    rf"\b{name.rpartition('.')[2]}\b" for name in (*UNSAFE, "print")
)


def test_no_unsafe_calls_and_no_prints(known: dict[str, Module]) -> None:
    for module, node in ((one, node) for one in known.values() for node in calls_of(one, SUSPECT)):
        path, called = module.path, dotted(node.func)
        assert called not in UNSAFE, f"{path}:{node.lineno}: {called}"
        assert called != "print" or path.parent.name == "programs", (
            f"{path}:{node.lineno}: library code does not print"
        )
        options = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
        assert options.get("shell") is not True and options.get("allow_pickle") is not True, (
            f"{path}:{node.lineno}"
        )
        if called.endswith(".extractall"):
            assert "filter" in options, f"{path}:{node.lineno}: archives are extracted with a filter"
        if (
            path.name == "shim.py"
        ):  # the process that it makes runs a user's program, which may use global generators
            continue
        assert not re.match(r"np\.random\.(seed|rand|randn|normal|choice|shuffle|uniform)$", called), (
            f"{path}:{node.lineno}"
        )
        assert not (called.startswith("random.") and "random" in imports_of(module)), (
            f"{path}:{node.lineno}: a global generator"
        )


#: simulated time never looks at the host's clock
CLOCKS = {
    "time.time",
    "time.monotonic",
    "time.perf_counter",
    "datetime.now",
    "datetime.datetime.now",
    "time.time_ns",
}
#: parts of a slice that time real machines, a user's command, or another program's answers
MEASURES = {"measure", "verbs", "decider", "processes.py"}


def test_domains_do_not_look_at_the_clock(known: dict[str, Module]) -> None:
    words = "|".join({name.rpartition(".")[2] for name in CLOCKS})
    for module in known.values():
        if any(map(module.path.is_relative_to, DOMAINS)) and not MEASURES & set(module.path.parts):
            calls = {dotted(node.func) for node in calls_of(module, rf"\b({words})\b")}
            assert not calls & CLOCKS, module.path


#: what a domain's folder contains, each a module or a package; the optional ones only where the domain needs them
OPTIONAL_PARTS = {
    "plan", "bound", "export", "traces", "data", "measure", "packaged", "readers", "sources", "testing", "verbs",
}  # fmt: skip
PARTS = OPTIONAL_PARTS | {
    "domain", "scenario", "inputs", "policy", "policies", "observer", "engine", "summary", "figures", "explain", "starter",
}  # fmt: skip


@pytest.mark.parametrize("path", DOMAINS, ids=lambda path: path.name)
def test_every_domain_has_the_same_parts(path: Path) -> None:
    domain = get_domain(path.name)
    assert domain.name == path.name and domain.folder == path
    assert len(domain.about) > 400, "the package's docstring says what the domain models"
    assert domain.scenario_type.__doc__ and domain.objectives and domain.environment
    assert domain.policy_kinds and all(registry.names() for registry in domain.policy_kinds.values())
    for part in ("demo.yaml", "starter", "policies"):
        assert (path / part).exists(), f"the domain {path.name} has no {part}"
    own = {"cluster": {"decider", "processes"}, "serving": {"llm"}, "spot": {"reserved"}}.get(
        path.name, set()
    )
    parts = {entry.stem for entry in path.iterdir() if entry.name not in ("__init__.py", "__pycache__")}
    parts = {part for part in parts if not part.startswith("demo")}
    assert parts <= PARTS | own and parts >= PARTS - OPTIONAL_PARTS, f"{path.name}: {sorted(parts ^ PARTS)}"


def test_the_names_of_the_house_are_kept(known: dict[str, Module]) -> None:
    """Words that the vocabulary leaves out do not name modules or classes."""
    banned = re.compile(r"(^|_)(utils?|helpers?|manager|misc|common_utils)(_|$)")
    assert [str(one.path) for one in known.values() if banned.search(one.path.stem)] == []
    classes = re.compile(r"^\s*class \w*(?:Manager|Helper|Handler)\b", re.MULTILINE)
    assert [str(one.path) for one in known.values() if classes.search(one.text)] == []


@pytest.mark.parametrize(
    "module", ["forerun", "forerun.core.cli.main", *(f"forerun.{path.name}" for path in DOMAINS)]
)
def test_importing_the_doors_is_light(module: str) -> None:
    """Heavy libraries are imported when they are used: `--help` stays fast."""
    heavy = ["numba", "polars", "altair", "vl_convert", "scipy", "highspy", "ray", "pandas", "rich.console"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_part_of_a_domain_says_what_it_is() -> None:
    """In its docstring, or in the class's for what is no method."""
    for name, part in vars(Domain).items():
        if not name.startswith("_"):
            assert (
                part.__doc__
                if callable(part) or isinstance(part, property)
                else f"{name}:" in str(Domain.__doc__)
            )


@pytest.mark.parametrize("for_types", [False, True], ids=["running", "for types"])
def test_no_module_imports_itself_through_others(known: dict[str, Module], for_types: bool) -> None:
    """Also by imports inside functions, which only keep heavy libraries lazy, and by those for type checking: a type that
    two modules exchange lives in the lower one."""
    assert circles(ties(known, for_types=for_types)) == []


def test_any_module_can_be_imported_first(known: dict[str, Module]) -> None:
    """Importing a module runs the packages around it first; none of them needs what is being imported."""
    assert circles(loaded(known)) == []


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]
