"""The arrays of this room: numbers in double precision, whatever came in."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Complexes: TypeAlias = NDArray[np.complex128]
Truths: TypeAlias = NDArray[np.bool_]
