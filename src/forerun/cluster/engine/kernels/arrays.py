"""Array types of the compiled loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
BOOL = npt.NDArray[np.bool_]
