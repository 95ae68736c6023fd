// The weights of a selected box: their range, a histogram and the first values of each parameter that it reads.
"use strict";

// The names of the parameters that a box reads, those inside it included.
function parametersOf(item) {
  const found = new Set();
  const collect = (each) => {
    if (each.node !== null) for (const [, , name] of nodeAt(each.node).operands) if (name) found.add(name);
    if (each.body !== null) for (const index of data.bodies[each.body].items) collect(data.items[index]);
  };
  collect(item);
  return [...found];
}

function formatWeight(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : escapeText(value);
}

// Bars of the counts, as high as their share of the greatest, over the range of the values.
function drawHistogram({ counts, min, max }) {
  const [width, height] = [260, 60];
  const most = Math.max(...counts);
  const bar = width / counts.length;
  const bars = counts.map((count, i) => {
    const high = (count / most) * height;
    return `<rect x="${(i * bar).toFixed(1)}" y="${(height - high).toFixed(1)}" width="${(bar - 0.6).toFixed(1)}" height="${high.toFixed(1)}"><title>${count}</title></rect>`;
  });
  return (
    `<svg class="histogram" viewBox="0 0 ${width} ${height + 14}" role="img" aria-label="histogram from ${formatWeight(min)} to ${formatWeight(max)}">` +
    `${bars.join("")}<text y="${height + 11}">${formatWeight(min)}</text>` +
    `<text x="${width}" y="${height + 11}" text-anchor="end">${formatWeight(max)}</text></svg>`
  );
}

function drawWeight(name) {
  const weight = data.weights[name];
  const notes = [
    weight.copies > 1 ? `${weight.copies} copies` : "",
    weight.zeros ? `${weight.zeros} of ${weight.counted} are zero` : "",
    weight.unusual ? `${weight.unusual} are NaN or infinite` : "",
  ].filter(Boolean);
  const spread = weight.counts ? `mean ${formatWeight(weight.mean)}, deviation ${formatWeight(weight.deviation)}` : "";
  const first = weight.first.length ? `begins ${weight.first.map(formatWeight).join(", ")}` : "";
  return (
    `<div class="weight"><code>${escapeText(name)}: ${escapeText(weight.type)}</code>` +
    `${weight.counts ? drawHistogram(weight) : ""}` +
    `<span class="faint">${[spread, ...notes, first].filter(Boolean).map(escapeText).join("<br>")}</span></div>`
  );
}

const MOST_WEIGHTS = 12;

function drawWeights(item) {
  const names = parametersOf(item).filter((name) => data.weights[name]);
  const rest = names.length - MOST_WEIGHTS;
  return names.slice(0, MOST_WEIGHTS).map(drawWeight).join("") + (rest > 0 ? `<p class="faint">and ${rest} more</p>` : "");
}
