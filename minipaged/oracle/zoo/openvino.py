"""OpenVINO's PagedAttention for CPUs: the kernel of a product, as a model of one operation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.openvino import OpenVINO
from .animal import Animal, Finding, required

# The inputs of the operation in their order, each with its element type and rank.
INPUTS = {
    "query": ("f32", 2),
    "key": ("f32", 2),
    "value": ("f32", 2),
    "key_cache": ("f32", 4),
    "value_cache": ("f32", 4),
    "past_lens": ("i32", 1),
    "subsequence_begins": ("i32", 1),
    "block_indices": ("i32", 1),
    "block_indices_begins": ("i32", 1),
    "scale": ("f32", 0),
    "sliding_window": ("i32", 0),
    "alibi_slopes": ("f32", 1),
    "max_context_len": ("i32", 0),
    "score_aggregation_window": ("i32", 1),
    "rotated_block_indices": ("i32", 1),
    "rotation_deltas": ("i32", 2),
    "rotation_trig_lut": ("f32", 2),
    "xattention_threshold": ("f32", 1),
    "xattention_block_size": ("i32", 0),
    "xattention_stride": ("i32", 0),
    "sinks": ("f32", 4),
    "adaptive_rkv_start_size": ("i32", 0),
    "adaptive_rkv_evictable_sizes": ("i32", 1),
    "adaptive_rkv_diversity_block_set_indices": ("i32", 1),
    "adaptive_rkv_diversity_block_set_indices_begins": ("i32", 1),
    "token_type_ids": ("i32", 1),
    "qq_bias": ("u8", 1),
    "qq_bias_begins": ("i32", 1),
}
DTYPES = {"f32": np.float32, "i32": np.int32, "u8": np.uint8}
FIXED = {"xattention_block_size": np.int32(128), "xattention_stride": np.int32(8)}


def load() -> Kernel:
    """The operation as a function of its inputs by name; those not given are off."""
    required("openvino")

    def paged_attention(**given: Any) -> NDArray[np.float32]:
        window = np.zeros(len(given["past_lens"]), np.int32)
        given = {**FIXED, "score_aggregation_window": window, **given}
        inputs = [_input(given.get(name), *kind) for name, kind in INPUTS.items()]
        (_, num_kv_heads, _, dim), value_dim = inputs[3].shape, inputs[4].shape[3]
        model = _model(inputs[0].shape[1] // dim, num_kv_heads, dim, value_dim)
        return np.array(model.create_infer_request().infer(inputs)[0])

    return paged_attention


def _input(x: Any, kind: str, rank: int) -> NDArray[Any]:
    """A copy, for the operation writes to its caches; all zeros, or nothing, where not given."""
    if x is None or (rank and not np.size(x) and np.ndim(x) != rank):
        x = np.zeros([0] * rank)
    return np.array(x, dtype=DTYPES[kind])


@functools.cache
def _model(num_heads: int, num_kv_heads: int, dim: int, value_dim: int) -> Any:
    """Compiled once for each number of heads, as models are: it remembers the first it meets."""
    openvino, opset = required("openvino"), required("openvino.opset13")
    types = {name: getattr(openvino.Type, name) for name in DTYPES}
    inputs = [
        opset.parameter([-1] * rank, types[kind], name=name)
        for name, (kind, rank) in INPUTS.items()
    ]
    outputs = [node.output(0) for node in inputs]
    operation = required("openvino.op")._PagedAttentionExtension(outputs)
    for name, size in (("k_head_size", dim), ("v_head_size", value_dim)):
        operation.get_rt_info()[name] = size
        operation.get_rt_info()[f"num_{name[0]}_heads"] = num_kv_heads
    how = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    model = openvino.Model([operation.output(0)], inputs, "paged_attention")
    return openvino.Core().compile_model(model, "CPU", how)


FILE = "src/plugins/intel_cpu/src/nodes/kernels/scaled_attn/executor_pa.cpp"
ALIBI = Finding(
    "ALiBi with a window",
    ("bound", "statistic"),
    "slopes are ignored where there is a sliding window: `if (_sliding_window)` sets "
    f"`alibi_lookup = nullptr` ({FILE})",
    {"alibi": False},
)

ANIMALS = (
    Animal(
        "OpenVINO PagedAttention",
        "fast",
        "openvino",
        load,
        "openvino",
        OpenVINO.features.only(query_len=(1, 12)),
        Contract(inputs_unchanged=False),
        (ALIBI,),
        level=5,
        examples=300,
    ),
)
