"""All programs up to a length, on a pool so small that everything happens soon.

    a program    admit A 001; fork A; extend A 0      a handful of acts on a ``World``
    a scope      which acts, how many blocks, how large a block, how long a program

The search is breadth first and checks every law after every act, so the first failure it meets is
a shortest one. Two programs that lead to the same state have the same future, so one of them is
continued and stands for both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .fingerprint import ListCache, TensorCache
from .world import Seq, World

Move = tuple  # (act, *arguments); sequences by name, prompts as text: ("admit", "001")
Cache = Callable[[int, int], "ListCache | TensorCache"]


@dataclass(frozen=True)
class Scope:
    """A small world and what may be done in it."""

    name: str
    acts: Sequence[str]
    length: int
    num_blocks: int = 3
    block_size: int = 2
    num_host_blocks: int = 0
    prompts: Sequence[str] = ("000", "001")
    max_seqs: int = 2
    max_tokens: int = 6
    make_cache: Cache = ListCache

    def start(self) -> World:
        return World(
            self.num_blocks,
            self.block_size,
            num_host_blocks=self.num_host_blocks,
            make_cache=self.make_cache,
        )


@dataclass
class Report:
    """What a search saw; ``failure`` is None if every program was right."""

    num_programs: int = 0  # of every length up to the scope's
    num_states: int = 1
    num_runs: int = 0  # acts really carried out
    program: list[Move] = field(default_factory=list)
    failure: BaseException | None = None


_GROW = ("admit", "extend", "fork", "truncate", "release")

SCOPES = (
    Scope("sharing", _GROW, length=8),
    Scope("tight", ("admit", "extend", "truncate", "release"), 8, 2, prompts=("000", "1")),
    Scope("families", ("admit", "fork", "step all", "truncate", "release"), 7, 4, max_seqs=3),
    Scope("steps", ("admit", "begin", "twins", "step all", "fork", "draft", "cancel", "abort"), 6),
    Scope("keys", ("admit", "admit salted", "admit unsalted", "extend", "release"), length=6),
    Scope("moving", ("admit", "extend", "fork", "swap", "swap all"), 7, num_host_blocks=2),
    Scope("returning", ("admit", "release", "swap"), 8, num_host_blocks=3, prompts=("000", "111")),
    Scope("window", ("admit", "extend", "fork", "release", "window", "forget", "cancel"), 6),
    Scope("orphans", ("admit", "window", "release"), 9, block_size=1, prompts=("000", "1")),
    Scope(
        "single",
        (*_GROW, "twins", "draft"),
        length=7,
        block_size=1,
        prompts=("00", "01"),
        max_tokens=4,
    ),
    Scope(
        "tensors",
        ("admit", "fork", "step all", "swap"),
        7,
        num_host_blocks=2,
        make_cache=TensorCache,
    ),
)


def explore(scope: Scope, max_acts: float = math.inf) -> Report:
    """Run all programs of ``scope``, shorter ones first; stops at the first that breaks a law."""
    report, start = Report(), scope.start()
    seen = {start.key()}
    frontier: list[tuple[World, list[Move], int]] = [(start, [], 1)]
    for length in range(scope.length):
        ways, found = Counter[tuple](), dict[tuple, tuple[World, list[Move]]]()
        for world, program, num_ways in frontier:
            for move in moves(world, scope):
                twin, longer = world.clone(), [*program, move]
                report.num_runs += 1
                if report.num_runs > max_acts:
                    return report
                report.num_programs += num_ways
                try:
                    play(twin, move)
                    twin.check()
                except Exception as error:
                    report.program, report.failure = longer, error
                    return report
                if length + 1 < scope.length and (key := twin.key()) not in seen:
                    ways[key] += num_ways
                    found.setdefault(key, (twin, longer))
        seen.update(found)
        report.num_states += len(found)
        frontier = [(world, program, ways[key]) for key, (world, program) in found.items()]
    return report


def moves(world: World, scope: Scope) -> Iterator[Move]:
    """Every act that makes sense in this state."""
    if len(world.live) < scope.max_seqs:
        for act in ("admit", "begin", "admit salted", "admit unsalted"):
            yield from ((act, prompt) for prompt in scope.prompts if act in scope.acts)
    if len(world.live) + 2 <= scope.max_seqs and "twins" in scope.acts:
        yield from (("twins", prompt) for prompt in scope.prompts)
    if "forget" in scope.acts and world.names:
        yield ("forget",)
    here = world.on_device()
    if len(here) > 1:
        yield from (m for m in (("step all", "0"), ("step all", "01")) if m[0] in scope.acts)
        yield from (m for m in (("swap all", True), ("swap all", False)) if m[0] in scope.acts)
    for seq in world.live:
        for move in _moves_of(seq, seq in here, world, scope):
            if move[0] in scope.acts:
                yield move


def _moves_of(seq: Seq, is_here: bool, world: World, scope: Scope) -> Iterator[Move]:
    name, n, size = seq.name, seq.table.num_tokens, world.block_size
    yield ("release", name)
    if len(world.places) > 1:
        yield ("swap", name, True)
        yield ("swap", name, False)
    if not is_here:
        return
    if len(world.live) < scope.max_seqs:
        yield ("fork", name)
    if n < scope.max_tokens:
        yield from (("extend", name, token) for token in "01")
        yield ("cancel", name, "00")
        yield ("abort", name, "00")
    if n + size < scope.max_tokens:
        yield ("draft", name, "0" * (size + 1), 0)
        yield ("draft", name, "0" * (size + 1), 1)
    first = seq.table.num_dropped * size
    if n > first:
        yield ("truncate", name, n - 1)
        yield ("window", name, n - 1)
        yield ("window", name, 1)
    if n - 2 > first:
        yield ("truncate", name, n - 2)


def play(world: World, move: Move) -> None:
    """Do one act."""
    act, *arguments = move
    seqs = {seq.name: seq for seq in world.live}
    match act, arguments:
        case "admit" | "begin" | "twins" | "admit salted" | "admit unsalted", [prompt]:
            salt = {"admit salted": "x", "admit unsalted": None}.get(act, "")
            tokens = [int(token) for token in prompt]
            born = [world.admit(tokens, salt) for _ in range(2 if act == "twins" else 1)]
            chunk = 1 if act == "begin" else len(tokens)
            counts = [min(chunk, seq.num_pending) for seq in born]
            if not world.step(list(zip(born, counts, counts))):
                for seq in born:
                    world.release(seq)
        case "extend", [name, token]:
            append(world, [(seqs[name], token)])
        case "step all", [tokens]:
            here = world.on_device()
            append(world, [(seq, tokens[i % len(tokens)]) for i, seq in enumerate(here)])
        case "draft", [name, tokens, num_kept]:
            append(world, [(seqs[name], tokens)], num_kept)
        case "cancel", [name, tokens]:
            seq = seqs[name]
            seq.tokens += [int(token) for token in tokens]
            world.cancel([(seq, len(tokens), 0)])
            del seq.tokens[seq.table.num_tokens :]
        case "abort", [name, tokens]:
            seqs[name].tokens += [int(token) for token in tokens]
            if not world.abort([(seqs[name], len(tokens), 0)]):
                del seqs[name].tokens[-len(tokens) :]
        case "fork", [name]:
            world.fork(seqs[name])
        case "truncate", [name, num_tokens]:
            world.truncate(seqs[name], num_tokens)
        case "window", [name, position]:
            world.drop_before(seqs[name], position)
        case "release", [name]:
            world.release(seqs[name])
        case "swap", [name, publish]:
            world.swap([seqs[name]], publish=publish)
        case "swap all", [publish]:
            world.swap(world.on_device(), publish=publish)
        case "forget", []:
            world.forget_prefixes(new_weights=False)
        case _:
            raise ValueError(f"no such act: {move}")


def append(world: World, work: list[tuple[Seq, str]], num_kept: int | None = None) -> bool:
    """One step in which each sequence gets new tokens; without room, nothing happens."""
    for seq, tokens in work:
        seq.tokens += [int(token) for token in tokens]
    kept = [len(tokens) if num_kept is None else num_kept for _, tokens in work]
    done = world.step([(s, len(tokens), keep) for (s, tokens), keep in zip(work, kept)])
    if not done:
        for seq, tokens in work:
            del seq.tokens[len(seq.tokens) - len(tokens) :]
    return done


def as_text(program: Sequence[Move]) -> str:
    """A program as one reads it: ``admit 001; fork A; extend A 0``."""
    return "; ".join(" ".join(map(str, move)) for move in program)
