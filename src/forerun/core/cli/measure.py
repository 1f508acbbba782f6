"""`forerun measure`: measure real machines, with one subcommand per domain that can be measured."""

from __future__ import annotations

from forerun.core.cli._found import Found
from forerun.core.slices import measures

command = Found(name="measure", modules=measures, help="Measure real storage, hardware and servers.")
