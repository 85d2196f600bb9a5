"""The bookkeeping of paged attention: blocks, tables, prefixes. No tensors, no torch.

The allocator decides, the cache obeys: what is returned here are plans (slots, and copies of
whole blocks), which ``minipaged.cache`` carries out.
"""

from .block_pool import BlockPool
from .block_table import NO_BLOCK, BlockTable, Copy, reserve
from .errors import InvalidBatch, InvalidRequest, MinipagedError, ModelError, OutOfBlocks
from .hashing import block_hash, prefix_hashes, root_hash
from .ledger import Ledger
from .relocate import relocate
from .snapshot import Snapshot, TableView
