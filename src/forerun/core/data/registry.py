"""The list of public data: `sources.json` of each slice, each data file with its digest, size and licence."""

from __future__ import annotations

import functools
from urllib.parse import quote

import msgspec

from forerun.core.errors import UnknownName, known_names, suggestion
from forerun.core.slices import folder, slices

GITHUB = "https://github.com/"
RAW = "https://raw.githubusercontent.com/"


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a source.

    path: below the domain's folder, in the mirror and in the cache. sha256, size: of its bytes. upstream: its
    path in the source's repository, at `commit` if that differs from the source's. archive: path in the
    repository of an archive that contains it. how: how to get it, if no address serves these bytes.
    """

    path: str
    sha256: str
    size: int
    upstream: str = ""
    commit: str = ""
    archive: str = ""
    how: str = ""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one publisher made available under one licence.

    name: unique among all domains. commit: commit or branch of the repository. note: what a user must know.
    """

    name: str
    title: str
    licence: str
    citation: str
    repository: str
    commit: str
    note: str
    files: tuple[File, ...]
    domain: str = ""

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    def full_name(self, file: File) -> str:
        """The name that identifies a file: domain and path."""
        return f"{self.domain}/{file.path}"

    def url(self, file: File) -> str:
        """Where the file's bytes are served, or the archive that contains it; empty if nowhere."""
        inside = file.upstream or file.archive
        if not inside or not self.repository.startswith(GITHUB):
            return ""
        commit = file.commit or self.commit
        return RAW + quote(f"{self.repository.removeprefix(GITHUB)}/{commit}/{inside}")

    def describe(self) -> dict[str, object]:
        """As plain data, for JSON."""
        names = ("name", "domain", "title", "licence", "citation", "repository", "commit", "note")
        about = {name: getattr(self, name) for name in names}
        return {**about, "files": len(self.files), "size_bytes": self.size}

    def describe_file(self, file: File) -> dict[str, object]:
        """One of its files as plain data, for JSON."""
        return {
            "name": self.full_name(file),
            "url": self.url(file),
            "archived": bool(file.archive),
            "sha256": file.sha256,
            "size_bytes": file.size,
            "licence": self.licence,
            "citation": self.citation,
            "domain": self.domain,
            "source": self.name,
            "how": file.how,
        }


class _Sources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: tuple[Source, ...]


@functools.cache
def known_sources() -> tuple[Source, ...]:
    """All sources, by domain and name."""
    listed = {name: file for name in slices() if (file := folder(name) / "sources.json").is_file()}
    sources = [
        msgspec.structs.replace(source, domain=name)
        for name, file in listed.items()
        for source in msgspec.json.decode(file.read_bytes(), type=_Sources).sources
    ]
    return tuple(sorted(sources, key=lambda source: (source.domain, source.name)))


def select(name: str) -> tuple[tuple[Source, File], ...]:
    """The files that a name stands for: one file, all below a folder (`spot/oobleck`), or all of a source
    (`zeus`).

    Raises UnknownName with the nearest known name.
    """
    everything = [(source, file) for source in known_sources() for file in source.files]
    full_name = name.strip("/")
    matches = [pair for pair in everything if pair[0].full_name(pair[1]) == full_name]
    matches = matches or [
        pair for pair in everything if pair[0].full_name(pair[1]).startswith(full_name + "/")
    ]
    matches = matches or [pair for pair in everything if pair[0].name == full_name]
    if not full_name or not matches:
        hint = suggestion(name, [source.full_name(file) for source, file in everything])
        raise UnknownName.at(
            "", f"no public data named {name!r}; {hint}{known_names(name, [s.name for s in known_sources()])}"
        )
    return tuple(matches)
