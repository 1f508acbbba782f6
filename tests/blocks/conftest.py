"""The vectors of containers are those of the loading domain."""

from ..loading.conftest import golden

__all__ = ["golden"]
