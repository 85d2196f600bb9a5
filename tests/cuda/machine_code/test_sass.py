"""Loops are found in any disassembly, and code that is only placed like a loop is none."""

from __future__ import annotations

from minipaged_cuda.machine_code.sass import Instruction, parse

HEAD = '\t.section\t.text.{name},"ax",@progbits\n.text.{name}:\n'


def code(*lines, name="kernel"):
    """A kernel of these instructions; a line that ends in a colon is a label."""
    text = HEAD.format(name=name)
    for i, line in enumerate(lines):
        text += f"{line}\n" if line.endswith(":") else f"        /*{16 * i:04x}*/        {line} ;\n"
    return text


def hot(*lines):
    """The opcodes of the hot loop."""
    return [instruction.opcode for instruction in parse(code(*lines))["kernel"].hot_loop]


def test_instructions_and_kernels():
    text = code("@!P0 LDG.E.128 R4, desc[UR4][R2.64]", "EXIT") + code("BRA `(.L_x_0)", name="other")
    kernels = parse(text)
    assert list(kernels) == ["kernel", "other"]
    load = kernels["kernel"].instructions[0]
    assert load == Instruction("@!P0", "LDG.E.128", "R4, desc[UR4][R2.64]")
    assert (load.mnemonic, load.loaded_bytes) == ("LDG", 16)


def test_bytes_that_a_lane_loads():
    sizes = {"LDG.E": 4, "LDG.E.64": 8, "LDG.E.U8": 1, "LDG.E.S16": 2, "LDG.E.128.CONSTANT": 16,
             "LDGSTS.E.BYPASS.128": 16, "LDS.128": 0, "IMAD": 0}  # fmt: skip
    assert {opcode: Instruction("", opcode, "").loaded_bytes for opcode in sizes} == sizes


def test_a_loop_is_from_its_label_to_the_jump_back():
    assert hot("S2R R0", ".L_x_0:", "LDG.E R1", "FADD R2", "@P0 BRA `(.L_x_0)", "EXIT") == [
        "LDG.E",
        "FADD",
        "BRA",
    ]


def test_straight_code_has_no_hot_loop():
    assert hot("LDG.E R1", "@P0 BRA `(.L_x_0)", "FADD R2", ".L_x_0:", "EXIT") == []


def test_of_nested_loops_the_inner_one():
    lines = [".L_x_0:", "LDG.E.128 R8", ".L_x_1:", "LDG.E R1", "@P0 BRA `(.L_x_1)"]
    assert hot(*lines, "@P1 BRA `(.L_x_0)", "EXIT") == ["LDG.E", "BRA"]


def test_of_two_loops_the_one_that_loads_more():
    narrow = [".L_x_0:", "LDG.E R1", "FADD R1", "FADD R1", "@P0 BRA `(.L_x_0)"]
    wide = [".L_x_1:", "LDG.E.64 R2", "@P0 BRA `(.L_x_1)"]
    assert hot(*narrow, *wide, "EXIT") == ["LDG.E.64", "BRA"]


def test_a_loop_with_two_ways_back_and_a_way_out_is_one():
    lines = [".L_x_0:", "LDG.E R1", "@P0 BRA `(.L_x_0)", "@P1 EXIT", "FADD R1", "BRA `(.L_x_0)"]
    assert hot(*lines) == ["LDG.E", "BRA", "EXIT", "FADD", "BRA"]


def test_what_the_assembler_moved_to_the_end_is_no_loop():
    lines = ["@P0 BRA `(.L_x_1)", "LDG.E R1", ".L_x_0:", "FADD R1", "EXIT", ".L_x_1:", "LDG.E R1"]
    assert hot(*lines, "BRA `(.L_x_0)") == []


def test_nor_is_the_trap_after_the_end():
    assert hot("LDG.E R1", "EXIT", ".L_x_0:", "BRA `(.L_x_0)") == []


def test_lanes_that_parted_are_no_part_of_the_loop():
    lines = [
        ".L_x_0:",
        "LDG.E R1",
        "BRA.DIV UR4, `(.L_x_2)",
        "SHFL R2",
        ".L_x_1:",
        "@P0 BRA `(.L_x_0)",
    ]
    parted = ["EXIT", ".L_x_2:", "WARPSYNC.COLLECTIVE R8, `(.L_x_3)", ".L_x_3:", "BRA `(.L_x_1)"]
    assert hot(*lines, *parted) == ["LDG.E", "BRA.DIV", "SHFL", "BRA"]


def test_a_condition_among_the_operands():
    assert hot(".L_x_0:", "LDG.E R1", "BRA.U UP0, `(.L_x_0)", "EXIT") == ["LDG.E", "BRA.U"]
