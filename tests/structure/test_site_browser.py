"""What a real browser makes of our pages: it fetches nothing elsewhere, and the stepper steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape

import pytest

from minipaged.view import frames, stepper
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "run.html").write_text(stepper(frames(), title="The story").page(), encoding="utf-8")
    (folder / "driver.html").write_text(DRIVER, encoding="utf-8")
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
