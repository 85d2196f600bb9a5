"""One-line faults of CUDA kernels, to be planted in ours; some judge must see each.

``like`` names the public report a fault is modelled on, as it stood when read (most are fixed). The
model is the mistake, not the code: ours is other code, so ours is another line.
"""

from __future__ import annotations

from support.cuda_faults.cache import CACHE_FAULTS
from support.cuda_faults.ladder import LADDER_FAULTS
from support.cuda_faults.tiles import TILE_FAULTS
from support.cuda_planted import Fault

FAULTS: tuple[Fault, ...] = (*LADDER_FAULTS, *TILE_FAULTS, *CACHE_FAULTS)
