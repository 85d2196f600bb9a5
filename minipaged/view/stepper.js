"use strict";
// Shows one frame of a recorded run at a time. Frames are stored as what changed since the one
// before: a list of parts, in which a pair [from, to] stands for parts of the frame before.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const last = data.steps.length - 1;
  let step = 0, wantedBlock = null, wantedName = null;

  const patched = (edits, before) => edits.flatMap(
    (edit) => Array.isArray(edit) ? before.slice(edit[0], edit[1]) : [edit]);

  let picture = [];
  const known = new Map(), held = new Map();
  for (const frame of data.steps) {
    picture = frame.picture = patched(frame.picture, picture);
    frame.lines = frame.lines.map(([name, state, edits]) => {
      const pieces = patched(edits, known.get(name) || []);
      known.set(name, pieces);
      return { name, state, pieces };
    });
    for (const [name, edits] of Object.entries(frame.tables)) {
      held.set(name, frame.tables[name] = patched(edits, held.get(name) || []));
    }
  }

  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function show(next, announce = true) {
    step = Math.min(Math.max(next, 0), last);
    const frame = data.steps[step];
    at("picture").innerHTML = data.head + frame.picture.map((i) => data.parts[i]).join("") + "</svg>";
    at("slider").value = step;
    at("slider").setAttribute("aria-valuetext", `step ${step}: ${frame.title}`);
    at("number").textContent = `${step} / ${last}`;
    at("title").textContent = frame.title;
    for (const [id, end] of [["first", 0], ["back", 0], ["next", last], ["last", last]]) {
      at(id).disabled = step === end;
    }
    at("changes").replaceChildren(...frame.changes.map(([kind, text], i) => {
      const item = element("li"), isLast = (frame.changes[i + 1] || [])[0] !== kind;
      item.append(element("b", kind), " " + text);
      if (data.why[kind] && isLast) item.append(element("small", data.why[kind]));
      return item;
    }));
    if (!frame.changes.length) at("changes").append(element("li", "Nothing yet."));
    at("texts").replaceChildren(...frame.lines.map(line));
    if (announce) {
      const said = frame.changes.map(([kind, text]) => `${kind} ${text}`);
      at("said").textContent = [`Step ${step}. ${frame.title}.`, ...said].join(" ");
    }
    light();
    remember();
  }

  function line({ name, state, pieces }) {
    const item = element("li");
    item.dataset.name = name;
    item.tabIndex = 0;
    item.append(element("b", name), " ", element("i", state), " ");
    for (const i of pieces) {
      const [block, given, generated] = data.pieces[i];
      const piece = element("span", undefined, block === null ? "piece noslot" : "piece");
      if (block !== null) { piece.dataset.block = block; piece.append(element("sub", block)); }
      piece.append(given);
      if (generated) piece.append(element("span", generated, "generated"));
      item.append(piece);
    }
    for (const event of ["mouseenter", "focus"]) item.addEventListener(event, () => light(name));
    for (const event of ["mouseleave", "blur"]) item.addEventListener(event, () => light());
    return item;
  }

  // Whose blocks are looked at: all others are veiled. The block that was searched for is ringed.
  function light(name = wantedName) {
    const frame = data.steps[step], svg = at("picture").querySelector("svg");
    if (!svg) return; // a block is searched for, and nothing is shown yet
    svg.querySelectorAll(".veil, .ring").forEach((old) => old.remove());
    const own = name === null ? null : frame.tables[name] || [];
    for (const box of [...svg.querySelectorAll("[data-block]")]) {
      const block = Number(box.dataset.block);
      const cover = (className) => {
        const copy = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const side of ["x", "y", "width", "height"]) copy.setAttribute(side, box.getAttribute(side));
        copy.setAttribute("class", className);
        svg.append(copy);
      };
      if (own && !own.includes(block)) cover("veil");
      if (block === wantedBlock) cover("ring");
    }
    for (const item of at("texts").children) item.classList.toggle("lit", item.dataset.name === name);
    for (const piece of at("texts").querySelectorAll(".piece")) {
      piece.classList.toggle("lit-block", wantedBlock !== null && Number(piece.dataset.block) === wantedBlock);
    }
  }

  function search(text) {
    const number = text.match(/\d+/), word = text.trim().toUpperCase();
    wantedBlock = number ? Number(number[0]) : null;
    const isName = !number && data.steps.some((frame) => frame.tables[word]);
    wantedName = isName ? word : null;
    const found = at("found");
    found.hidden = !text.trim();
    if (found.hidden) { light(); remember(); return; }
    const mentions = new RegExp(`(^|[^\\p{L}#])${isName ? word : "\\0"}($|[^\\p{L}])`, "u");
    const hits = data.steps.flatMap((frame, i) => frame.changes
      .filter(([, said, blocks]) => number ? blocks.includes(wantedBlock) : isName && mentions.test(said))
      .map(([kind, said]) => [i, kind, said]));
    const what = number ? `Block ${wantedBlock}` : isName ? word : text;
    const head = hits.length ? `${what}, in ${hits.length} places:` : `${what}: nothing happened to it.`;
    found.replaceChildren(element("h2", head), element("ul"));
    for (const [i, kind, said] of hits) {
      const item = element("li"), go = element("button", `step ${i}`);
      go.addEventListener("click", () => show(i));
      item.append(go, ` ${kind} ${said}`);
      found.lastChild.append(item);
    }
    light();
    remember();
  }

  function remember() {
    const place = `#step=${step}` + (wantedBlock !== null ? `&block=${wantedBlock}` : "");
    try { history.replaceState(null, "", place); } catch (error) { /* inside a notebook */ }
  }

  function recall() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const block = asked.get("block");
    if (block !== null) { at("search").value = `block ${block}`; search(at("search").value); }
    show(Number(asked.get("step")) || 0, false);
  }

  const moves = { first: () => 0, back: () => step - 1, next: () => step + 1, last: () => last };
  for (const [id, move] of Object.entries(moves)) at(id).addEventListener("click", () => show(move()));
  at("slider").max = last;
  at("slider").addEventListener("input", (event) => show(Number(event.target.value)));
  at("search").addEventListener("input", (event) => search(event.target.value));
  addEventListener("keydown", (event) => {
    if (event.target.id === "search" || event.ctrlKey || event.altKey || event.metaKey) return;
    const keys = { ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last" };
    if (keys[event.key]) { event.preventDefault(); show(moves[keys[event.key]]()); }
    if (event.key === "/") { event.preventDefault(); at("search").focus(); }
  });
  addEventListener("hashchange", recall);
  at("run").hidden = false;
  const asked = location.hash;
  if (asked) recall(); else show(0, false);
})();
