"""The program that draws pictures: a process of its own, since the renderer ends the process that it fails in.

Reads Vega-Lite specifications as a JSON list, and writes each picture after its length in eight bytes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from forerun.core.report.bundle import VEGA_LITE

#: pixels of a PNG for one of the drawing's
SCALE: Final = 2.0


def rendered(specification: dict[str, Any], kind: str) -> bytes:
    """A picture, as SVG or PNG."""
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE)
    return text.encode() if kind == "svg" else bytes(vl_convert.svg_to_png(text, scale=SCALE))


if __name__ == "__main__":
    for each in json.load(sys.stdin):
        picture = rendered(each, sys.argv[1])
        sys.stdout.buffer.write(len(picture).to_bytes(8, "big") + picture)
