// What there is to find: every box of a stage, folded away or not, by its text, its role and kind (`kernel attention`),
// its values and its lines.
"use strict";

const search = document.getElementById("search");
const hitList = document.getElementById("hits");

const indexes = new Map();

function boxesOf(root) {
  if (!indexes.has(root)) {
    const found = [];
    const visit = (body, path, trail) => {
      for (const index of data.bodies[body].items) {
        const item = data.items[index];
        found.push({ item, path: `${path}/${item.key}`, trail });
        if (item.body !== null) visit(item.body, `${path}/${item.key}`, [...trail, nameOf(item)]);
      }
    };
    visit(root, "", []);
    indexes.set(root, { boxes: found, values: null, lines: null });
  }
  return indexes.get(root);
}

// The path of the box that makes a value which a box at `from` reads; of an argument, where it enters.
function makerOf(name, from) {
  const index = boxesOf(stageNow().root);
  // Names are those of a function, and a page of several has a block for each.
  const key = (path, value) => `${data.functions > 1 ? path.split("/")[1] : ""} ${value}`;
  if (!index.values) {
    index.values = new Map();
    for (const { item, path } of index.boxes) {
      const names = item.node !== null ? nodeAt(item.node).results.map(([value]) => value) : [];
      for (const value of names) index.values.set(key(path, value), path);
      if (item.role === "input" && !index.values.has(key(path, item.value))) index.values.set(key(path, item.value), path);
    }
  }
  return index.values.get(key(from, name));
}

// By file and line, the paths of the boxes that were written there.
function lineIndex() {
  const index = boxesOf(stageNow().root);
  if (!index.lines) {
    index.lines = new Map();
    for (const { item, path } of index.boxes) {
      const span = item.node === null ? null : nodeAt(item.node).span;
      for (let line = span?.[1]; span && line <= span[3]; line++) {
        const key = `${span[0]}:${line}`;
        if (!index.lines.has(key)) index.lines.set(key, []);
        index.lines.get(key).push(path);
      }
    }
  }
  return index.lines;
}

const isKnownLine = (file, line) => lineIndex().has(`${file}:${line}`);

function textOf(item) {
  if (item.node === null) return [item.title, item.role, item.kind, ...item.lines].join(" ");
  const { op, scope, results, operands } = nodeAt(item.node);
  return [item.caption, item.title, item.role, item.kind, op, scope, ...item.lines, ...results.flat(), ...operands.flat()].join(" ");
}

function find(words) {
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = ({ item }) => {
    item.search ??= textOf(item).toLowerCase();
    return parts.every((part) => item.search.includes(part));
  };
  state.hits = parts.length ? boxesOf(stageNow().root).boxes.filter(matches) : [];
  state.hit = -1;
  markHits();
  showHits(parts.length > 0);
}

function markHits() {
  for (const old of scene.querySelectorAll(".hit")) old.classList.remove("hit");
  for (const { path } of state.hits) elementOf(path)?.classList.add("hit");
}

function showHits(open) {
  hitList.hidden = !open;
  const line = ({ item, trail }, i) =>
    `<li data-hit="${i}"${i === state.hit ? ' class="at"' : ""}>${escapeText(nameOf(item))}` +
    `<small>${escapeText([trail.join(" › ") || data.name, ...item.lines.slice(0, 1)].join(" · "))}</small></li>`;
  const shown = state.hits.slice(0, 200);
  const rest = state.hits.length - shown.length;
  hitList.innerHTML =
    `<li class="none">${state.hits.length ? `${state.hits.length} found` : "nothing found"}</li>` +
    shown.map(line).join("") + (rest ? `<li class="none">and ${rest} more</li>` : "");
}

function goTo(hit) {
  if (!state.hits.length) return;
  state.hit = (hit + state.hits.length) % state.hits.length;
  reveal(state.hits[state.hit].path);
  showHits(!hitList.hidden);
  hitList.querySelector(".at")?.scrollIntoView({ block: "nearest" });
}

search.addEventListener("input", () => find(search.value));
search.addEventListener("focus", () => showHits(state.hits.length > 0));
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") goTo(state.hit + (event.shiftKey ? -1 : 1));
  if (event.key === "Escape") {
    search.value = "";
    find("");
    svg.focus();
  }
});
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest(".searching")) hitList.hidden = true;
});
hitList.addEventListener("click", (event) => {
  const hit = event.target.closest("[data-hit]");
  if (hit) goTo(Number(hit.dataset.hit));
});
