"""The ways to keep K/V that are compared, by name, of equal memory; knows no time and no model."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.core import BlockPool, BlockTable, InvalidRequest

from .contiguous import RESERVATIONS, ContiguousPool, ContiguousTable, run_length

PAGED = "paged"
CONTIGUOUS = tuple(RESERVATIONS)
MANAGERS = (*CONTIGUOUS, PAGED)
MEANING = (  # of their names, and what the paper calls them (section 6.1)
    "max, pow2 and oracle keep the K and V of a request in one piece, reserved at once; max one as "
    "long as the model allows (Orca (Max), plain transformers), pow2 with the answer's length "
    "rounded up to a power of two (Orca (Pow2)), oracle just as long as it will get (Orca "
    "(Oracle), which nobody can know). paged takes blocks as a sequence grows (vLLM)."
)
PAPER_NUM_SLOTS = 15_700  # of OPT-13B beside its weights on an A100 of 40 GB, table 1


@dataclass(frozen=True, slots=True)
class Manager:
    """One of ``MANAGERS``, and its memory.

    Args:
        name: ``max``, ``pow2``, ``oracle`` or ``paged``.
        num_blocks: of the pool.
        block_size: tokens per block; also what a run of a contiguous manager is made of.
        max_len: positions of the longest sequence that is served.
    """

    name: str
    num_blocks: int = PAPER_NUM_SLOTS // 16
    block_size: int = 16
    max_len: int = 2048

    @property
    def is_paged(self) -> bool:
        """Blocks are taken as a sequence grows."""
        return self.name == PAGED

    @property
    def num_slots(self) -> int:
        """Positions that the pool has room for."""
        return self.num_blocks * self.block_size

    @property
    def watermark(self) -> float:
        """The scheduler's: whoever reserves everything at once needs no headroom to grow."""
        return 0.01 if self.is_paged else 0.0

    def new_pool(self) -> BlockPool:
        """An empty pool."""
        return (BlockPool if self.is_paged else ContiguousPool)(self.num_blocks)

    def promised(self, prompt_len: int, output_len: int) -> int:
        """Positions that a request gets at once; with paging, those of its prompt."""
        if self.is_paged:
            return prompt_len
        return RESERVATIONS[self.name](prompt_len, output_len, self.max_len)

    def new_table(
        self, pool: BlockPool, prompt_len: int, output_len: int, root: bytes | None = None
    ) -> BlockTable:
        """The empty table of one request, which must be possible in an empty pool.

        Raises:
            InvalidRequest: with the numbers.
        """
        length = prompt_len + output_len
        if length > self.max_len:
            raise InvalidRequest(f"{length} tokens in all, a sequence has at most {self.max_len}")
        if isinstance(pool, ContiguousPool):
            promised = self.promised(prompt_len, output_len)
            needed = run_length(-(-promised // self.block_size))
            if needed > 1 << (self.num_blocks.bit_length() - 1):
                raise InvalidRequest(
                    f"{promised} positions need a run of {needed} blocks of {self.block_size}, "
                    f"{self.num_blocks} blocks have none so long"
                )
            return ContiguousTable(pool, self.block_size, promised)
        needed = -(-(length - 1) // self.block_size)
        if needed > self.num_blocks:
            raise InvalidRequest(
                f"{length} tokens need {needed} blocks of {self.block_size}, "
                f"the whole pool has {self.num_blocks}"
            )
        return BlockTable(pool, self.block_size, root)
