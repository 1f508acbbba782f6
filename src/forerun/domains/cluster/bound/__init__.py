"""How good any scheduler can be: an upper bound by prices on GPU time, and the check of its certificates.

`checker` is one file that imports nothing of forerun and can be read, copied and run alone.
"""

from __future__ import annotations

from pathlib import Path

from forerun.domains.cluster.bound import checker
from forerun.domains.cluster.bound.files import files_of
from forerun.domains.cluster.scenario import Scenario
from forerun.errors import CheckFailed, StoreError
from forerun.regular import read_regular, unreadable
from forerun.result.bound import Bounder

#: what a bound takes for granted, for the reader
ASSUMED = (
    "a job has one of its GPU counts at a time and is never faster there than its table says; GPUs are alike; quotas, "
    "nodes and costs of changes are ignored, which only raises the bound"
)


class ClusterBounder(Bounder[Scenario]):
    """Bounds of cluster scenarios."""

    def check(self, certificate: Path, scenario: Scenario) -> str:
        """Verify the certificate in a file, and say what was verified.

        Raises
        ------
        CheckFailed
            Its claim does not follow from its prices.
        StoreError
            It is no certificate, or is about other jobs, tables or GPUs.
        UsageError
            The scenario is not one of a job log and tables.
        """
        files = files_of(scenario)
        try:
            content = read_regular(certificate, most_bytes=checker.MOST_BYTES)
            holds, says = checker.check(content, files.trace, files.tables, files.gpus, files.first)
        except OSError as error:
            raise StoreError.at(certificate, unreadable(error)) from error
        except ValueError as error:
            raise StoreError.at(certificate, str(error)) from error
        if not holds:
            raise CheckFailed.at(certificate, f"its prices do not prove that {says}")
        return f"verified in exact arithmetic: {says}; assumed: {ASSUMED}"
