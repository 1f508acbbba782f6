"""HTML that is safe by construction: text is escaped unless it is markup already.

Names come from users' files and may say `<script>`; the only way to put markup on a page is `tag`, and data goes into
scripts through `script_json`.
"""

from __future__ import annotations

import html
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

_VOID: Final = frozenset({"meta", "br", "hr", "img", "col"})
_SPLIT_ID: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Html(str):
    """Text that is markup already; only `tag`, `join` and `script_json` should make it from data."""

    __slots__ = ()


class Piece(ABC):
    """A part of a page as data; it becomes markup when the page around it does."""

    @abstractmethod
    def html(self) -> Html | None:
        """Its markup; None where it has nothing to show."""


Content = Html | str | int | float | None | Piece | Iterable[Any]


def tag(name: str, /, *content: Content, **attributes: str | int | bool | None) -> Html:
    """An element.

    Parameters
    ----------
    name : of the element.
    content : what is in it, as for `join`; elements that cannot have any, such as `br`, ignore it.
    attributes : `class_` for class, underscores for dashes, True for a bare one, None or False for none. Values are
        escaped.
    """
    opening = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{opening}>")
    return Html(f"<{name}{opening}>{join(*content)}</{name}>")


def join(*content: Content) -> Html:
    """Pieces one after another.

    Parameters
    ----------
    content : plain text, which is escaped; markup; pieces; None, which is nothing; or iterables of these.
    """
    return Html("".join(_pieces(content)))


def script_json(data: Any) -> Html:
    """Plain data as JSON that cannot end the script element it stands in.

    Parameters
    ----------
    data : what JSON can express; numbers must be finite.

    Raises
    ------
    ValueError : a number is not finite.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Html(text.translate(_SPLIT_ID))


def _pieces(content: Iterable[Content]) -> Iterable[str]:
    """The texts of content, escaped unless they are markup."""
    for piece in content:
        if piece is None:
            continue
        if isinstance(piece, Html):
            yield str(piece)
        elif isinstance(piece, (str, int, float)):
            yield html.escape(str(piece))
        elif isinstance(piece, Piece):
            yield piece.html() or ""
        else:
            yield from _pieces(piece)


def _attribute(key: str, value: str | int | bool | None) -> str:
    """An attribute with the space before it; empty for None and False."""
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
