"""Published results, regenerated; engines that repeat published simulators with their known bugs."""

from forerun.core.slices import Slice

SLICE = Slice(
    verbs="forerun.replication.verbs",
    members={
        "forerun.arrival_processes": ("forerun.replication.inferline.legacy_gamma",),
        "forerun.cluster.engine": ("forerun.replication.elasticflow.engine",),
        "forerun.cluster.policy": (
            "forerun.replication.elasticflow.schedules",
            "forerun.replication.chronus.schedule",
            "forerun.replication.pollux.schedule",
        ),
        "forerun.energy.engine": ("forerun.replication.zeus.compiled",),
        "forerun.loading.run_layout": ("forerun.replication.cndlsys.statistics",),
        "forerun.loading.tuner": (
            "forerun.replication.cndlsys.random_ten",
            "forerun.replication.cndlsys.tpe_ten",
        ),
        "forerun.serving.engine": ("forerun.replication.inferline.engine",),
        "forerun.trace_readers": ("forerun.replication.cndlsys.npy",),
    },
    reference_logs={"cluster": "forerun.replication.elasticflow.reference_logs"},
)
