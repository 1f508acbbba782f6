"""Profiles and results of published simulators, as numbers: what reproductions are fed with and compared to.

Profiles are read from the published code of Bamboo (uclasystem/bamboo, commit 8080929, MIT) and of the
Oobleck artefact (SymbioticLab/Oobleck, branch sosp23-artifact, MIT). Results are what that code prints; the
costs are those of "Can't be late" (NSDI'24) on its traces.
"""

from __future__ import annotations

from typing import Final

from forerun.domains.spot.policies.bamboo.ring import RingJob
from forerun.replication.oobleck.simulator import ElasticJob

#: Bamboo's jobs by model: step times by pipelines, samples a step, nodes asked for, local rendezvous
BAMBOO_JOBS: Final = {
    "BERT": RingJob(
        stages=12,
        step_ms={1: 4310, 2: 2390, 3: 1805, 4: 1450},
        samples_per_step=264,
        capacity=48,
        local_ms=20000,
    ),
    "GPT-2": RingJob(
        stages=12,
        step_ms={1: 1200, 2: 1085, 3: 1046, 4: 1008},
        samples_per_step=32,
        capacity=48,
        local_ms=20000,
    ),
}
BAMBOO_GOAL_STEPS: Final = 22_194
SPOT_USD_PER_H: Final = 0.91

#: the figures of a row of Bamboo's table, in the order in which they stand below
_BAMBOO_FIGURES: Final = (
    "num_preemptions",
    "preemption_mean",
    "lifetime_mean",
    "num_fatal_failures",
    "average_instances",
    "average_performance",
    "average_cost",
    "average_value",
)


def _figures(values: str) -> dict[str, float]:
    """The figures of a row by name."""
    return dict(zip(_BAMBOO_FIGURES, map(float, values.split()), strict=True))


#: means over seeds 1 to 60 of what Bamboo's simulator prints for BERT, by the hourly removal probability
BAMBOO_TABLE: Final[dict[float, dict[str, float]]] = {
    0.01: _figures("4.6167 1.8005 9.428 0 43.6196 148.0279 39.6939 3.6808"),
    0.05: _figures("26.6 0.4481 7.2233 0.1333 42.1546 134.9163 38.3607 3.4884"),
    0.1: _figures("55.95 0.222 5.1888 0.0833 40.366 131.2545 36.7331 3.5442"),
    0.25: _figures("143.2 0.1009 2.801 0.5333 34.9483 114.5667 31.8029 3.5614"),
    0.5: _figures("344.7167 0.0579 1.435 2.7 27.0178 83.321 24.5862 3.3139"),
}

#: node counts at which the artefact measured its step times
_NODES: Final = range(15, 31)


def _by_nodes(values_ms: str) -> dict[int, int]:
    """Milliseconds by node count, one for each of `_NODES`."""
    return dict(zip(_NODES, map(int, values_ms.split()), strict=True))


#: The Oobleck artefact's jobs: (Oobleck's, Varuna's, Varuna's checkpoint in ms)
ELASTIC_JOBS: Final[dict[str, tuple[ElasticJob, ElasticJob, int]]] = {
    "BERT-large": (
        ElasticJob(
            step_ms=_by_nodes(
                "42599 38137 39157 35921 33634 31305 31469 28658 "
                "29411 26907 26665 24889 24992 24948 22616 22246"
            ),
            samples_per_step=8192,
            pause_ms=2000,
        ),
        ElasticJob(
            step_ms=_by_nodes(
                "42366 40440 38682 36840 35165 33636 32035 30578 "
                "29249 28244 27454 26767 25086 24855 24697 23874"
            ),
            samples_per_step=8192,
            pause_ms=76000,
            pause_ms_by_nodes=_by_nodes(
                "71300 75000 78700 82400 86100 89800 93500 97200 "
                "100900 104600 108300 112000 49100 67600 67600 71300"
            ),
        ),
        15800,
    ),
    "GPT-2-ours": (
        ElasticJob(
            step_ms=_by_nodes(
                "18313 16319 16249 15340 14304 13348 13307 12288 "
                "12277 11312 11250 10293 10232 10360 9337 9308"
            ),
            samples_per_step=1024,
            pause_ms=2000,
        ),
        ElasticJob(
            step_ms=_by_nodes(
                "15925 14532 14532 13076 13076 11595 11930 10594 10594 10031 10031 9232 9585 8705 8705 8140"
            ),
            samples_per_step=1024,
            pause_ms=83000,
        ),
        11500,
    ),
    "GPT-3-medium": (
        ElasticJob(
            step_ms=_by_nodes(
                "42872 39251 37957 35555 34375 31881 30691 29487 "
                "28276 27082 25863 24565 23655 22810 22024 21290"
            ),
            samples_per_step=819,
            pause_ms=3000,
        ),
        ElasticJob(
            step_ms=_by_nodes(
                "39164 35781 35781 32421 32421 29010 28976 28976 "
                "28976 24502 24502 24502 22844 21061 21061 19501"
            ),
            samples_per_step=819,
            pause_ms=78700,
        ),
        11200,
    ),
    "GPT-3-6_7b": (
        ElasticJob(
            step_ms=_by_nodes(
                "1000000000000 290010 311815 284976 275837 246483 255307 259424 "
                "244672 236493 212941 214521 206576 199198 192329 185918"
            ),
            samples_per_step=1024,
            pause_ms=10000,
        ),
        ElasticJob(
            step_ms=_by_nodes(
                "339475 258993 258993 258993 258993 227384 227384 227384 "
                "227384 200906 200906 200906 200906 195396 195396 195396"
            ),
            samples_per_step=1024,
            pause_ms=701000,
        ),
        120000,
    ),
}
VARUNA_EVERY_STEPS: Final = 10

ELASTIC_TRACES: Final = ("6h", "3h", "1h", "30m", "10m", "5m")


def _by_trace(samples_per_s: str) -> dict[str, float]:
    """Samples a second, one for each of `ELASTIC_TRACES`."""
    return dict(zip(ELASTIC_TRACES, map(float, samples_per_s.split()), strict=True))


#: samples a second that the artefact prints, by system, model and trace
ELASTIC_RESULTS: Final[dict[str, dict[str, dict[str, float]]]] = {
    "oobleck": {
        "BERT-large": _by_trace(
            "287.101378005363 286.91363711328336 286.2802173931511 "
            "285.15125314876724 282.1083302446209 275.2263879691974"
        ),
        "GPT-2-ours": _by_trace(
            "85.58804992589727 85.55999100886908 85.42005050312349 "
            "85.22539256826188 84.80677697012409 84.10218364771036"
        ),
        "GPT-3-medium": _by_trace(
            "29.30462314286415 29.280880202889026 29.205066916491766 "
            "29.113866922077847 28.699752749966112 28.024066402641154"
        ),
        "GPT-3-6_7b": _by_trace(
            "4.329178068984517 4.307640647206103 4.222670999897472 "
            "4.111981902996308 3.546094537200257 3.4797374303895667"
        ),
    },
    "varuna": {
        "BERT-large": _by_trace(
            "260.11280932239333 256.4669908148485 246.03104496195965 "
            "232.8472774596029 173.5206037239254 77.3346227349128"
        ),
        "GPT-2-ours": _by_trace(
            "86.51185007166802 86.15100137086627 85.17071511234116 "
            "83.42850935378762 76.39397293691012 55.279535637198606"
        ),
        "GPT-3-medium": _by_trace(
            "29.50388362990242 29.4089775565716 28.492935133064677 "
            "27.933353206543334 20.189366557653415 13.358723384899124"
        ),
        "GPT-3-6_7b": _by_trace(
            "4.144960463126314 3.963434768633801 2.688474364498649 1.055630925037834 0.25505651407238233 0.0"
        ),
    },
    "varuna_nockpt": {
        "BERT-large": _by_trace(
            "274.8188804841393 271.50745980061004 263.50770788762935 "
            "259.277380476301 201.57344425193958 154.66924546982577"
        ),
        "GPT-2-ours": _by_trace(
            "96.31788117813687 96.15678851127971 95.23062776657126 "
            "93.40695657455419 87.26207853623009 83.21419225100885"
        ),
        "GPT-3-medium": _by_trace(
            "30.8472213130029 30.654273262973653 29.83349639960173 "
            "29.014358476967125 25.937777465209784 15.428384754390544"
        ),
        "GPT-3-6_7b": _by_trace(
            "4.424312038279129 4.23555809586842 3.4066660836269533 "
            "2.345846500084075 1.729607438470205 3.2340305922239576"
        ),
    },
}

#: mean dollars by policy and hourly preemption rate, and over how many traces
DEADLINE_COSTS: Final[dict[str, dict[float, tuple[float, int]]]] = {
    "greedy": {
        0.1: (47.51760828333328, 1000),
        0.2: (50.65176976666662, 1000),
        0.25: (57.958984616666655, 1000),
        0.3: (69.30076780000006, 1000),
        0.4: (93.45039790000027, 1000),
        0.45: (102.43551075000033, 1000),
        0.5: (109.53958416666705, 1000),
        0.6: (119.87602150000046, 1000),
    },
    "uniform_progress": {
        0.1: (49.40246083333326, 200),
        0.3: (73.21110249999987, 200),
        0.6: (118.01839625000028, 200),
    },
    "spot_only": {
        0.1: (47.357857699999954, 1000),
        0.2: (47.918849849999944, 1000),
        0.25: (48.22375451666661, 1000),
        0.3: (48.54503969999994, 1000),
        0.4: (49.27924364999993, 1000),
        0.45: (49.69605481666659, 1000),
        0.5: (50.14887068333325, 1000),
        0.6: (51.2016026999999, 1000),
    },
    "on_demand": {
        0.1: (147.3900000000002, 1000),
        0.2: (147.3900000000002, 1000),
        0.25: (147.3900000000002, 1000),
        0.3: (147.3900000000002, 1000),
        0.4: (147.3900000000002, 1000),
        0.45: (147.3900000000002, 1000),
        0.5: (147.3900000000002, 1000),
        0.6: (147.3900000000002, 1000),
    },
    "offline_bound": {
        0.1: (47.27319799999995, 200),
        0.3: (52.54786958333323, 200),
        0.6: (81.95008333333317, 200),
    },
}

#: what the 2021 notebook prints about the 64-node trace
NOTEBOOK_PRINTED: Final[dict[str, float]] = {
    "mttp_s": 221.875,
    "ttp_std_s": 171.06669982633582,
    "preemptions_per_min": 0.39436619718309857,
    "additions_per_min": 0.5295774647887324,
    "chance_preempt_this_minute": 0.16338028169014085,
    "chance_add_this_minute": 0.14366197183098592,
    "probability_big_add": 0.058823529411764705,
    "probability_regular_add": 0.9411764705882353,
    "regular_add_mean": 2.5416666666666665,
    "regular_add_std": 1.9456261184790367,
    "preempt_count_mean": 2.413793103448276,
    "preempt_count_std": 2.0861656488250313,
}
