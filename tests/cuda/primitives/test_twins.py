"""Twins of a primitive agree to the last bit: in plain Python, and as PTX of either compiler.

Where the card itself approximates (ex2, lg2, rcp) the emulator and the definition are both exactly
rounded, so they still agree; how near the card comes is in the definitions.
"""

from __future__ import annotations

import importlib
from types import FunctionType

import numpy as np
import pytest

from minipaged_cuda.emulator import EmulationError
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.primitives import python
from support.cuda_primitives import (
    all_halves,
    bits,
    copies,
    edge_floats,
    loads,
    mlir_twin,
    moves,
    moves_halves,
    multiplies,
    of_one,
    of_three,
    of_two,
    ptx_twin,
    python_twin,
    reads_too_early,
    stores,
)


def why_not(module):
    """Why there is no PTX of a compiler here."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return ""


NO_NUMBA_CUDA = why_not("minipaged_cuda.primitives.numba_cuda")
NO_MLIR = why_not("minipaged_cuda.primitives.mlir")
SKIPS = {
    "numba_cuda": pytest.mark.skipif(
        bool(NO_NUMBA_CUDA), reason=f"{NO_NUMBA_CUDA}: pip install 'minipaged[cuda]'"
    ),
    "mlir": pytest.mark.skipif(
        bool(NO_MLIR), reason=f"{NO_MLIR}: pip install 'numba-cuda-mlir[cu13]'"
    ),
}
COMPILERS = [
    pytest.param(ptx_twin, id="numba-cuda", marks=SKIPS["numba_cuda"]),
    pytest.param(mlir_twin, id="numba-cuda-mlir", marks=SKIPS["mlir"]),
]


@pytest.fixture(params=COMPILERS)
def twin(request):
    """What compiles and runs a kernel."""
    return request.param


FLOATS = edge_floats()
SHUFFLED = np.roll(FLOATS, 97)
RNG = np.random.default_rng(1)
WORDS = RNG.integers(0, 2**32, (3, 1024), dtype=np.uint32)


def results(twin, kernel, constants, num_threads, out, inputs):
    """What the definition and another twin leave in ``out``, as words."""
    made = []
    for run in (python_twin, twin):
        here = out.copy()
        run(Specialisation.of(kernel, constants), num_threads, [here, *inputs])
        made.append(bits(here))
    return made


def assert_same(made, nan_payload=True):
    """Twins agree; without ``nan_payload`` any NaN is as good as any other."""
    python, ptx = made
    if not nan_payload:
        python, ptx = (x.view(f"f{x.itemsize}") for x in made)
    np.testing.assert_array_equal(python, ptx)
    return made[0]


@pytest.mark.parametrize("compiler", [pytest.param(c, marks=mark) for c, mark in SKIPS.items()])
def test_twins_have_the_same_words(compiler):
    module = importlib.import_module(f"minipaged_cuda.primitives.{compiler}")
    only_text = {"static", "registers"}  # gone before anything is compiled
    words = {n for n in python.__all__ if isinstance(getattr(python, n), FunctionType)} - only_text
    kind = type(module.ex2)
    compiled = {name for name, x in vars(module).items() if isinstance(x, kind)}
    assert {name for name in compiled if name[0] != "_"} == words


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["ex2", "lg2", "rcp"])
def test_functions_of_a_float(twin, word):
    names = {"word": word, "IN": "float32", "OUT": "float32"}
    assert_same(
        results(twin, of_one, names, 256, np.zeros(256, np.float32), [FLOATS]), nan_payload=False
    )


def test_the_bits_of_a_float(twin):
    names = {"word": "f32_bits", "IN": "float32", "OUT": "uint32"}
    out = assert_same(results(twin, of_one, names, 256, np.zeros(256, np.uint32), [FLOATS]))
    np.testing.assert_array_equal(out, bits(FLOATS))


def test_the_float_of_bits(twin):
    names = {"word": "bits_f32", "IN": "uint32", "OUT": "float32"}
    out = assert_same(results(twin, of_one, names, 256, np.zeros(256, np.float32), [bits(FLOATS)]))
    np.testing.assert_array_equal(out, bits(FLOATS))


@pytest.mark.parametrize("word", ["pack_f16x2", "pack_bf16x2", "pack_e4m3x2"])
def test_packing_two_floats(twin, word):
    names = {"word": word, "IN": "float32", "OUT": "uint32"}
    made = results(twin, of_two, names, 256, np.zeros(256, np.uint32), [FLOATS, SHUFFLED])
    assert_same([x.view(np.uint16) for x in made], nan_payload=word != "pack_f16x2")


@pytest.mark.parametrize("word", ["f16x2_low", "f16x2_high", "bf16x2_low", "bf16x2_high"])
def test_unpacking_half_a_word(twin, word):
    names = {"word": word, "IN": "uint32", "OUT": "float32"}
    for halves in all_halves()[::17]:
        words = halves.astype(np.uint32) | np.roll(halves, 1).astype(np.uint32) << 16
        made = results(twin, of_one, names, 256, np.zeros(256, np.float32), [words])
        assert_same(made, nan_payload=word.startswith("bf16"))


@pytest.mark.parametrize(("word", "shift"), [("e4m3x2_to_f16x2", 0), ("e4m3x2_high_to_f16x2", 16)])
def test_every_e4m3_as_float16(twin, word, shift):
    names = {"word": word, "IN": "uint32", "OUT": "uint32"}
    codes = np.arange(256, dtype=np.uint32)
    words = (codes | codes[::-1] << 8) << shift
    made = results(twin, of_one, names, 256, np.zeros(256, np.uint32), [words])
    assert_same([x.view(np.uint16) for x in made])


def test_selectors_of_prmt_in_both_modes(twin):
    a, b, _ = WORDS
    for selector in RNG.permutation(65536).astype(np.uint32).reshape(64, 1024)[:4]:
        assert_same(
            results(
                twin, of_three, {"word": "prmt"}, 1024, np.zeros(1024, np.uint32), [a, b, selector]
            )
        )


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("load_float32", FLOATS),
        ("load_float16", all_halves()[0x7C]),
        ("load_float16", all_halves()[0x83]),
        ("load_bfloat16", all_halves()[0x7F]),
        ("load_float8_e4m3", np.arange(256, dtype=np.uint8)),
    ],
)
def test_loading_an_element(twin, word, stored):
    names = {"word": word, "STORED": stored.dtype.name}
    made = results(twin, loads, names, 256, np.zeros(256, np.float32), [stored])
    assert_same(made, nan_payload=word in ("load_float32", "load_bfloat16"))


@pytest.mark.parametrize(
    ("word", "stored"),
    [("store_float32", "float32"), ("store_float16", "uint16"), ("store_bfloat16", "uint16")],
)
def test_storing_an_element(twin, word, stored):
    names = {"word": word, "STORED": stored}
    made = results(twin, stores, names, 256, np.zeros(256, stored), [FLOATS])
    assert_same(made, nan_payload=word != "store_float16")


@pytest.mark.parametrize("load", ["ld128", "ld128_stream"])
def test_16_bytes_through_shared_memory(twin, load):
    words = WORDS[0, :128]
    out = assert_same(results(twin, moves, {"load": load}, 32, np.zeros(128, np.uint32), [words]))
    np.testing.assert_array_equal(out, words[::-1])


def test_8_bytes(twin):
    words = WORDS[0, :64]
    out = assert_same(results(twin, moves_halves, {}, 32, np.zeros(64, np.uint32), [words]))
    np.testing.assert_array_equal(out.reshape(32, 2), words.reshape(32, 2)[:, ::-1])


def test_copies_in_the_background(twin):
    words = WORDS[0, :256]
    out = assert_same(results(twin, copies, {}, 32, np.zeros(256, np.uint32), [words]))
    expected = words.reshape(2, 32, 4)[:, ::-1]
    np.testing.assert_array_equal(out.reshape(2, 32, 4), expected)


@pytest.mark.skipif(bool(NO_NUMBA_CUDA), reason="pip install 'minipaged[cuda]'")
def test_a_copy_that_nobody_waited_for_is_found():
    with pytest.raises(EmulationError):
        ptx_twin(Specialisation.of(reads_too_early), 32, [np.zeros(32, np.uint32), WORDS[0, :128]])


# --- tensor cores ------------------------------------------------------------------------------


def fragments(a, b, c):
    """The words and numbers of each lane, as the definition of ``mma_bf16`` places them."""
    lane = np.arange(32)
    row, pair = lane >> 2, lane & 3
    rows = np.stack([row, row + 8, row, row + 8], 1)
    pairs = np.stack([pair, pair, pair + 4, pair + 4], 1)
    a_words = a.view(np.uint32)[rows, pairs]
    b_words = np.ascontiguousarray(b.T).view(np.uint32)[row[:, None], np.stack([pair, pair + 4], 1)]
    return a_words, b_words, unpermuted(c)


def unpermuted(c):
    """C [16, 8] as [32, 4]: a lane's four numbers."""
    lane = np.arange(32)
    row, column = lane >> 2, 2 * (lane & 3)
    rows = np.stack([row, row, row + 8, row + 8], 1)
    return c[rows, np.stack([column, column + 1, column, column + 1], 1)]


@pytest.mark.parametrize("word", ["mma_f16", "mma_bf16"])
@pytest.mark.parametrize("start", [0.0, 1.0, np.inf])
def test_a_matrix_product(twin, word, start):
    a, b = RNG.standard_normal((16, 16)), RNG.standard_normal((16, 8))
    c = (start * RNG.standard_normal((16, 8))).astype(np.float32) if start else np.zeros((16, 8))
    a_half, b_half, a_exact, b_exact = halves(word, a, b)
    inputs = [np.ascontiguousarray(x).reshape(-1) for x in fragments(a_half, b_half, c)]
    inputs[2] = inputs[2].astype(np.float32)
    made = assert_same(
        results(twin, multiplies, {"mma": word}, 32, np.zeros(128, np.float32), inputs)
    )
    expected = (a_exact @ b_exact + c).astype(np.float32)
    np.testing.assert_array_equal(made.view(np.float32), unpermuted(expected).reshape(-1))


def halves(word, *matrices):
    """The matrices as 16-bit words, and exactly what these stand for."""
    if word == "mma_f16":
        words = [m.astype(np.float16).view(np.uint16) for m in matrices]
        return *words, *(w.view(np.float16).astype(np.float64) for w in words)
    words = [(m.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for m in matrices]
    return *words, *((w.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for w in words)


# --- the definitions themselves ----------------------------------------------------------------


def test_the_definitions_agree_with_torch():
    torch = pytest.importorskip("torch")
    from minipaged_cuda import primitives

    x = FLOATS[np.isfinite(FLOATS)]
    as_torch = torch.from_numpy(x.copy())
    for word, dtype in (("pack_f16x2", torch.float16), ("pack_bf16x2", torch.bfloat16)):
        expected = as_torch.to(dtype).view(torch.int16).numpy().view(np.uint16)
        with np.errstate(all="ignore"):
            got = [int(getattr(primitives, word)(v, np.float32(0))) & 0xFFFF for v in x]
        np.testing.assert_array_equal(got, expected)
    expected = as_torch.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    got = [int(primitives.pack_e4m3x2(v, np.float32(0))) & 0xFF for v in x]
    np.testing.assert_array_equal(got, expected)
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(primitives.python.E4M3_VALUES, codes)
