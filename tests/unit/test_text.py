"""Text as it comes: whole characters, exact concatenation, stop strings cut exactly."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import minipaged.engine.text as text_module
from minipaged.engine.params import SamplingParams

BROKEN = "\ufffd"
SPECIAL = 256
# Pieces of several bytes: whole characters, halves of them, and halves of two neighbours.
HEAD, TAIL, TAIL_HEAD, AB = 257, 258, 259, 260
MERGES = [b"\xf0\x9f", b"\x98\x80", b"\x98\x80\xf0\x9f", b"ab"]
MERGES += ["é".encode(), b"\x80a", b" a", "👍🏽".encode(), b"\xa9\xc3"]


class Bytes:
    """A byte-level tokenizer: 256 bytes, a special token, and some merges."""

    pieces = (*(bytes([b]) for b in range(256)), b"<s>", *MERGES)

    def __init__(self):
        self.longest = 0

    def decode(self, ids, skip_special_tokens=True):
        self.longest = max(self.longest, len(ids))
        kept = (i for i in ids if not (skip_special_tokens and i == SPECIAL))
        return b"".join(self.pieces[i] for i in kept).decode("utf-8", "replace")


class Wrapped:
    """A `tokenizers` tokenizer behind the one method that is asked for."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def decode(self, ids, skip_special_tokens=True):
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def encode(self, text):
        return self.tokenizer.encode(text).ids


CORPUS = [
    "the cat sat on the mat, the cat ate",
    "naïve café 😀 👍🏽 e\u0301 日本語 日本",
    "ab ab  abc\n\n",
]


@pytest.fixture(scope="module")
def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return Wrapped(tokenizer)


@pytest.fixture(scope="module")
def byte_fallback():
    """As Llama 2 has it: words begin with a mark that is a space, except at the very beginning."""
    words = ["▁", "▁the", "▁cat", "▁a", "a", "b", "t", "e", ",", "é", "日"]
    vocab = {token: i for i, token in enumerate(["<unk>", "</s>", *words])}
    vocab |= {f"<0x{b:02X}>": len(vocab) + b for b in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(["</s>"])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(" "), "merged_with_next")
    return Wrapped(tokenizer)


def pieces_of(tokenizer, ids, **kw):
    detokenizer = text_module.Detokenizer(tokenizer, **kw)
    return [detokenizer.append(i) for i in ids], detokenizer.flush()


def assert_law(tokenizer, ids, **kw):
    """Joined it is the whole; and at no time is more held back than broken characters."""
    pieces, rest = pieces_of(tokenizer, ids, **kw)
    skip = kw.get("skip_special_tokens", True)
    assert "".join(pieces) + rest == tokenizer.decode(ids, skip_special_tokens=skip)
    for i in range(1, len(ids) + 1):
        so_far = tokenizer.decode(ids[:i], skip_special_tokens=skip)
        assert so_far.rstrip(BROKEN) == "".join(pieces[:i]).rstrip(BROKEN)


ids_of_bytes = st.lists(st.integers(0, len(Bytes.pieces) - 1), max_size=60)
spelled = st.text(st.sampled_from("aé日😀e\u0301👍🏽 \U0001f1e9\u200d"), max_size=20)
bad_bytes = [0x80, 0xF0, 0x9F, 0x98, 0xC3, 0xE6, 0x61, SPECIAL, HEAD, TAIL, TAIL_HEAD]
malformed = st.lists(st.sampled_from(bad_bytes), max_size=80)


@settings(max_examples=300)
@given(ids_of_bytes | malformed, st.booleans())
@example([0xF0, 0x9F, 0x98, 0x80, 0xF0, 0x9F], True)
@example([0x80] * 40 + [0xF0, 0x9F, 0x98, 0x80], True)
@example([0xF0, 0x9F, 0x98] * 20 + [0x80], True)
@example([HEAD] + [TAIL_HEAD] * 40 + [TAIL], True)
@example([0x61, HEAD] + [TAIL_HEAD] * 16 + [SPECIAL] * 3 + [TAIL_HEAD] * 5 + [TAIL], True)
@example([0x61, SPECIAL, SPECIAL, 0xF0, SPECIAL, 0x9F, 0x98, 0x80], True)
def test_joined_pieces_are_the_whole(ids, skip):
    assert_law(Bytes(), ids, skip_special_tokens=skip)


@given(spelled)
def test_a_character_comes_out_with_its_last_byte(spelled):
    pieces, rest = pieces_of(Bytes(), list(spelled.encode()))
    assert rest == ""
    at = 0
    for character in spelled:
        size = len(character.encode())
        assert pieces[at : at + size] == [""] * (size - 1) + [character]
        at += size


@settings(max_examples=60)
@given(st.lists(malformed, min_size=5, max_size=12))
@example([[0x80] * 300])
@example([[0xF0, 0x9F, 0x98] * 100])
@example([[0xC3] * 300])
@example([[0x61] + [SPECIAL] * 300])
@example([[HEAD] + [TAIL_HEAD] * 300])  # each ends one character and begins the next
@example([[TAIL_HEAD, HEAD] * 200])
def test_only_a_short_window_is_decoded(parts):
    ids = [0x61] + [i for part in parts for i in part]
    tokenizer = Bytes()
    detokenizer = text_module.Detokenizer(tokenizer)
    for i in ids:
        detokenizer.append(i)
    assert tokenizer.longest <= 48


@settings(max_examples=60)
@given(st.text(st.sampled_from(sorted(set("".join(CORPUS)))), max_size=30))
def test_a_trained_byte_level_tokenizer(byte_level, text):
    ids = byte_level.encode(text)
    assert byte_level.decode(ids) == text
    assert_law(byte_level, ids)
    assert_law(byte_level, [0, *ids, 0, 0, *ids])
    assert_law(byte_level, [0, *ids, 0, *ids], skip_special_tokens=False)
    assert_law(byte_level, ids[::-1])  # bytes of characters in a wrong order


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["▁", "▁the", "▁a", "b", "é", "😀", "👍🏽", "</s>"]), max_size=12))
def test_spaces_that_only_the_first_token_loses_and_characters_in_byte_tokens(byte_fallback, parts):
    vocab = byte_fallback.tokenizer.get_vocab()
    ids = []
    for part in parts:
        own = [vocab[part]] if part in vocab else [vocab[f"<0x{b:02X}>"] for b in part.encode()]
        ids += own
    pieces, rest = pieces_of(byte_fallback, ids)
    assert "".join(pieces) + rest == byte_fallback.decode(ids)
    assert rest == ""
    assert BROKEN not in "".join(pieces)


def test_words_come_out_with_their_space(byte_fallback):
    vocab = byte_fallback.tokenizer.get_vocab()
    tokens = ["▁the", "▁cat", "</s>", "▁a", "t", "▁", "▁the", ","]
    pieces, rest = pieces_of(byte_fallback, [vocab[t] for t in tokens])
    assert pieces == ["the", " cat", "", " a", "t", " ", " the", ","]
    assert rest == ""


# --- stop strings ---------------------------------------------------------------------------------


def ids_for(*parts):
    """Token ids of a tokenizer whose tokens are these parts, and the tokenizer."""

    class Parts:
        def decode(self, ids, skip_special_tokens=True):
            return "".join(parts[i] for i in ids)

    return list(range(len(parts))), Parts()


def run(ids, tokenizer, **wishes):
    """All pieces, flush included, and the stream; nothing is added after a stop."""
    stream = text_module.TextStream(tokenizer, SamplingParams(**wishes))
    pieces = []
    for i in ids:
        if stream.stop is None:
            pieces.append(stream.append(i))
    pieces.append(stream.flush())
    assert "".join(pieces) == stream.text
    return pieces, stream


@pytest.mark.parametrize(
    ("parts", "stop", "pieces", "found"),
    [
        (["xa", "bc"], "ab", ["x", "", ""], "ab"),  # across a border
        (["xab", "c"], "ab", ["x", ""], "ab"),  # inside a token
        (["x", "a", "b"], "ab", ["x", "", "", ""], "ab"),
        (["x", "a", "c"], "ab", ["x", "", "ac", ""], None),  # held, then released
        (["x", "a"], "ab", ["x", "", "a"], None),  # held to the end
        (["a", "a", "b"], "ab", ["", "a", "", ""], "ab"),  # the first a cannot begin it any more
        (["xabab"], "ab", ["x", ""], "ab"),  # the first of two
        (["one two"], ["two", "one"], ["", ""], "one"),  # in the text, not in the list
        (["abcd"], ["bc", "abcd"], ["a", ""], "bc"),  # ends first
        (["xabc"], ["bc", "abc"], ["x", ""], "abc"),  # ends together: begins first
        (["ab", "c"], "abcd", ["", "", "abc"], None),
        (["a", "b", "a", "b", "c"], "abc", ["", "", "ab", "", "", ""], "abc"),
        (["hello"], None, ["hello", ""], None),
        (["x\n", "\nUser:"], ["\n\n", "User:"], ["x", "", ""], "\n\n"),
    ],
)
def test_the_text_is_cut_exactly(parts, stop, pieces, found):
    got, stream = run(*ids_for(*parts), stop=stop)
    assert got == pieces
    assert stream.stop == found


def test_the_stop_string_may_be_kept_but_nothing_after_it():
    got, stream = run(*ids_for("xa", "bc"), stop="ab", include_stop_str_in_output=True)
    assert ("".join(got), stream.stop) == ("xab", "ab")
    got, stream = run(*ids_for("xa", "cab"), stop="ab", include_stop_str_in_output=True)
    assert ("".join(got), stream.stop) == ("xacab", "ab")


def test_a_stop_string_counts_if_it_ends_after_min_tokens():
    parts = ids_for("ab", "a", "b", "c")
    assert run(*parts, stop="ab", min_tokens=0)[1].text == ""
    assert run(*parts, stop="ab", min_tokens=1)[1].text == "ab"
    assert run(*parts, stop="ab", min_tokens=2)[1].text == "ab"
    assert run(*parts, stop="ab", min_tokens=3)[1].text == "ababc"
    # What is over is over, though a longer stop string keeps it in the held text.
    ids, tokenizer = ids_for("b", "x", "b")
    assert run(ids, tokenizer, stop=["b", "bxy"], min_tokens=1)[1].text == "bx"


def test_after_a_stop_nothing_is_added():
    ids, tokenizer = ids_for("xab", "more")
    stream = text_module.TextStream(tokenizer, SamplingParams(stop="ab"))
    assert [stream.append(i) for i in ids] == ["x", ""]
    assert (stream.flush(), stream.text, stream.stop) == ("", "x", "ab")


def test_a_stop_string_may_be_a_character_in_pieces():
    ids = [0x61, 0xF0, 0x9F, 0x98, 0x80, 0x62]
    pieces, stream = run(ids, Bytes(), stop="😀")
    assert (pieces, stream.stop) == (["a", "", "", "", "", ""], "😀")


def test_special_tokens_are_text_if_wished():
    ids = [0x61, SPECIAL, 0x62]
    assert run(ids, Bytes())[1].text == "ab"
    assert run(ids, Bytes(), skip_special_tokens=False)[1].text == "a<s>b"
    assert run(ids, Bytes(), skip_special_tokens=False, stop="<s>")[1].text == "a"


def cut_by_character(text, stops, num_exempt):
    """Where text stops if it comes character by character: start, end and the stop string."""
    for end in range(num_exempt + 1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return end - len(stop), end, stop
    return len(text), len(text), None


def held_by(text, stops):
    begun = [s[:size] for s in stops for size in range(1, len(s)) if text.endswith(s[:size])]
    return max(map(len, begun), default=0)


stop_lists = st.lists(st.text("ab😀", min_size=1, max_size=4), max_size=3)


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from([0x61, 0x62, AB, 0xF0, 0x9F, 0x98, 0x80, HEAD, TAIL, TAIL_HEAD, SPECIAL]),
        max_size=25,
    ),
    stop_lists,
    st.booleans(),
    st.integers(0, 6),
)
def test_where_text_is_cut_does_not_depend_on_tokens(ids, stops, include, min_tokens):
    pieces, rest = pieces_of(Bytes(), ids)
    whole = "".join(pieces) + rest
    certain = ["".join(pieces[:i]) for i in range(len(ids) + 1)]
    exempt = len(certain[min_tokens]) if min_tokens < len(ids) else len(whole)
    start, end, stop = cut_by_character(whole, stops, exempt)

    wishes = {"stop": stops, "include_stop_str_in_output": include, "min_tokens": min_tokens}
    stream = text_module.TextStream(Bytes(), SamplingParams(**wishes))
    for i, token in enumerate(ids, 1):
        before = stream.text
        piece = stream.append(token)
        assert stream.text == before + piece
        if stop is not None and len(certain[i]) >= end:
            break
        assert stream.stop is None
        assert stream.text == certain[i][: len(certain[i]) - held_by(certain[i], stops)]
    stream.flush()
    assert stream.stop == stop
    assert stream.text == whole[: end if include else start]
