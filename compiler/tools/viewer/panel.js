// What stands beside the picture: details of what is selected, and the text that it was written as.
"use strict";

const details = document.getElementById("details");
const fileChoice = document.getElementById("file");
const textList = document.getElementById("text");

const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function formatAmount(value, unit) {
  const [size, letter] = UNITS.find(([size]) => value >= size) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))} ${letter}${unit}`;
}

function formatTime(seconds) {
  return seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`;
}

// What a box is called where it stands in a line.
function nameOf(item) {
  return [item.caption, item.title].filter(Boolean).join(".") || item.lines[0];
}

const nodeCache = new Map();
function nodeAt(number) {
  if (!nodeCache.has(number)) nodeCache.set(number, Object.fromEntries(data.fields.map((name, i) => [name, data.nodes[number][i]])));
  return nodeCache.get(number);
}

// Nodes, operations, bytes and seconds of all that a box shows.
const sumCache = new Map();
function sumOf(item) {
  if (sumCache.has(item)) return sumCache.get(item);
  let sum = { nodes: 0, flops: 0, bytes: 0, seconds: 0, ideal: 0 };
  if (item.node !== null) {
    const node = nodeAt(item.node);
    const inner = item.body === null ? 1 : sumOfBody(item.body).nodes;
    const seconds = data.profile?.nodes[item.node] ?? 0;
    const ideal = data.profile ? (data.profile.ideal[item.node] ?? node.flops[1] / data.profile.peak.flops) : 0;
    sum = { nodes: inner, flops: node.flops[1], bytes: node.bytes?.[1] ?? 0, seconds, ideal };
  } else if (item.body !== null) sum = sumOfBody(item.body);
  sumCache.set(item, sum);
  return sum;
}

function sumOfBody(number) {
  const total = { nodes: 0, flops: 0, bytes: 0, seconds: 0, ideal: 0 };
  for (const index of data.bodies[number].items) {
    const sum = sumOf(data.items[index]);
    for (const name of Object.keys(total)) total[name] += sum[name];
  }
  return total;
}

function row(name, ...content) {
  return content.some(Boolean) ? `<tr><th>${name}</th><td>${content.filter(Boolean).join("<br>")}</td></tr>` : "";
}

// A value, and the way to the box at `path` that makes it.
function valueText([name, type, parameter], path) {
  const shown = `%${escapeText(name)}`;
  const link = path ? `<button class="value" data-path="${escapeText(path)}">${shown}</button>` : shown;
  const stored = parameter ? `<br><span class="faint">${escapeText(parameter)}</span>` : "";
  return `<code>${link}: ${escapeText(type)}${stored}</code>`;
}

// Why a box does not compute what it reads itself, as the pass said that grouped the nodes of this or an earlier stage.
function remarksOf(item, stage) {
  const names = new Set();
  const collect = (each) => {
    if (each.node !== null) for (const [name] of nodeAt(each.node).results) names.add(name);
    if (each.body !== null) for (const index of data.bodies[each.body].items) collect(data.items[index]);
  };
  collect(item);
  const passes = new Set(data.stages.slice(0, data.stages.indexOf(stage) + 1).map((each) => each.name));
  const here = data.remarks.filter(([name, pass, , reader]) => name === nodeAt(item.node).function && passes.has(pass) && names.has(reader));
  return here.map(([, , source, , text]) => `<code>%${escapeText(source)}</code>: ${escapeText(text)}`);
}

function costRows(sum, node) {
  const formula = (amount) => (amount && amount[0] !== String(amount[1]) ? `<span class="faint">${escapeText(amount[0])}</span>` : "");
  return (
    row("operations", formatAmount(sum.flops, "flop"), formula(node?.flops)) +
    (sum.bytes ? row("moves", formatAmount(sum.bytes, "B"), formula(node?.bytes)) : "") +
    (sum.bytes && sum.flops ? row("intensity", `${(sum.flops / sum.bytes).toPrecision(3)} flop/B`) : "") +
    timeRows(sum)
  );
}

// `ideal` is how long the operations take at the peak of the dtypes that are multiplied.
function timeRows({ seconds, flops, bytes, ideal }) {
  if (!seconds) return "";
  const rate = (amount, atPeak, unit) => `${formatAmount(amount / seconds, unit)}, ${formatShare(atPeak / seconds)} of the peak`;
  return (
    row("time", `${formatTime(seconds)}, ${formatShare(seconds / data.profile.seconds)} of a call`) +
    row("computes", rate(flops, ideal, "flop/s")) +
    row("bandwidth", rate(bytes, bytes / data.profile.peak.bytes, "B/s"))
  );
}

// `find(name)` gives the path of the box that makes a value.
function showDetails(box, stage, find) {
  if (!box) {
    details.innerHTML = stageDetails(stage);
    return;
  }
  const { item } = box;
  const node = item.node === null ? null : nodeAt(item.node);
  const sum = sumOf(item);
  let rows = row("", ROLES[item.role]);
  if (node) {
    if (node.scope) rows += row("block", `<code>${escapeText(node.scope)}</code>`);
    if (item.kind) rows += row("kind", `<span class="${item.kind}">${item.kind}</span>`);
    rows += row("results", ...node.results.map((value) => valueText(value, null)));
    rows += row("operands", ...node.operands.map((value) => valueText(value, find(value[0]))));
    rows += row("attributes", ...node.attributes.map(([name, text]) => `<code>${escapeText(name)} = ${escapeText(text)}</code>`));
    if (node.span) rows += row("written at", `${escapeText(data.sources[node.span[0]].name)}:${node.span[1]}:${node.span[2]}`);
  } else if (item.value) rows += row("value", valueText([item.value, item.lines[0]], find(item.value)));
  if (node) rows += row("not fused", ...remarksOf(item, stage));
  if (item.body !== null) rows += row("holds", `${sum.nodes} nodes`);
  if (!item.value) rows += costRows(sum, node);
  details.innerHTML = `<h2>${escapeText(nameOf(item))}</h2><table>${rows}</table>${drawWeights(item)}${drawRoofline(stage, item)}`;
}

const ROLES = {
  node: "a node", kernel: "a kernel: what is inside runs as one", loop: "a loop", block: "a block of the model",
  input: "enters here", result: "leaves here",
};

function stageDetails(stage) {
  const sum = sumOfBody(stage.root);
  const dims = Object.entries(data.dims).map(([name, size]) => `${name}=${size}`).join(", ");
  const rules = stage.rules.map(([rule, count]) => `${count} × ${escapeText(rule)}`);
  return (
    `<h2>${escapeText(stage.name)}</h2><p>${escapeText(stage.what)}</p><table>` +
    row("rewrites", ...(rules.length ? rules : [stage === data.stages[0] ? "" : "none"])) +
    row("nodes", `${sum.nodes}`) +
    (data.profile ? row("measured", `${data.profile.runs} calls, threads: ${data.profile.threads}`, escapeText(data.profile.processor)) : "") +
    (dims ? row("counted at", `<code>${escapeText(dims)}</code>`) : "") +
    costRows(sum, null) +
    `</table>${drawRoofline(stage, null)}`
  );
}

// --- the source ---

let shownFile = -1;

function showFile(number, known) {
  if (shownFile === number) return;
  shownFile = number;
  fileChoice.value = number;
  textList.innerHTML = data.sources[number].text
    .replace(/\n$/, "")
    .split("\n")
    .map((line, i) => `<li${known(number, i + 1) ? ' class="known"' : ""}>${codeLine(line)}</li>`)
    .join("");
}

function codeLine(line) {
  const comment = line.match(/^((?:[^"#]|"[^"]*")*)(#.*)$/);
  if (!comment) return escapeText(line);
  return `${escapeText(comment[1])}<span class="comment">${escapeText(comment[2])}</span>`;
}

// The source spans of a box: its own, or those of all nodes in it.
function spansOf(item) {
  if (item.node !== null) return [nodeAt(item.node).span].filter(Boolean);
  if (item.body === null) return [];
  return data.bodies[item.body].items.flatMap((index) => spansOf(data.items[index]));
}

// Marks the lines of the spans in the file of the first one; the columns too, if there is one span in one line.
function showSource(spans, known) {
  for (const old of textList.querySelectorAll("li.at")) {
    old.classList.remove("at");
    if (old.querySelector("mark")) old.innerHTML = codeLine(lineText([...textList.children].indexOf(old)));
  }
  if (!spans.length) return;
  showFile(spans[0][0], known);
  const here = spans.filter(([file]) => file === shownFile);
  for (const [, line, , end] of here) for (let i = line; i <= end; i++) textList.children[i - 1]?.classList.add("at");
  const [, line, column, endLine, endColumn] = spans[0];
  if (spans.length === 1 && line === endLine) {
    const text = [...lineText(line - 1)];
    const part = (from, to) => escapeText(text.slice(from, to).join(""));
    const marked = `<mark>${part(column - 1, endColumn - 1)}</mark>`;
    textList.children[line - 1].innerHTML = `${part(0, column - 1)}${marked}${codeLine(text.slice(endColumn - 1).join(""))}`;
  }
  const first = textList.children[Math.min(...here.map((span) => span[1])) - 1];
  textList.scrollTop = first.offsetTop - textList.offsetTop - textList.clientHeight / 3;
}

function lineText(number) {
  return data.sources[shownFile].text.split("\n")[number];
}
