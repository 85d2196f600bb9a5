"""Tensor-core tiles are matrix products, with the registers laid out as PTX says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support.cuda_ptx import element, run

LANE = np.arange(32)
GROUP, COLUMN = LANE // 4, LANE % 4


def fragments(matrix: np.ndarray, places: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """[32, len(places)] of 16-bit patterns, two of them a register."""
    return np.stack([matrix[rows, columns] for rows, columns in places], axis=1)


def of_a(depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    corners = [(0, 0), (8, 0), (0, 8), (8, 8)][: depth // 4]
    return [(GROUP + r, 2 * COLUMN + c + k) for r, c in corners for k in (0, 1)]


def of_b(depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(2 * COLUMN + r + k, GROUP) for r in range(0, depth, 8) for k in (0, 1)]


OF_C = [(GROUP + r, 2 * COLUMN + k) for r in (0, 8) for k in (0, 1)]


def bits(x: torch.Tensor) -> np.ndarray:
    return x.view(torch.int16).numpy().view(np.uint16)


@pytest.mark.parametrize("depth", [16, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_tile_is_a_matrix_product(dtype: torch.dtype, depth: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(s, generator=generator).to(dtype) for s in ((16, depth), (depth, 8)))
    c = torch.randn(16, 8, generator=generator)
    x = fragments(bits(a), of_a(depth)).reshape(-1).view(np.uint32).reshape(32, -1)
    y = fragments(bits(b), of_b(depth)).reshape(-1).view(np.uint32).reshape(32, -1)
    z = np.stack([c.numpy()[place] for place in OF_C], axis=1)
    out = np.zeros((32, 4), np.float32)
    name = "bf16" if dtype == torch.bfloat16 else "f16"
    left = [f"%r{n}" for n in range(depth // 4)]
    right = [f"%r{n + 4}" for n in range(depth // 8)]
    load = lambda name, regs: "".join(  # noqa: E731
        f"ld.global.b32 {reg}, [%rd0+{4 * n}];" for n, reg in enumerate(regs)
    )
    sums = [f"%f{n}" for n in range(4)]
    body = f"""{element("x", 4 * len(left), "%rd0")} {load("x", left)}
        {element("y", 4 * len(right), "%rd0")} {load("y", right)}
        {element("z", 16, "%rd0")} {load("z", sums)}
        mma.sync.aligned.m16n8k{depth}.row.col.f32.{name}.{name}.f32
            {{{", ".join(sums)}}}, {{{", ".join(left)}}}, {{{", ".join(right)}}},
            {{{", ".join(sums)}}};
        {element("out", 16, "%rd0")} st.global.v4.f32 [%rd0], {{{", ".join(sums)}}};"""
    run(body, 32, {"x": x, "y": y, "z": z, "out": out})
    expected = (a.double() @ b.double() + c.double()).float().numpy()
    for n, place in enumerate(OF_C):
        assert np.array_equal(out[:, n], expected[place])


def test_half_sums_are_packed() -> None:
    """The identity times itself, plus one, in float16."""
    a = fragments(bits(torch.eye(16).half()), of_a(16)).reshape(-1).view(np.uint32).reshape(32, 4)
    b = fragments(bits(torch.eye(16, 8).half()), of_b(16)).reshape(-1).view(np.uint32)
    out = np.zeros((32, 2), np.uint32)
    body = f"""{element("a", 16, "%rd0")} ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%rd0];
        {element("b", 8, "%rd0")} ld.global.v2.b32 {{%r4, %r5}}, [%rd0];
        mov.b32 %r6, 0x3C003C00;
        mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {{%r7, %r8}}, {{%r0, %r1, %r2, %r3}},
            {{%r4, %r5}}, {{%r6, %r6}};
        {element("out", 8, "%rd0")} st.global.v2.b32 [%rd0], {{%r7, %r8}};"""
    run(body, 32, {"a": a, "b": b.reshape(32, 2), "out": out})
    halves = out.view(np.float16)
    for n, (rows, columns) in enumerate(OF_C):
        assert (halves[:, n] == (rows == columns) + 1).all()


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_loading_matrices(number: int, trans: str) -> None:
    x = np.arange(4 * 64, dtype=np.uint16)
    registers = [f"%r{n}" for n in range(number)]
    stores = "".join(f"st.global.b32 [%rd0+{4 * n}], {r};" for n, r in enumerate(registers))
    body = f"""{element("x", 16, "%rd0")} ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%rd0];
        mov.u32 %r9, tile; mov.u32 %r10, %tid.x; mad.lo.u32 %r9, %r10, 16, %r9;
        st.shared.v4.b32 [%r9], {{%r0, %r1, %r2, %r3}}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{number}{trans}.shared.b16 {{{", ".join(registers)}}}, [%r9];
        {element("out", 4 * number, "%rd0")} {stores}"""
    out = np.zeros((32, number), np.uint32)
    run(body, 32, {"x": x, "out": out}, outside=".shared .align 16 .b8 tile[512];")
    matrices = x.reshape(4, 8, 8)
    for n in range(number):
        matrix = matrices[n].T if trans else matrices[n]
        low, high = matrix[GROUP, 2 * COLUMN], matrix[GROUP, 2 * COLUMN + 1]
        assert (out[:, n] == low + (high.astype(np.uint32) << 16)).all()
