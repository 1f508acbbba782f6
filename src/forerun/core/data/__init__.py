"""Public data: what forerun's readers and reproductions use, where it comes from, and how to get it.

`fetch.dataset("energy/summary_train.csv")` is the path of a file, verified against its digest: from the offline
mirror named by FORERUN_DATA_DIR, else from the cache, else downloaded once from its publisher.
"""
