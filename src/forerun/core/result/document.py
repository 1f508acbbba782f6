"""What a page shows of a stored file, or of an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from forerun.core.result.figures import Figure

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class StoredDocument:
    """The content of a file that has a format, or an explanation, as a page shows it.

    Parameters
    ----------
    name : of the file, without its suffix.
    kind : `plan`, `measurement`, `bound`, `explanation`, `replay` or `survey`.
    domain : whose it is.
    version : of the forerun that wrote it; empty if the file does not say.
    answer : one sentence.
    notes : further sentences.
    facts : the main figures, a flat mapping; their names carry units.
    tables : rows by name.
    scenario : that was planned for (default: none).
    code : the answer as lines of a program or of a shell (default: none).
    provenance : where the content comes from (default: nothing).
    content : the whole file, from which whoever owns its format makes the figures (default: nothing).
    figures : where they are made already (default: none).
    file : that it was read from (default: none).
    """

    name: str
    kind: Literal["plan", "measurement", "bound", "explanation", "replay", "survey"]
    domain: str
    version: str
    answer: str
    notes: tuple[str, ...]
    facts: Mapping[str, Any]
    tables: Mapping[str, Rows]
    scenario: Mapping[str, Any] = field(default_factory=dict)
    code: str = field(default="", repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    figures: tuple[Figure, ...] = field(default=(), repr=False)
    file: str = ""


@dataclass(frozen=True)
class ExplainedJob:
    """Why one job fared as it did.

    Parameters
    ----------
    page : what a page shows.
    tables : what a terminal shows, each with its title and what to know to read it.
    data : everything, as plain data.
    changes : paths and values in the scenario of the best change that was tried (default: none).
    """

    page: StoredDocument
    tables: Sequence[tuple[Rows, str, str]]
    data: Mapping[str, Any]
    changes: Sequence[tuple[str, Any]] = ()

    @classmethod
    def of(
        cls,
        page: StoredDocument,
        shown: Mapping[str, Rows],
        titles: Mapping[str, tuple[str, str]],
        data: Mapping[str, Any],
        changes: Sequence[tuple[str, Any]] = (),
    ) -> ExplainedJob:
        """From tables by name, with their titles, of which a page needs what stands before the comma."""
        tables = [(rows, *titles[name]) for name, rows in shown.items() if rows]
        heads = [title.partition(",")[0] for _, title, _ in tables]
        named = {head[0].lower() + head[1:]: rows for head, (rows, _, _) in zip(heads, tables)}
        return cls(replace(page, tables=named), tables, data, changes)
