"""Which kernel computes an attention call, or why one cannot; knows sizes, not grids."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipaged_cuda.plan.launches import OLDEST, TYPES, Card

KERNELS = ("attention", "decode_v3", "decode_v2", "decode_v1", "decode_v0")
FLAGS = ("CAUSAL", "WINDOW", "SOFTCAP", "ALIBI", "SINKS", "SCALES")
TILE = 16  # rows (query token, head of the group) and keys of a tensor core's tile


@dataclass(frozen=True)
class AttentionSizes:
    """All that the plan of one attention call depends on.

    Attributes:
        num_tokens: Rows of query.
        num_seqs: Sequences.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Of keys and values.
        block_size: Tokens per block.
        max_blocks: Columns of the block table: no sequence is longer.
        query_type: Of query and output, "bfloat16" for instance.
        cache_type: Of stored keys and values.
        flags: Which of `FLAGS` are on.
        one_query: Every sequence has exactly one row.
        is_aligned: Every head of query, key and value begins at a multiple of 16 bytes.
    """

    num_tokens: int
    num_seqs: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    max_blocks: int
    query_type: str = "float32"
    cache_type: str = "float32"
    flags: frozenset[str] = field(default=frozenset({"CAUSAL"}))
    one_query: bool = False
    is_aligned: bool = True

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.num_heads // self.num_kv_heads

    @property
    def max_seq_len(self) -> int:
        """Tokens that a row of the block table has room for."""
        return self.max_blocks * self.block_size


def choose_kernel(sizes: AttentionSizes, card: Card) -> str:
    """Tensor cores where they can be used, plain arithmetic elsewhere."""
    return "decode_v3" if why_not("attention", sizes, card) else "attention"


def why_not(kernel: str, sizes: AttentionSizes, card: Card) -> str | None:
    """Why this kernel cannot compute a batch of these sizes, or None if it can."""
    if kernel not in KERNELS:
        return f"there is no such kernel; there are {', '.join(KERNELS)}"
    checks = [_why_not_types, _why_not_sizes]
    if kernel == "attention":
        checks += [_why_not_tensor_cores, _why_not_fragments]
    elif kernel != "decode_v3":
        checks += [_why_not_plain]
    return next((reason for check in checks if (reason := check(sizes, card))), None)


def _why_not_types(sizes: AttentionSizes, card: Card) -> str | None:
    for what, name in (("query", sizes.query_type), ("cache", sizes.cache_type)):
        usable = [n for n, kind in TYPES.items() if what == "cache" or kind.store]
        if name not in usable:
            return f"{what} is {name}, kernels take {', '.join(usable)}"
        if card.capability < OLDEST.get(name, (0, 0)):
            oldest, this = (_arch(x) for x in (OLDEST[name], card.capability))
            return f"{what} is {name}, which takes a card of {oldest} or newer, not {this}"
    return None


def _why_not_sizes(sizes: AttentionSizes, card: Card) -> str | None:
    if not 1 <= sizes.head_dim <= 256:
        return f"head_dim is {sizes.head_dim}, kernels take 1 to 256"
    return None


def _why_not_tensor_cores(sizes: AttentionSizes, card: Card) -> str | None:
    if card.capability < (8, 0):
        return f"its instructions need sm_80 or newer, not {_arch(card.capability)}"
    if sizes.query_type == "float32" or sizes.cache_type not in (sizes.query_type, "float8_e4m3fn"):
        types = f"query {sizes.query_type}, cache {sizes.cache_type}"
        return f"{types}: tensor cores take one 16-bit type for both, or a float8_e4m3fn cache"
    return None


def _why_not_fragments(sizes: AttentionSizes, card: Card) -> str | None:
    multiple = 64 if sizes.cache_type == "float8_e4m3fn" else 32
    if sizes.head_dim % multiple:
        return f"head_dim is {sizes.head_dim}, no multiple of {multiple}"
    if sizes.block_size % TILE:
        return f"block_size is {sizes.block_size}, no multiple of {TILE}"
    if not sizes.is_aligned:
        return "a head of query, key_cache or value_cache does not begin at a multiple of 16 bytes"
    return None


def _why_not_plain(sizes: AttentionSizes, card: Card) -> str | None:
    options = sorted(sizes.flags - {"CAUSAL"}) + ["CAUSAL off"] * ("CAUSAL" not in sizes.flags)
    missing = f"it has no options ({', '.join(options)}); decode_v3 and attention have them"
    return missing if options else None


def _arch(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"
