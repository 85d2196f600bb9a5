"""What a kernel takes and what it promises, so that it is judged by that and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from .truth import FORMATS, NumericModel

Range = tuple[int, int]
# What a contract may hold beyond the usual; changing these waives nothing.
PROMISES = (
    "spare_rows",
    "numeric",
    "holes",
    "batch_invariant",
    "head_invariant",
    "scaling_exact",
    "lse_base",
)
# Kinds of `Placement.poison` that slots of no position may hold, by what `Contract.poison` says.
POISONS = {"nan": ("nan", "inf", "big", "stale"), "finite": ("big", "stale"), "zero": ()}
RANGES = ("groups", "num_kv_heads", "query_len", "kv_len", "num_seqs")
# The convention's are only the usual ones.
SIZES = ("dtypes", "block_sizes", "head_dims", "value_head_dims")


@dataclass(frozen=True)
class Features:
    """The inputs that a kernel takes; what is not named here is never drawn.

    The lengths and numbers of sequences as they come are what chance draws, and directed cases go
    beyond them; once changed they are limits.

    Attributes:
        dtypes: Of queries, keys, values and output.
        kv_forms: Formats of a quantised cache, "float8_e4m3fn" or "int8"; () for none.
        kv_scales: Granularities of its scales: "tensor", "head", "token".
        block_sizes: Block sizes to draw from.
        head_dims: Head dims to draw from.
        value_head_dims: The same of values; None for always the head dim.
        groups: Query heads per kv head, least and most.
        num_kv_heads: Least and most.
        query_len: Queries per sequence, least and most. `(1, 1)` is a decode kernel.
        kv_len: Keys per sequence, least and most.
        num_seqs: Least and most.
        ragged: Sequences may have different numbers of queries.
        causal: Values of `causal` to draw from.
        left_window: Sliding windows to the left.
        right_window: Windows to the right of the query (without `causal`).
        softcap: Softcaps.
        alibi: ALiBi slopes.
        sinks: A sink logit per head.
        masks: Kinds of mask: "tree", "random"; () for none.
        scales: A softmax scale other than `1 / sqrt(head_dim)` can be passed.
        lse: The lse is returned, and judged.
        shared_blocks: Sequences may share blocks.
        shared_tails: A sequence's last, partial block may be somebody else's full one. Not for a
            kernel that writes the keys of this step itself.
        latent: Values are the first part of the keys (MLA).
        queries_beyond_keys: More queries than keys: the first rows see nothing.
        alignments: See `Spec.alignment`.
        far: A pool may be larger than 2^31 elements: the convention packs only what is used.
        storages: Memory orders of the tensors, names that the convention knows; () for its usual.
    """

    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    kv_forms: tuple[str, ...] = ()
    kv_scales: tuple[str, ...] = ("tensor",)
    block_sizes: tuple[int, ...] = (1, 2, 3, 4, 8, 16)
    head_dims: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 12, 16, 24, 40, 64, 80, 128, 192, 256)
    value_head_dims: tuple[int, ...] | None = None
    groups: Range = (1, 8)
    num_kv_heads: Range = (1, 4)
    query_len: Range = (0, 12)
    kv_len: Range = (0, 50)
    num_seqs: Range = (1, 5)
    ragged: bool = True
    causal: tuple[bool, ...] = (True, False)
    left_window: bool = True
    right_window: bool = True
    softcap: bool = True
    alibi: bool = True
    sinks: bool = True
    masks: tuple[str, ...] = ()
    scales: bool = True
    lse: bool = True
    shared_blocks: bool = True
    shared_tails: bool = False
    latent: bool = False
    queries_beyond_keys: bool = True
    alignments: tuple[str, ...] = ("bottom-right",)
    far: bool = False
    storages: tuple[str, ...] = ()

    def only(self, **changes: Any) -> Features:
        """These features with some of them changed."""
        return replace(self, **changes)

    def within(self, possible: Features) -> Features:
        """What is in both: these features as far as a convention can express them.

        Raises:
            ValueError: Some feature has nothing in common; the message has both sides.
        """
        both = {}
        for name in (f.name for f in fields(self)):
            mine, theirs = getattr(self, name), getattr(possible, name)
            if isinstance(mine, bool):
                both[name] = mine and theirs
            elif name in RANGES:
                both[name] = max(mine[0], theirs[0]), mine[1]
            elif mine is None or theirs is None:
                both[name] = None
            else:
                both[name] = tuple(x for x in mine if x in theirs or name in SIZES)
                if mine and theirs and not both[name]:
                    raise ValueError(f"{name}={mine}, but the convention has only {theirs}")
        return replace(self, **both)


@dataclass(frozen=True)
class Contract:
    """What a kernel promises about its outputs and its inputs.

    The default is what every kernel can keep; weaken it for one that cannot, and the report will
    say so.

    Attributes:
        numeric: The arithmetic it declares, or None: float32 sums, weights rounded to the dtype of
            the values, and float32 throughout for float32.
        empty_row: Output of a query that sees no key: "zero", or "any" (not judged).
        empty_lse: lse of such a query: "-inf", "+inf", or "any".
        lse_base: "e" or "2".
        poison: What slots of no position may hold: "nan" (anything at all), "finite" (any
            number), or "zero" (they must be cleared).
        padding: What a block table may hold where there is no block: "any" integer, "valid"
            (blocks of the pool), "-1", or "0".
        hidden: What positions may hold that no query sees, behind a window for instance: "nan",
            or "finite" (any number).
        holes: The table may have padding for blocks that no query sees.
        repeatable: Two calls with the same inputs give the same bits.
        placement_invariant: The same bits wherever the blocks are.
        batch_invariant: The same bits for a sequence whatever the others of its batch are. The
            report names this and the next two where they do not hold; they are failures only of a
            kernel that promises them, or if the other answer is wrong.
        head_invariant: Permuting the kv heads permutes the bits.
        scaling_exact: Multiplying the values by 4 multiplies the output bits by 4, and twice the
            query with half the scale gives the same bits.
        inputs_unchanged: It writes to no input.
        spare_rows: What rows of query return that belong to no sequence: "zero", or "any".
        fresh_output: What a call returned stays as it is when the next call is made.
        statistic: The largest mean of squared error over predicted variance that passes.
    """

    numeric: NumericModel | None = None
    empty_row: Literal["zero", "any"] = "zero"
    empty_lse: Literal["-inf", "+inf", "any"] = "-inf"
    lse_base: Literal["e", "2"] = "e"
    poison: Literal["nan", "finite", "zero"] = "nan"
    padding: Literal["any", "valid", "-1", "0"] = "any"
    hidden: Literal["nan", "finite"] = "finite"
    holes: bool = False
    repeatable: bool = True
    placement_invariant: bool = True
    batch_invariant: bool = False
    head_invariant: bool = False
    scaling_exact: bool = False
    inputs_unchanged: bool = True
    spare_rows: Literal["zero", "any"] = "any"
    fresh_output: bool = True
    statistic: float = 4.0

    def only(self, **changes: Any) -> Contract:
        """This contract with some of its promises changed."""
        return replace(self, **changes)

    def numeric_for(self, dtype: str, stored: str = "") -> NumericModel:
        """The declared arithmetic, or what a careful kernel does.

        Args:
            dtype: Of queries and output.
            stored: Of what the cache holds, if that is another.
        """
        if self.numeric is not None:
            return self.numeric
        if dtype == "float64":
            return NumericModel("float64", "float64", "float64", lse="float64")
        halves = [d for d in (dtype, stored) if d in ("bfloat16", "float16")]
        return NumericModel(p=min(halves, key=lambda d: FORMATS[d].precision, default=dtype))

    def waivers(self) -> list[str]:
        """What it does not promise, one line each."""
        full = Contract()
        changed = [f.name for f in fields(self) if getattr(self, f.name) != getattr(full, f.name)]
        return [f"{name}={getattr(self, name)!r}" for name in changed if name not in PROMISES]
