"use strict";
// Shows one frame of a recorded run at a time. Frames are stored as what changed since the one
// before: a list of parts, in which a pair [from, to] stands for parts of the frame before.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const last = data.steps.length - 1;
  let step = 0, wanted = { what: null };

  const patched = (edits, before) => edits.flatMap(
    (edit) => Array.isArray(edit) ? before.slice(edit[0], edit[1]) : [edit]);

  let picture = [];
  const known = new Map(), held = new Map(), published = new Map(), names = new Set();
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
    for (const [block, prefix] of frame.prefixes) published.set(block, prefix);
    frame.prefixes = new Map(published);
    const heard = frame.changes.flatMap(([, , , own]) => own);
    for (const name of [...heard, ...frame.lines.map((one) => one.name), ...held.keys()]) names.add(name);
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

  // Whose blocks are looked at: all others are veiled. The blocks that were searched for are ringed.
  function light(name = wanted.name ?? null) {
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
      if (isWanted(block)) cover("ring");
    }
    for (const item of at("texts").children) item.classList.toggle("lit", item.dataset.name === name);
    for (const piece of at("texts").querySelectorAll(".piece")) {
      piece.classList.toggle("lit-block", "block" in piece.dataset && isWanted(Number(piece.dataset.block)));
    }
  }

  const isWanted = (block) => Boolean(wanted.blocks && wanted.blocks.has(block));

  // What is meant by the text: a block, the blocks that had a prefix, a sequence, or nothing.
  function meant(text) {
    const [, number] = text.match(/^(?:block\s*)?(\d+)$/i) || [], most = data.num_blocks - 1;
    if (number && Number(number) > most) return { what: `There is no block ${number} (0 to ${most}).` };
    if (number) return { what: `Block ${Number(number)}`, block: Number(number), blocks: new Set([Number(number)]) };
    if (/^#[0-9a-f]+$/i.test(text)) return prefixed(text.slice(1).toLowerCase());
    const same = (name) => name.toLowerCase() === text.toLowerCase();
    const name = names.has(text) ? text : [...names].find(same);
    return name === undefined ? { what: `${text}: not a block or a sequence.` } : { what: name, name };
  }

  function prefixed(start) {
    const blocks = new Set(), full = new Set();
    for (const frame of data.steps) {
      for (const [block, prefix] of frame.prefixes) {
        if (prefix && prefix.startsWith(start)) { blocks.add(block); full.add(`#${prefix}`); }
      }
    }
    if (!blocks.size) return { what: `No block had the prefix #${start}.` };
    const where = `block${blocks.size > 1 ? "s" : ""} ${[...blocks].join(", ")}`;
    return { what: `${[...full].join(", ")} in ${where}`, prefix: start, blocks };
  }

  // A change of a block concerns a prefix if the block has it after the step, or had it before.
  function concerns([, , blocks, own], i) {
    if (wanted.name !== undefined) return own.includes(wanted.name);
    if (wanted.prefix === undefined) return blocks.some(isWanted);
    const had = (frame, block) => frame && (frame.prefixes.get(block) || "").startsWith(wanted.prefix);
    return blocks.some((block) => had(data.steps[i], block) || had(data.steps[i - 1], block));
  }

  function search(text) {
    text = text.trim().replace(/^(block|#)$/i, ""); // somebody is typing
    wanted = text ? meant(text) : { what: null };
    const found = at("found"), isKnown = Boolean(wanted.blocks) || wanted.name !== undefined;
    found.hidden = !text;
    const hits = !isKnown ? [] : data.steps.map((frame, i) => [i, frame.changes.filter((one) => concerns(one, i))])
      .filter(([, changes]) => changes.length);
    const count = `in ${hits.length} step${hits.length === 1 ? "" : "s"}:`;
    const head = !isKnown ? wanted.what : hits.length ? `${wanted.what}, ${count}` : `${wanted.what}: nothing happened to it.`;
    found.replaceChildren(element("h2", head || ""), element("ul"));
    for (const [i, changes] of hits) {
      const item = element("li"), go = element("button", `step ${i}`);
      go.addEventListener("click", () => show(i));
      item.append(go, " " + changes.map(([kind, said]) => `${kind} ${said}`).join("; "));
      found.lastChild.append(item);
    }
    light();
    remember();
  }

  const KEYS = { block: "block ", prefix: "#", name: "" }; // of the address, and what is typed for it

  function remember() {
    const key = Object.keys(KEYS).find((one) => wanted[one] !== undefined);
    const place = `#step=${step}` + (key ? `&${key}=${encodeURIComponent(wanted[key])}` : "");
    try { history.replaceState(null, "", place); } catch (error) { /* inside a notebook */ }
  }

  function recall() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const key = Object.keys(KEYS).find((one) => asked.has(one));
    at("search").value = key ? KEYS[key] + asked.get(key) : "";
    search(at("search").value);
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
