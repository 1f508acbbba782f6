"""What works in trees without some packages: every module, every command's help, each domain's policies and demonstration.

    python without.py FOLDER...

Each folder contains a copy of `forerun`. A process of its own imports it, which has the libraries already: importing those
takes longer than all else.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path

#: libraries that take long to import, or to import in parts
LIBRARIES = ("asyncio", "click", "http.server", "msgspec", "numba", "numpy.random", "scipy.special", "yaml")


def check(folder: str) -> None:
    """Fails unless what is left in a folder works."""
    sys.path.insert(0, folder)
    import forerun
    from forerun.core import slices
    from forerun.core.cli.main import run
    from forerun.core.data.registry import known_sources
    from forerun.core.trace.arrivals import processes
    from forerun.core.trace.reader import readers

    assert forerun.__file__.startswith(f"{folder}/"), forerun.__file__
    left = {path.parent.name for path in Path(folder, "forerun").glob("*/__init__.py")}
    assert set(slices.slices()) == left - {"core"}, slices.slices()
    for module in pkgutil.walk_packages(forerun.__path__, "forerun."):
        try:
            importlib.import_module(module.name) if module.name != "forerun.__main__" else None
        except ModuleNotFoundError as error:  # a library of an extra may be absent
            assert error.name and error.name.partition(".")[0] != "forerun", (module.name, error)
    for verb in slices.verbs():
        assert run([verb, "--help"]) == 0, verb
    for kind in slices.measures():
        assert run(["measure", kind, "--help"]) == 0, kind
    assert processes().names() and readers().names() and known_sources() is not None
    for document in slices.documents().values():
        assert hasattr(importlib.import_module(document), "DOCUMENT"), document
    for name in slices.domains():
        domain = forerun.get_domain(name)
        for registry in domain.policy_kinds.values():
            assert [registry.get(one) for one in registry.names()]
        domain.prepare(forerun.load(forerun.demo(name).scenario))


def main() -> None:
    """Check each folder; name those that fail."""
    for library in LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(library)
    gc.disable()  # nothing of what is imported goes away again
    failed = []
    for folder in sys.argv[1:]:
        assert "forerun" not in sys.modules
        child = os.fork()
        if not child:
            try:
                check(folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            failed.append(Path(folder).name)
    if failed:
        sys.exit(f"fails without {', '.join(failed)}")


if __name__ == "__main__":
    main()
