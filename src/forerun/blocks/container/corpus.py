"""Files of given sizes, to be packed and measured where the real ones are not at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forerun.core.errors import StoreError

#: files in a folder
A_FOLDER = 100


def write_files(folder: Path, sizes_bytes: Sequence[int], rng: np.random.Generator) -> None:
    """Write files of these sizes, a hundred to a folder, of bytes that do not compress.

    Raises StoreError where one cannot be written, or the folder is not empty.

    Parameters
    ----------
    folder : a new or empty one.
    sizes_bytes : of each file, in order.
    rng : of the content.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError.at(folder, "is not empty; name a new folder")
    try:
        for number, size in enumerate(sizes_bytes):
            path = folder / f"{number // A_FOLDER:04d}" / f"{number:07d}.bin"
            if number % A_FOLDER == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.bytes(size))
    except OSError as error:
        raise StoreError.at(error.filename or folder, f"cannot be written: {error.strerror}") from error
