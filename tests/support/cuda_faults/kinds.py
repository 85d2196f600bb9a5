"""The classes of fault, and the word for a fault without a public report."""

from __future__ import annotations

INDEX = "blocks and words"
WIDTH = "64 bits"
STRIDE = "strides"
HEADS = "heads"
BOUNDS = "what is there"
EMPTY = "empty rows"
MASK = "masks"
SCORE = "score options"
SOFTMAX = "softmax"
SPLIT = "splits"
QUANTISED = "scales and rounding"
BARRIER = "barriers"
SHUFFLE = "shuffles"
RACE = "who writes"
PACE = "slow, but right"

OURS = "ours"  # plausible, but no public report of it is known to us
