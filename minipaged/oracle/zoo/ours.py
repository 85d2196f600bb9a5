"""Our own kernels, judged as strangers are, with nothing to excuse; those for a GPU simulated."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..contract import Features
from ..conventions import Native
from .animal import Animal, required


def _kernel(module: str, name: str) -> Any:
    return lambda: getattr(required(f"minipaged.attention.{module}"), name)


def _simulated(name: str) -> Any:
    """A kernel for a GPU, run thread by thread on a CPU."""

    def load() -> Any:
        operations = required("minipaged_cuda.operations")
        launcher = required("minipaged_cuda.launch.simulated").SimulatedLauncher()
        return partial(operations.paged_attention, kernel=name, launcher=launcher)

    return load


ZEROED = Native.contract.only(spare_rows="zero")
# A simulated call takes tenths of a second: cases are small.
SMALL = Native.features.only(
    kv_forms=(),
    value_head_dims=None,
    head_dims=(8, 12),
    groups=(1, 3),
    num_kv_heads=(1, 2),
    num_seqs=(1, 3),
    query_len=(0, 4),
    kv_len=(0, 40),
)
PLAIN = SMALL.only(causal=(True,), left_window=False, softcap=False, alibi=False, sinks=False)
TILES = SMALL.only(
    dtypes=("bfloat16", "float16"),
    kv_forms=("float8_e4m3fn",),
    head_dims=(64,),
    block_sizes=(16, 32),
)


def _on_a_cpu(module: str, name: str, features: Features) -> Animal:
    load, contract = _kernel(module, name), Native.contract
    return Animal(name, "fast", "minipaged", load, "native", features, contract, level=4)


def _for_a_gpu(name: str, features: Features) -> Animal:
    title, load, contract = f"minipaged_cuda {name}", _simulated(name), ZEROED
    return Animal(title, "slow", "minipaged", load, "native", features, contract, deadline_s=1200)


ANIMALS = (
    _on_a_cpu("paged", "paged_attention", Native.features),
    _on_a_cpu("paged", "paged_attention_blockwise", Native.features),
    _on_a_cpu("cpu", "cpu_paged_attention", Native.features.only(kv_forms=())),
    _for_a_gpu("decode_v0", PLAIN),
    _for_a_gpu("decode_v1", PLAIN),
    _for_a_gpu("decode_v2", PLAIN),
    _for_a_gpu("decode_v3", SMALL),
    _for_a_gpu("attention", TILES),
)
