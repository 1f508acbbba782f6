"""`forerun measure`: measure real machines, with one subcommand per domain that can be measured."""

from __future__ import annotations

from forerun.cli._found import Found
from forerun.slices import measures

command = Found(name="measure", modules=measures, help="Measure real storage, hardware and servers.")
