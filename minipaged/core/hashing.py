"""Names a prefix by a hash; knows tokens and keys, not blocks, tables or tensors.

    h[0] = sha256(root | tokens of block 0)      root = sha256 over the extra keys
    h[i] = sha256(h[i-1] | tokens of block i)

Because every hash contains its parent, equal hashes mean equal *whole* prefixes and extra keys.
The chance that any two of n different prefixes collide is below n**2 / 2**257, about 1e-53 for
10**12 blocks, and nobody can construct a collision (as was done with Python's own ``hash``).

Paper: section 4.3 shares a prefix by hand; hashing the prefix finds it without being told.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256


def root_hash(extra_keys: Mapping[str, str] | None = None) -> bytes:
    """The start of a chain: equal only for equal ``extra_keys``, domain by domain.

    Whatever changes K/V for the same tokens belongs here: a tenant's salt, an adapter, the model's
    fingerprint, the K/V dtype. Each value is stored with its domain and its length, so a salt named
    like an adapter is still another key.
    """
    digest = sha256(b"minipaged prefix v1")
    for domain, value in sorted((extra_keys or {}).items()):
        for text in (domain.encode(), value.encode()):
            digest.update(struct.pack("<Q", len(text)) + text)
    return digest.digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The name of the prefix ``parent`` followed by the full block ``token_ids``.

    Tokens are hashed as 64-bit integers, a fixed binary form: [1, 23] and [12, 3] differ.
    """
    return sha256(parent + array("q", token_ids).tobytes()).digest()


def prefix_hashes(token_ids: Sequence[int], block_size: int, root: bytes) -> list[bytes]:
    """The hash of every *full* block of ``token_ids``; a partial last block has none.

    Examples:
        >>> a = prefix_hashes([1, 2, 3, 4, 5], block_size=2, root=root_hash())
        >>> b = prefix_hashes([1, 2, 9, 4, 5], block_size=2, root=root_hash())
        >>> len(a), a[0] == b[0], a[1] == b[1]
        (2, True, False)
    """
    hashes, parent = [], root
    for end in range(block_size, len(token_ids) + 1, block_size):
        parent = block_hash(parent, token_ids[end - block_size : end])
        hashes.append(parent)
    return hashes
