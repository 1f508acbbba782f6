"""The version, which is part of run ids and of what is stored."""

from typing import Final

VERSION: Final = "0.2.0"
