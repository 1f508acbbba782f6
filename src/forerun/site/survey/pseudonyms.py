"""Keyed pseudonyms for users and accounts: the same name has the same pseudonym in every file."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from forerun.core.errors import ForerunError, Problem, StoreError
from forerun.core.regular import read_regular, unreadable

#: bytes of a key, and characters of a pseudonym: of 5 bits each, so that names of a site do not meet
_KEY_BYTES: Final = 32
_LENGTH: Final = 8
#: names that say nothing about people, and that Slurm and readers know by themselves
_PLAIN: Final = frozenset({"", "root", "none", "(null)", "all"})


class Pseudonyms:
    """What users and accounts are called.

    Parameters
    ----------
    key : of the pseudonyms; empty: names stay.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._made: dict[tuple[str, str], str] = {}
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def user(self, name: str) -> str:
        """A user's."""
        return self._of("u", name)

    def account(self, name: str) -> str:
        """An account's."""
        return self._of("a", name)

    def job(self, name: str) -> str:
        """That of a job whose id is more than a number, and so may hold its name."""
        return name if re.fullmatch(r"[0-9][0-9_+.#]*", name) else self._of("j", name)

    def _of(self, kind: str, name: str) -> str:
        if not self._key or name.lower() in _PLAIN:
            return name
        if (kind, name) not in self._made:
            digest = hmac.digest(
                self._key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), hashlib.sha256
            )
            made = f"{kind}-{base64.b32encode(digest).decode().lower()[:_LENGTH]}"
            self._made[kind, name] = made
            if kind != "j":  # a user's, where an account has the same name
                self._known.setdefault(name, made)
                self._pattern = None
        return self._made[kind, name]

    def label(self, text: str) -> str:
        """A text, such as the name of a QOS or a message, whose words that are names of users or accounts are replaced."""
        if self._pattern is None:
            names = sorted(self._known, key=lambda name: (-len(name), name))
            words = "|".join(re.escape(name) for name in names if not name.isdecimal()) or r"(?!)"
            self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])")
        return self._pattern.sub(lambda match: self._known[match[0]], text)

    def masked(self, error: ForerunError) -> ForerunError:
        """An error of the same kind whose lines name no user or account."""
        return type(error)(*(Problem(self.label(one.where), self.label(one.what)) for one in error.problems))


def new_key() -> bytes:
    """A fresh key."""
    return secrets.token_hex(_KEY_BYTES).encode()


def read_key(path: Path) -> bytes:
    """The key in a file. Raises StoreError for one that is too short or cannot be read."""
    try:
        key = read_regular(path, most_bytes=1 << 16).strip()
    except OSError as error:
        raise StoreError.at(path, unreadable(error)) from error
    if len(key) < _KEY_BYTES // 2:
        raise StoreError.at(path, f"has {len(key)} bytes; a key has at least {_KEY_BYTES // 2}")
    return key


def listed(names: str, of: Pseudonyms, *, accounts: bool) -> str:
    """A list of users or accounts with commas between, as Slurm writes it: `-` before one that is excluded."""
    return ",".join(_signed(name, of, accounts=accounts) for name in names.split(","))


def _signed(name: str, of: Pseudonyms, *, accounts: bool) -> str:
    sign = name[:1] if name[:1] in "-+" else ""
    return sign + (of.account if accounts else of.user)(name[len(sign) :])


def gather(names: Iterable[str], into: Pseudonyms, *, accounts: bool) -> None:
    """Make names known, so that labels are rid of them as well."""
    for name in names:
        (into.account if accounts else into.user)(name)
