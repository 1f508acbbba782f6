"""A measured run in the layout of the published experiment, with numbers only: what its notebook and our importer read.

`data_load_time.npy` float64[N], `compute_time.npy` float64[N-1], `io_time.npy` one a file (unmerged) or a block,
`processing_time.npy` one a sample, `opt_config` one line `threads,block`. Memory, an object array there, is
`memory.csv` here: whole numbers of bytes, this process and the page cache, polled.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from forerun.core.atomic_write import beside
from forerun.core.errors import StoreError
from forerun.loading.measure.runner import LoaderRun
from forerun.loading.policy import Cell

#: seconds between looks at the memory
POLL_S: Final = 0.5


@dataclass
class Memory:
    """Resident bytes of this process, and bytes of the page cache, looked at now and then.

    Parameters
    ----------
    rows : of every look, bytes of the process and of the page cache.
    """

    rows: list[tuple[int, int]] = field(default_factory=list)

    def look(self) -> None:
        """One row; nothing where the system does not report it."""
        try:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            lines = Path("/proc/meminfo").read_text().splitlines()
            cached = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Cached:"))
        except (OSError, ValueError, StopIteration, IndexError):
            return
        self.rows.append((resident, cached))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at it while something runs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(POLL_S):
                self.look()

        self.look()
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.look()


def write_run(
    folder: Path, cell: Cell, step_s: float, run: LoaderRun, memory: Memory, *, approach: str, dataset: str,
    number: int = 1, place: str = "remote",
) -> Path:  # fmt: skip
    """Write a run; returns its directory.

    Parameters
    ----------
    folder : of all runs.
    cell, step_s : its configuration.
    run : what it measured.
    memory : looked at meanwhile.
    approach : `baseline1`, `baseline2` or `ours`.
    dataset, place : parts of the path; `local` or `remote` (the default).
    number : of the run (default: 1).

    Raises StoreError if one is there already or cannot be written.
    """
    merged = f"-block_size={cell.block}" if approach == "baseline2" else ""
    target = folder / approach / dataset / f"run{number}" / place / f"sim_compute_time={step_s:g}{merged}"
    partial = beside(target)
    try:
        if target.exists():
            raise StoreError.at(target, "is there already; runs are not overwritten")
        partial.mkdir(parents=True)
        np.save(partial / "data_load_time.npy", run.load_s.astype(np.float64))
        # From leaving the loader to asking again: the last step is followed by no request.
        np.save(partial / "compute_time.npy", run.step_s[:-1].astype(np.float64))
        np.save(partial / "io_time.npy", run.request_s.astype(np.float64))
        np.save(partial / "processing_time.npy", run.decode_s.astype(np.float64))
        if approach != "baseline1":
            (partial / "opt_config").write_text(f"{cell.threads},{cell.block}")
        rows = "".join(f"{resident},{cached}\n" for resident, cached in memory.rows)
        (partial / "memory.csv").write_text("process,page_cache\n" + rows)
        partial.rename(target)
    except OSError as error:
        raise StoreError.at(target, f"cannot be written: {error.strerror}") from error
    return target
