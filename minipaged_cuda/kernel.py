"""A kernel and its specialisations; knows texts, parameters and constants, no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any, NamedTuple

from minipaged_cuda.errors import KernelError
from minipaged_cuda.specialise import specialise


class Pointer:
    """``Pointer[u32]`` in a kernel's signature: the address of elements, however many they are.

    A tensor is then one argument of 8 bytes whatever its dtype, and a launch costs little. The
    kernel multiplies its own strides, in int64, because an offset may exceed 2**31.

    ``Pointer["KV"]`` leaves the element to the constant KV of a specialisation.
    """

    def __init__(self, element: Any):
        self.element = element

    def __class_getitem__(cls, element: Any) -> Pointer:
        return cls(element)


class Parameter(NamedTuple):
    """One parameter: a pointer to elements, or a scalar, of a type such as "uint32"."""

    name: str
    type_name: str
    is_pointer: bool


@dataclass(frozen=True)
class Specialisation:
    """A kernel's text with its constants: what one PTX function is made of.

    Attributes:
        kernel: The plain function.
        constants: Numbers to be put into the text, and names of primitives or types that stand for
            a global of the text: ``{"D": 64, "load_kv": "load_bfloat16", "KV": "uint16"}``.
        max_registers: Compile for at most this many registers a thread; None: as many as it wants.
    """

    kernel: Any  # FunctionType, which type checkers would take for a method
    constants: tuple[tuple[str, int | str], ...]
    max_registers: int | None = None

    @classmethod
    def of(
        cls,
        kernel: FunctionType,
        constants: Mapping[str, int | str] | None = None,
        max_registers: int | None = None,
    ) -> Specialisation:
        """Make one; equal constants, in any order, give equal, equally hashed specialisations.

        Raises:
            KernelError: A constant is neither a whole number, a flag nor a name.
        """
        known = dict(constants or {})
        for name, value in known.items():
            if not isinstance(value, int | str):
                what = f"{kernel.__name__}: constant {name} is {value!r}"
                raise KernelError(f"{what}; int, bool or the name of a primitive or type expected")
        plain = {name: x if isinstance(x, str) else int(x) for name, x in known.items()}
        return cls(kernel, tuple(sorted(plain.items())), max_registers)

    @property
    def numbers(self) -> dict[str, int]:
        """The constants that become numbers of the text; flags are 0 and 1."""
        return {name: x for name, x in self.constants if not isinstance(x, str)}

    @property
    def names(self) -> dict[str, str]:
        """The constants that stand for a primitive or a type."""
        return {name: x for name, x in self.constants if isinstance(x, str)}

    @property
    def name(self) -> str:
        """The kernel's name and its constants: ``decode_BS16_D64_KVuint16``."""
        return "_".join([self.kernel.__name__, *(f"{n}{x}" for n, x in self.constants)])

    @cached_property
    def source(self) -> str:
        """The text that is compiled."""
        return specialise(self.kernel, self.numbers)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """In the order of the kernel's signature.

        Raises:
            KernelError: A parameter has no type, or one that no constant names.
        """
        code = self.kernel.__code__
        return tuple(self._parameter(name) for name in code.co_varnames[: code.co_argcount])

    def _parameter(self, name: str) -> Parameter:
        where = f"{self.kernel.__name__}: parameter {name!r}"
        kind = self.kernel.__annotations__.get(name)
        if kind is None:
            raise KernelError(f"{where} needs a type, such as Pointer[u32] or i64")
        if isinstance(kind, str):
            raise KernelError(
                f"{where} has the text {kind!r} for a type: a kernel's file cannot have "
                "'from __future__ import annotations'"
            )
        element = kind.element if isinstance(kind, Pointer) else kind
        if isinstance(element, str) and element not in self.names:
            raise KernelError(f"{where} is of type {element}, which no constant names")
        type_name = self.names[element] if isinstance(element, str) else element.__name__
        return Parameter(name, type_name, isinstance(kind, Pointer))
