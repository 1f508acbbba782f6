"""What the engine of the published modes plays: schedules by their known bugs."""

from __future__ import annotations

from typing import ClassVar

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Schedule
from forerun.replication.elasticflow.known_bugs import Corrections


class PublishedSchedule(Schedule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule of the published simulator."""

    modes: ClassVar[tuple[str, ...]] = ("compat", "corrected")

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work on a setting. It writes what happens into the record.

        Parameters
        ----------
        setting : what is run.
        record : written.
        corrected : the known bugs that it does without.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rules")
