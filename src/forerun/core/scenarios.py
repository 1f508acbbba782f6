"""Read scenario files.

`load(path)` reads strictly, applies overrides, decodes into the types of the scenario's domain and resolves: every default
is written out, file paths are absolute and pinned by their digests. The returned scenario is all that a run depends on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forerun.core.domain import scenario_type_of
from forerun.core.errors import ScenarioError
from forerun.core.scenario.arguments import path_of, wrong_type
from forerun.core.scenario.decode import decode
from forerun.core.scenario.resolve import apply_overrides, resolve, written_out
from forerun.core.scenario.spec import Spec
from forerun.core.scenario.text import Document, parse_document, read_document, refuse_other

SPEC_VERSION: Final = 1
#: the format of a measurement file, which may have the scenario that it measured
MEASUREMENT_FORMAT: Final = "forerun.measurement/1"


if TYPE_CHECKING:

    class LoadedScenario(Spec, frozen=True, kw_only=True):
        """What `load` returns: a record of some domain's scenario type, known only when the file is read."""

        domain: str
        seed: int

        def __getattr__(self, name: str) -> Any: ...


def load(
    path: str | os.PathLike[str], overrides: Iterable[str] = (), *, seed: int | None = None
) -> LoadedScenario:
    """Read a scenario file and resolve it: defaults filled in, paths absolute, input files identified by their digests.

    path: a YAML, TOML or JSON file; of a measurement, the scenario that it measured.
    overrides: `a.b=value` texts, as after `--set`, applied before decoding (default: none).
    seed: used instead of the file's (default: None, the file's).

    Returns a record of the domain's scenario type. Raises ScenarioError that lists every problem.

    >>> scenario = forerun.load(forerun.demo("energy").scenario, ["job.max_epochs=60"], seed=3)
    >>> scenario.domain, scenario.job.max_epochs, scenario.seed
    ('energy', 60, 3)
    """
    source = path_of(path, "load")
    document = read_document(source)
    loaded: LoadedScenario = build(document, base=source.resolve().parent, overrides=overrides, seed=seed)
    return loaded


def loads(
    text: str, overrides: Iterable[str] = (), *, seed: int | None = None, base: Path | None = None
) -> LoadedScenario:
    """Read a scenario from a YAML text; otherwise as `load`.

    text: the content of a scenario file. overrides, seed: as for `load`.
    base: the folder that relative paths start from (default: None, the current folder).

    >>> try:
    ...     forerun.loads("domain: energi")
    ... except forerun.ForerunError as error:
    ...     print(error)
    <text>:1: at $.domain: no domain named 'energi'; did you mean 'energy'? known: cluster, energy, loading, serving, spot
    """
    if not isinstance(text, str):
        raise wrong_type("loads", text, "the text of a scenario (forerun.load reads a file)")
    document = parse_document(text, name="<text>", kind=".yaml")
    loaded: LoadedScenario = build(document, base=base or Path.cwd(), overrides=overrides, seed=seed)
    return loaded


def from_data(data: dict[str, Any], *, base: Path | None = None, name: str = "<data>") -> Any:
    """The resolved scenario from plain data, as `to_data` returns and a run's scenario.json contains."""
    return build(Document(name, data), base=base or Path.cwd())


def build(document: Document, *, base: Path, overrides: Iterable[str] = (), seed: int | None = None) -> Any:
    """Decode and resolve a document into its domain's scenario."""
    data = document.data
    if not isinstance(data, dict):
        raise ScenarioError.at(
            document.where(()), "a scenario is a section of keys that begins with `domain: ...`"
        )
    if data.get("format") == MEASUREMENT_FORMAT:
        if not isinstance(data.get("scenario"), dict):
            raise ScenarioError.at(
                document.where(()), "is a measurement, and has no scenario of what it measured"
            )
        document = Document(document.name, data["scenario"])
        data = document.data
    domain = data.get("domain")
    refuse_other(document, "a scenario")
    data, origin = apply_overrides(document, overrides, domain=domain if isinstance(domain, str) else "")
    if seed is not None:
        data["seed"] = seed
    data, origin = written_out(origin, base=base)
    version = data.get("spec_version", SPEC_VERSION)
    if version != SPEC_VERSION or isinstance(version, bool):
        raise ScenarioError.at(
            document.where(("spec_version",)),
            f"this forerun reads version {SPEC_VERSION}, not {version!r}",
        )
    where = document.where(("domain",) if data.get("domain") else ())
    scenario: Any = decode(origin, scenario_type_of(data.get("domain"), where))
    if scenario.seed < 0:
        raise ScenarioError.at(document.where(("seed",)), f"{scenario.seed} is negative; seeds begin at 0")
    return resolve(scenario, base=base, document=document)
