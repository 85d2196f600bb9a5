"""Reads GGUF files: metadata and tensors; knows the container, nothing of models or tokenizers.

    header | metadata: key, type, value ... | tensors: name, sizes, type, offset ... | pad | data

A header lists a hundred thousand strings (a vocabulary and its merges), so it is walked with
``struct`` over a memory map. The block formats of quantised data are left to the ``gguf`` package.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from minipaged.core import ModelError

SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd"))
STRING, ARRAY = 8, 9
READABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


class TensorInfo(NamedTuple):
    """Where a tensor lies in its file."""

    shape: tuple[int, ...]  # outermost first, as torch counts
    type: GGMLQuantizationType
    start: int  # byte offset in the file
    num_bytes: int


class GGUFFile:
    """``metadata`` by key and ``tensors`` by name; ``load`` dequantises one of them.

    Raises:
        ModelError: not a GGUF file, a version or tensor type we cannot read, or a file cut short
            or damaged, found before any tensor is loaded.
    """

    def __init__(self, path: Path):
        self.path, self._at = path, 0
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._check_version()
            num_tensors, num_keys = self._take("QQ")
            self._require(num_keys * 13 + num_tensors * 24)
            self.metadata = {self._text(): self._value(*self._take("I")) for _ in range(num_keys)}
            infos = [self._tensor_info() for _ in range(num_tensors)]
            self._require(0)
        except (struct.error, OverflowError, ValueError, OSError) as error:
            if isinstance(error, ModelError):
                raise
            raise self._error(f"is cut short or damaged ({error})") from error
        self.tensors = dict(self._place(*info) for info in infos)

    def load(self, name: str) -> Tensor:
        """One tensor, dequantised to float32."""
        shape, type_, start, num_bytes = self.tensors[name]
        raw = np.frombuffer(self._bytes, np.uint8, num_bytes, start)
        if type_ == GGMLQuantizationType.F32:
            return torch.from_numpy(raw.view(np.float32).reshape(shape).copy())
        # `dequantize` takes 16 rows at a time: short rows are slow, huge ones overflow caches.
        block_bytes = GGML_QUANT_SIZES[type_][1]
        row_bytes = block_bytes * math.gcd(num_bytes // block_bytes, 64)
        values = dequantize(raw.reshape(-1, row_bytes), type_)
        return torch.from_numpy(values.reshape(shape))

    def _check_version(self) -> None:
        magic, version = self._take("4sI")
        if magic != b"GGUF":
            raise self._error(f"is not a GGUF file: it starts with {magic!r}")
        if version not in (2, 3):
            raise self._error(f"has GGUF version {version}; versions 2 and 3 can be read")

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, (num_dims,) = self._text(), self._take("I")
        sizes = self._take(f"{min(num_dims, 9)}Q")
        type_, offset = self._take("IQ")
        return name, sizes[::-1], type_, offset

    def _place(self, name: str, shape: tuple[int, ...], type_: int, offset: int):
        known = {t.value: t for t in GGMLQuantizationType}
        quantization = known.get(type_)
        if quantization is None or quantization.name not in READABLE:
            found = quantization.name if quantization else f"number {type_}"
            raise self._error(f"stores {name} as type {found}; {', '.join(READABLE)} can be read")
        block_size, block_bytes = GGML_QUANT_SIZES[quantization]
        alignment = self.metadata.get("general.alignment", 32)
        start = -(-self._at // alignment) * alignment + offset
        num_bytes = math.prod(shape) // block_size * block_bytes
        if not shape or shape[-1] % block_size or start + num_bytes > len(self._bytes):
            raise self._error(
                f"should hold {name} {list(shape)} in bytes {start} to {start + num_bytes}, but "
                f"has {len(self._bytes)} bytes: perhaps its download broke off"
            )
        return name, TensorInfo(shape, quantization, start, num_bytes)

    def _value(self, type_: int) -> Any:
        if type_ == STRING:
            return self._text()
        if type_ != ARRAY:
            return self._take(self._scalar(type_))[0]
        item_type, count = self._take("IQ")
        if item_type == STRING:
            self._require(count * 8)
            return [self._text() for _ in range(count)]
        self._require(count * struct.calcsize("<" + self._scalar(item_type)))
        return list(self._take(f"{count}{self._scalar(item_type)}"))

    def _scalar(self, type_: int) -> str:
        if type_ not in SCALARS:
            raise self._error(f"is damaged: its metadata has a value of type {type_}")
        return SCALARS[type_]

    def _text(self) -> str:
        start = self._at + 8
        (num_bytes,) = struct.unpack_from("<Q", self._bytes, self._at)
        self._at = start + num_bytes
        return self._bytes[start : self._at].decode("utf-8", "replace")

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self._bytes, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _require(self, num_bytes: int) -> None:
        """Refuse absurd counts before looping over them."""
        if self._at + num_bytes > len(self._bytes):
            raise self._error(
                f"is cut short or damaged: {num_bytes} bytes of header should follow byte "
                f"{self._at}, it has {len(self._bytes)} bytes"
            )

    def _error(self, message: str) -> ModelError:
        return ModelError(f"{self.path} {message}")
