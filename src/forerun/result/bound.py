"""Bounds: how good any policy can be at most, proved, and certificates that a small program checks."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from forerun.regular import open_regular
from forerun.scenario.spec import Spec

S = TypeVar("S", bound=Spec)

#: how the file of a certificate says what it is
_FORMAT: Final = re.compile(rb'"format"\s*:\s*"forerun-bound/')


class Bounder(ABC, Generic[S]):
    """What proves how good any policy can be at most on the scenarios of a domain."""

    @abstractmethod
    def check(self, certificate: Path, scenario: S) -> str:
        """Verify the certificate in a file, and say what was verified.

        Raises CheckFailed if its claim does not follow, StoreError if it is no certificate or is about another scenario.
        """


def is_certificate(path: str | os.PathLike[str], document: dict[str, Any] | None = None) -> bool:
    """Whether a file, or its content, says that it is the certificate of a bound.

    Parameters
    ----------
    path : of the file; its first bytes are read. What cannot be read is no certificate.
    document : what it contains, where it has been read (default: it has not).
    """
    if document is not None:
        return str(document.get("format")).startswith("forerun-bound/")
    try:
        with open_regular(path) as file:
            return _FORMAT.search(file.read(4096)) is not None
    except OSError:
        return False
