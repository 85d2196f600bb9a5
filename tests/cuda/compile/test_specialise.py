"""A specialised text computes what the written one does, and says so where it could not."""

from __future__ import annotations

import linecache
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged_cuda.errors import KernelError
from minipaged_cuda.specialise import specialise

COUNT = iter(range(10**9))


def function(text, name="kernel"):
    """A function whose text can be found again."""
    file, text = f"<text {next(COUNT)}>", textwrap.dedent(text)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope = {}
    exec(compile(text, file, "exec"), scope)
    return scope[name]


def body(text, **constants):
    """The specialised body of a kernel with this body."""
    kernel = function("def kernel(a, b):\n" + textwrap.indent(textwrap.dedent(text), "    "))
    lines = specialise(kernel, constants).splitlines()[1:]
    return "\n".join(line[4:] for line in lines)


# --- worked examples ---------------------------------------------------------------------------

EXAMPLES = [
    ("a[0] = D * 2 + BS", {"D": 64, "BS": 16}, "a[0] = 144"),
    ("for i in static(2):\n    a[i] = i * D", {"D": 3}, "a[0] = 0\na[1] = 3"),
    ("for i in static(2, 5, 2):\n    a[i] = b", {}, "a[2] = b\na[4] = b"),
    ("for i in static(0):\n    a[i] = b", {}, "pass"),
    ("for i in static(2):\n    for j in static(i + 1):\n        a[i] = j", {},
     "a[0] = 0\na[1] = 0\na[1] = 1"),
    ("x = registers(2, 0)\nx[1] += b\na[0] = x[0]", {}, "x_0 = 0\nx_1 = 0\nx_1 += b\na[0] = x_0"),
    ("x = registers(N // 2, a[N])", {"N": 2}, "x_0 = a[2]"),
    ("x = registers(4, 0)\nfor i in static(2):\n    x[2 * i + 1] = i", {},
     "x_0 = 0\nx_1 = 0\nx_2 = 0\nx_3 = 0\nx_1 = 0\nx_3 = 1"),
    ("if WINDOW:\n    a[0] = 1", {"WINDOW": 0}, "pass"),
    ("if WINDOW:\n    a[0] = 1\nelse:\n    a[0] = 2", {"WINDOW": 1}, "a[0] = 1"),
    ("if WINDOW == 0 and b > 1:\n    a[0] = 1", {"WINDOW": 0}, "if b > 1:\n    a[0] = 1"),
    ("if WINDOW and b > 1:\n    a[0] = 1", {"WINDOW": 0}, "pass"),
    ("if not WINDOW or b > 1:\n    a[0] = 1", {"WINDOW": 0}, "a[0] = 1"),
    ("if b > 1 or WINDOW:\n    a[0] = 1", {"WINDOW": 1}, "if b > 1 or True:\n    a[0] = 1"),
    ("if WINDOW:\n    x = registers(b, 0)\nelse:\n    a[0] = -D", {"WINDOW": 0, "D": 2},
     "a[0] = -2"),
    ("a[0] = 1 if D > 4 else registers", {"D": 8}, "a[0] = 1"),
    ("while a[0] < D:\n    for i in static(1):\n        a[i] += D", {"D": 2},
     "while a[0] < 2:\n    a[0] += 2"),
    ("for i in range(D):\n    if i > 4:\n        break", {"D": 8},
     "for i in range(8):\n    if i > 4:\n        break"),
    ("for i in static(1):\n    for j in range(b):\n        continue", {},
     "for j in range(b):\n    continue"),
    ("for i in static(1):\n    a[i] = 0\nfor i in range(b):\n    a[i] = i", {},
     "a[0] = 0\nfor i in range(b):\n    a[i] = i"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "constants", "expected"), EXAMPLES)
def test_worked_examples(text, constants, expected):
    assert body(text, **constants) == expected


def test_annotations_and_decorators_are_gone():
    text = "@str\ndef kernel(a: Wrong[u32], n: 'x') -> None:\n    a[0] = n\n"
    namespace = (
        "def str(f): return f\nclass Wrong:\n    def __class_getitem__(cls, x): return x\nu32 = 1\n"
    )
    written = function(namespace + text)
    assert specialise(written, {}) == "def kernel(a, n):\n    a[0] = n\n"


# --- the law -----------------------------------------------------------------------------------

DOT = """
def kernel(out, x, n):
    total = registers(LANES, 0)
    for start in range(0, n - n % LANES, LANES):
        for lane in static(LANES):
            if SQUARE:
                total[lane] += x[start + lane] ** 2
            else:
                total[lane] += x[start + lane] * (lane + 1)
    step = LANES
    while step > 1:
        step //= 2
    for lane in static(LANES - 1, -1, -1):
        if lane > 0 and total[lane - 1] < total[lane] or lane == LANES // 2:
            out[lane] = total[lane] + step
        else:
            out[lane] = total[lane] if lane % 2 else -total[lane]
"""


def both(kernel, constants, *arguments):
    """What the written and the specialised text leave in the first argument."""
    results = []
    for text in (None, specialise(kernel, constants)):
        scope = {**constants, "static": range, "registers": lambda n, value: [value] * n}
        if text is None:
            text = "".join(linecache.cache[kernel.__code__.co_filename][2])
        else:
            assert not {"static", "registers", *constants} & set(names(text))
            scope = {}
        exec(text, scope)
        out = {}
        scope["kernel"](out, *arguments)
        results.append(out)
    return results


def names(text):
    return compile(text, "<names>", "exec").co_consts[0].co_names


@settings(max_examples=30)
@given(lanes=st.integers(1, 8), square=st.booleans(), x=st.lists(st.integers(-5, 5), max_size=20))
def test_both_texts_compute_the_same(lanes, square, x):
    written, specialised = both(
        function(DOT), {"LANES": lanes, "SQUARE": int(square)}, x, len(x) - len(x) % lanes
    )
    assert written == specialised


OPERATORS = ["+", "-", "*", "//", "%", "&", "|", "^", "<<", "<", "<=", "==", "!=", ">", ">="]
PATTERNS = [
    *(f"({{}} {operator} {{}})" for operator in OPERATORS),
    "(-{})",
    "({} if {} else {})",
    "bool({} and {} and not {})",
    "bool({} or {} or not {})",
]


def filled(inner):
    """Patterns with expressions in their places."""
    return st.builds(
        lambda pattern, parts: pattern.format(*parts),
        st.sampled_from(PATTERNS),
        st.lists(inner, min_size=3, max_size=3),
    )


EXPRESSIONS = st.recursive(st.sampled_from([*"ABab017"]), filled, max_leaves=12)


@given(EXPRESSIONS, *[st.integers(0, 3)] * 4)
def test_folding_keeps_the_value(text, first, second, a, b):
    constants = {"A": first, "B": second}
    try:
        expected = eval(text, {**constants, "a": a, "b": b})
        folded = specialise(function(f"def kernel(a, b):\n    return {text}"), constants)
    except (ZeroDivisionError, ValueError, KernelError):
        return  # a division by zero, known before or seen at run time
    scope = {}
    exec(folded, scope)
    assert scope["kernel"](a, b) == expected


# --- errors ------------------------------------------------------------------------------------

ERRORS = [
    ("a[0] = 0\nfor i in static(b):\n    a[i] = 0", {}, 3,
     "b must be known before the kernel runs"),
    ("x = registers(b, 0)", {}, 2, "b must be known"),
    ("x = registers(2, 0)\nx[b] = 1", {}, 3, r"x\[b\] must be known"),
    ("x = registers(2, 0)\nfor i in static(3):\n    x[i] = 1", {}, 4,
     r"x\[2\] is outside its 2 registers"),
    ("x = registers(2, 0)\na[0] = x", {}, 3, r"only x\[i\] has a meaning"),
    ("a[0], x = registers(2, 0), 1\nx = y = registers(2, 0)", {}, 3, "assigned to one name"),
    ("D = b", {"D": 4}, 2, "D is 4 here, and cannot be assigned to"),
    ("for D in static(2):\n    a[D] = 0", {"D": 4}, 2, "D is 4 here"),
    ("for i in static(2):\n    i += 1", {}, 3, "i is 0 here"),
    ("for i in static(2):\n    for i in static(2):\n        a[i] = 0", {}, 3, "i is 0 here"),
    ("for i in static(2):\n    a[i] = 0\na[0] = i", {}, 4, "i has no value after its static loop"),
    ("for i in static(2):\n    if b == i:\n        break", {}, 4, "no break in a static loop"),
    ("for i in static(2):\n    if b == i:\n        continue", {}, 4,
     "no continue in a static loop"),
    ("for i, j in static(2):\n    a[i] = 0", {}, 2, "one variable and no else"),
    ("a[0] = 1 // (D - 4)", {"D": 4}, 2, "1 // 0: integer division or modulo by zero"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "constants", "line", "message"), ERRORS)
def test_errors_name_the_line(text, constants, line, message):
    with pytest.raises(KernelError, match=rf"<text \d+>, line {line}: .*{message}"):
        body(text, **constants)


def test_a_parameter_cannot_be_a_constant():
    with pytest.raises(KernelError, match="a is 1 here"):
        body("pass", a=1)
