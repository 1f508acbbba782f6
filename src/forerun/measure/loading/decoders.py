"""Decoding in earnest: what a training job does with a sample's bytes, by name, and the parts that need a library."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from forerun.errors import UsageError, known_names
from forerun.measure.loading.runner import Decoder


def _library(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError.at(
            "--decoder", f"{package} is not installed: pip install 'forerun[decode]'"
        ) from error


def _pillow() -> Decoder:
    """JPEG, PNG and so on to pixels."""
    image = _library("PIL.Image", "Pillow")

    def decode(sample: memoryview) -> object:
        with image.open(io.BytesIO(sample)) as opened:
            return opened.convert("RGB").tobytes()

    return decode


def _soundfile() -> Decoder:
    """FLAC, WAV, Ogg to samples of sound."""
    soundfile = _library("soundfile", "soundfile")
    return lambda sample: soundfile.read(io.BytesIO(sample), dtype="float32")


def _numpy() -> Decoder:
    """`.npy` arrays of numbers; object arrays are refused."""
    import numpy as np

    return lambda sample: np.load(io.BytesIO(sample), allow_pickle=False)


#: decoders by name
DECODERS: Final[dict[str, Callable[[], Decoder]]] = {
    "pillow": _pillow,
    "soundfile": _soundfile,
    "numpy": _numpy,
}


def decoder_named(name: str) -> Decoder:
    """A decoder. Raises UsageError for a name that is none, or whose library is not installed."""
    if name not in DECODERS:
        raise UsageError.at("--decoder", f"no decoder {name!r}; {known_names(name, tuple(DECODERS))}")
    return DECODERS[name]()
