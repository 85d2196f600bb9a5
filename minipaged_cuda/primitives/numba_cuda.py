"""The numba-cuda twin: each primitive as LLVM or inline PTX; means what ``primitives.python`` says.

Numba calls a function here while it compiles, with the types of the arguments, and gets back a
signature and a generator of code. All offsets are cast to int64 before they meet a pointer.
"""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# Numba makes the members of `types` while it is imported.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

BYTE, HALF, WORD, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT, NOTHING = ir.FloatType(), ir.VoidType()
FOUR_WORDS = ir.VectorType(WORD, 4)
GLOBAL, SHARED = 1, 3  # address spaces

f16, f32, i32, i64 = types.float16, types.float32, types.int32, types.int64
u8, u16, u32 = types.uint8, types.uint16, types.uint32
FULL_MASK = 0xFFFFFFFF
LLVM = {f32: FLOAT, u32: WORD, u16: HALF, u8: BYTE, i32: WORD}


def asm(
    name: str, text: str, returns: Any, *takes: Any, volatile: bool = False, clobber: str = ""
) -> Callable[..., Any]:
    """A primitive of scalars that is one PTX instruction, ``$0`` its result."""
    letters = {f32: "f", u32: "r", i32: "r", u16: "h"}
    inputs = ",".join(letters[t] for t in takes)
    output = "" if returns is types.void else "=" + letters[returns]
    constraints = ",".join(x for x in (output, inputs, clobber) if x)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        result = NOTHING if returns is types.void else LLVM[returns]
        function = ir.FunctionType(result, [LLVM[t] for t in takes])
        value = builder.asm(function, text, constraints, list(args), volatile)
        return context.get_dummy_value() if returns is types.void else value

    return _typed(name, signature(returns, *takes), codegen)


def _typed(name: str, sig: Any, codegen: Callable[..., Any]) -> Any:
    """An intrinsic of exactly these types; Numba wants the parameters spelled out."""
    parameters = ", ".join(f"a{i}" for i in range(len(sig.args)))
    scope = {"sig": sig, "codegen": codegen}
    exec(f"def {name}(typingctx, {parameters}):\n    return sig, codegen", scope)
    return intrinsic(scope[name])


# --- memory ------------------------------------------------------------------------------------


def _address(context: Any, builder: Any, sig: Any, args: Any, at: int, space: int) -> Any:
    """The address of element ``args[at + 1]`` of pointer or array ``args[at]``, in its space."""
    kind, value = sig.args[at], args[at]
    data = value if isinstance(kind, types.CPointer) else _array(context, builder, kind, value)
    offset = context.cast(builder, args[at + 1], sig.args[at + 1], types.int64)
    address = builder.gep(data, [offset])
    return builder.addrspacecast(address, ir.PointerType(address.type.pointee, space))


def _array(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def _load(space: int, count: int = 4) -> Callable[..., Any]:
    vector = ir.VectorType(WORD, count)

    def load(typingctx: Any, pointer: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            address = _address(context, builder, sig, args, 0, space)
            value = builder.load(builder.bitcast(address, vector.as_pointer(space)))
            value.align = 4 * count
            words = [builder.extract_element(value, WORD(i)) for i in range(count)]
            return cgutils.pack_array(builder, words)

        return signature(types.UniTuple(u32, count), pointer, offset), codegen

    return load


def _store(space: int) -> Callable[..., Any]:
    def store(typingctx: Any, pointer: Any, offset: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            address = _address(context, builder, sig, args, 0, space)
            value = ir.Constant(FOUR_WORDS, ir.Undefined)
            for i in range(4):
                value = builder.insert_element(value, args[2 + i], WORD(i))
            store = builder.store(value, builder.bitcast(address, FOUR_WORDS.as_pointer(space)))
            store.align = 16
            return context.get_dummy_value()

        return signature(types.void, pointer, offset, u32, u32, u32, u32), codegen

    return store


ld64, ld128, lds128 = (intrinsic(f) for f in (_load(GLOBAL, 2), _load(GLOBAL), _load(SHARED)))
st128, sts128 = intrinsic(_store(GLOBAL)), intrinsic(_store(SHARED))


@intrinsic
def ld128_stream(typingctx: Any, pointer: Any, offset: Any) -> Any:
    """Through the read-only path, not kept in L1, whole lines of L2 fetched."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address = builder.ptrtoint(_address(context, builder, sig, args, 0, GLOBAL), LONG)
        four = ir.LiteralStructType([WORD] * 4)
        text = "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {$0,$1,$2,$3}, [$4];"
        function = ir.FunctionType(four, [LONG])
        words = builder.asm(function, text, "=r,=r,=r,=r,l", [address], False)
        return cgutils.pack_array(builder, [builder.extract_value(words, i) for i in range(4)])

    return signature(types.UniTuple(u32, 4), pointer, offset), codegen


@intrinsic
def cp_async16(typingctx: Any, array: Any, to: Any, pointer: Any, offset: Any) -> Any:
    """An LDGSTS, sm_80 and newer."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = builder.ptrtoint(_address(context, builder, sig, args, 0, SHARED), WORD)
        source = builder.ptrtoint(_address(context, builder, sig, args, 2, GLOBAL), LONG)
        function = ir.FunctionType(NOTHING, [WORD, LONG])
        text = "cp.async.cg.shared.global [$0], [$1], 16;"
        builder.asm(function, text, "r,l,~{memory}", [to, source], True)
        return context.get_dummy_value()

    return signature(types.void, array, to, pointer, offset), codegen


def _fence(name: str, text: str) -> Any:
    return asm(name, text, types.void, volatile=True, clobber="~{memory}")


cp_async_commit = _fence("cp_async_commit", "cp.async.commit_group;")
cp_async_wait_all = _fence("cp_async_wait_all", "cp.async.wait_group 0;")
cp_async_wait_but_one = _fence("cp_async_wait_but_one", "cp.async.wait_group 1;")


def _element(name: str, stored: Any, to_float: str) -> Any:
    """``load_*``: one element as float32, by the PTX that converts its register."""

    def load(typingctx: Any, pointer: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(_address(context, builder, sig, args, 0, GLOBAL))
            if not to_float:
                return value
            if stored is u8:
                value = builder.zext(value, HALF)
            return builder.asm(ir.FunctionType(FLOAT, [HALF]), to_float, "=f,h", [value], False)

        return signature(f32, types.CPointer(stored), offset), codegen

    load.__name__ = name
    return intrinsic(load)


load_float32 = _element("load_float32", f32, "")
load_float16 = _element("load_float16", u16, "cvt.f32.f16 $0, $1;")
load_bfloat16 = _element("load_bfloat16", u16, "mov.b32 $0, {0, $1};")
load_float8_e4m3 = _element(
    "load_float8_e4m3",
    u8,
    "{ .reg .b32 t; .reg .b16 l, h;"
    " cvt.rn.f16x2.e4m3x2 t, $1; mov.b32 {l, h}, t; cvt.f32.f16 $0, l; }",
)


def _element_store(name: str, stored: Any, from_float: str) -> Any:
    """``store_*``: one float32 as an element, by the PTX that rounds it."""

    def store(typingctx: Any, pointer: Any, offset: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            address, value = _address(context, builder, sig, args, 0, GLOBAL), args[2]
            if from_float:
                function = ir.FunctionType(HALF, [FLOAT])
                value = builder.asm(function, from_float, "=h,f", [value], False)
            builder.store(value, address)
            return context.get_dummy_value()

        return signature(types.void, types.CPointer(stored), offset, f32), codegen

    store.__name__ = name
    return intrinsic(store)


store_float32 = _element_store("store_float32", f32, "")
store_float16 = _element_store("store_float16", u16, "cvt.rn.f16.f32 $0, $1;")
store_bfloat16 = _element_store("store_bfloat16", u16, "cvt.rn.bf16.f32 $0, $1;")

# --- numbers -----------------------------------------------------------------------------------

ex2 = asm("ex2", "ex2.approx.ftz.f32 $0, $1;", f32, f32)
lg2 = asm("lg2", "lg2.approx.f32 $0, $1;", f32, f32)
rcp = asm("rcp", "rcp.approx.ftz.f32 $0, $1;", f32, f32)
f32_bits = asm("f32_bits", "mov.b32 $0, $1;", u32, f32)
bits_f32 = asm("bits_f32", "mov.b32 $0, $1;", f32, u32)
prmt = asm("prmt", "prmt.b32 $0, $1, $2, $3;", u32, u32, u32, u32)
pack_f16x2 = asm("pack_f16x2", "cvt.rn.f16x2.f32 $0, $2, $1;", u32, f32, f32)
pack_bf16x2 = asm("pack_bf16x2", "cvt.rn.bf16x2.f32 $0, $2, $1;", u32, f32, f32)
f16x2_low = asm("f16x2_low", "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, l; }", f32, u32)
f16x2_high = asm(
    "f16x2_high", "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, h; }", f32, u32
)
bf16x2_low = asm("bf16x2_low", "shl.b32 $0, $1, 16;", f32, u32)
bf16x2_high = asm("bf16x2_high", "and.b32 $0, $1, 0xffff0000;", f32, u32)
e4m3x2_to_f16x2 = asm(
    "e4m3x2_to_f16x2",
    "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.rn.f16x2.e4m3x2 $0, l; }",
    u32,
    u32,
)
e4m3x2_high_to_f16x2 = asm(
    "e4m3x2_high_to_f16x2",
    "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.rn.f16x2.e4m3x2 $0, h; }",
    u32,
    u32,
)
pack_e4m3x2 = asm(
    "pack_e4m3x2",
    "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $2, $1; cvt.u32.u16 $0, t; }",
    u32,
    f32,
    f32,
)

# --- tensor cores ------------------------------------------------------------------------------


def _mma(name: str, text: str) -> Any:
    four = types.UniTuple(f32, 4)
    text += " {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        total = cgutils.unpack_tuple(builder, args[0], 4)
        function = ir.FunctionType(ir.LiteralStructType([FLOAT] * 4), [WORD] * 6 + [FLOAT] * 4)
        constraints = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"
        result = builder.asm(function, text, constraints, [*args[1:], *total], True)
        result.attributes.add("convergent")  # all lanes together: no copy in a divergent branch
        return cgutils.pack_array(builder, [builder.extract_value(result, i) for i in range(4)])

    return _typed(name, signature(four, four, *[u32] * 6), codegen)


mma_bf16 = _mma("mma_bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
mma_f16 = _mma("mma_f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
