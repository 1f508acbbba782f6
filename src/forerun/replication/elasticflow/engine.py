"""`mode: compat` and `mode: corrected` of clusters: the schedules of ElasticFlow's published simulator, by switches.

A schedule runs as published (`compat`) unless a switch says `corrected`. `mode: corrected` turns all of them; each also
works alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from forerun.cluster.engine.modes.default import Default
from forerun.core.domain import Change
from forerun.core.errors import Problem, known_names
from forerun.core.registry import member_name
from forerun.replication.elasticflow.known_bugs import SWITCHES, Corrections, touching
from forerun.replication.elasticflow.schedule import PublishedSchedule
from forerun.replication.elasticflow.schedules.plan_ahead import NEEDED, PublishedElasticFlow

if TYPE_CHECKING:
    from forerun.cluster.engine.allocator import Terms
    from forerun.cluster.engine.record import Record
    from forerun.cluster.engine.rules import AnyObservingRules, AnyRules
    from forerun.cluster.inputs.setting import Setting
    from forerun.cluster.policy import Policy

COMPAT: Final = "compat"
CORRECTED: Final = "corrected"


class _Published(Default):
    """The published schedules; all other policies as in the default mode.

    Attributes
    ----------
    corrected : the switches that are off the published behaviour.
    """

    def __init__(self, switches: Mapping[str, str]) -> None:
        super().__init__(switches)
        self.corrected = frozenset(name for name in SWITCHES if switches.get(name, self.name) == CORRECTED)

    def problems(self, policy: Policy) -> list[tuple[str, str]]:
        """Unknown switches."""
        return [
            (f"compat.{name}", f"no switch {name!r}; {known_names(name, SWITCHES)}")
            for name in self.switches
            if name not in SWITCHES
        ]

    def rules(self, policy: Policy, setting: Setting, record: Record, terms: Terms, seed: int) -> AnyRules:
        """Those of a published schedule, with the switches; all others as in the default mode."""
        corrected = Corrections(self.corrected)
        if isinstance(policy, PublishedSchedule):
            return policy.played(setting, record, corrected)
        return super().rules(policy, setting, record, terms, seed)

    def replans(self, policy: Policy) -> bool:
        """ElasticFlow does where its plans are promises, and `overrun` is corrected."""
        return isinstance(policy, PublishedElasticFlow) and self.corrected >= NEEDED | {"overrun"}

    def against_live(self, policy: Policy, rules: AnyObservingRules, setting: Setting) -> Sequence[Problem]:
        """Known bugs that misstate work or costs, of which real jobs know nothing."""
        name = member_name(type(policy))
        ignored = {"cost_table"} if setting.costs is not None and "cost_table" in touching(name) else set()
        return [
            Problem(
                f"$.compat.{switch}",
                f"real jobs do not follow {name} as published: {SWITCHES[switch].published}; it must be corrected",
            )
            for switch in sorted((getattr(rules, "needs", frozenset()) | ignored) - self.corrected)
        ]

    def changes(self, policy: Policy) -> tuple[Change, ...]:
        """Each known bug that touches the policy, switched alone.

        ElasticFlow keeps its promises only where eight switches are corrected together. So that a single one of them shows
        its own effect, it is compared with a run that keeps none, and `promises_kept` stands for what they do together.
        """
        corrected, schedule = self.corrected, member_name(type(policy))

        def change(name: str) -> Change:
            switch = SWITCHES[name]
            meaning = f"{switch.published} → {switch.corrected}"
            given: tuple[tuple[str, str], ...] = ()
            if name in corrected:
                meaning = f"{switch.corrected} → {switch.published}"
            if schedule in SWITCHES["promises_kept"].touches and name in NEEDED:
                together = corrected ^ {name} >= NEEDED or corrected >= NEEDED
                if name == "promises_kept" and together:
                    others = ", ".join(sorted(NEEDED - {name}))
                    meaning += f"; promises end, too, where one of {others} is compat"
                elif together:
                    given = (("compat.promises_kept", COMPAT),)
            return Change(f"compat.{name}", COMPAT if name in corrected else CORRECTED, meaning, given)

        return tuple(change(name) for name in touching(schedule))


class Compat(_Published):
    """With their known bugs."""

    name = COMPAT


class Corrected(_Published):
    """With their known bugs corrected."""

    name = CORRECTED
