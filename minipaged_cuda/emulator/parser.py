"""PTX text as a list of instructions; knows the grammar, not what any opcode does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from minipaged_cuda.emulator.errors import InvalidProgram
from minipaged_cuda.emulator.types import DTYPES


@dataclass(frozen=True)
class Instruction:
    """One instruction: `@!%p1 add.s32 %r1, %r2, 3` has guard `("%p1", True)`, three operands."""

    line: int
    text: str
    guard: tuple[str, bool] | None  # predicate register, and whether it is negated
    opcode: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first part of the opcode."""
        return self.opcode[0]

    @property
    def type(self) -> str:
        """The last part of the opcode: for most instructions, the type of their operands."""
        return self.opcode[-1]

    def has(self, modifier: str) -> bool:
        """Whether the opcode has this part."""
        return modifier in self.opcode


@dataclass(frozen=True)
class Variable:
    """A parameter, or a place in a state space."""

    name: str
    space: str
    type: str
    bytes: int  # 0 for an array of a length that the launch decides
    alignment: int
    values: tuple[str, ...] = ()


@dataclass(eq=False)
class Function:
    """A `.func`, or a kernel (`.entry`).

    Attributes:
        registers: The type of each register; one declared inside braces has the number of its
            scope behind its name.
        labels: The place in `instructions` that a label stands before.
        tables: Lists of labels that an indexed branch chooses from.
    """

    name: str
    parameters: list[Variable]
    results: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    module: Module = field(default=None, repr=False)  # pyright: ignore

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a known size, without what alignment adds."""
        everywhere = self.module.variables + self.variables
        return sum(variable.bytes for variable in everywhere if variable.space == "shared")


@dataclass
class Module:
    """All of a PTX text."""

    version: str = ""
    target: str = ""
    entries: dict[str, Function] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)

    def entry(self, name: str | None = None) -> Function:
        """The kernel of that name; without a name, the only one.

        Raises:
            InvalidProgram: There is no such kernel, or more than one to choose from.
        """
        if name is None and len(self.entries) == 1:
            return next(iter(self.entries.values()))
        if name is None:
            names = ", ".join(map(repr, self.entries)) or "none"
            raise InvalidProgram(f"which kernel? entry(name) of one; the module has {names}")
        if name not in self.entries:
            raise InvalidProgram(f"no kernel {name!r}; the module has {sorted(self.entries)}")
        return self.entries[name]


def parse(ptx: str) -> Module:
    """The module that a PTX text describes.

    Raises:
        InvalidProgram: A statement that has no end, or an operand that was never declared.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", _blank, ptx.rstrip("\0"), flags=re.DOTALL)
    module = Module()
    reader = _Reader(text)
    for line, statement in reader.statements():
        if header := _HEADER.match(statement):
            function = _function(statement, header, module)
            if reader.opens():
                _body(function, reader)
                kind = module.entries if header.group(1) == "entry" else module.functions
                kind[function.name] = function
        elif statement.startswith(".version"):
            module.version = statement.split()[1]
        elif statement.startswith(".target"):
            module.target = statement.split()[1].rstrip(",")
        elif variable := _variable(statement):
            module.variables.append(variable)
        elif not statement.startswith("."):
            raise InvalidProgram(f"PTX line {line}: {statement!r} stands outside every function")
    return module


_HEADER = re.compile(r"(?:\.\w+\s+)*?\.(entry|func)\b")
_ONE_LINE = re.compile(r"\s*\.(?:version|target|address_size|file|loc)\b[^\n]*")
_SECTION = re.compile(r"\s*\.section\b[^{]*\{[^}]*\}")
_SPACE = re.compile(r"\s*(?=\S)")
_LABEL = re.compile(r"\s*([\w$%]+)\s*:(?!:)")
_BRACKET = re.compile(r"[(\[{]")
_END, _BODY_OR_END = re.compile(";"), re.compile("[{;]")
_NAME = re.compile(r"[%$\w]+")


class _Reader:
    """Cuts the text into statements; braces at the start of one are statements by themselves."""

    def __init__(self, text: str):
        self.text, self.place = text, 0
        self._line, self._counted = 1, 0  # the line of the place up to which lines were counted

    def opens(self) -> bool:
        """Whether a body follows the header just read."""
        return self.text[self.place - 1] == "{"

    def statements(self) -> Iterator[tuple[int, str]]:
        """Each with the number of its line."""
        while match := _SPACE.match(self.text, self.place):
            self.place = match.end()
            self._line += self.text.count("\n", self._counted, self.place)
            self._counted = self.place
            yield self._line, " ".join(self._next(self._line).split())

    def _next(self, line: int) -> str:
        for pattern in (_ONE_LINE, _SECTION, _LABEL):
            if match := pattern.match(self.text, self.place):
                self.place = match.end()
                return match.group()
        start = self.place
        if self.text[start] in "{};":
            self.place += 1
            return self.text[start]
        ends = _BODY_OR_END if _HEADER.match(self.text, start) else _END
        match = ends.search(self.text, start)
        if match is None:
            raise InvalidProgram(f"PTX line {line}: the statement has no end")
        self.place = match.end()
        return self.text[start : match.start()]


def _blank(match: re.Match[str]) -> str:
    """A comment's place, so that lines keep their numbers."""
    return "\n" * match.group().count("\n")


def _function(statement: str, header: re.Match[str], module: Module) -> Function:
    lists = re.compile(r"\s*(\([^)]*\))?\s*([\w$]+)\s*(\([^)]*\))?")
    match = lists.match(statement, header.end())
    if match is None:
        raise InvalidProgram(f"a function without a name: {statement}")
    results, name, parameters = match.groups()
    return Function(name, _parameters(parameters), _parameters(results), module=module)


def _parameters(text: str | None) -> list[Variable]:
    found = [_variable(part.strip()) for part in (text or "").strip("()").split(",")]
    return [variable for variable in found if variable]


_DECLARATION = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(param|shared|local|global|const)\b"
    r"(?P<attributes>(?:\s+\.\w+(?:\s+\d+)?)*)\s+(?P<name>[%$\w]+)\s*(?P<lengths>(?:\[\d*\])*)"
    r"\s*(?:=\s*(?P<values>.*))?$",
    re.DOTALL,
)


def _variable(statement: str) -> Variable | None:
    """`.visible .shared .align 4 .b8 tile[256]`, say."""
    match = _DECLARATION.match(statement)
    if match is None:
        return None
    attributes = match["attributes"].split()
    type = next(word[1:] for word in attributes if word[1:] in DTYPES)
    size = DTYPES[type].itemsize
    alignments = [int(n) for word, n in pairwise(attributes) if word == ".align"]
    lengths = [int(n or 0) for n in re.findall(r"\[(\d*)\]", match["lengths"])]
    values = tuple(re.findall(r"[^\s,{}]+", match["values"] or ""))
    num_bytes = size * prod(lengths)
    return Variable(match["name"], match[1], type, num_bytes, max([size, *alignments]), values)


def _body(function: Function, reader: _Reader) -> None:
    """Read up to the brace that closes the function."""
    scopes: list[dict[str, str]] = [{}]
    number = 0
    for line, statement in reader.statements():
        if statement == "{":
            scopes.append({})
            number += 1
        elif statement == "}":
            scopes.pop()
            if not scopes:
                return
        elif statement.endswith(":"):
            function.labels[statement.rstrip(" :")] = len(function.instructions)
        elif statement.startswith("."):
            _declare(function, statement, scopes[-1], f"#{number}" if len(scopes) > 1 else "")
        elif statement != ";":
            names = {name: own for scope in scopes[1:] for name, own in scope.items()}
            function.instructions.append(_instruction(line, statement, names))
    raise InvalidProgram(f"the body of {function.name} has no end")


def _declare(function: Function, statement: str, scope: dict[str, str], suffix: str) -> None:
    if statement.startswith(".reg"):
        type, names = re.findall(r"\.(\w+)", statement)[-1], statement.rsplit(".", 1)[1]
        for name in names.split(None, 1)[1].split(","):
            for each in _each(name.strip()):
                scope[each] = each + suffix
                function.registers[each + suffix] = type
    elif statement.startswith(".branchtargets"):
        label = next(reversed(function.labels))  # that of this statement was read just before it
        function.tables[label] = _NAME.findall(statement.removeprefix(".branchtargets"))
    elif variable := _variable(statement):
        scope[variable.name] = variable.name + suffix
        renamed = {**variable.__dict__, "name": variable.name + suffix}
        function.variables.append(Variable(**renamed))


def _each(name: str) -> list[str]:
    """`%r<3>` is `%r0`, `%r1`, `%r2`."""
    match = re.fullmatch(r"([%$\w]+)<(\d+)>", name)
    return [f"{match[1]}{i}" for i in range(int(match[2]))] if match else [name]


def _instruction(line: int, text: str, names: dict[str, str]) -> Instruction:
    match = re.match(r"(?:@(!?)([%$\w]+)\s+)?([\w.:]+)\s*(.*)", text)
    if match is None:
        raise InvalidProgram(f"PTX line {line}: {text!r} is no instruction")
    negated, predicate, opcode, rest = match.groups()
    if names:
        rest = _NAME.sub(lambda name: names.get(name[0], name[0]), rest)
    guard = (names.get(predicate, predicate), bool(negated)) if predicate else None
    parts = tuple(re.split(r"(?<!:)\.(?!:)", opcode))
    return Instruction(line, text, guard, parts, tuple(_split(rest)))


def _split(text: str) -> list[str]:
    """At the commas outside every bracket."""
    if not _BRACKET.search(text):
        return [part.strip() for part in text.split(",") if part.strip()]
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
