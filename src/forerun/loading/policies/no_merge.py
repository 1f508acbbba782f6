"""No merging, one thread."""

from __future__ import annotations

from forerun.loading.policy import Ask, Cell, Probe, Tuner, TunerSpec, TunerView


class NoMerge(TunerSpec, frozen=True, kw_only=True, tag="no_merge"):
    """Single samples and one thread, unasked: the notebook's baseline 1."""

    def build(self, view: TunerView) -> Tuner:
        """A tuner that probes nothing."""
        return _Fixed()


class _Fixed:
    def ask(self) -> Ask | None:
        return None

    def tell(self, probe: Probe) -> None:
        """Nothing was asked."""

    def choice(self) -> Cell:
        return Cell(1, 1)
