"""Compiled primitives shared by several domains, and the rules by which every kernel is compiled (`jit`)."""

from __future__ import annotations

from numba.core import event

from forerun.core.compiling import begins


class _Compiled(event.Listener):  # type: ignore[misc]
    """Passes on that numba compiles; of what it finds in a cache there is no such event."""

    def on_start(self, event: event.Event) -> None:
        """A kernel begins to be compiled."""
        begins()

    def on_end(self, event: event.Event) -> None:
        """It is there."""


event.register("numba:compile", _Compiled())
