"""A trace is read as it stands, and a line that makes no sense is named by its number."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.claims.trace_lines import TraceError, assign
from minipaged.claims.traces import SHIPPED, read_trace, shipped
from minipaged.claims.workload import Arrival

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.5000000,374,44
2023-11-16 18:15:50.7500000,396,109
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "mine.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def arrivals(path, **options) -> tuple[Arrival, ...]:
    return read_trace(path, **options).workload.arrivals


def mooncake(**changes) -> str:
    row = {"timestamp": 1500, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]}
    return json.dumps(row | changes) + "\n"


# ---- what is read


def test_the_azure_form(write):
    assert arrivals(write(AZURE)) == (Arrival(0.0, 374, 44), Arrival(4.25, 396, 109))


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the clock's zone cannot be set here")
def test_dates_with_and_without_a_zone_are_of_one_clock(write, monkeypatch):
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    text = AZURE.replace("50.7500000", "50.75+00:00")
    found = [a.time for a in arrivals(write(text))]
    monkeypatch.undo()
    time.tzset()
    assert found == [0.0, 4.25]


def test_the_mooncake_form_counts_milliseconds_and_names_pieces(write):
    path = write(mooncake(timestamp=500) + mooncake(), "mine.jsonl")
    workload = read_trace(path).workload
    assert workload.arrivals == (Arrival(0.0, 600, 5, (0, 7)), Arrival(1.0, 600, 5, (0, 7)))
    assert workload.piece_len == 512


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", "5,m,7,3,10,x"),
        ("arrived_at;num_prefill_tokens;num_decode_tokens", "5;7;3"),
        ("\ufefftime\tinput_len\toutput_len", "5\t7.0\t3"),
        ('"time","prompt_len","output_len"', '"5","7","3"'),
    ],
)
def test_columns_are_known_by_usual_names(write, header, row):
    assert arrivals(write(f"{header}\n{row}\n")) == (Arrival(0.0, 7, 3),)


def test_columns_can_be_named(write):
    path = write("when,given,made\n2000,7,3\n500,8,4\n")
    with pytest.raises(
        TraceError, match=r"line 1: no column .* tokens of the prompt .*when, given"
    ):
        read_trace(path)
    found = arrivals(path, columns={"prompt": "given", "output": "made", "time_ms": "when"})
    assert found == (Arrival(0.0, 8, 4), Arrival(1.5, 7, 3))


def test_a_named_column_beats_a_known_one():
    names = ["time", "created", "prompt_len", "output_len"]
    assert assign(names, {"time_ms": "created"}) == {
        "time_ms": "created",
        "prompt": "prompt_len",
        "output": "output_len",
    }


def test_requests_are_sorted_by_time(write):
    path = write("time,prompt_len,output_len\n9,1,1\n4,2,2\n6,3,3\n")
    assert [(a.time, a.prompt_len) for a in arrivals(path)] == [(0.0, 2), (2.0, 3), (5.0, 1)]


def test_without_times_they_come_by_chance_and_it_is_said(write):
    path = write("prompt_len,output_len\n" + "5,2\n" * 2000)
    workload = read_trace(path).workload
    assert workload.rate == pytest.approx(1.0, rel=0.1)
    assert "Poisson" in workload.source
    assert workload == read_trace(path).workload


def test_packed_files_and_empty_lines(write):
    text = "\n" + AZURE.replace("\n", "\r\n\r\n")
    assert arrivals(write(gzip.compress(text.encode()), "mine.csv.gz")) == arrivals(write(AZURE))


def test_no_more_is_read_than_wanted(write):
    workload = read_trace(write(AZURE), limit=1).workload
    assert len(workload) == 1
    assert "from its beginning" in workload.source


# ---- what is refused


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("5,many,3", "prompt_len is 'many'; a whole number"),
        ("5,0,3", "prompt_len is '0'; a whole number from 1"),
        ("5,7,2.5", "output_len is '2.5'"),
        ("5,7,1e400", "output_len is '1e400'"),
        ("5,7,99999999999", "whole number from 1 to 10,000,000"),
        ("nan,7,3", "time is 'nan'; a number or a date"),
        ("yesterday,7,3", "time is 'yesterday'"),
        ("5,7", "2 values, but the header names 3 columns"),
        ("5,7,3,9", "4 values"),
        (b"5,\xff,3", "not UTF-8"),
    ],
)
def test_a_bad_line_is_named_by_its_number(write, line, complaint):
    line = line if isinstance(line, bytes) else line.encode()
    path = write(b"time,prompt_len,output_len\n1,2,3\n\n" + line + b"\n6,4,4\n")
    with pytest.raises(TraceError, match=r"^mine\.csv, line 4: ") as caught:
        read_trace(path)
    assert complaint in str(caught.value)
    found = read_trace(path, skip_bad_lines=True)
    assert [a.prompt_len for a in found.workload.arrivals] == [2, 4]
    assert (found.num_skipped, found.first_skipped[:7]) == (1, "line 4:")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{broken\n", "no JSON"),
        ("[1, 2]\n", "one object per line"),
        ("[" * 100_000 + "\n", "no JSON"),
        (mooncake(input_length=True), "input_length is True"),
        (mooncake(hash_ids=[0]), "600 tokens has 2 pieces of 512"),
        (mooncake(hash_ids=[0, "x"]), "each with a whole number"),
        (mooncake(hash_ids=None), "hash_ids is None"),
        ('{"timestamp": 1}\n', "input_length is missing"),
    ],
)
@pytest.mark.parametrize("place", [1, 2])
def test_so_is_one_of_json_the_first_included(write, line, complaint, place):
    lines = [mooncake(), mooncake()]
    lines.insert(place - 1, line)
    path = write("".join(lines), "mine.jsonl")
    if place == 1 and not line.startswith("{"):  # this is not JSON Lines at all
        with pytest.raises(TraceError, match="line 1: a list; expected"):
            read_trace(path, skip_bad_lines=True)
        return
    with pytest.raises(TraceError, match=f"line {place}: ") as caught:
        read_trace(path)
    assert complaint in str(caught.value) or "no column is known" in str(caught.value)
    found = read_trace(path, skip_bad_lines=True)
    assert (len(found.workload), found.num_skipped) == (2, 1)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_no_trace(write, text):
    with pytest.raises(TraceError, match="no request in it: it is empty; expected a header"):
        read_trace(write(text))


def test_a_header_alone_is_no_trace(write):
    with pytest.raises(TraceError, match="no request in it: its header is followed by no line"):
        read_trace(write("time,prompt_len,output_len\n"))


@pytest.mark.parametrize(("count", "said"), [(1, "1 request;"), (2, "2 requests;")])
def test_what_is_counted_is_named_in_its_number(write, count, said):
    workload = read_trace(write("prompt_len,output_len\n" + "5,2\n" * count)).workload
    assert said in workload.source


def test_a_file_of_bad_lines_only_says_what_the_first_is(write):
    with pytest.raises(TraceError, match="no request in it: line 2: prompt_len is 'x'"):
        read_trace(write("prompt_len,output_len\nx,y\nx,y\n"), skip_bad_lines=True)


def test_what_cannot_be_opened(write, tmp_path):
    for path in (tmp_path / "nowhere.csv", tmp_path, write(gzip.compress(b"x" * 99)[:-9], "a.gz")):
        with pytest.raises(TraceError, match="cannot be read: "):
            read_trace(path)


def test_roles_and_columns_that_do_not_exist():
    with pytest.raises(TraceError, match="prompt, output, time, time_ms, prefix, not for 'promt'"):
        assign(["a"], {"promt": "a"})
    with pytest.raises(TraceError, match="no column 'b'; there are: a"):
        assign(["a"], {"prompt": "b"})


# ---- what is shipped


@pytest.mark.parametrize(
    ("name", "count", "prompt", "output"),
    [  # counted by others before us: number of requests, and mean lengths
        ("azure-conv", 19_366, 1154.7, 211.1),
        ("azure-code", 8_819, 2047.8, 27.9),
        ("mooncake", 12_031, 12_035.1, 342.6),
        ("sharegpt", 10_764, 153.5, 266.7),
    ],
)
def test_shipped_workloads_are_whole(name, count, prompt, output):
    workload = shipped(name)
    assert len(workload) == count
    assert workload.mean_prompt_len == pytest.approx(prompt, abs=0.06)
    assert workload.mean_output_len == pytest.approx(output, abs=0.06)
    times = [a.time for a in workload.arrivals]
    assert times == sorted(times)
    assert min(times) >= 0


def test_shipped_workloads_are_small_and_each_has_its_licence():
    from importlib.resources import files

    data = files("minipaged.claims") / "data"
    names = {entry.name for entry in data.iterdir() if entry.name.endswith(".gz")}
    assert names == {file_name for file_name, _ in SHIPPED.values()}
    assert sum(len((data / name).read_bytes()) for name in names) < 1_500_000
    readme = (data / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in names)


# ---- whatever a file holds


def forms() -> st.SearchStrategy[bytes]:
    """Files that are nearly right: known headers over values of all kinds, JSON, and bytes."""
    values = st.one_of(
        st.integers(-5, 2000).map(str),
        st.floats().map(repr),
        st.sampled_from(["", "1e999", "2023-11-16 18:15:46", '"a', "null", "[]", "\ufeff", "٣"]),
    )
    rows = st.lists(st.lists(values, min_size=2, max_size=4).map(",".join), max_size=5)
    table = rows.map(lambda rows: "\n".join(["time,prompt_len,output_len", *rows]).encode())
    keys = st.sampled_from(["timestamp", "input_length", "output_length", "hash_ids", "x"])
    plain = st.none() | st.booleans() | st.integers(-2, 2000) | st.floats() | st.text(max_size=3)
    some = st.dictionaries(keys, plain | st.lists(plain, max_size=4))
    lines = st.lists(some.map(json.dumps), max_size=5)
    return st.one_of(
        table, lines.map(lambda rows: "\n".join(rows).encode()), st.binary(max_size=80)
    )


@given(forms(), st.booleans())
def test_it_is_read_or_refused_with_words(content, skip):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.csv"
        path.write_bytes(content)
        try:
            found = read_trace(path, skip_bad_lines=skip)
        except TraceError:
            return
    assert len(found.workload) > 0
    assert skip or not found.num_skipped
    assert found.workload.arrivals[0].time >= 0
    for arrival in found.workload.arrivals:
        assert math.isfinite(arrival.time)
        assert min(arrival.prompt_len, arrival.output_len) >= 1
