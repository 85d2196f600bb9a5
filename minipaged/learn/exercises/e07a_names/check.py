"""Judges names by which prefixes share them, and lookups by what really lies in the pool."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from minipaged.core import BlockPool
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying
from minipaged.learn.exercises._programs import programs

ALPHABET = (1, 2, 12, 21)  # 1, 21 and 12, 1 look alike when they are written in one go
BLOCK_SIZE = 2
Tokens = tuple[int, ...]


def check(module: ModuleType) -> str:
    """All sequences of up to five tokens; then lookups in pools that know some of the blocks."""
    num_names = sum(judge_names(module.names, size) for size in (1, 2, 3))
    cases = lookups()
    for stored, known, asked in cases:
        judge_lookup(module, stored, known, asked)
    return f"{num_names:,} names, no two prefixes with the same; {len(cases):,} lookups"


def judge_names(names, size: int) -> int:
    """Equal names if and only if the whole prefixes are equal."""
    prefix_of: dict[bytes, Tokens] = {}
    name_of: dict[Tokens, bytes] = {}
    for token_ids in programs(ALPHABET, max_len=5):
        trying(f"names({list(token_ids)}, block_size={size})")
        got = names(list(token_ids), size)
        same_form(got, [], "names(...)")
        if len(got) != len(token_ids) // size:
            what = "fewer" if len(got) < len(token_ids) // size else "more"
            headline = f"{what} names than full blocks"
            reject(headline, f"got      {len(got)}", f"expected {len(token_ids) // size}")
        for i, name in enumerate(got):
            same_form(name, b"", f"name {i}")
            prefix = token_ids[: (i + 1) * size]
            if prefix_of.setdefault(name, prefix) != prefix:
                other = prefix_of[name]
                reject(
                    "two different prefixes have the same name",
                    f"one       {list(other)}, its block {list(other[-size:])}",
                    f"the other {list(prefix)}, its block {list(prefix[-size:])}",
                    "Whoever asks for one is given the keys and values of the other.",
                )
            if name_of.setdefault(prefix, name) != name:
                reject("one prefix has two names: it will not be found again", f"{list(prefix)}")
    return len(prefix_of)


def lookups() -> list[tuple[Tokens, tuple[bool, ...], Tokens]]:
    """(a stored sequence, which of its blocks are still known, what is asked), smallest first."""
    found = []
    for num_blocks in (1, 2, 3):
        for known in product((True, False), repeat=num_blocks):
            for stored in product((1, 2), repeat=num_blocks * BLOCK_SIZE):
                longer = (*stored, 1)
                asked = {longer[:n] for n in range(1, len(longer) + 1)}
                asked |= {_flipped(stored, i) for i in range(len(stored))}
                found += [(stored, known, tokens) for tokens in asked]
    return sorted(found, key=lambda case: (len(case[0]), len(case[2]), case[0], case[2]))


def _flipped(tokens: Tokens, i: int) -> Tokens:
    return (*tokens[:i], 3 - tokens[i], *tokens[i + 1 :], 1)


def judge_lookup(
    module: ModuleType, stored: Tokens, known: tuple[bool, ...], asked: Tokens
) -> None:
    """Ask a pool that has computed ``stored``, and forgotten some of its blocks since."""
    pool = BlockPool(num_blocks=4)
    blocks = pool.allocate(len(known))
    for block_id, name, is_known in zip(blocks, module.names(list(stored), BLOCK_SIZE), known):
        if is_known:
            pool.publish(block_id, name, None)
    for block_id in reversed(blocks[1:]):
        pool.release(block_id)  # block 0 stays held: both kinds can be found
    before = list(pool.ref_count)
    forgotten = [b for b, is_known in zip(blocks, known) if not is_known]
    trying(
        f"block size {BLOCK_SIZE}; computed: {list(stored)} in blocks {blocks}"
        + (f"; not in the index any more: {forgotten}" if forgotten else ""),
        f"asked for: {list(asked)}",
    )
    got = module.match_prefix(pool, list(asked), BLOCK_SIZE)
    same_form(got, [], "match_prefix(...)")
    expected = _expected(stored, known, asked, blocks)
    lines = (f"got      {got}", f"expected {expected}")
    if got != expected:
        reject(_why(got, expected, asked), *lines)
    for block_id, (old, new) in enumerate(zip(before, pool.ref_count)):
        if block_id in got and new == old:
            reject(f"block {block_id} was found and not shared: somebody else may take it", *lines)
        if new != old + (block_id in got):
            what = f"ref_count of block {block_id} went from {old} to {new}"
            reject("match_prefix shared a block too often, or one it does not return", what, *lines)


def _expected(stored: Tokens, known: tuple[bool, ...], asked: Tokens, blocks: list[int]):
    found = []
    for i, block_id in enumerate(blocks):
        end = (i + 1) * BLOCK_SIZE
        if end >= len(asked) or not known[i] or asked[:end] != stored[:end]:
            break
        found.append(block_id)
    return found


def _why(got: list[int], expected: list[int], asked: Tokens) -> str:
    if len(got) * BLOCK_SIZE >= len(asked):
        return "the whole prompt was found: no token is left to compute"
    if len(got) > len(expected):
        return "found more than is there: went on behind a gap, or took another prefix"
    return "did not find all that is there"


EXERCISE = Exercise(
    name="names",
    title="Name a prefix, and find it again",
    function=("names", "match_prefix"),
    lines=13,
    hints=(
        "Which tokens do the keys and values of a block depend on? All of them must be in its "
        "name, and it is enough to put the name of the block before into it.",
        "Walk over the full blocks with parent = b'' at first; each new name is the parent of the "
        "next. repr() of a list of tokens tells 1, 23 from 12, 3; a joined string does not.",
        "For the lookup, take the names of token_ids[:-1]: then the last token is never found. "
        "Break at the first None; share before you go on to the next.",
    ),
    learnt="A name stands for the whole prefix, so what is found under it is right; "
    "a hit has no gap and leaves a token to compute.",
    check=check,
    wrong=(
        Wrong(
            "a block's own tokens alone",
            "sha256(parent + own)",
            "sha256(own)",
            says="two different prefixes have the same name",
        ),
        Wrong(
            "its own tokens and its place",
            "sha256(parent + own)",
            "sha256(str(end).encode() + own)",
            says="two different prefixes have the same name",
        ),
        Wrong(
            "tokens written in one go",
            "repr(list(token_ids[end - block_size : end])).encode()",
            '"".join(map(str, token_ids[end - block_size : end])).encode()',
            says="two different prefixes have the same name",
        ),
        Wrong(
            "the tokens as a set",
            "repr(list(token_ids[end - block_size : end]))",
            "repr(sorted(set(token_ids[end - block_size : end])))",
            says="two different prefixes have the same name",
        ),
        Wrong(
            "a block that is not full has a name (vLLM #5188)",
            "range(block_size, len(token_ids) + 1, block_size)",
            "range(block_size, len(token_ids) + block_size, block_size)",
            says="more names than full blocks",
        ),
        Wrong(
            "the last full block is missed",
            "len(token_ids) + 1",
            "len(token_ids)",
            says="fewer names than full blocks",
        ),
        Wrong(
            "Python's own hash",
            "parent = sha256(parent + own).digest()",
            "parent = hash((parent, own))",
            says="name 0 returned an int",
        ),
        Wrong(
            "the whole prompt may be found",
            "token_ids[:-1]",
            "token_ids",
            says="no token is left to compute",
        ),
        Wrong(
            "leaves a whole block where a token is enough",
            "token_ids[:-1]",
            "token_ids[:-block_size]",
            says="did not find all that is there",
        ),
        Wrong(
            "goes on behind a gap",
            "            break\n",
            "            continue\n",
            says="found more than is there",
        ),
        Wrong(
            "finds and does not hold",
            "        pool.share(block_id)\n",
            "",
            says="was found and not shared",
        ),
        Wrong(
            "shares what is free only",
            "        pool.share(block_id)\n",
            "        if pool.is_free(block_id):\n            pool.share(block_id)\n",
            says="was found and not shared",
        ),
    ),
)
