"""Types of arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Codes: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.floating]
Doubles: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
