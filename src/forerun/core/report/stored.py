"""What `forerun report` accepts: run directories, study stores, and files of comparisons, plans, measurements and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.core.documents import FORMATS, document_of
from forerun.core.domain import find_domain
from forerun.core.errors import StoreError, worded
from forerun.core.result.document import StoredDocument
from forerun.core.result.figures import Figure
from forerun.core.result.reading import read_document
from forerun.core.result.run import SavedRun, load_result
from forerun.core.study.compared import COMPARISON_FORMAT, Comparison, comparison_of
from forerun.core.study.ranking import SavedStudy
from forerun.core.study.saved import load_saved
from forerun.core.study.store import is_store

#: what code that draws raises where a stored value is not what it should be
DAMAGE: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class StoredComparison:
    """A comparison with the name that the page shows for it.

    Parameters
    ----------
    name : of its file, or made from its id.
    comparison : what was compared.
    """

    name: str
    comparison: Comparison

    @property
    def domain(self) -> str:
        """The domain of the variants."""
        return self.comparison.domain


Stored = SavedRun | SavedStudy | StoredComparison | StoredDocument


def open_stored(path: Path) -> Stored:
    """Read what is stored at a path: a run directory, a study store, or a JSON file of a comparison, plan or measurement.

    Parameters
    ----------
    path : a file or folder.

    Raises
    ------
    StoreError : it is missing, damaged or of an unknown format; the message says which.
    """
    if is_store(path) or path.suffix == ".sqlite":
        return load_saved(path)
    if not path.is_file():
        return load_result(path)
    try:
        data = read_document(path)
    except StoreError as error:
        # A plan file may have any name. For one named .json, say what is wrong inside it.
        if path.suffix == ".json":
            raise
        raise StoreError.at(
            path,
            "is not a run directory, a study store or a JSON file of a comparison, plan or measurement",
        ) from error
    given = data.get("format")
    if given == COMPARISON_FORMAT:
        return StoredComparison(path.stem, comparison_of(data, str(path)))
    owner = document_of(data)
    if owner is None:
        known = ", ".join((COMPARISON_FORMAT, *FORMATS))
        raise StoreError.at(path, f"has format {given!r}; known: {known}; a run is given as its directory")
    return owner.read(path.stem, data, str(path))


def figures_of_document(document: StoredDocument) -> tuple[Figure, ...]:
    """The figures of a plan or a measurement, none if its domain is not installed.

    Parameters
    ----------
    document : the content of the file.

    Raises
    ------
    StoreError : the content lacks what the figures need.
    """
    if find_domain(document.domain) is None:
        return ()
    owner = document_of(document.content)
    try:
        return document.figures if owner is None else owner.figures(document.content)
    except DAMAGE as error:
        what = f"its figures need what the {document.kind} does not contain: {worded(error)}"
        raise StoreError.at(document.file or document.name, what) from error
