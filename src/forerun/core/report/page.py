"""The page around the sections: one HTML file that loads nothing and runs only the two scripts it names by digest."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from forerun.core.report.bundle import javascript
from forerun.core.report.markup import Content, Html, join, tag
from forerun.core.report.palette import DARK, LIGHT, Palette
from forerun.core.report.pieces import Section, present
from forerun.core.version import VERSION

#: the first bytes of a page that forerun wrote; only such files are overwritten
BEGINNING: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="forerun '
)


def page(title: str, lead: Content, sections: Sequence[Section], *, charts: bool) -> str:
    """The text of a page: its style, its sections with links to them, and the scripts if it has charts.

    The content security policy admits no script but these two, by their digests, and no load from anywhere.

    Parameters
    ----------
    title : of the page.
    lead : what stands below the title.
    sections : in order; those with nothing to show are left out.
    charts : whether it needs the drawing scripts.
    """
    scripts = [javascript(), _resource("page.js")] if charts else []
    digests = " ".join(map(_digest, scripts)) or "'none'"
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    head = join(
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(_style())),
    )
    shown = present(sections)
    links = (tag("a", section.short or section.title, href=f"#{section.name}") for section, _ in shown)
    origin = f"Written by forerun {VERSION}. This page loads nothing and sends nothing."
    body = join(
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("header", tag("p", "forerun", class_="brand"), tag("h1", title), lead),
        tag("nav", links, aria_label="Sections"),
        tag("main", _bodies(shown), id="content"),
        tag("footer", tag("p", origin)),
        (tag("script", Html(script)) for script in scripts),
    )
    return f'{BEGINNING}{VERSION}">{head}</head>\n<body>{body}</body></html>\n'


def _bodies(shown: Sequence[tuple[Section, Html]]) -> Html:
    """The sections one after another, and what is said where JavaScript is off."""
    warning = (
        "Charts are drawn by JavaScript, which is off here; the data below each figure is complete "
        "enough to read without them."
    )
    return join(
        tag("noscript", tag("p", warning)),
        (tag("section", tag("h2", section.title), body, id=section.name) for section, body in shown),
    )


def _digest(script: str) -> str:
    """The digest of a script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@functools.cache
def _resource(name: str) -> str:
    """A text file of this package, read once."""
    return files("forerun.core.report").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _style() -> str:
    """The style sheet: both sets of colours as variables, then page.css."""

    def colours(palette: Palette) -> str:
        return ":root{" + ";".join(f"{name}:{value}" for name, value in palette.variables().items()) + "}"

    dark = "@media screen and (prefers-color-scheme: dark){" + colours(DARK) + "}\n"
    return colours(LIGHT) + dark + _resource("page.css")
