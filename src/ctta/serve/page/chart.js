// Small time-series charts in SVG.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 92;
const LEFT = 34;
const BOTTOM = 15;
const TOP = 5;

export function element(name, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function format(value, unit = "", digits = usualDigits(value)) {
  if (!Number.isFinite(value)) return "–";
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return unit ? `${text} ${unit}` : text;
}

function usualDigits(value) {
  const size = Math.abs(value);
  return Number.isInteger(value) || size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
}

const line = (points, x, y) =>
  points.map(([time, value], i) => `${i ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`).join("");

function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

// The smallest round number that is at least as large.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((limit) => limit >= value * 0.999) ?? 10 * power;
}

function range(spec, values) {
  if (spec.range) return spec.range;
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (!spec.zoom) return [0, high > 0 ? roundUp(high) : 1];
  const room = Math.max((high - low) * 0.15, Math.abs(high) * 0.005, 1e-6);
  return [low - room, Math.min(high + room, spec.most ?? Infinity)];
}

// A line without axes, for the list.
export function sparkline(points, from, to, [low, high]) {
  const svg = shape("svg", { viewBox: "0 0 64 18", class: "spark", "aria-hidden": "true" });
  if (points.length > 1) {
    const x = (time) => (64 * (time - from)) / (to - from);
    const y = (value) => 16.5 - (15 * (Math.min(high, Math.max(low, value)) - low)) / (high - low || 1);
    svg.append(shape("path", { d: line(points, x, y) }));
  }
  return svg;
}

export class Chart {
  // spec: title, lines (names of values, or pairs of name and label), unit, digits, range or zoom (and most), marks, empty, explain.
  constructor(spec, onHover) {
    this.spec = spec;
    this.lines = spec.lines.map((entry) => (Array.isArray(entry) ? entry : [entry, ""]));
    this.values = this.lines.map(([, label], i) =>
      element("span", { class: `value line-${i}` }, element("i", { text: label }), element("b")),
    );
    this.svg = shape("svg", { role: "img" });
    const title = spec.title ? [element("span", { text: spec.title })] : [];
    const caption = element("figcaption", { title: spec.explain ?? spec.title }, ...title, ...this.values);
    this.figure = element("figure", { class: "chart" }, caption, this.svg);
    this.svg.addEventListener("pointermove", (event) => onHover(this.timeAt(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => onHover(null));
  }

  timeAt(pixel) {
    const { from, to, width } = this.shown ?? { from: 0, to: 0, width: 1 };
    return from + ((to - from) * (pixel - LEFT)) / Math.max(1, width - LEFT - 2);
  }

  draw(series, marks, from, to, current, hover) {
    const width = Math.max(120, Math.round(this.svg.clientWidth || 280));
    this.shown = { from, to, width };
    const lines = this.lines.map(([name]) => series.points(name, from));
    const all = lines.flat().map(([, value]) => value);
    const parts = [];
    if (all.length) parts.push(...this.plot(lines, all, marks, from, to, width, hover));
    else parts.push(shape("text", { x: width / 2, y: HEIGHT / 2, class: "empty" }, this.spec.empty ?? "no data yet"));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    this.write(lines, current, hover);
  }

  plot(lines, all, marks, from, to, width, hover) {
    const [low, high] = range(this.spec, all);
    const x = (time) => LEFT + ((width - LEFT - 2) * (time - from)) / (to - from);
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (value - low)) / (high - low || 1);
    const parts = [];
    const digits = this.spec.zoom ? Math.min(5, Math.max(0, 1 - Math.floor(Math.log10(high - low)))) : undefined;
    for (const tick of [low, (low + high) / 2, high]) {
      parts.push(shape("line", { x1: LEFT, x2: width, y1: y(tick), y2: y(tick), class: "grid" }));
      parts.push(shape("text", { x: LEFT - 5, y: y(tick) + 3.5, class: "tick" }, format(tick, "", digits)));
    }
    parts.push(shape("text", { x: LEFT, y: HEIGHT - 2, class: "axis" }, `${duration(to - from)} ago`));
    parts.push(shape("text", { x: width - 2, y: HEIGHT - 2, class: "axis end" }, "now"));
    const shown = this.spec.marks ?? ["alarm"];
    for (const mark of marks.filter((one) => one.time >= from && shown.includes(one.kind)))
      parts.push(shape("line", { x1: x(mark.time), x2: x(mark.time), y1: TOP, y2: HEIGHT - BOTTOM, class: mark.kind }));
    lines.forEach((points, i) => {
      const visible = points.filter(([time]) => time >= from);
      parts.push(shape("path", { d: line(visible, x, y), class: `line line-${i}` }));
      if (visible.length === 1)
        parts.push(shape("circle", { cx: x(visible[0][0]), cy: y(visible[0][1]), r: 2, class: `dot line-${i}` }));
    });
    if (hover !== null)
      parts.push(shape("line", { x1: x(hover), x2: x(hover), y1: TOP, y2: HEIGHT - BOTTOM, class: "hover" }));
    return parts;
  }

  // The current values, or those under the pointer.
  write(lines, current, hover) {
    const texts = this.lines.map(([name], i) => {
      const value = hover === null ? (current[name] ?? lines[i].at(-1)?.[1]) : nearest(lines[i], hover);
      const text = format(value, this.spec.unit, this.spec.digits);
      this.values[i].lastChild.textContent = text;
      return `${this.lines[i][1] || this.spec.title} ${text}`;
    });
    this.svg.setAttribute("aria-label", texts.join(", "));
  }
}

function nearest(points, time) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - time) < Math.abs(best[0] - time)) best = point;
  return best?.[1];
}
