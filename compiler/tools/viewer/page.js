// The page: which pass is shown, what is unfolded, what is selected, what was searched for.
"use strict";

const slider = document.getElementById("stage");
const measureChoice = document.getElementById("measure");

// `folds` holds the paths that a reader folded or unfolded. Of the others the first `depth` levels are open, or as many
// as the stage says, kernels too if `kernels` says so.
const state = { stage: 0, folds: new Map(), depth: null, kernels: data.kernels, selected: null, hits: [], hit: -1 };

const stageNow = () => data.stages[state.stage];
const isOpen = (path, item, depth) =>
  state.folds.get(path) ?? (depth <= (state.depth ?? stageNow().depth) && (state.kernels || item.role !== "kernel"));

// --- the picture ---

// Draws the stage as it is unfolded now. What `anchor` names stays where it is on the screen, else what is in its middle.
function redraw(anchor = state.selected) {
  const before = view.boxes;
  const anchors = before.has(anchor) ? [anchor] : nearMiddle();
  render(draw(stageNow().root, isOpen), looks());
  const path = anchors.find((each) => view.boxes.has(each));
  const [old, now] = [before.get(path), view.boxes.get(path)];
  if (old && now) move(view.x + (old.left - now.left) * view.scale, view.y + (old.top - now.top) * view.scale);
  markHits();
  select(view.boxes.has(state.selected) ? state.selected : null, { quiet: true });
}

// What marks a box: what the pass made of it, and its share of the chosen measure.
function looks() {
  const stage = stageNow();
  const marks = new Map([...stage.added.map((n) => [n, "added"]), ...stage.changed.map((n) => [n, "changed"])]);
  const touched = new Map();
  const isTouched = (item) => {
    if (!touched.has(item)) touched.set(item, marks.has(item.node) || (item.body !== null && data.bodies[item.body].items.some((i) => isTouched(data.items[i]))));
    return touched.get(item);
  };
  const measure = measureChoice.value;
  const total = measure ? sumOfBody(stage.root)[measure] : 0;
  return ({ item, inside }) => {
    const mark = marks.get(item.node) ?? (!inside && isTouched(item) ? "within" : "");
    const note = { added: "new", changed: "changed", within: "changed inside" }[mark] ?? "";
    return { mark, note, share: total ? sumOf(item)[measure] / total : 0 };
  };
}

function fold(path, open) {
  const box = view.boxes.get(path);
  if (!box || box.item.body === null) return;
  state.folds.set(path, open ?? !box.inside);
  redraw(path);
}

function foldAll(depth) {
  state.folds.clear();
  state.depth = depth;
  state.kernels = true;
  redraw();
  if (!state.selected) fit();
}

// --- selection ---

function select(path, { quiet = false } = {}) {
  for (const old of scene.querySelectorAll(".selected, .near")) old.classList.remove("selected", "near");
  state.selected = path;
  const box = view.boxes.get(path);
  if (box) {
    const element = document.getElementById(box.id);
    element.classList.add("selected");
    svg.setAttribute("aria-activedescendant", box.id);
    for (const edge of element.parentNode.querySelectorAll(":scope > .edge")) {
      edge.classList.toggle("near", edge.dataset.from === path || edge.dataset.to === path);
    }
    if (!quiet) show(path);
  } else svg.removeAttribute("aria-activedescendant");
  showDetails(box, stageNow(), (name) => makerOf(name, path));
  showSource(box ? spansOf(box.item) : [], isKnownLine);
  showCrumbs(box);
}

function showCrumbs(box) {
  const trail = [];
  for (let at = box; at; at = at.parent) trail.unshift(at);
  const names = trail.map((at) => `<button data-path="${escapeText(at.path)}">${escapeText(nameOf(at.item))}</button>`);
  document.getElementById("crumbs").innerHTML = `<button data-path="">${escapeText(data.name)}</button>${names.join("")}`;
}

// Unfolds what is around a path, and selects it.
function reveal(path) {
  const parts = path.split("/").slice(1);
  for (let i = 1; i < parts.length; i++) state.folds.set(`/${parts.slice(0, i).join("/")}`, true);
  if (!view.boxes.has(path)) redraw(null);
  select(path);
}

// --- passes ---

function showStage(number) {
  state.stage = Math.min(Math.max(number, 0), data.stages.length - 1);
  slider.value = state.stage;
  const stage = stageNow();
  const parts = [`<b>${state.stage}/${data.stages.length - 1} ${escapeText(stage.name)}</b>`];
  const delta = [[stage.added.length, "new"], [stage.changed.length, "changed"], [stage.removed, "gone"]].filter(([n]) => n);
  if (delta.length) parts.push(`<span class="delta">${delta.map(([n, what]) => `${n} ${what}`).join(", ")}</span>`);
  else if (state.stage) parts.push('<span class="faint">nothing changed</span>');
  document.getElementById("pass").innerHTML = parts.join(" ");
  document.getElementById("before").disabled = state.stage === 0;
  document.getElementById("after").disabled = state.stage === data.stages.length - 1;
  slider.setAttribute("aria-valuetext", `${stage.name}, ${delta.map((d) => d.join(" ")).join(", ") || "nothing changed"}`);
  redraw();
  if (!state.selected && stage.file !== undefined) showFile(stage.file, isKnownLine);
  if (search.value) find(search.value);
}

// --- hands ---

svg.addEventListener("click", (event) => {
  const dragged = drag?.moved;
  drag = null;
  if (dragged) return;
  const path = event.target.closest(".box")?.dataset.path ?? null;
  select(path, { quiet: true });
  if (path && event.target.classList.contains("fold")) fold(path);
});
svg.addEventListener("dblclick", (event) => {
  const path = event.target.closest(".box")?.dataset.path;
  if (path && !event.target.classList.contains("fold")) fold(path);
});

// The box beside the selected one: along an edge for up and down, in the same row for left and right.
function neighbour(box, key) {
  const { boxes, edges } = box.drawing;
  const number = boxes.indexOf(box);
  if (key === "ArrowDown") return boxes[edges.find((edge) => edge.source === number)?.target];
  if (key === "ArrowUp") return boxes[edges.find((edge) => edge.target === number)?.source];
  const side = key === "ArrowRight" ? 1 : -1;
  const middle = (b) => b.y + b.height / 2;
  return boxes
    .filter((b) => (b.x - box.x) * side > 0 && Math.abs(middle(b) - middle(box)) < 1)
    .sort((a, b) => (a.x - b.x) * side)[0];
}

const KEYS = {
  Enter(box) {
    if (!box || box.item.body === null) return;
    if (!box.inside) fold(box.path, true);
    select(view.boxes.get(box.path).inside.boxes[0].path);
  },
  " ": (box) => box && fold(box.path),
  Escape: (box) => select(box?.parent?.path ?? null),
  "/": () => search.focus(),
  "[": () => showStage(state.stage - 1),
  "]": () => showStage(state.stage + 1),
  "+": () => zoom(1.25),
  "=": () => zoom(1.25),
  "-": () => zoom(0.8),
  0: () => fit(),
  e: () => foldAll(Infinity),
  f: () => foldAll(0),
  d: () => document.getElementById("dark").click(),
  "?": () => document.getElementById("keys").showModal(),
};
for (const key of ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]) {
  KEYS[key] = (box) => {
    const next = box ? neighbour(box, key) : view.drawing.boxes[0];
    if (next) select(next.path);
  };
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, button, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || (typing && !"/[]?".includes(event.key)) || event.target === search) return;
  if (!KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key](view.boxes.get(state.selected));
});

slider.addEventListener("input", () => showStage(Number(slider.value)));
document.getElementById("before").addEventListener("click", () => showStage(state.stage - 1));
document.getElementById("after").addEventListener("click", () => showStage(state.stage + 1));
document.getElementById("unfold").addEventListener("click", () => foldAll(Infinity));
document.getElementById("fold").addEventListener("click", () => foldAll(0));
document.getElementById("fit").addEventListener("click", fit);
document.getElementById("help").addEventListener("click", () => KEYS["?"]());
measureChoice.addEventListener("change", () => redraw());
fileChoice.addEventListener("change", () => showFile(Number(fileChoice.value), isKnownLine));
document.getElementById("crumbs").addEventListener("click", (event) => select(event.target.closest("button")?.dataset.path || null));
details.addEventListener("click", (event) => {
  const path = event.target.closest("[data-path]")?.dataset.path;
  if (path) reveal(path);
});
textList.addEventListener("click", (event) => {
  const line = [...textList.children].indexOf(event.target.closest("li")) + 1;
  const paths = lineIndex().get(`${shownFile}:${line}`) ?? [];
  // Another click on the line goes to what else was written there.
  if (paths.length) reveal(paths[(paths.indexOf(state.selected) + 1) % paths.length]);
});

// --- the beginning ---

document.getElementById("model").innerHTML = `${escapeText(data.name)}<small>${escapeText(data.options)}</small>`;
document.getElementById("legend").innerHTML =
  data.kinds.map((kind) => `<li class="${kind}"><i></i>${kind}</li>`).join("") +
  '<li><i class="dot"></i>new or changed</li><li><i class="dot within"></i>inside</li>';
fileChoice.innerHTML = data.sources.map((source, i) => `<option value="${i}">${escapeText(source.name)}</option>`).join("");
measureChoice.innerHTML =
  '<option value="">nothing</option><option value="flops">operations</option><option value="bytes">bytes</option>' +
  (data.profile ? '<option value="seconds">time</option>' : "");
measureChoice.value = data.profile ? "seconds" : "";
slider.max = data.stages.length - 1;
// An artifact carries its graphs, but not the text of the model.
document.getElementById("source").hidden = !data.sources.length;
if (data.sources.length) showFile(data.stages[data.first].file ?? 0, isKnownLine);
showStage(data.first);
fit();
performance.mark("drawn");
