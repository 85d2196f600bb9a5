"""Turns a kernel's text and its constants into straight-line text; knows Python, not CUDA.

A GPU has no array of registers that an index could reach, and NVVM puts what it cannot resolve
into local memory, which is DRAM. So loops that must not exist at run time are written ``for i in
static(n)`` and unrolled here, and ``x = registers(n, value)`` becomes the variables ``x_0`` to
``x_{n-1}``. The simulator runs the text as it was written: there ``static`` is ``range`` and
``registers`` makes a list.

Both texts compute the same. What could make them differ is an error here: a constant or a static
loop's variable that is assigned to, ``break`` out of a loop that is no longer one, a register file
used as a whole.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from minipaged_cuda.errors import KernelError

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def specialise(kernel: FunctionType, constants: Mapping[str, int]) -> str:
    """The kernel's text with its constants put in, folded, and its static loops unrolled.

    Raises:
        KernelError: A static loop or a register index is not constant, a register is outside its
            file, or the unrolled text would mean something else; the message names the line.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    unroller = _Unroller(constants, kernel.__code__)
    for argument in definition.args.args:
        argument.annotation = None
        unroller.refuse_constant(argument, argument.arg)
    definition.body = unroller.body(definition.body)
    definition.decorator_list, definition.returns = [], None
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


class _Unroller(ast.NodeTransformer):
    """Walks statements in order, with what is constant at that place in ``known``."""

    def __init__(self, constants: Mapping[str, int], code: CodeType):
        self.known, self.code = dict(constants), code
        self.sizes: dict[str, int] = {}  # of register files
        self.ended: set[str] = set()  # variables of static loops that are over
        self.in_static_loop = False  # whether that is the innermost loop

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements that stand for these; never none."""
        out: list[ast.stmt] = []
        for statement in statements:
            result = self.visit(statement)
            out += result if isinstance(result, list) else [result]
        return out or [ast.Pass()]

    # --- loops ---------------------------------------------------------------------------------

    def visit_For(self, node: ast.For) -> Any:
        """A static loop becomes its bodies, one after the other; others stay."""
        if not _is_call(node.iter, "static"):
            return self.visit_While(node)
        assert isinstance(node.iter, ast.Call)
        if not isinstance(node.target, ast.Name) or node.orelse:
            raise self._error(node, "a static loop has one variable and no else")
        name = self.refuse_constant(node, node.target.id)
        bounds = [self._constant(self.visit(copy.deepcopy(a)), a) for a in node.iter.args]
        out: list[ast.stmt] = []
        with self._loop(static=True):
            for value in range(*bounds):
                self.known[name] = value
                out += self.body(copy.deepcopy(node.body))
        self.known.pop(name, None)
        self.ended.add(name)
        return out or [ast.Pass()]

    def visit_While(self, node: ast.While | ast.For) -> Any:
        """A loop of the run time, whatever its kind."""
        header = "test" if isinstance(node, ast.While) else "iter"
        setattr(node, header, self.visit(getattr(node, header)))
        if isinstance(node, ast.For):
            node.target = self.visit(node.target)
        with self._loop(static=False):
            node.body = self.body(node.body)
        node.orelse = self.body(node.orelse) if node.orelse else []
        return node

    @contextmanager
    def _loop(self, static: bool) -> Iterator[None]:
        outer, self.in_static_loop = self.in_static_loop, static
        yield
        self.in_static_loop = outer

    def visit_Break(self, node: ast.Break | ast.Continue) -> Any:
        if self.in_static_loop:
            raise self._error(node, f"no {ast.unparse(node)} in a static loop: it is unrolled")
        return node

    visit_Continue = visit_Break  # noqa: N815

    # --- other statements ----------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> Any:
        """Of a branch that is decided, what is taken; the rest need not even make sense."""
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            taken = node.body if test.value else node.orelse
            return self.body(taken)
        node.test, node.body = test, self.body(node.body)
        node.orelse = self.body(node.orelse) if node.orelse else []
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """``x = registers(n, value)`` becomes n assignments."""
        if not _is_call(node.value, "registers"):
            return self.generic_visit(node)
        assert isinstance(node.value, ast.Call)
        if len(node.targets) > 1 or not isinstance(node.targets[0], ast.Name):
            raise self._error(node, "registers(n, value) is assigned to one name")
        name, (size, value) = node.targets[0].id, node.value.args
        self.sizes[name] = self._constant(self.visit(copy.deepcopy(size)), size)
        value = self.visit(value)
        return [
            ast.Assign([ast.Name(f"{name}_{i}", ast.Store())], copy.deepcopy(value), lineno=0)
            for i in range(self.sizes[name])
        ]

    # --- names ---------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.sizes:
            raise self._error(node, f"{name} is a register file: only {name}[i] has a meaning")
        if not isinstance(node.ctx, ast.Load):
            self.ended.discard(self.refuse_constant(node, name))
        elif name in self.known:
            return ast.Constant(self.known[name])
        elif name in self.ended:
            raise self._error(node, f"{name} has no value after its static loop")
        return node

    def refuse_constant(self, node: ast.AST, name: str) -> str:
        """The name, unless it is one that the text may not assign to."""
        if name in self.known:
            raise self._error(node, f"{name} is {self.known[name]} here, and cannot be assigned to")
        return name

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """A register, or an element of anything else."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.sizes:
            return self.generic_visit(node)
        name, size = node.value.id, self.sizes[node.value.id]
        index = self._constant(self.visit(copy.deepcopy(node.slice)), node)
        if not 0 <= index < size:
            raise self._error(node, f"{name}[{index}] is outside its {size} registers")
        return ast.Name(f"{name}_{index}", node.ctx)

    # --- expressions ---------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return self._folded(node, type(node.op), node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self._folded(node, type(node.op), node.operand)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) > 1:
            return node
        return self._folded(node, type(node.ops[0]), node.left, node.comparators[0])

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """``and`` and ``or`` are conditions: what is folded keeps its truth, not its value."""
        decisive = isinstance(node.op, ast.Or)
        rest: list[ast.expr] = []
        for value in map(self.visit, node.values):
            if not isinstance(value, ast.Constant):
                rest.append(value)
            elif bool(value.value) == decisive:  # whatever follows is not even evaluated
                rest.append(ast.Constant(decisive))
                break
        if not rest:
            return ast.Constant(not decisive)
        node.values = rest
        return node if len(rest) > 1 else rest[0]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            return self.visit(node.body if test.value else node.orelse)
        node.test, node.body, node.orelse = test, self.visit(node.body), self.visit(node.orelse)
        return node

    def _folded(self, node: ast.expr, kind: type, *operands: ast.expr) -> ast.expr:
        values = [x.value for x in operands if isinstance(x, ast.Constant)]
        if kind not in _OPERATORS or len(values) < len(operands):
            return node
        try:
            return ast.Constant(_OPERATORS[kind](*values))
        except (ArithmeticError, ValueError, TypeError) as error:
            raise self._error(node, f"{ast.unparse(node)}: {error}") from error

    # --- errors --------------------------------------------------------------------------------

    def _constant(self, node: ast.expr, written: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise self._error(written, f"{ast.unparse(written)} must be known before the kernel runs")

    def _error(self, node: ast.AST, message: str) -> KernelError:
        line = self.code.co_firstlineno + getattr(node, "lineno", 1) - 1
        return KernelError(f"{self.code.co_filename}, line {line}: {message}")
