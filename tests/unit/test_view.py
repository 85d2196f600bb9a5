"""Pictures say what the snapshot says: exactly, once, in any width, and without colour too."""

from __future__ import annotations

import random
import re
from collections import Counter
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from minipaged.core import BlockPool, BlockTable, Ledger, OutOfBlocks, Snapshot, root_hash
from minipaged.view import LedgerBar, Letters, PoolMap, block_views, frames, picture, plain
from minipaged.view.bar import shares
from minipaged.view.marks import CROWD

SIZE = 4


class Books:
    """A pool and its tables, by name."""

    def __init__(self, num_blocks: int = 6):
        self.pool, self.tables = BlockPool(num_blocks), dict[str, BlockTable]()

    def new(self, name: str, *token_ids: int) -> BlockTable:
        self.tables[name] = table = BlockTable(self.pool, SIZE, root_hash())
        table.match_prefix(token_ids)
        table.reserve(len(token_ids) - table.num_tokens)
        table.commit(token_ids)
        return table

    def shot(self) -> Snapshot:
        return Snapshot.take(self.pool, self.tables, SIZE)


def worked_example() -> Snapshot:
    """A and its fork B, C with the same first block, a block to be written, and one cached."""
    books = Books(8)
    books.new("A", *range(9))
    books.tables["B"] = b = books.tables["A"].fork()
    b.reserve(1)
    b.commit([*range(9), 10])
    gone = books.new("C", *range(4), 7, 7, 7, 7, 7)
    gone.truncate(4)
    gone.reserve(2)
    return books.shot()


WORKED_EXAMPLE = """
┌────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┐
│ 0 #6371│ 1 #e9bd│ 2      │ 3      │ 4 #2d14│ 5      │ 6      │ 7      │
│ ■ ■ ■ ■│ ■ ■ ■ ■│ ■ · · ·│ ■ ■ · ·│ ▒ ▒ ▒ ▒│ □ □ · ·│ · · · ·│ · · · ·│
│ ABC ×3 │ AB ×2  │ A      │ B      │ cached │ C      │ blank  │ blank  │
└────────┴────────┴────────┴────────┴────────┴────────┴────────┴────────┘
■ written   □ promised to this step   · empty
▒ free, but still found by its prefix   #name of the published prefix
×2 shared by two
A  [0 1 2]  9 tokens
B  [0 1 3]  10 tokens
C  [0 5]  4 tokens and 2 promised
free, next first: 6 7 4
"""

IN_ASCII = """
+--------+--------+--------+--------+--------+--------+--------+--------+
| 0 #6371| 1 #e9bd| 2      | 3      | 4 #2d14| 5      | 6      | 7      |
| # # # #| # # # #| # . . .| # # . .| : : : :| + + . .| . . . .| . . . .|
| ABC x3 | AB x2  | A      | B      | cached | C      | blank  | blank  |
+--------+--------+--------+--------+--------+--------+--------+--------+
"""

NARROW = """
┌────────┬────────┬────────┐
│ 0 #6371│ 1 #e9bd│ 2      │
│ ■ ■ ■ ■│ ■ ■ ■ ■│ ■ · · ·│
│ ABC ×3 │ AB ×2  │ A      │
├────────┼────────┼────────┤
│ 3      │ 4 #2d14│ 5      │
│ ■ ■ · ·│ ▒ ▒ ▒ ▒│ □ □ · ·│
│ B      │ cached │ C      │
├────────┼────────┼────────┘
│ 6      │ 7      │
│ · · · ·│ · · · ·│
│ blank  │ blank  │
└────────┴────────┘
"""


def printed(renderable: object, **options) -> str:
    target = StringIO()
    Console(file=target, legacy_windows=False, **options).print(renderable)
    return target.getvalue()


def test_the_worked_example():
    assert picture(worked_example()) == WORKED_EXAMPLE.strip()


def test_in_ascii_where_the_output_carries_no_more():
    class AsciiOnly(StringIO):
        encoding = "ascii"

    target = AsciiOnly()
    Console(file=target, width=80).print(PoolMap(worked_example()))
    assert target.getvalue().isascii()
    assert "\n".join(target.getvalue().splitlines()[:5]) == IN_ASCII.strip()


def test_in_a_narrow_terminal():
    assert picture(worked_example(), width=30).startswith(NARROW.strip())


def test_colours_only_where_they_are_wanted(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    options = {"width": 80, "force_terminal": True, "color_system": "standard"}
    coloured = printed(PoolMap(worked_example()), **options)
    assert "\x1b[36m" in coloured  # cyan, for A
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", printed(PoolMap(worked_example()), **options))
    assert "\x1b" not in printed(PoolMap(worked_example()), width=80)  # no terminal: a pipe


# --- laws, on random pools ---------------------------------------------------------------------


def random_shot(seed: int, num_blocks: int) -> Snapshot:
    """A pool after some random calls, perhaps in the middle of a step."""
    rng, books = random.Random(seed), Books(num_blocks)
    for turn in range(rng.randint(1, 14)):
        held = [name for name, table in books.tables.items() if table.block_ids]
        name, act = rng.choice(held or ["-"]), rng.choice("nnnfgtr")
        try:
            if act == "n" or not held:
                books.new(f"{turn}", *rng.choices(range(2), k=rng.randint(1, 11)))
            elif act == "f":
                books.tables[f"{turn}"] = books.tables[name].fork()
            elif act == "g":
                books.tables[name].reserve(rng.randint(1, 3))
                if turn % 3:
                    books.tables[name].commit([turn] * 40)
                else:
                    break
            elif act == "t":
                books.tables[name].truncate(rng.randint(0, books.tables[name].num_tokens))
            else:
                books.tables[name].release()
        except OutOfBlocks:
            pass
    return books.shot()


SHOTS = [random_shot(seed, num_blocks) for seed in range(60) for num_blocks in (1, 5, 13)]


def cells(text: str) -> list[tuple[str, str, str]]:
    """(id line, slots, holders) of every cell of a grid."""
    rows = [line for line in text.splitlines() if line.startswith("│")]
    found = []
    for top in range(0, len(rows), 3):
        columns = [row.strip("│").split("│") for row in rows[top : top + 3]]
        found += list(zip(*columns, strict=True))
    return found


def num_written(shot, block_id):
    """Slots of a block that hold a token of some table, counted from the tables alone."""
    ends = [
        table.num_tokens - i * shot.block_size
        for table in shot.tables
        for i, held in enumerate(table.block_ids)
        if held == block_id
    ]
    return max(0, min(max(ends, default=0), shot.block_size))


def test_every_block_is_drawn_once_with_what_is_true_of_it():
    kinds = Counter[str]()
    for shot in SHOTS:
        letters = Letters().of(table.name for table in shot.tables)
        drawn = cells(picture(shot, width=60))
        assert [int(top.split()[0]) for top, _, _ in drawn] == list(range(shot.num_blocks))
        for block_id, (top, slots, holders) in enumerate(drawn):
            owners = shot.owners(block_id)
            if owners:
                assert slots.count("■") == num_written(shot, block_id)
                assert holders.split("×")[0].strip() in (
                    "".join(letters[o] for o in owners),
                    "".join(letters[o] for o in owners)[:4] + "…",
                )
                assert len(owners) == 1 or holders.strip().endswith(f"×{len(owners)}")
            kinds[holders.strip().split("×")[0] if not owners else f"held {len(owners) > 1}"] += 1
            prefix = shot.prefixes[block_id]
            assert ("#" in top) == (prefix is not None)
            assert prefix is None or prefix.startswith(top.split("#")[1])
    assert kinds.keys() >= {"held True", "held False", "cached", "blank"}, kinds


def test_views_agree_with_the_snapshot():
    states = Counter[str]()
    for shot in SHOTS:
        for block in block_views(shot):
            b = block.block_id
            states[block.state] += 1
            assert block.owners == shot.owners(b)
            assert block.ref_count == shot.ref_counts[b] == len(block.owners)
            assert (block.state in ("cached", "blank")) == (b in shot.free_order)
            if block.state == "held":
                assert block.num_written == num_written(shot, b)
                assert block.num_written + block.num_promised <= SIZE
    assert min(states[s] for s in ("held", "cached", "blank")) > 10, states


def test_a_source_of_a_copy_is_neither_free_nor_held():
    books = Books(4)
    books.new("A", 1, 2, 3)
    books.tables["B"] = books.tables["A"].fork()
    books.tables["A"].reserve(1)
    books.tables.pop("B").release()
    assert block_views(books.shot())[0].state == "pinned"
    assert "│ copied │" in picture(books.shot())


@pytest.mark.parametrize("width", [1, 2, 7, 11, 20, 33, 79, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    shots = [*SHOTS[::30], big(0), big(3900)]
    for shot in shots:
        for renderable in (PoolMap(shot), PoolMap(shot, max_rows=3)):
            text = printed(renderable, width=width)
            assert max(map(cell_len, text.splitlines())) <= width


# --- large pools -------------------------------------------------------------------------------


def big(num_used: int, num_seqs: int = 30) -> Snapshot:
    """4096 blocks, of which about ``num_used`` are held."""
    books, per_seq = Books(4096), num_used // num_seqs * SIZE
    for i in range(num_seqs if per_seq else 0):
        books.new(f"{i}", *[i] * (per_seq - 1))
    return books.shot()


@pytest.mark.parametrize("num_used", [0, 60, 600, 3900])
def test_4096_blocks_stay_on_one_screen(num_used):
    lines = picture(big(num_used)).splitlines()
    assert len(lines) <= 17 + 3 + 9 + 1
    assert max(map(cell_len, lines)) <= 80


def test_a_large_pool_with_few_blocks_in_use_is_still_a_grid():
    books = Books(4096)
    books.new("A", 1, 2, 3, 4, 5)
    assert picture(books.shot(), legend=False).splitlines() == [
        "┌────────┬────────┐",
        "│ 0 #7881│ 1      │",
        "│ ■ ■ ■ ■│ ■ · · ·│",
        "│ A      │ A      │",
        "└────────┴────────┘",
        "… 4,094 blank blocks",
        "A  [0 1]  5 tokens",
        "free, next first: 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 … 4,094 in all",
    ]


def test_the_strip():
    books = Books(400)
    books.new("A", *range(4 * 9 + 1))
    books.new("B", *[1] * 41).truncate(21)
    books.tables["C"] = books.tables["B"].fork()
    assert plain(PoolMap(books.shot(), max_rows=4)).splitlines() == [
        "  0  AAAAAAAA Aa222222 ▒▒▒▒···· ········ ········ ········ ········ ········",
        "  …  336 blank blocks",
        "A full block of A   a partly written   2 shared by two",
        "▒ free, but still found by its prefix   · blank",
        "A  [0 1 2 3 4 5 6 7 8 9]  37 tokens",
        "B  [10 11 12 13 14 15]  21 tokens",
        "C  [10 11 12 13 14 15]  21 tokens",
        "free, next first: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 … 384 in all",
    ]


def test_in_a_strip_every_block_counts():
    """Marks and folded blocks add up to the pool, unless a mark stands for several blocks."""
    for num_used in (60, 600):
        text = plain(PoolMap(big(num_used), max_rows=20, max_tables=0, legend=False))
        rows = [line for line in text.splitlines() if re.match(r" *(\d+|…)  ", line)]
        folded = [re.search(r"([\d,]+) blank", row) for row in rows]
        num_marks = sum(
            len(row.split(maxsplit=1)[1].replace(" ", ""))
            for row, fold in zip(rows, folded)
            if not fold
        )
        num_folded = sum(int(fold[1].replace(",", "")) for fold in folded if fold)
        assert num_marks + num_folded == 4096


def test_sampling_shows_the_busiest_of_its_blocks():
    books = Books(1024)
    books.new("A", *range(SIZE * 600))
    books.new("B", 1)
    text = plain(PoolMap(books.shot(), max_rows=4, max_tables=0))
    assert "one sign is the busiest of 4 blocks" in text
    row = text.splitlines()[2]
    assert row.startswith(" 512  AAAAAAAA AAAAAAAA AAAAAAb· ")


def test_long_tables_are_cut_in_the_middle():
    books = Books(200)
    books.new("A", *range(SIZE * 100))
    (line,) = (x for x in picture(books.shot()).splitlines() if x.startswith("A  ["))
    assert line.endswith("… 99]  400 tokens")
    assert 70 < len(line) <= 80


# --- letters -----------------------------------------------------------------------------------


def test_a_letter_is_kept_while_its_owner_lives():
    letters = Letters()
    first = letters.of(["x", "y", "z"])
    assert letters.of(["y", "w"]) == {"y": first["y"], "w": first["x"]}


def test_letters_are_unique_as_long_as_there_are_enough():
    letters = Letters()
    letters.of(["long", "B"])
    names = ["long", *"ABC", *map(str, range(22))]
    assert len(set(letters.of(names).values())) == 26
    assert set(letters.of([*names, "one too many"]).values()) >= {CROWD}


# --- the ledger --------------------------------------------------------------------------------


def test_the_bar_shows_every_class_that_occurs():
    rng = random.Random(0)
    for _ in range(300):
        counts = [rng.choice([0, 0, 1, 5, 1000]) for _ in range(7)]
        width = rng.randint(7, 80)
        lengths = shares(counts, width)
        assert sum(lengths) == (width if any(counts) else 0)
        assert [bool(n) for n in lengths] == [bool(n) for n in counts]
        exact = [c * width / max(1, sum(counts)) for c in counts]
        assert all(n <= max(1, e + 1) for n, e in zip(lengths, exact))


def test_the_bar_of_a_pool_that_is_nearly_all_free():
    ledger = Ledger(6, 4, 0, 2, 0, 0, 9988, saved=4)
    assert plain(LedgerBar(ledger), width=24).splitlines() == [
        "████████████▓▓▓▓▓▓▓▓╳╳╳╳",
        "█ 6 live   ▓ 4 shared",
        "╳ 2 tail waste",
        "· 9,988 free (not drawn)",
        "10,000 slots",
        "4 saved by sharing",
    ]


# --- the story ---------------------------------------------------------------------------------


def test_the_story_is_complete():
    story = list(frames())
    kinds = {change.kind for frame in story for change in frame.changes}
    assert kinds >= {
        "allocated", "promised", "written", "published", "shared", "copied",
        "released", "truncated", "evicted", "found",
    }  # fmt: skip
    last = story[-1].snapshot
    assert last.tables == ()
    assert len(last.free_order) == 8
    assert sum(p is not None for p in last.prefixes) == 6


def test_the_story_says_what_happens():
    copy, in_place = list(frames())[6:8]
    assert copy.session[-1] == "[Copy(source=3, destination=4), Copy(source=3, destination=5)]"
    assert [c.text for c in copy.changes if c.kind == "copied"] == [
        "block 3 to 4, for B",
        "block 3 to 5, for C",
    ]
    assert in_place.session[-2:] == ("[]", ">>> d.commit(d_ids)")
    assert not [c for c in in_place.changes if c.kind in ("copied", "allocated")]


def test_a_refused_call_changes_nothing():
    before, refused = list(frames())[11:13]
    assert refused.session[-1].startswith("OutOfBlocks: ")
    assert refused.snapshot == before.snapshot
    assert refused.changes == ()


def test_the_story_fits_a_small_terminal():
    for frame in frames():
        text = plain(PoolMap(frame.snapshot, texts=frame.texts, legend=False))
        assert max(map(cell_len, text.splitlines())) < 80  # not cut
