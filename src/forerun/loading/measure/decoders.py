"""Decoding in earnest: what a training job does with a sample's bytes, by name, and the parts that need a library."""

from __future__ import annotations

import io
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from forerun.core.errors import UsageError, known_names
from forerun.loading.measure.runner import Decoder


@cache
def _library(name: str, package: str) -> Any:
    """The module of a library. Raises UsageError, naming the package, where it is not installed."""
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # soundfile without its C library is an OSError
        raise UsageError.at(
            "--decoder", f"{package} is not installed: pip install 'forerun[decode]'"
        ) from error


# Functions of the module, not closures: workers of other processes are sent them.


def to_pixels(sample: memoryview) -> object:
    """JPEG, PNG and so on to pixels."""
    with _library("PIL.Image", "Pillow").open(io.BytesIO(sample)) as opened:
        return opened.convert("RGB").tobytes()


def to_sound(sample: memoryview) -> object:
    """FLAC, WAV, Ogg to samples of sound."""
    return _library("soundfile", "soundfile").read(io.BytesIO(sample), dtype="float32")


def to_numbers(sample: memoryview) -> object:
    """`.npy` arrays of numbers.

    Object arrays are rejected, as they would be unpickled.

    Parameters
    ----------
    sample : the file's bytes.
    """
    return np.load(io.BytesIO(sample))  # arrays of objects are rejected, the default


#: decoders by name, and the library that each needs
DECODERS: Final[dict[str, tuple[Decoder, tuple[str, str] | None]]] = {
    "pillow": (to_pixels, ("PIL.Image", "Pillow")),
    "soundfile": (to_sound, ("soundfile", "soundfile")),
    "numpy": (to_numbers, None),
}


def decoder_named(name: str) -> Decoder:
    """A decoder.

    Parameters
    ----------
    name : `pillow`, `soundfile` or `numpy`.

    Raises UsageError for a name that is none, or whose library is not installed.
    """
    if name not in DECODERS:
        raise UsageError.at("--decoder", f"no decoder {name!r}; {known_names(name, tuple(DECODERS))}")
    decoder, needed = DECODERS[name]
    if needed is not None:
        _library(*needed)
    return decoder
