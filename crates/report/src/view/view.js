"use strict";
// The view of trajectories. What comes from a run enters the page as text only: never as markup, address or style.
(() => {
  const table = JSON.parse(document.getElementById("data").textContent);
  const { lanes, updates, texts, groups, turns, paths, signals, states } = table;
  const nPaths = paths.group.length;
  const byId = (id) => document.getElementById(id);

  // ---- Elements -----------------------------------------------------------------------------------------------

  /** An element with attributes and children; a text child is text. */
  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  function svg(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  // What would not be seen, or would turn the text around; the same characters as everywhere else.
  const HIDDEN = new RegExp(table.hidden, "gu");

  const nameOf = (hidden) => "U+" + hidden.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

  /** A run's text for the eye: isolated from what stands around it, and with nothing hidden in it. */
  function shown(text) {
    const node = el("bdi");
    let at = 0;
    for (const match of text.matchAll(HIDDEN)) {
      if (match.index > at) node.append(text.slice(at, match.index));
      node.append(el("span", { class: "ctl" }, nameOf(match[0])));
      at = match.index + match[0].length;
    }
    if (at < text.length) node.append(text.slice(at));
    return node;
  }

  /** The same where no elements can stand: tooltips, labels. */
  const plain = (text) => text.replace(HIDDEN, (hidden) => "[" + nameOf(hidden) + "]");

  function number(x) {
    if (x === null || x === undefined) return "";
    if (x === 0) return "0";
    const size = Math.abs(x);
    const text = size >= 1e5 || size < 1e-3 ? size.toExponential(2) : String(Number(size.toPrecision(4)));
    return (x < 0 ? "\u2212" : "") + text;
  }
  const signed = (x) => (x > 0 ? "+" : "") + number(x);
  const plural = (n, what) => n + " " + (n === 1 ? what : what === "trajectory" ? "trajectories" : what + "s");

  // ---- Colour ---------------------------------------------------------------------------------------------------

  // Blue for more, orange for less: told apart by every common kind of colour vision. A credit c on a scale s has
  // zero + |c / s| * (end - zero) in each channel, rounded; each end differs from zero by at least 128 levels somewhere.
  const COLOURS = {
    light: { zero: [240, 240, 240], more: [5, 80, 174], less: [154, 62, 0] },
    dark: { zero: [48, 54, 61], more: [121, 192, 255], less: [255, 166, 87] },
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const print = matchMedia("print");
  const colours = () => (dark.matches && !print.matches ? COLOURS.dark : COLOURS.light);

  function shade(share) {
    const { zero, more, less } = colours();
    const end = share < 0 ? less : more;
    return zero.map((level, i) => Math.round(level + Math.min(1, Math.abs(share)) * (end[i] - level)));
  }
  const css = (rgb) => `rgb(${rgb.join(", ")})`;

  /** Black or white: one of them has a contrast of at least 4.5 on any colour. */
  function ink(rgb) {
    const linear = rgb.map((level) => (level <= 10 ? level / 3294 : ((level / 255 + 0.055) / 1.055) ** 2.4));
    const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    return luminance > 0.179 ? "#000000" : "#ffffff";
  }
  const share = (credit, lane) => (lanes[lane].scale > 0 ? credit / lanes[lane].scale : 0);

  /** Gives an element the colour of a credit; what has none stays without. */
  function paint(node, credit, lane) {
    if (credit === null) {
      node.classList.add("unscored");
      return node;
    }
    const rgb = shade(share(credit, lane));
    node.style.backgroundColor = css(rgb);
    node.style.color = ink(rgb);
    if (credit === 0) node.classList.add(lanes[lane].scale > 0 ? "zero" : "flat");
    return node;
  }

  function cell(kind, credit, lane, about) {
    const said = credit === null ? "no credit" : signed(credit);
    const label = `${plain(lanes[lane].name)}: ${said}${about || ""}`;
    return paint(el("span", { class: kind, title: label, "aria-label": label, role: "img" }, credit === null ? "" : signed(credit)), credit, lane);
  }

  // ---- Trajectories ---------------------------------------------------------------------------------------------

  const MARKS = { success: "\u2713", failure: "\u2717", truncated: "\u2026", boundary: "\u2016", untried: "?", failed: "\u26a0" };
  const rowOf = (group, turn) => groups.turn[group] + turn;
  const creditOf = (lane, row) => lanes[lane].credit[row];

  /** Rows of a trajectory's turns, in order. */
  function rowsOf(path) {
    const first = groups.turn[paths.group[path]];
    const rows = [];
    for (let turn = paths.turn[path]; turn >= 0; turn = turns.parent[first + turn]) rows.push(first + turn);
    return rows.reverse();
  }

  const address = (path) => {
    const group = paths.group[path];
    return `${updates[groups.update[group]].update}:${groups.number[group]}:${path - groups.path[group]}`;
  };
  const mark = (path) => {
    const outcome = paths.outcome[path];
    return el("span", { class: "outcome " + outcome, title: outcome, role: "img", "aria-label": outcome }, MARKS[outcome]);
  };

  // One walk over all: what lists are sorted and filtered by.
  const lengths = new Uint32Array(nPaths);
  const returns = new Array(nPaths);
  const opposed = new Uint32Array(nPaths);
  const apart = new Float64Array(nPaths);
  const largest = new Float64Array(nPaths);
  for (let path = 0; path < nPaths; path++) {
    const first = groups.turn[paths.group[path]];
    let sum = 0;
    for (let turn = paths.turn[path]; turn >= 0; turn = turns.parent[first + turn]) {
      const row = first + turn;
      lengths[path] += 1;
      sum += turns.reward[row];
      let low = Infinity;
      let high = -Infinity;
      let signs = 0;
      for (let lane = 0; lane < lanes.length; lane++) {
        const credit = creditOf(lane, row);
        if (credit === null) continue;
        const at = share(credit, lane);
        if (at < low) low = at;
        if (at > high) high = at;
        signs |= credit > 0 ? 1 : credit < 0 ? 2 : 0;
      }
      if (signs === 3) opposed[path] += 1;
      if (high - low > apart[path]) apart[path] = high - low;
      const size = Math.max(Math.abs(low), Math.abs(high));
      if (size !== Infinity && size > largest[path]) largest[path] = size;
    }
    const outcome = paths.outcome[path];
    returns[path] = outcome === "untried" || outcome === "failed" ? null : sum;
  }

  // ---- Filters --------------------------------------------------------------------------------------------------

  const search = byId("search");
  const controls = { outcome: byId("outcome"), update: byId("update"), group: byId("group"), alarm: byId("alarm"), disagree: byId("disagree"), sort: byId("sort") };
  const option = (value, text) => el("option", { value }, text);
  const distinct = (all) => [...new Set(all)].sort();

  controls.outcome.append(option("", "all"), ...Object.keys(MARKS).filter((outcome) => paths.outcome.includes(outcome)).map((outcome) => option(outcome, outcome)));
  controls.update.append(option("", "all"), ...updates.map((of, i) => option(i, `${of.update} (${plain(of.phase)})`)));
  const alarms = distinct(updates.flatMap((of) => of.alarms));
  controls.alarm.append(option("", "all"), option("*", "any alarm"), ...alarms.map((name) => option("=" + name, plain(name))), option("-", "no alarm"));
  controls.sort.append(option("", "as saved"), option("best", "highest return"), option("worst", "lowest return"), option("long", "most turns"), option("credit", "largest credit"));
  if (lanes.length > 1) controls.sort.append(option("opposed", "most opposed turns"), option("apart", "lanes furthest apart"));
  else controls.disagree.parentElement.hidden = true;
  if (updates.length < 2) controls.update.parentElement.hidden = true;
  if (alarms.length === 0) controls.alarm.parentElement.hidden = true;

  let lower = null;
  /** Which texts hold what is searched for. */
  function found(words) {
    lower = lower || texts.map((text) => text.toLowerCase());
    return lower.map((text) => text.includes(words));
  }

  let listed = [];
  function applyFilters() {
    const words = search.value.trim().toLowerCase();
    const holds = words && found(words);
    const outcome = controls.outcome.value;
    const update = controls.update.value;
    const alarm = controls.alarm.value;
    const group = controls.group.value.trim();
    listed = [];
    for (let path = 0; path < nPaths; path++) {
      const of = paths.group[path];
      const at = updates[groups.update[of]];
      if (outcome && paths.outcome[path] !== outcome) continue;
      if (update && groups.update[of] !== Number(update)) continue;
      if (alarm === "*" && at.alarms.length === 0) continue;
      if (alarm === "-" && at.alarms.length > 0) continue;
      if (alarm[0] === "=" && !at.alarms.includes(alarm.slice(1))) continue;
      if (group && `${at.update}:${groups.number[of]}` !== group) continue;
      if (controls.disagree.checked && opposed[path] === 0) continue;
      if (words) {
        let hit = holds[groups.name[of]] || holds[groups.task[of]] || holds[paths.end[path]];
        const first = groups.turn[of];
        for (let turn = paths.turn[path]; turn >= 0 && !hit; turn = turns.parent[first + turn]) {
          hit = holds[turns.observation[first + turn]] || holds[turns.action[first + turn]];
        }
        if (!hit) continue;
      }
      listed.push(path);
    }
    const number = (path) => (returns[path] === null ? 0 : returns[path]);
    const orders = {
      best: (a, b) => number(b) - number(a),
      worst: (a, b) => number(a) - number(b),
      long: (a, b) => lengths[b] - lengths[a],
      credit: (a, b) => largest[b] - largest[a],
      opposed: (a, b) => opposed[b] - opposed[a] || apart[b] - apart[a],
      apart: (a, b) => apart[b] - apart[a],
    };
    const order = orders[controls.sort.value];
    if (order) listed.sort(order);
    const count = byId("count");
    const all = table.left_out ? `${nPaths} (${table.left_out} more were left out: --limit)` : String(nPaths);
    count.replaceChildren(`${listed.length} of ${all} ${nPaths === 1 ? "trajectory" : "trajectories"}`);
    rows.style.height = listed.length * rowHeight + "px";
    if (!listed.includes(selected) && listed.length) select(listed[0], false);
    else reveal();
    renderRows();
  }

  // ---- The list: only what is in sight is in the page -------------------------------------------------------------

  const list = byId("list");
  const rows = byId("rows");
  const rowHeight = 48 + 8 * lanes.length;
  const BEYOND = 6;
  let selected = -1;

  // What has no credit is hatched here too.
  const HATCH = "repeating-linear-gradient(135deg, var(--dim) 0 1px, transparent 1px 5px)";

  function strip(pathRows, lane) {
    const width = 100 / Math.max(1, pathRows.length);
    const stops = pathRows.map((row, i) => {
      const credit = creditOf(lane, row);
      const colour = credit === null ? "transparent" : css(shade(share(credit, lane)));
      return `${colour} ${(i * width).toFixed(3)}% ${((i + 1) * width).toFixed(3)}%`;
    });
    const node = el("div", { class: "strip", "aria-hidden": "true" });
    if (stops.length) node.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")}), ${HATCH}`;
    return node;
  }

  function listRow(index) {
    const path = listed[index];
    const group = paths.group[path];
    const pathRows = rowsOf(path);
    const node = el(
      "div",
      { class: "row", role: "option", id: "row-" + path, "aria-selected": String(path === selected), "aria-posinset": index + 1, "aria-setsize": listed.length },
      el("div", { class: "line" }, mark(path), el("span", { class: "task" }, shown(texts[groups.name[group]])), el("span", { class: "small" }, address(path))),
      el(
        "div",
        { class: "line small" },
        el("span", {}, `return ${returns[path] === null ? "none" : number(returns[path])}`),
        el("span", {}, plural(pathRows.length, "turn")),
        el("span", {}, paths.outcome[path]),
        opposed[path] ? el("span", { class: "alarm" }, `${opposed[path]} opposed`) : null,
      ),
      ...lanes.map((_, lane) => strip(pathRows, lane)),
    );
    node.style.top = index * rowHeight + "px";
    node.style.height = rowHeight + "px";
    node.addEventListener("click", () => select(path, true));
    return node;
  }

  function renderRows() {
    const from = Math.max(0, Math.floor(list.scrollTop / rowHeight) - BEYOND);
    const to = Math.min(listed.length, Math.ceil((list.scrollTop + list.clientHeight) / rowHeight) + BEYOND);
    const all = [];
    for (let i = from; i < to; i++) all.push(listRow(i));
    if (listed.length === 0) {
      const nothing = nPaths ? "nothing fits the filters" : "there are no trajectories";
      all.push(el("p", { class: "dim", style: "padding: 1rem" }, nothing));
    }
    rows.replaceChildren(...all);
    const inSight = listed.indexOf(selected);
    if (inSight >= from && inSight < to) list.setAttribute("aria-activedescendant", "row-" + selected);
    else list.removeAttribute("aria-activedescendant");
  }

  function reveal() {
    const index = listed.indexOf(selected);
    if (index < 0) return;
    const top = index * rowHeight;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + rowHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + rowHeight - list.clientHeight;
  }

  function select(path, ofUser) {
    selected = path;
    reveal();
    renderRows();
    renderDetail();
    byId("detail").scrollTop = 0;
    if (ofUser) history.replaceState(null, "", "#" + address(path));
  }

  function move(by) {
    if (listed.length === 0) return;
    const index = listed.indexOf(selected);
    const to = index < 0 ? 0 : Math.max(0, Math.min(listed.length - 1, index + by));
    if (listed[to] !== selected) select(listed[to], true);
  }

  // ---- Anchors: who else was here ---------------------------------------------------------------------------------

  let anchorBy = "seen";
  const anchorIndex = {};
  /** Rows by key. */
  function anchors(kind) {
    if (!anchorIndex[kind]) {
      const all = new Map();
      turns[kind].forEach((key, row) => {
        const others = all.get(key);
        if (others) others.push(row);
        else all.set(key, [row]);
      });
      anchorIndex[kind] = all;
    }
    return anchorIndex[kind];
  }

  function groupOfRow(row) {
    let low = 0;
    let high = groups.update.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (groups.turn[middle] <= row) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  const pathsOf = (group) => Array.from({ length: groups.path[group + 1] - groups.path[group] }, (_, i) => groups.path[group] + i);
  const through = (row) => pathsOf(groupOfRow(row)).filter((path) => rowsOf(path).includes(row));

  const MOST_OTHERS = 100;
  function whoElse(row) {
    const group = groupOfRow(row);
    const here = [];
    const elsewhere = [];
    for (const other of anchors(anchorBy).get(turns[anchorBy][row])) {
      if (other === row) continue;
      const of = groupOfRow(other);
      if (of === group) here.push(other);
      else if (groups.task[of] === groups.task[group]) elsewhere.push(other);
    }
    if (here.length + elsewhere.length === 0) return null;
    const others = [...here, ...elsewhere];
    const body = el("ul", { class: "others" });
    const node = el(
      "details",
      { class: "here" },
      el("summary", {}, `who else was here: ${here.length} in this group, ${elsewhere.length} elsewhere in this task`),
      body,
    );
    node.addEventListener("toggle", () => {
      if (!node.open || body.childElementCount) return;
      for (const other of others.slice(0, MOST_OTHERS)) {
        const path = through(other)[0];
        if (path === undefined) continue;
        const place = rowsOf(path).indexOf(other);
        const button = el("button", { type: "button", on: { click: () => jump(path, place) } }, `${address(path)}, turn ${place + 1}`);
        const what = el("span", { class: "what" }, shown(texts[turns.action[other]].slice(0, 80)));
        body.append(el("li", {}, mark(path), button, ...lanes.map((_, lane) => cell("chip", creditOf(lane, other), lane)), what));
      }
      if (others.length > MOST_OTHERS) body.append(el("li", { class: "dim" }, `and ${others.length - MOST_OTHERS} more`));
    });
    return node;
  }

  function jump(path, turn) {
    select(path, true);
    focusTurn(turn);
  }

  function focusTurn(index) {
    const node = byId("turn-" + index);
    if (!node) return;
    node.focus({ preventScroll: true });
    node.scrollIntoView({ block: "start" });
  }

  // ---- The tree of a group ----------------------------------------------------------------------------------------

  let treeLane = 0;
  const LINE = 20;
  const STEP = 22;

  /** Turns of the group as nodes: depth to the right, one line per end. Shared turns stand once, before their branches. */
  function tree(path) {
    const group = paths.group[path];
    const ends = pathsOf(group);
    const mine = new Set(rowsOf(path));
    const at = new Map();
    const edges = [];
    const nodes = [];
    const leaves = [];
    let deepest = 0;
    ends.forEach((end, line) => {
      const y = line * LINE + LINE / 2;
      let before = null;
      rowsOf(end).forEach((row, depth) => {
        if (!at.has(row)) {
          at.set(row, { x: depth * STEP + STEP / 2, y, end, depth });
          const here = at.get(row);
          if (before) edges.push(svg("path", { d: `M${before.x} ${before.y}C${before.x + STEP / 2} ${here.y} ${before.x} ${here.y} ${here.x} ${here.y}` }));
          const credit = creditOf(treeLane, row);
          const dot = svg("rect", { x: here.x - 7, y: here.y - 7, width: 14, height: 14, rx: 3 });
          const said = `turn ${depth + 1}: ${credit === null ? "no credit" : signed(credit)}\n${plain(texts[turns.action[row]].slice(0, 120))}`;
          dot.append(svg("title", {}, said));
          if (credit === null) dot.classList.add("none");
          else dot.style.fill = css(shade(share(credit, treeLane)));
          if (mine.has(row)) dot.classList.add("mine");
          dot.addEventListener("click", () => jump(mine.has(row) ? path : end, depth));
          nodes.push(dot);
        }
        before = at.get(row);
        deepest = Math.max(deepest, depth + 1);
      });
    });
    ends.forEach((end, line) => {
      const said = `${MARKS[paths.outcome[end]]} ${address(end)}  return ${returns[end] === null ? "none" : number(returns[end])}`;
      const leaf = svg("g", { class: "leaf", role: "button", tabindex: "0", "aria-label": `${paths.outcome[end]} ${said}` }, svg("text", { x: deepest * STEP + 8, y: line * LINE + LINE / 2 + 4 }, said));
      if (end === path) leaf.classList.add("mine");
      leaf.addEventListener("click", () => select(end, true));
      leaf.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          select(end, true);
        }
      });
      leaves.push(leaf);
    });
    const size = { width: deepest * STEP + 260, height: ends.length * LINE };
    const picture = svg("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "group", "aria-label": "the group's turns" }, ...edges, ...nodes, ...leaves);
    const shared = ends.reduce((n, end) => n + lengths[end], 0) > at.size;
    return { picture, shared, ends: ends.length };
  }

  // ---- One trajectory ----------------------------------------------------------------------------------------------

  let withTokens = false;
  let onlyGroup = false;
  const chunks = new Map();
  /** The tokens of a group; its part of the page is read at the first question. */
  function tokensOf(group) {
    const chunk = Math.floor(group / table.groups_per_chunk);
    if (!chunks.has(chunk)) chunks.set(chunk, JSON.parse(byId("tokens-" + chunk).textContent));
    return chunks.get(chunk)[group % table.groups_per_chunk];
  }

  const FOLD_CHARACTERS = 1500;
  const FOLD_LINES = 18;
  function block(kind, text) {
    const lines = text.split("\n", FOLD_LINES + 1);
    const long = text.length > FOLD_CHARACTERS || lines.length > FOLD_LINES;
    const pre = el("pre", { class: kind });
    if (!long) {
      pre.append(shown(text));
      return [pre];
    }
    const cut = Math.min(FOLD_CHARACTERS, lines.slice(0, FOLD_LINES).join("\n").length);
    // A character outside the first plane is two units: none is cut in half.
    const start = Array.from(text.slice(0, cut + 1)).slice(0, -1).join("");
    const button = el("button", { type: "button", "aria-expanded": "false" });
    const show = (open) => {
      pre.replaceChildren(shown(open ? text : start));
      if (!open) pre.append(" \u2026");
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "fold" : `show all ${text.length} characters`;
    };
    button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
    show(false);
    return [pre, button];
  }

  function tokenRows(group, turn, row) {
    const all = tokensOf(group);
    const ids = all.ids[turn];
    const at = all.at[turn];
    const sampled = new Map((at || ids.map((_, i) => i)).map((offset, i) => [offset, i]));
    const finer = lanes.map((_, lane) => lane).filter((lane) => all.credit[lane] !== undefined);
    const how = all.logprob[turn] ? "sampled" : "given";
    const out = [];
    for (const lane of finer.length ? finer : [0]) {
      const label = finer.length ? `tokens, ${plain(lanes[lane].name)}` : `tokens (filled: trained; dashed: ${how} only; dotted: forced, masked)`;
      const line = el("div", { class: "tokens" }, el("span", { class: "label" }, label));
      ids.forEach((id, offset) => {
        const i = sampled.get(offset);
        if (i === undefined) {
          line.append(el("span", { class: "token fed", title: `token ${id}: forced, masked` }, String(id)));
          return;
        }
        const of = all.credit[lane] && all.credit[lane][turn];
        const credit = of ? of[i] ?? null : creditOf(lane, row);
        const facts = [`token ${id}: ${how}`];
        if (all.logprob[turn]) facts.push(`log-probability ${number(all.logprob[turn][i])}`);
        if (all.entropy[turn]) facts.push(`entropy ${number(all.entropy[turn][i])} nats`);
        if (all.allowed[turn] && all.allowed[turn][i]) facts.push(`${all.allowed[turn][i]} allowed`);
        for (const [name, of] of Object.entries(all.columns)) {
          const x = of[turn] && of[turn][i];
          if (x !== null && x !== undefined) facts.push(`${plain(name)} ${number(x)}`);
        }
        facts.push(credit === null ? "no credit: not trained" : `credit ${signed(credit)}`);
        line.append(paint(el("span", { class: "token sampled", title: facts.join("\n") }, String(id)), credit, lane));
      });
      out.push(line);
    }
    return out;
  }

  function turnSection(path, row, index, shares) {
    const group = paths.group[path];
    const turn = row - groups.turn[group];
    // What was sampled has the probability that it was sampled with; what an expert played has none.
    const given = turns.sampled[row] > 0 && turns.logprob[row] === null;
    const agent = shown(texts[turns.agent[row]]);
    const facts = [given ? el("span", {}, "given, not sampled: an expert's, for ", agent) : el("span", {}, agent)];
    const validity = turns.validity[row];
    facts.push(el("span", { class: validity === "valid" ? "" : "bad" }, validity));
    if (turns.cut[row]) facts.push(el("span", { class: "bad" }, "cut by the token limit"));
    if (shares > 1) facts.push(el("span", {}, `shared by ${shares} trajectories`));
    if (turns.version[row]) facts.push(el("span", {}, `policy version ${turns.version[row]}`));
    const masked = `${plural(turns.read[row], "token")} read (masked), ${turns.sampled[row]} of ${turns.acted[row]} acted with were ${given ? "given" : "sampled"}`;
    const textsOf = el(
      "div",
      { class: "texts" },
      el("span", { class: "label" }, "read"),
      ...block("read", texts[turns.observation[row]]),
      el("div", { class: "label" }, "did"),
      ...block("acted", texts[turns.action[row]]),
      ...(withTokens ? [...tokenRows(group, turn, row), el("div", { class: "label" }, masked)] : []),
    );

    const cells = lanes.flatMap((lane, i) => {
      const finer = lane.finer ? " (mean over the turn's tokens where credit is finer)" : "";
      return [el("span", { class: "name", title: plain(lane.about) }, shown(lane.name)), cell("credit", creditOf(i, row), i, finer)];
    });
    const numbers = [];
    const say = (name, text) => numbers.push(el("dt", {}, shown(name)), el("dd", {}, text));
    say("reward", number(turns.reward[row]));
    if (turns.env_reward[row] !== turns.reward[row]) say("environment's reward", number(turns.env_reward[row]));
    for (const [name, column] of Object.entries(states)) {
      const start = groups.turn[group] + group;
      const parent = turns.parent[row];
      const before = column[parent < 0 ? start : start + 1 + parent] ?? null;
      const after = column[start + 1 + turn] ?? null;
      if (before !== null || after !== null) say(name, `${number(before) || "none"} \u2192 ${number(after) || "none"}`);
    }
    for (const [name, column] of Object.entries(signals)) {
      const x = column[row] ?? null;
      if (x !== null) say(name, number(x));
    }
    if (turns.logprob[row] !== null) say("mean log-probability", number(turns.logprob[row]));
    if (turns.entropy[row] !== null) say("mean entropy", number(turns.entropy[row]));
    if (turns.temperature[row] !== 1) say("temperature", number(turns.temperature[row]));
    if (texts[turns.spans[row]]) say("parts (tokens)", plain(texts[turns.spans[row]]));

    return el(
      "section",
      { class: "turn", id: "turn-" + index, tabindex: "-1", "aria-label": `turn ${index + 1}` },
      el("header", {}, el("h3", {}, `turn ${index + 1}`), el("span", { class: "facts" }, ...facts)),
      el("div", { class: "columns" }, textsOf, el("div", {}, el("div", { class: "lanes" }, ...cells), el("dl", { class: "numbers" }, ...numbers))),
      whoElse(row),
    );
  }

  function renderDetail() {
    const detail = byId("detail");
    if (selected < 0) {
      detail.replaceChildren();
      return;
    }
    const path = selected;
    const group = paths.group[path];
    const at = updates[groups.update[group]];
    const pathRows = rowsOf(path);
    const fact = (...parts) => el("span", {}, ...parts);
    const facts = [
      fact(shown(texts[groups.task[group]])),
      fact(`update ${at.update}`, at.phase ? ` (${plain(at.phase)})` : "", `, group ${groups.number[group]}`),
      fact(`return ${returns[path] === null ? "none" : number(returns[path])}`),
      fact(plural(pathRows.length, "turn")),
      fact(shown(texts[paths.end[path]])),
    ];
    const start = [fact(shown(texts[groups.origin[group]])), fact(`seed ${texts[groups.seed[group]]}`)];
    if (groups.before[group]) start.push(fact(`${plural(groups.before[group], "turn")} before the start`));
    if (texts[groups.fingerprint[group]]) start.push(fact("environment ", shown(texts[groups.fingerprint[group]])));
    const rung = at.alarms.map((name) => el("span", { class: "alarm" }, "alarm: ", shown(name)));

    const tools = el("div", { class: "tools" });
    const toggle = (text, pressed, act) => {
      const button = el("button", { type: "button", "aria-pressed": String(pressed) }, text);
      button.addEventListener("click", act);
      tools.append(button);
    };
    toggle("only this group", onlyGroup, toggleGroup);
    toggle("tokens", withTokens, toggleTokens);
    const by = el("select", {}, option("seen", "observation"), option("state", "state"));
    by.value = anchorBy;
    by.addEventListener("change", () => {
      anchorBy = by.value;
      renderDetail();
    });
    tools.append(el("label", {}, "who else: same ", by));

    const parts = [el("h2", {}, mark(path), " ", shown(texts[groups.name[group]])), el("p", { class: "facts" }, ...facts, ...rung), el("p", { class: "facts" }, ...start), tools];
    const { picture, shared, ends } = tree(path);
    if (ends > 1) {
      const pick = el("select", { "aria-label": "credit of the tree" }, ...lanes.map((lane, i) => option(i, plain(lane.name))));
      pick.value = String(treeLane);
      pick.addEventListener("change", () => {
        treeLane = Number(pick.value);
        renderDetail();
      });
      const title = shared ? "the group's tree of turns" : "the group's trajectories";
      const of = el("details", { class: "group", open: shared || treeOpen }, el("summary", {}, `${title} (${ends}) `), el("div", { class: "tree" }, picture));
      of.addEventListener("toggle", () => {
        treeOpen = of.open;
      });
      if (lanes.length > 1) of.insertBefore(el("label", { class: "label" }, "coloured by ", pick), of.lastElementChild);
      parts.push(of);
    }
    const sharing = new Map();
    for (const other of pathsOf(group)) for (const row of rowsOf(other)) sharing.set(row, (sharing.get(row) || 0) + 1);
    pathRows.forEach((row, i) => parts.push(turnSection(path, row, i, sharing.get(row))));
    parts.push(el("p", { class: "turn facts" }, mark(path), " ", shown(texts[paths.end[path]])));
    detail.replaceChildren(...parts);
  }
  let treeOpen = false;

  function toggleTokens() {
    withTokens = !withTokens;
    renderDetail();
  }

  function toggleGroup() {
    onlyGroup = !onlyGroup;
    controls.group.value = onlyGroup && selected >= 0 ? address(selected).split(":").slice(0, 2).join(":") : "";
    applyFilters();
    renderDetail();
  }

  // ---- Legend, keys, beginning -------------------------------------------------------------------------------------

  function renderLegend() {
    const { zero, more, less } = colours();
    const keys = lanes.map((lane) => {
      const name = el("span", { class: "name", title: plain(lane.about) }, shown(lane.name));
      if (lane.credit.every((credit) => credit === null)) return el("div", { class: "key" }, name, el("span", { class: "allzero" }, "nothing has credit"));
      if (!(lane.scale > 0)) return el("div", { class: "key" }, name, el("span", { class: "allzero" }, "all credit is zero"));
      const ramp = el("span", { class: "ramp", "aria-hidden": "true" });
      ramp.style.backgroundImage = `linear-gradient(to right, ${css(less)}, ${css(zero)}, ${css(more)})`;
      return el("div", { class: "key" }, name, `\u2212${number(lane.scale)}`, ramp, `+${number(lane.scale)}`);
    });
    const none = el("div", { class: "key dim" }, el("span", { class: "sample unscored" }), "no credit: not trained");
    byId("legend").replaceChildren(...keys, none);
    document.body.classList.toggle("all-zero", lanes.every((lane) => !(lane.scale > 0)));
  }

  function renderAll() {
    renderLegend();
    renderRows();
    renderDetail();
  }

  const typing = (node) => node instanceof HTMLInputElement || node instanceof HTMLSelectElement || node instanceof HTMLTextAreaElement;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const help = byId("help");
    if (help.open) return;
    if (event.key === "Escape" && typing(event.target)) {
      // A search field would clear itself.
      event.preventDefault();
      event.target.blur();
      list.focus();
      return;
    }
    if (typing(event.target)) return;
    const inList = event.target === list || event.target === document.body;
    const page = Math.max(1, Math.floor(list.clientHeight / rowHeight) - 1);
    const turnHere = () => {
      const node = document.activeElement && document.activeElement.closest(".turn");
      return node && node.id ? Number(node.id.slice(5)) : -1;
    };
    const keys = {
      j: () => move(1),
      k: () => move(-1),
      n: () => focusTurn(Math.min(turnHere() + 1, lengths[selected] - 1)),
      p: () => focusTurn(Math.max(turnHere() - 1, 0)),
      g: toggleGroup,
      t: toggleTokens,
      "/": () => search.focus(),
      "?": () => help.showModal(),
    };
    const listKeys = {
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      PageDown: () => move(page),
      PageUp: () => move(-page),
      Home: () => move(-listed.length),
      End: () => move(listed.length),
    };
    const act = keys[event.key] || (inList && listKeys[event.key]);
    if (!act || selected < 0) return;
    event.preventDefault();
    act();
  });
  byId("help-button").addEventListener("click", () => byId("help").showModal());

  const filters = byId("filters");
  filters.addEventListener("submit", (event) => event.preventDefault());
  const changed = () => {
    if (controls.group.value.trim() === "") onlyGroup = false;
    applyFilters();
  };
  filters.addEventListener("input", changed);
  filters.addEventListener("change", changed);
  // The fields are empty only after the event.
  filters.addEventListener("reset", () => setTimeout(changed));
  list.addEventListener("scroll", () => requestAnimationFrame(renderRows), { passive: true });
  addEventListener("resize", renderRows);
  dark.addEventListener("change", renderAll);
  print.addEventListener("change", renderAll);

  function fromAddress() {
    const wanted = decodeURIComponent(location.hash.slice(1));
    if (!/^\d+:\d+:\d+$/.test(wanted)) return;
    for (let path = 0; path < nPaths; path++) if (address(path) === wanted) return void select(path, false);
  }
  addEventListener("hashchange", fromAddress);

  byId("about").append(shown(table.title), ` \u00b7 ${plural(updates.length, "update")}, ${plural(groups.update.length, "group")}, ${plural(nPaths, "trajectory")}, ${plural(turns.parent.length, "turn")}`);
  renderLegend();
  applyFilters();
  fromAddress();
  performance.mark("rows");
})();
