"""The ranks of users by Slurm's Fair Tree at many instants."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
from forerun.cluster.engine.kernels.share_tree import fair_tree
from forerun.core.kernels.jit import kernel


@kernel
def ranks_of(parent: I64, share: F64, is_user: BOOL, used: F64, node: I64, ranks: F64) -> None:
    """Write the rank of one user at each instant, from 1.

    Parameters
    ----------
    parent, share, is_user : of a tree; see `share_tree.fair_tree`.
    used : float64[instants, nodes], what users had used.
    node : int64[instants], the user.
    ranks : float64[instants], written.
    """
    users = np.sum(is_user)
    for at in range(len(node)):
        ranks[at] = fair_tree(parent, share, is_user, used[at])[node[at]] * users
