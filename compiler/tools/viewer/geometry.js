// Positions of boxes when some are unfolded: the functions of placement.py, one by one.
"use strict";

const { gap, rowGap, edgeRoom, margin, header, run } = data.measures;

// A monotonic map from columns to pixels: the unit interval around each key gets its required width.
function stretch(spans) {
  const centres = [...spans.keys()];
  const cuts = [...new Set(centres.flatMap((c) => [c - 0.5, c + 0.5]))].sort((a, b) => a - b);
  const ends = [0];
  for (let i = 1; i < cuts.length; i++) {
    let need = 0;
    for (const c of centres) if (c - 0.5 <= cuts[i - 1] && cuts[i] <= c + 0.5) need = Math.max(need, spans.get(c));
    ends.push(ends[i - 1] + need * (cuts[i] - cuts[i - 1]));
  }
  return (x) => {
    let i = 0;
    while (i < cuts.length - 2 && cuts[i + 1] <= x) i++;
    return ends[i] + ((x - cuts[i]) / (cuts[i + 1] - cuts[i])) * (ends[i + 1] - ends[i]);
  };
}

// A body with its boxes at their positions. `isOpen(path, item)` says which of them show their contents.
function draw(number, isOpen, path = "", depth = 1) {
  const body = data.bodies[number];
  const boxes = body.items.map((index) => {
    const item = data.items[index];
    const box = { item, path: `${path}/${item.key}`, depth, width: item.width, height: item.height, inside: null };
    if (item.body !== null && isOpen(box.path, item, depth)) {
      box.inside = draw(item.body, isOpen, box.path, depth + 1);
      box.width = Math.max(box.inside.width, item.heading);
      box.height = box.inside.height + header;
    }
    return box;
  });
  return place(data.grids[body.grid], boxes);
}

function place(grid, boxes) {
  if (!boxes.length) return { boxes, edges: [], width: 2 * margin, height: 2 * margin };
  const needs = new Map();
  const need = (column, size) => needs.set(column, Math.max(needs.get(column) ?? 0, size));
  boxes.forEach((box, i) => need(grid.columns[i], box.width + gap));
  for (const [, , turns] of grid.edges) for (const turn of turns) need(turn, edgeRoom);
  const across = stretch(needs);
  const columns = [...needs.keys()];
  const left = gap / 2 - margin;
  const right = across(Math.max(...columns) + 0.5) - gap / 2 + margin;
  // Around its column a box has half of what it needs to both sides, so those in one column stand in a line.
  const centres = grid.columns.map((column) => across(column) - left);

  const heights = new Array(Math.max(...grid.rows) + 1).fill(0);
  boxes.forEach((box, i) => (heights[grid.rows[i]] = Math.max(heights[grid.rows[i]], box.height)));
  const tops = [margin];
  for (let row = 1; row < heights.length; row++) tops.push(tops[row - 1] + heights[row - 1] + rowGap);

  boxes.forEach((box, i) => {
    box.x = centres[i] - box.width / 2;
    box.y = tops[grid.rows[i]] + (heights[grid.rows[i]] - box.height) / 2;
  });
  const edges = grid.edges.map(([source, target, turns]) => {
    let row = grid.rows[source];
    const points = [
      [centres[source], boxes[source].y + boxes[source].height],
      [centres[source], tops[row] + heights[row]],
    ];
    for (const turn of turns) {
      const x = across(turn) - left;
      row++;
      points.push([x, tops[row]], [x, tops[row] + heights[row]]);
    }
    points.push([centres[target], tops[grid.rows[target]] - run], [centres[target], boxes[target].y]);
    return { source, target, points };
  });
  return { boxes, edges, width: right - left, height: tops.at(-1) + heights.at(-1) + margin };
}

// A straight line down the first pair of points, and a curve to each further pair.
function pathOf(points) {
  const at = ([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`;
  let text = `M${at(points[0])}L${at(points[1])}`;
  for (let i = 1; i + 2 < points.length; i += 2) {
    const [from, to, end] = points.slice(i, i + 3);
    const middle = (from[1] + to[1]) / 2;
    text += `C${at([from[0], middle])} ${at([to[0], middle])} ${at(to)}L${at(end)}`;
  }
  return text;
}
