"""`check_kernel` from outside: right kernels pass, wrong ones get the smallest case."""

from __future__ import annotations

import pytest
import torch

from minipaged.attention import paged_attention, paged_attention_blockwise
from minipaged.attention.cpu import cpu_paged_attention
from minipaged.oracle import Contract, Features, check_kernel
from minipaged.oracle.conventions import Native
from minipaged.oracle.directed import FAR

# Ranges that are narrowed are limits: no case beyond them, and a tenth of the time.
SMALL = Native.features.only(
    dtypes=("float32",),
    kv_forms=(),
    head_dims=(1, 4, 8),
    block_sizes=(1, 2, 4),
    storages=(),
    num_seqs=(1, 4),
    query_len=(0, 6),
    kv_len=(0, 20),
    groups=(1, 3),
    num_kv_heads=(1, 2),
)


def test_the_readable_kernel_passes():
    contract = Native.contract.only(spare_rows="zero")
    report = check_kernel(paged_attention, level=5, max_examples=15, contract=contract)
    assert report.passed, report
    assert report.figures["error budget used"] < 1
    assert report.figures["asked"].startswith("queries to ")


def test_rows_of_nobody_are_judged_if_they_are_promised():
    def leaves_them(query, *batch, **options):
        out, lse = paged_attention(query, *batch, **{**options, "return_lse": True})
        out[int(batch[-1][-1]) :] = 1
        return (out, lse) if options.get("return_lse") else out

    assert check_kernel(leaves_them, level=2, max_examples=0, features=SMALL).passed
    contract = Native.contract.only(spare_rows="zero")
    report = check_kernel(leaves_them, level=2, max_examples=0, contract=contract, features=SMALL)
    assert "they return 1, not 0" in str(report)


def test_the_blockwise_kernel_passes():
    report = check_kernel(paged_attention_blockwise, level=4, max_examples=15, features=SMALL)
    assert report.passed, report


def test_the_compiled_kernel_keeps_its_promise_of_bits():
    contract = Native.contract.only(batch_invariant=True)
    report = check_kernel(cpu_paged_attention, level=4, max_examples=40, contract=contract)
    assert report.passed, report
    assert any("float8" in line for line in report.not_judged)


@pytest.mark.parametrize("kernel", [paged_attention, cpu_paged_attention])
def test_our_kernels_reach_beyond_two_to_the_31(kernel):
    features = Native.features.only(kv_forms=())
    report = check_kernel(
        kernel, level=6, max_examples=0, first=FAR, max_failures=1, deadline_s=3, features=features
    )
    assert report.judged["bound"] >= len(FAR)
    assert not report.failures, report


def test_a_verdict_says_what_there_was_no_time_for():
    report = check_kernel(paged_attention, level=3, features=SMALL, deadline_s=0.05)
    assert not report.passed
    assert report.verdict == "NOT DECIDED"
    assert "poison" in report.unreached
    assert any(line.startswith("stopped by the deadline") for line in report.not_judged)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"features": Features(dtypes=("fp16",))}, "no dtype 'fp16'; the nearest: float16"),
        ({"device": "nowhere"}, "device 'nowhere' cannot be used here"),
    ],
)
def test_what_is_not_here_is_named(options, told):
    with pytest.raises(ValueError, match=told):
        check_kernel(paged_attention, **options)


def sees_the_future(*args, **options):
    return paged_attention(*args, **{**options, "causal": False})


def window_one_too_wide(*args, window=None, **options):
    return paged_attention(*args, window=window and window + 1, **options)


def first_kv_head_only(query, key_cache, value_cache, *batch, **options):
    return paged_attention(
        query,
        key_cache[:, :, :1].expand_as(key_cache),
        value_cache[:, :, :1].expand_as(value_cache),
        *batch,
        **options,
    )


@pytest.mark.parametrize(
    ("kernel", "lengths", "others"),
    [
        (sees_the_future, ((2, 2),), {}),
        (window_one_too_wide, ((1, 2),), {"window": (0, None)}),
        (first_kv_head_only, ((1, 1),), {"num_kv_heads": 2}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_wrong_kernel_gets_the_smallest_case(kernel, lengths, others):
    report = check_kernel(kernel, level=3, max_examples=50, max_failures=1)
    assert not report.passed
    (failure,) = report.failures
    assert failure.check == "bound"
    assert failure.seconds < 5
    small = failure.case
    assert small.lengths == lengths
    for name in ("num_kv_heads", "window", "group", "softcap", "sinks", "alibi", "dtype"):
        plain = {"num_kv_heads": 1, "window": (None, None), "group": 1, "dtype": "float32"}
        assert getattr(small, name) == others.get(name, plain.get(name, getattr(small, name)))
    assert (small.softcap, small.sinks, small.alibi) == (None, False, False)


def test_a_kernel_without_options_is_not_asked_for_them():
    def plain(query, key_cache, value_cache, block_tables, seq_lens, query_start_loc, *, scale):
        return paged_attention(
            query, key_cache, value_cache, block_tables, seq_lens, query_start_loc, scale=scale
        )

    report = check_kernel(plain, level=3, max_examples=20, features=SMALL)
    assert report.passed, report
    assert any("softcap" in line for line in report.not_judged)
    assert any("lse" in line for line in report.not_judged)


def test_what_a_kernel_declines_is_named_and_not_held_against_it():
    def no_window(*args, window=None, **options):
        if window is not None:
            raise NotImplementedError("no sliding windows yet")
        return paged_attention(*args, **options)

    report = check_kernel(no_window, level=3, max_examples=20, features=SMALL)
    assert report.passed, report
    assert any("no sliding windows yet" in line for line in report.not_judged)


def test_a_kernel_that_declines_everything_has_not_passed():
    def nothing(*args, **options):
        raise NotImplementedError("later")

    report = check_kernel(nothing, level=3, max_examples=3, features=SMALL)
    assert not report.passed
    assert "nothing was judged" in str(report)


def test_the_same_seed_gives_the_same_verdict():
    def first_query_only(*args, **options):
        out, lse = paged_attention(*args, **{**options, "return_lse": True})
        out[1:] = 0
        return (out, lse) if options.get("return_lse") else out

    one, two = (check_kernel(first_query_only, level=1, max_examples=30) for _ in range(2))
    assert [str(f) for f in one.failures] == [str(f) for f in two.failures]
    assert one.calls == two.calls


def broken_at_an_edge(*args, **options):
    """Right but for sequences without keys, where it is NaN."""
    out, lse = paged_attention(*args, **{**options, "return_lse": True})
    lens, starts = args[4].tolist(), args[5].tolist()
    for s, length in enumerate(lens):
        if length == 0:
            out[starts[s] : starts[s + 1]] = torch.nan
    return (out, lse) if options.get("return_lse") else out


def test_a_contract_frees_a_kernel_from_what_it_does_not_promise():
    assert not check_kernel(broken_at_an_edge, level=3, max_examples=20, features=SMALL).passed
    freed = Native.contract.only(empty_row="any")
    report = check_kernel(
        broken_at_an_edge, level=3, max_examples=20, contract=freed, features=SMALL
    )
    assert report.passed, report
    assert any("empty_row='any'" in line for line in report.not_judged)


def test_features_free_it_too():
    decode = SMALL.only(query_len=(1, 1), kv_len=(1, 20))
    report = check_kernel(broken_at_an_edge, level=3, max_examples=20, features=decode)
    assert report.passed, report


def test_other_bits_are_noted_and_a_promise_of_bits_is_kept_to():
    def batch_dependent(query, *rest, **options):
        out, lse = paged_attention(query, *rest, **{**options, "return_lse": True})
        if len(rest[3]) > 1 and query.dtype == torch.float32:
            out = out * (1 + 2**-23)
        return (out, lse) if options.get("return_lse") else out

    lenient = check_kernel(batch_dependent, level=2, max_examples=5, features=SMALL)
    assert lenient.passed, lenient
    assert any(line.startswith("alone: other bits") for line in lenient.not_judged)
    promised = Contract(batch_invariant=True)
    strict = check_kernel(
        batch_dependent, level=2, max_examples=5, contract=promised, features=SMALL
    )
    assert {"alone", "batch order"} & {f.check for f in strict.failures}


def test_unknown_names_are_told_what_there_is():
    with pytest.raises(LookupError, match="native"):
        check_kernel(paged_attention, "natve")
    with pytest.raises(ValueError, match="0 to 6"):
        check_kernel(paged_attention, level=9)


def test_features_are_the_conventions_unless_told():
    assert Native().fit(paged_attention)[1] == Native.features
    assert Features().only(lse=False).lse is False
