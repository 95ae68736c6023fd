// Writes what the page shows as a file: SVG that stands alone, or PNG.
"use strict";

// The picture as it is unfolded, with the colours of the page as they are now.
function exportSvg() {
  const { width, height } = view.drawing;
  const copy = svg.cloneNode(true);
  copy.removeAttribute("id");
  copy.setAttribute("class", "graph");
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    copy.setAttribute(name, value);
  }
  copy.querySelector("#scene").removeAttribute("transform");
  // Programs that draw SVG seldom know custom properties: each element gets the values that the browser computed.
  const from = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const style = getComputedStyle(from[i]);
    const kept = STYLED[element.tagName];
    if (kept) element.setAttribute("style", kept.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  const paper = document.createElementNS(svg.namespaceURI, "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

const STROKE = ["fill", "stroke", "stroke-width", "stroke-dasharray"];
const TEXT = ["fill", "font-family", "font-size", "font-style", "font-weight", "text-anchor"];
const STYLED = { rect: STROKE, path: STROKE, circle: STROKE, text: TEXT };
const MOST_PIXELS = 8192;

async function exportPng() {
  const { width, height } = view.drawing;
  const scale = Math.min(2, MOST_PIXELS / Math.max(width, height));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(exportSvg())}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function download(blob, suffix) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${data.name}-${stageNow().name}.${suffix}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

document.getElementById("svg").addEventListener("click", () => download(new Blob([exportSvg()], { type: "image/svg+xml" }), "svg"));
document.getElementById("png").addEventListener("click", async () => download(await exportPng(), "png"));

// --- light and dark ---

// The colours of a dark page are those of rules for a dark system: the choice of a reader switches these rules.
const darkRules = [...document.styleSheets]
  .flatMap((sheet) => [...sheet.cssRules])
  .filter((rule) => rule instanceof CSSMediaRule && rule.media.mediaText.includes("prefers-color-scheme"));
const isDarkSystem = matchMedia("(prefers-color-scheme: dark)");
let isDark = null;

function setDark(dark) {
  isDark = dark;
  for (const rule of darkRules) rule.media.mediaText = dark ? "all" : "not all";
  document.body.style.colorScheme = dark ? "dark" : "light";
}

document.getElementById("dark").addEventListener("click", () => setDark(!(isDark ?? isDarkSystem.matches)));
