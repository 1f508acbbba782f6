"""Profiles: results of one domain, as files that other domains read.

Domains do not import each other; they share these records. `Supply`, exported by loading, gives the samples per second
that a number of readers receive; cluster and spot slow their steps down to it. `Power`, exported by energy, gives the
draw of a GPU at a batch size and a power limit, and the slowdown of that limit; cluster converts its GPU-seconds into
joules, money and CO2e with it.
"""
