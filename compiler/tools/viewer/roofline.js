// How fast each kernel ran, against what the machine can do: a dot for each, under the roof.
"use strict";

const ROOF = { width: 320, height: 170, left: 40, right: 8, top: 8, bottom: 26 };

// A chart of the kernels of a stage with times, the one of `item` marked; nothing without a profile.
function drawRoofline(stage, item) {
  const peak = data.profile?.peak;
  if (!peak) return "";
  const dots = kernelsOf(stage.root)
    .map((kernel) => ({ ...kernel, ...sumOf(kernel.item) }))
    .filter((s) => s.seconds && s.flops && s.bytes);
  if (!dots.length) return "";
  const intensity = dots.map((dot) => dot.flops / dot.bytes);
  const ridge = peak.flops / peak.bytes;
  const low = Math.floor(Math.log10(Math.min(...intensity, ridge / 10)));
  const high = Math.ceil(Math.log10(Math.max(...intensity, ridge * 10)));
  // Products of narrower dtypes have roofs of their own.
  const roofs = [...new Set([peak.flops, ...Object.values(peak.products)])];
  const top = Math.ceil(Math.log10(1.2 * Math.max(...roofs, ...dots.map((dot) => dot.flops / dot.seconds))));
  const bottom = Math.floor(Math.log10(Math.min(...dots.map((d) => d.flops / d.seconds), (10 ** low * peak.bytes))));
  const { width, height } = ROOF;
  const x = (value) => ROOF.left + ((Math.log10(value) - low) / (high - low)) * (width - ROOF.left - ROOF.right);
  const y = (value) => height - ROOF.bottom - ((Math.log10(value) - bottom) / (top - bottom)) * (height - ROOF.top - ROOF.bottom);
  const roof = (flops) => {
    const edge = Math.min(flops / peak.bytes, 10 ** high);
    return `<path class="roof" d="M${x(10 ** low)},${y(10 ** low * peak.bytes)}L${x(edge)},${y(edge * peak.bytes)}L${x(10 ** high)},${y(edge * peak.bytes)}"/>`;
  };
  const parts = roofs.map(roof);
  for (let power = bottom; power <= top; power++) parts.push(`<text x="${ROOF.left - 4}" y="${y(10 ** power) + 3}" text-anchor="end">${formatAmount(10 ** power, "")}</text>`);
  for (let power = low; power <= high; power++) parts.push(`<text x="${x(10 ** power)}" y="${height - 12}" text-anchor="middle">${10 ** power}</text>`);
  parts.push(`<text x="${width - ROOF.right}" y="${height - 1}" text-anchor="end">flop/B, and flop/s above</text>`);
  for (const dot of dots) {
    const at = dot.item === item ? " at" : "";
    parts.push(
      `<circle class="${dot.item.kind}${at}" data-path="${escapeText(dot.path)}" cx="${x(dot.flops / dot.bytes)}"` +
        ` cy="${y(dot.flops / dot.seconds)}" r="${at ? 6 : 4}"><title>${escapeText(dot.item.title)}, ${formatTime(dot.seconds)}</title></circle>`,
    );
  }
  return `<svg class="roofline graph" viewBox="0 0 ${width} ${height}" role="img" aria-label="Roofline">${parts.join("")}</svg>`;
}

// The boxes that run as one, blocks taken apart, each with its path.
function kernelsOf(body, path = "") {
  return data.bodies[body].items.flatMap((index) => {
    const item = data.items[index];
    const here = `${path}/${item.key}`;
    if (item.node !== null) return [{ item, path: here }];
    return item.body === null ? [] : kernelsOf(item.body, here);
  });
}
