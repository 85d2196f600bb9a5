"""What a real browser makes of our pages: it fetches nothing elsewhere, and the stepper steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape

import pytest

from minipaged.core import BlockPool, BlockTable, Snapshot
from minipaged.view import Moment, frames, stepper
from minipaged.view.moment import Line, Piece, Told, moments
from support.browser import HOST, needs_browser, site
from support.markdown import ROOT

pytestmark = [needs_browser, pytest.mark.timeout(600)]

DRIVER = """<!doctype html><iframe id="page" src="run.html"></iframe><pre id="log"></pre><script>
addEventListener("load", () => {
  const frame = document.getElementById("page"), inner = frame.contentWindow, said = [];
  const at = (id) => inner.document.getElementById(id);
  const look = (what) => said.push([what, at("number").textContent, at("title").textContent,
    inner.location.hash, inner.document.querySelectorAll(".veil").length,
    inner.document.querySelectorAll(".ring").length]);
  const press = (key) => {
    inner.dispatchEvent(new inner.KeyboardEvent("keydown", { key })); look(key);
  };
  const search = (text) => {
    at("search").value = text; at("search").dispatchEvent(new inner.Event("input")); look(text);
  };
  look("start");
  press("ArrowRight"); press("End"); press("ArrowRight"); press("ArrowLeft"); press("Home");
  press("ArrowLeft");
  at("next").click(); look("next");
  at("slider").value = 6; at("slider").dispatchEvent(new inner.Event("input")); look("slider");
  search("block 3");
  const hits = at("found").innerText;
  at("found").querySelector("button").click(); look("hit");
  search("");
  const line = inner.document.querySelector("#texts li");
  line.focus(); line.dispatchEvent(new inner.Event("focus")); look("focus");
  line.dispatchEvent(new inner.Event("blur")); look("blur");
  const live = at("said").textContent;
  document.getElementById("log").textContent = JSON.stringify({ said, hits, live });
});
</script>"""

SEARCHER = """<!doctype html><iframe id="page" src="PAGE"></iframe><pre id="log"></pre><script>
addEventListener("load", () => {
  const inner = document.getElementById("page").contentWindow, said = {};
  const at = (id) => inner.document.getElementById(id);
  for (const text of WORDS) {
    at("search").value = text; at("search").dispatchEvent(new inner.Event("input"));
    const list = at("found").querySelector("ul");
    said[text] = { hidden: at("found").hidden, head: at("found").querySelector("h2").textContent,
      rows: [...list.children].map((row) => row.textContent), height: list.clientHeight,
      place: inner.location.hash, veiled: inner.document.querySelectorAll(".veil").length,
      ringed: inner.document.querySelectorAll(".ring").length };
  }
  document.getElementById("log").textContent = JSON.stringify(said);
});
</script>"""
CROWD = "ABCDEFGHI"


def crowded(num_steps: int) -> list[Moment]:
    """Nine sequences, of which a step names seven; what one of them says is the name of another."""
    pool = BlockPool(8)
    shot = Snapshot.take(pool, {"A": BlockTable(pool, 4)}, 4)
    said = "A, B, C, D, E, F, G and 2 more"
    decoded = Told("computed", said, (), tuple(CROWD))
    drawn = Told("sampled", "A ' I'", (), ("A",))
    lines = tuple(Line(name, "running", (Piece(None, "x", ""),)) for name in CROWD)
    return [Moment(f"step {i}", shot, (decoded, drawn), lines) for i in range(num_steps)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "run.html").write_text(stepper(frames(), title="The story").page(), encoding="utf-8")
    (folder / "driver.html").write_text(DRIVER, encoding="utf-8")
    crowd = stepper(crowded(44), title="Nine").page()
    (folder / "nine.html").write_text(crowd, encoding="utf-8")
    (folder / "spy.html").write_text('<img src="http://elsewhere.test/a.png">', encoding="utf-8")
    return folder


@pytest.fixture
def shown(folder, tmp_path):
    with site(folder, tmp_path / "profile") as shown:
        yield shown


def test_the_log_sees_a_request_that_leaves(shown):
    shown.dom("spy.html")
    assert "http://elsewhere.test/a.png" in shown.asked_elsewhere


def test_keys_buttons_slider_search_and_focus(shown):
    dom = shown.dom("driver.html")
    found = json.loads(unescape(re.findall(r'<pre id="log">(.*?)</pre>', dom, re.DOTALL)[0]))
    titles, last = [frame.title for frame in frames()], 13
    steps = {"start": 0, "next": 1, "slider": 6, "block 3": 6}
    said = iter(found["said"])
    for key, step in [("ArrowRight", 1), ("End", 13), ("ArrowRight", 13), ("ArrowLeft", 12)]:
        if key == "ArrowRight" and step == 1:
            assert next(said)[:3] == ["start", f"0 / {last}", titles[0]]
        assert next(said)[:4] == [key, f"{step} / {last}", titles[step], f"#step={step}"]
    assert [next(said)[1] for _ in range(2)] == [f"0 / {last}"] * 2  # Home, and no further
    for what in ("next", "slider"):
        assert next(said)[:2] == [what, f"{steps[what]} / {last}"]
    assert next(said) == ["block 3", f"6 / {last}", titles[6], "#step=6&block=3", 0, 1]
    assert "step 4 allocated block 3 for B" in " ".join(found["hits"].split())
    assert "copied block 3 to 4" in " ".join(found["hits"].split())
    assert next(said)[:4] == ["hit", f"4 / {last}", titles[4], "#step=4&block=3"]
    assert next(said)[4:] == [0, 0]  # the search is empty again
    what, *_, num_veiled, _ = next(said)
    assert (what, num_veiled) == ("focus", 5)  # A holds three of eight blocks
    assert next(said)[4] == 0
    assert found["live"].startswith(f"Step 4. {titles[4]}.")
    assert shown.asked_elsewhere == []


def test_an_address_leads_to_a_step_and_a_block(shown):
    dom = shown.dom("run.html#step=9&block=2")
    assert frames_title(9) in dom
    assert 'class="ring"' in dom
    here = {url for url in shown.asked if url.startswith(HOST)}
    assert here <= {HOST + "run.html", HOST + "favicon.ico"}
    assert shown.asked_elsewhere == []


def searched(shown, page: str, words: list[str]) -> dict[str, dict]:
    """What the page says of every word."""
    driver = SEARCHER.replace("PAGE", page).replace("WORDS", json.dumps(words))
    (shown.folder / "searcher.html").write_text(driver, encoding="utf-8")
    dom = shown.dom("searcher.html")
    return json.loads(unescape(re.findall(r'<pre id="log">(.*?)</pre>', dom, re.DOTALL)[0]))


def test_a_search_for_a_name_finds_its_steps_and_no_token_of_that_name(shown):
    said = searched(shown, "nine.html", [*CROWD, "i"])
    for name in CROWD:
        rows = said[name]["rows"]
        assert len(rows) == 44, name
        assert all(("sampled" in row) == (name == "A") for row in rows), name
        assert said[name]["head"] == f"{name}, in 44 steps:"
        assert said[name]["place"] == f"#step=0&name={name}"
        assert said[name]["height"] <= 12 * 16
    assert said["i"] == said["I"]


def test_a_search_for_a_prefix_finds_the_blocks_that_had_it(shown):
    told = list(moments(frames()))
    prefixes = {p for moment in told for p in moment.snapshot.prefixes if p}
    said = searched(shown, "run.html#step=9", [f"#{prefix}" for prefix in prefixes])
    for prefix in prefixes:
        had = [{b for b, p in enumerate(m.snapshot.prefixes) if p == prefix} for m in told]
        rows = [
            i
            for i, moment in enumerate(told)
            if any((had[i] | had[max(i - 1, 0)]) & {*c.block_ids} for c in moment.changes)
        ]
        found = said[f"#{prefix}"]
        blocks = ", ".join(map(str, sorted(set().union(*had))))
        assert re.match(rf"#{prefix} in blocks? {blocks}, in {len(rows)} steps?:$", found["head"])
        assert [int(row.split()[1]) for row in found["rows"]] == rows
        assert found["ringed"] == len(set().union(*had))
        assert found["place"] == f"#step=9&prefix={prefix}"


UNKNOWN = {
    "block 99": "There is no block 99 (0 to 7).",
    "8": "There is no block 8 (0 to 7).",
    "A.1": "A.1: not a block or a sequence.",
    "1e": "1e: not a block or a sequence.",
    "-1": "-1: not a block or a sequence.",
    "copied": "copied: not a block or a sequence.",
    "blocks 1": "blocks 1: not a block or a sequence.",
    "#g": "#g: not a block or a sequence.",
    "#ffffff0": "No block had the prefix #ffffff0.",
}


def test_what_is_no_block_and_no_name_is_called_so(shown):
    said = searched(shown, "run.html", [*UNKNOWN, "", "block ", "7", " BLOCK 7 "])
    for text, expected in UNKNOWN.items():
        assert said[text]["head"] == expected
        assert (said[text]["rows"], said[text]["ringed"], said[text]["veiled"]) == ([], 0, 0)
        assert said[text]["place"] == "#step=0"
    assert said[""]["hidden"]
    assert said["block "]["hidden"]
    assert said["7"] == said[" BLOCK 7 "]
    assert said["7"]["head"].startswith("Block 7")


def test_an_address_leads_to_a_sequence(shown):
    dom = shown.dom("run.html#step=9&name=A")
    assert "A, in " in re.findall(r'<section id="found"[^>]*>(.*?)</section>', dom, re.DOTALL)[0]
    assert 'class="veil"' in dom


def frames_title(number: int) -> str:
    return [frame.title for frame in frames()][number]


@pytest.mark.slow
def test_no_page_of_the_site_asks_anybody_else(tmp_path):
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "-f", "docs/mkdocs.yml", "-d"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, *words, str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [
        "index.html",
        "recorded-runs.html",
        "tutorials/06_copy_on_write.html",
        "explanation/claims.html",
        "reference/core.html",
    ]
    with site(tmp_path / "site", tmp_path / "profile") as shown:
        for page in pages:
            assert "</html>" in shown.dom(page, 2000)
    assert shown.asked_elsewhere == []
    assert len(shown.asked) > len(pages)
