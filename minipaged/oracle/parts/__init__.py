"""Judges for all that a KV cache does besides attention: write, copy, merge, quantise, replay."""

from .contracts import (
    CopyContract,
    MergeContract,
    QuantizerContract,
    ReplayContract,
    WriterContract,
)
from .copies import check_copy
from .merge import check_merge
from .quantizer import check_quantizer
from .replay import check_replay
from .writer import check_writer
