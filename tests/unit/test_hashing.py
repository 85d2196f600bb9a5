"""A prefix has one name, and one name has one prefix."""

from minipaged.core import block_hash, prefix_hashes, root_hash

ROOT = root_hash()


def test_only_full_blocks_have_a_name():
    names = [len(prefix_hashes([7] * n, block_size=3, root=ROOT)) for n in range(8)]
    assert names == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_block_is_named_with_everything_before_it():
    #            block 0  block 1
    a = prefix_hashes([1, 1, 7, 7], block_size=2, root=ROOT)
    b = prefix_hashes([2, 2, 7, 7], block_size=2, root=ROOT)
    assert a[1] != b[1], "equal tokens after another beginning are another prefix"
    assert a == [block_hash(ROOT, [1, 1]), block_hash(block_hash(ROOT, [1, 1]), [7, 7])]


def test_a_name_depends_on_where_one_token_ends():
    assert block_hash(ROOT, [1, 23]) != block_hash(ROOT, [12, 3])


def test_a_name_does_not_depend_on_how_tokens_are_stored():
    assert block_hash(ROOT, [1, 2]) == block_hash(ROOT, (1, 2))


def test_every_extra_key_makes_another_prefix():
    keys = [
        None,
        {"salt": ""},
        {"salt": "a"},
        {"adapter": "a"},  # same value, another domain
        {"salt": "a", "adapter": "a"},
        {"salt": "aadapter", "adapter": ""},
        {"salta": ""},  # same letters, split elsewhere
    ]
    assert len({root_hash(k) for k in keys}) == len(keys)
    assert root_hash({}) == root_hash(None)


def test_the_order_of_extra_keys_says_nothing():
    assert root_hash({"a": "1", "b": "2"}) == root_hash({"b": "2", "a": "1"})


def test_the_names_never_change():
    # Written down by hand: a cache on disk, or another process, must find what this one stored.
    assert ROOT.hex()[:16] == "0458fd5c105ac205"
    assert block_hash(ROOT, [1, 2]).hex()[:16] == "2691b08d17d2460c"
    assert root_hash({"salt": "a"}).hex()[:16] == "28f8fb554d227ce5"
    assert len(ROOT) == len(block_hash(ROOT, [1, 2])) == 32, "nothing is cut off"
