// The picture: boxes and edges as SVG, where on the screen it lies, and how large it is.
"use strict";

const svg = document.getElementById("view");
const scene = document.getElementById("scene");
const view = { x: 0, y: 0, scale: 1, drawing: null, boxes: new Map() };

function escapeText(text) {
  return String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

// Draws anew; `looks(box)` gives the mark of a box, a note on it, and its share (0 to 1). Boxes are known by path then.
function render(drawing, looks) {
  view.drawing = drawing;
  view.boxes = new Map();
  const parts = [];
  writeDrawing(drawing, null, 0, 0, looks, parts);
  scene.innerHTML = parts.join("");
}

function writeDrawing(drawing, parent, x, y, looks, parts) {
  for (const edge of drawing.edges) {
    const ends = `data-from="${escapeText(drawing.boxes[edge.source].path)}" data-to="${escapeText(drawing.boxes[edge.target].path)}"`;
    parts.push(`<path class="edge" ${ends} marker-end="url(#tip)" d="${pathOf(edge.points)}"/>`);
  }
  for (const box of drawing.boxes) {
    Object.assign(box, { parent, drawing, left: x + box.x, top: y + box.y, id: `box${view.boxes.size}` });
    view.boxes.set(box.path, box);
    writeBox(box, looks, parts);
  }
}

function writeBox(box, looks, parts) {
  const { item, inside } = box;
  const port = item.value !== null;
  const look = looks(box);
  const names = ["box", port ? "port" : item.role, item.kind, inside ? "open" : "", look.mark].filter(Boolean);
  const expanded = item.body === null ? "" : ` aria-expanded="${Boolean(inside)}"`;
  const label = [item.caption, item.title, ...item.lines, look.note].filter(Boolean).join(", ");
  parts.push(
    `<g class="${names.join(" ")}" id="${box.id}" role="treeitem" aria-level="${box.depth}"${expanded}` +
      ` aria-label="${escapeText(label)}" data-path="${escapeText(box.path)}"` +
      ` transform="translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})">` +
      `<rect class="frame" width="${box.width.toFixed(0)}" height="${box.height.toFixed(0)}" rx="${item.body === null ? 4 : 7}"/>`,
  );
  writeText(box, port, parts);
  if (look.note) parts.push(`<circle class="changing" r="4.5"><title>${escapeText(look.note)}</title></circle>`);
  if (look.share > 0.0005) {
    const share = Math.max(2, look.share * (box.width - 8));
    parts.push(`<rect class="share" x="4" y="${(box.height - 5).toFixed(0)}" width="${share.toFixed(1)}" height="3" rx="1.5"/>`);
    parts.push(`<text class="percent" x="${(box.width - 2).toFixed(0)}" y="-4">${formatShare(look.share)}</text>`);
  }
  if (inside) {
    const x = (box.width - inside.width) / 2;
    parts.push(`<g role="group" transform="translate(${x.toFixed(1)} ${data.measures.header})">`);
    writeDrawing(inside, box, box.left + x, box.top + data.measures.header, looks, parts);
    parts.push("</g>");
  }
  parts.push("</g>");
}

function writeText({ item, inside, height }, port, parts) {
  const { padding, lineHeight, titleHeight } = data.measures;
  const text = (name, y, content) => parts.push(`<text class="${name}" x="${padding}" y="${y}">${escapeText(content)}</text>`);
  if (port) return text("line", 16, [item.title, ...item.lines].filter(Boolean).join(" "));
  if (item.role === "node") parts.push(`<rect class="stripe" width="4" height="${height.toFixed(0)}" rx="2"/>`);
  if (inside) return text("title fold", 20, ["▾", item.caption, item.title].filter(Boolean).join(" "));
  let y = padding - 2;
  if (item.caption) {
    text("caption", y + 11, item.caption);
    y += lineHeight;
  }
  text(item.body === null ? "title" : "title fold", y + 13, item.body === null ? item.title : `▸ ${item.title}`);
  y += titleHeight;
  for (const line of item.lines) {
    text("line", y + 11, line);
    y += lineHeight;
  }
}

function formatShare(share) {
  return share >= 0.0995 ? `${(share * 100).toFixed(0)} %` : `${(share * 100).toFixed(1)} %`;
}

function elementOf(path) {
  const box = view.boxes.get(path);
  return box ? document.getElementById(box.id) : null;
}

// --- where the picture lies ---

function move(x, y, scale = view.scale) {
  Object.assign(view, { x, y, scale });
  scene.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(4)})`);
  svg.classList.toggle("far", scale < 0.42);
  svg.classList.toggle("farther", scale < 0.2);
}

// Zooms by a factor around a point of the screen, by default the middle.
function zoom(factor, x = svg.clientWidth / 2, y = svg.clientHeight / 2) {
  const scale = Math.min(4, Math.max(0.02, view.scale * factor));
  const ratio = scale / view.scale;
  move(x - (x - view.x) * ratio, y - (y - view.y) * ratio, scale);
}

function fit() {
  const { width, height } = view.drawing;
  const scale = Math.min(1.25, svg.clientWidth / width, svg.clientHeight / height);
  move((svg.clientWidth - width * scale) / 2, Math.max(0, (svg.clientHeight - height * scale) / 2), scale);
}

// Moves a box into sight, in the middle if it was not there.
function show(path) {
  const box = view.boxes.get(path);
  if (!box) return;
  if (view.scale < 0.42) view.scale = 0.8;
  const room = 24;
  const [left, top] = [box.left * view.scale + view.x, box.top * view.scale + view.y];
  const [width, height] = [box.width * view.scale, box.height * view.scale];
  const fits = left >= room && top >= room && left + width <= svg.clientWidth - room && top + height <= svg.clientHeight - room;
  if (fits) return move(view.x, view.y);
  move(
    (svg.clientWidth - width) / 2 - box.left * view.scale,
    Math.max(room, (svg.clientHeight - height) / 2) - box.top * view.scale,
  );
}

// The paths of all boxes, those nearest to the middle of the screen first.
function nearMiddle() {
  const [x, y] = [(svg.clientWidth / 2 - view.x) / view.scale, (svg.clientHeight / 2 - view.y) / view.scale];
  const distance = (box) => Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y);
  return [...view.boxes.values()]
    .map((box) => [distance(box), box.path])
    .sort((a, b) => a[0] - b[0])
    .map(([, path]) => path);
}

svg.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 250), event.offsetX, event.offsetY);
    else move(view.x - event.deltaX, view.y - event.deltaY);
  },
  { passive: false },
);

let drag = null;
svg.addEventListener("pointerdown", (event) => {
  if (event.button === 0) drag = { x: event.clientX - view.x, y: event.clientY - view.y, moved: false, from: event };
});
svg.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const far = Math.hypot(event.clientX - drag.from.clientX, event.clientY - drag.from.clientY) > 4;
  if (far && !drag.moved) svg.setPointerCapture(event.pointerId);
  drag.moved ||= far;
  svg.classList.toggle("dragging", drag.moved);
  if (drag.moved) move(event.clientX - drag.x, event.clientY - drag.y);
});
svg.addEventListener("pointerup", () => svg.classList.remove("dragging"));
