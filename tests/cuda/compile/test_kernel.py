"""A specialisation is a value: equal constants make it equal, and what it lacks it says."""

from __future__ import annotations

import pytest

from minipaged_cuda.errors import KernelError
from minipaged_cuda.kernel import Parameter, Specialisation
from minipaged_cuda.primitives import Pointer, u32
from support.cuda_compiled import axpy, packed


def test_equal_constants_make_equal_specialisations():
    one = Specialisation.of(axpy, {"N": 2, "FLAG": True})
    other = Specialisation.of(axpy, {"FLAG": 1, "N": 2})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Specialisation.of(axpy, {"N": 2, "FLAG": True}, max_registers=32)
    assert one != Specialisation.of(axpy, {"N": 3, "FLAG": True})


def test_constants_are_numbers_and_names():
    made = Specialisation.of(packed, {"N": 3, "FLAG": True, "pack": "pack_bf16x2"})
    assert made.numbers == {"N": 3, "FLAG": 1}
    assert made.names == {"pack": "pack_bf16x2"}
    assert made.name == "packed_FLAG1_N3_packpack_bf16x2"


def test_parameters_have_the_types_of_the_signature():
    assert Specialisation.of(axpy).parameters == (
        Parameter("y", "float32", True),
        Parameter("x", "float32", True),
        Parameter("a", "float32", False),
        Parameter("size", "int32", False),
    )


def test_a_constant_can_be_the_type_behind_a_pointer():
    made = Specialisation.of(packed, {"WORDS": "uint32"})
    assert made.parameters[0] == Parameter("out", "uint32", True)


def test_a_type_that_no_constant_names_is_an_error():
    with pytest.raises(KernelError, match="packed: parameter 'out' is of type WORDS"):
        _ = Specialisation.of(packed).parameters


def test_a_parameter_without_a_type_is_an_error():
    def kernel(out):
        out[0] = 1

    with pytest.raises(KernelError, match=r"kernel: parameter 'out' needs a type, such as Pointer"):
        _ = Specialisation.of(kernel).parameters


def test_a_type_that_is_text_is_an_error():
    def kernel(out: Pointer[u32]):  # this file imports annotations from __future__
        out[0] = 1

    with pytest.raises(KernelError, match=r"has the text 'Pointer\[u32\]' for a type"):
        _ = Specialisation.of(kernel).parameters


@pytest.mark.parametrize("value", [1.5, None, (1, 2)])
def test_a_constant_of_another_kind_is_an_error(value):
    with pytest.raises(KernelError, match=r"axpy: constant N is .*; int, bool or the name of"):
        Specialisation.of(axpy, {"N": value})
