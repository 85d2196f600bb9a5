"""Tokens become text as they come, cut at stop strings; knows a tokenizer's `decode`, no engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .params import SamplingParams

_BROKEN = "\ufffd"  # what bytes that are no character, or not yet one, decode to
_MAX_BROKEN = 3  # a character has at most 4 bytes, so at most 3 wait for the rest
_LONG_WINDOW = 16  # a window so long without a clean end holds bytes that are no text


class Detokenizer:
    """Joined, the pieces it returns are `tokenizer.decode(all ids)`; no piece splits a character.

    What a token says depends on its neighbours (a space that only the first token loses, a
    character in four byte tokens), so each piece is what a token adds to the text of a short window
    that starts one piece earlier:

        ids   . . . . . . | anchor | not yet certain |
        text  all out       all out  held while it ends in U+FFFD

    One exception: where bytes are no text, decoders that judge a run of byte tokens as a whole take
    back characters that are out already. A piece, once returned, stays.
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool = True):
        self._tokenizer, self._skip = tokenizer, skip_special_tokens
        self._window: list[int] = []
        self._num_anchor = 0  # tokens of the window
        self._num_out = 0  # characters of the window's text

    def append(self, token_id: int) -> str:
        """Add a token; return the text that is certain now, in time independent of the length."""
        self._window.append(token_id)
        text = self._decode(self._window)
        num_broken = len(text) - len(text.rstrip(_BROKEN))
        if num_broken > _MAX_BROKEN + self._num_anchor:  # more than any next token could mend
            num_broken = _MAX_BROKEN
        piece = text[self._num_out : len(text) - num_broken]
        self._num_out += len(piece)
        if num_broken:
            if len(self._window) > _LONG_WINDOW:
                self._shorten(text)
        elif piece:
            self._window = self._window[self._num_anchor :]
            self._num_anchor, self._num_out = len(self._window), len(self._decode(self._window))
        elif len(text) == self._num_out > 0:
            self._window.pop()  # says nothing, as special tokens do
        return piece

    def flush(self) -> str:
        """Return what was held back, broken as it is; the end of this text."""
        rest = self._decode(self._window)[self._num_out :]
        self._window, self._num_anchor, self._num_out = [], 0, 0
        return rest

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def _shorten(self, text: str) -> None:
        """Forget the head of the window, where the tail alone shows the same held characters."""
        held = text[self._num_out :]
        for size in range(_MAX_BROKEN + 1, _LONG_WINDOW):
            tail_text = self._decode(self._window[-size:])
            if tail_text.endswith(held):
                self._window, self._num_anchor = self._window[-size:], 0
                self._num_out = len(tail_text) - len(held)
                return


class TextStream:
    """The text of one output: pieces as they become certain, ended by the first stop string.

    The first is the one that ends first, as if text came character by character, so where the text
    is cut does not depend on how it was cut into tokens. A stop string that ends within the first
    `min_tokens` tokens does not count.

    Attributes:
        text: All pieces so far.
        stop: The stop string that ended the text, or None.
    """

    def __init__(self, tokenizer: Any, params: SamplingParams):
        self.text = ""
        self.stop: str | None = None
        self._detokenizer = Detokenizer(tokenizer, params.skip_special_tokens)
        self._stops = tuple(params.stop or ())
        self._include = params.include_stop_str_in_output
        self._num_tokens, self._min_tokens = 0, params.min_tokens
        self._held = ""  # the longest end of the text that a stop string could begin with

    def append(self, token_id: int) -> str:
        """Add a token; return the next piece, "" after a stop string."""
        self._num_tokens += 1
        return self._add(self._detokenizer.append(token_id))

    def flush(self) -> str:
        """Return the last piece, what was held back: nothing can make it a stop string now."""
        piece = self._add(self._detokenizer.flush())
        rest, self._held = self._held, ""
        self.text += rest
        return piece + rest

    def _add(self, new: str) -> str:
        if self.stop is not None:
            return ""
        text = self._held + new
        matches = list(self._matches(text, len(self._held)))
        if matches and self._num_tokens > self._min_tokens:
            end, start, self.stop = min(matches)
            cut = end if self._include else start
            self._held = ""
        else:
            cut = len(text) - self._num_open(text)
            self._held = text[cut:]
        self.text += text[:cut]
        return text[:cut]

    def _matches(self, text: str, num_old: int) -> Iterator[tuple[int, int, str]]:
        """Where each stop string first ends beyond the old characters, and where it starts."""
        for stop in self._stops:
            start = text.find(stop, max(0, num_old - len(stop) + 1))
            if start >= 0:
                yield start + len(stop), start, stop

    def _num_open(self, text: str) -> int:
        """Length of the longest end of the text that begins, and is shorter than, a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(len(s) > size and s.startswith(text[-size:]) for s in self._stops):
                return size
        return 0
