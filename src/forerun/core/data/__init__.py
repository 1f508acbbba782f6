"""Public data: what forerun's readers and reproductions use, where it comes from, and how to get it.

`dataset("energy/summary_train.csv")` is the path of a file, verified against its digest: from the offline
mirror named by FORERUN_DATA_DIR, else from the cache, else downloaded once from its publisher.
"""

from forerun.core.data.fetch import dataset, fetch, status
from forerun.core.data.registry import File, Source, known_sources

__all__ = ["File", "Source", "dataset", "fetch", "known_sources", "status"]
