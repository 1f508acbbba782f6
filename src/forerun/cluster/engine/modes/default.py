"""The default mode: policies that decide through a view, and schedules that play in every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.cluster.engine import Engine
from forerun.core.registry import member_name

if TYPE_CHECKING:
    from forerun.cluster.engine.allocator import Terms
    from forerun.cluster.engine.record import Record
    from forerun.cluster.engine.rules import AnyRules
    from forerun.cluster.inputs.setting import Setting
    from forerun.cluster.policy import Policy


class Default(Engine):
    """The semantics of this package."""

    name = "default"

    def problems(self, policy: Policy) -> list[tuple[str, str]]:
        """No published schedules, and no switches."""
        problems = []
        if self.switches:
            problems.append(("compat", f"has switches of published schedules; mode: {self.name} plays none"))
        if policy.modes and self.name not in policy.modes:
            known = " or ".join(policy.modes)
            problems.append(
                ("policy", f"{member_name(type(policy))} is a published schedule; play it in mode: {known}")
            )
        return problems

    def rules(self, policy: Policy, setting: Setting, record: Record, terms: Terms, seed: int) -> AnyRules:
        """Those that the policy builds, or the compiled ones that equal them."""
        from forerun.cluster.engine.run import rules_for  # here: it brings compiled code

        return rules_for(policy, setting, record, terms, seed)
