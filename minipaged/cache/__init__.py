"""The K/V tensors and one step's index tensors; carries out what ``minipaged.core`` decided."""

from .batch import PagedBatch
from .kv_cache import KVCache, write_kv
