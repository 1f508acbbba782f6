"""A controller over Ray as a process, for tests that kill it: it plays the run of a folder, or goes on with it.

python -m tests.live.ray_controller FOLDER ADDRESS
"""

from __future__ import annotations

import sys
from pathlib import Path

from forerun.live.clock import clock_of
from forerun.live.engines.ray import RayEngine
from forerun.live.folder import RunFolder
from forerun.live.journal import Journal
from forerun.live.run_files import controller_of
from forerun.live.session import Session


def main() -> None:
    """Run until every job has ended."""
    folder, address = RunFolder(Path(sys.argv[1])), sys.argv[2]
    run = Journal(folder.journal, read_only=True).run
    nodes = {name: node.slots for name, node in controller_of(folder, run).nodes.items()}
    engine = RayEngine(folder, nodes, address=address)
    session = Session(folder, engine, clock_of(run.clock))
    session.run()
    session.close()
    engine.close()


if __name__ == "__main__":
    main()
