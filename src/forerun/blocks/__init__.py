"""Samples merged into blocks: the container, packing, and the reader in training programs."""

from forerun.core.slices import Slice

SLICE = Slice(
    verbs="forerun.blocks.verbs",
)
