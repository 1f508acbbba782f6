"""The JavaScript that draws charts in a page: Vega, Vega-Lite and Vega-Embed as one script.

vl-convert carries the libraries; joining them takes a second or two, so the joined script is kept in the user's cache
under the libraries' versions, with a digest that is checked before use. No cache is needed for a page to be written.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

VEGA_LITE: Final = "6.4"
_SNIPPET: Final = "window.vegaEmbed = vegaEmbed;"


@functools.cache
def javascript() -> str:
    """The script; it defines `window.vegaEmbed` and loads nothing.

    Read from the cache if it is there and undamaged, else made and kept there. Made or read once in a process.
    """
    import vl_convert

    versions = (version("vl-convert-python"), VEGA_LITE, _SNIPPET)
    name = f"charts-{hashlib.sha256(repr(versions).encode()).hexdigest()[:16]}.js"
    cached = _cached(name)
    if cached is not None:
        return cached
    text: str = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE)
    # A page inlines it: it must not end its own script element, and its digest must survive line-ending rules.
    text = (
        text.replace("</script", "<\\/script")
        .replace("<!--", "<\\!--")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
    )
    _cache(name, text)
    return text


def _folder() -> Path | None:
    """The folder of cached scripts: below `FORERUN_CACHE_DIR`, else the user's cache; None for a user without a home."""
    named = os.environ.get("FORERUN_CACHE_DIR")
    if named:
        return Path(named) / "charts"
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "forerun" / "charts"
    except RuntimeError:  # no home folder is known for this user
        return None


def _cached(name: str) -> str | None:
    """The script in the cache; None if it is absent, cannot be read, or does not match its digest."""
    folder = _folder()
    if folder is None:
        return None
    try:
        digest, _, text = (folder / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return text.decode() if digest == hashlib.sha256(text).hexdigest().encode() else None


def _cache(name: str, text: str) -> None:
    """Write a script to the cache with its digest on the first line; a cache that cannot be written is ignored."""
    folder = _folder()
    if folder is None:
        return
    raw = text.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(hashlib.sha256(raw).hexdigest().encode() + b"\n" + raw)
        Path(file.name).replace(folder / name)
    except OSError:
        return
