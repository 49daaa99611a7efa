// The last hour of this broker: rates, lag, delays, free disk space, each with axes and a unit; and what was removed lately.

import { get } from "./api.js";
import { bytes, changes, count, h, refill, svg, time } from "./dom.js";
import { latestRemovals } from "./removals.js";

const plain = (value) => (value >= 100 || Number.isInteger(value) ? count(Math.round(value)) : String(Number(value.toPrecision(2))));
const perSecond = (value) => bytes(value) + "/s";
const CHARTS = [
  ["recordsIn", "Records in", "records/s", plain],
  ["bytesIn", "Bytes in", "bytes/s", perSecond],
  ["bytesOut", "Bytes out", "bytes/s", perSecond],
  ["lag", "Consumer lag", "records", plain, "All groups that this broker coordinates, where it has a replica. Empty above 20,000 committed offsets."],
  ["produceTimeMs", "Produce time p99", "ms", plain, "From a request until its answer, replication included."],
  ["loopDelayMs", "Event loop delay p99", "ms", plain, "By how much the event loop wakes a task too late; all clients wait as long."],
  ["cpuPercent", "CPU", "% of a core", plain],
];
const HEIGHT = 170, LEFT = 74, RIGHT = 12, TOP = 12, BOTTOM = 26, MINUTES = [60, 45, 30, 15, 0];

export async function showHistory({ main, signal, poll }) {
  const charts = h("div", { class: "charts" }), removed = h("div");
  refill(main, h("h1", {}, "The last hour of this broker"), h("p", { class: "lead" }, "One value every ten seconds, kept by the broker while it runs with HTTP."), charts,
    h("h2", {}, "Removed records"), removed);
  const isNew = changes(charts), areNew = changes(removed);
  await poll(5000, async () => {
    const found = await get("history", {}, signal);
    const width = widthOf(charts);
    if (isNew([found, width])) refill(charts, all(found, width));
    await latestRemovals(removed, areNew, signal);
  });
}

// The width of one chart in pixels, so that its text is as large as other text.
function widthOf(charts) {
  const { columnGap, gridTemplateColumns } = getComputedStyle(charts);
  const columns = gridTemplateColumns.split(" ").length;
  return Math.max(240, Math.floor((charts.clientWidth - (columns - 1) * parseFloat(columnGap)) / columns));
}

function all({ figures, directories, stepMs, endMs }, width) {
  const drawn = CHARTS.map(([name, title, unit, format, about]) => chart({ title, unit, format, about, values: figures[name], stepMs, endMs, width }));
  return [...drawn, ...directories.map((each) => chart({ title: "Free disk space", unit: "bytes", format: bytes, about: each.path, values: each.free, stepMs, endMs, width,
    most: each.totalBytes, key: each.path }))];
}

// A figure with its axes. `most` is the end of the axis if it has one of its own, such as the size of a disk.
export function chart({ title, unit, format, about, values, stepMs, endMs, width, most = null }) {
  const known = values.filter((each) => each !== null), highest = known.length ? Math.max(...known) : 0;
  const ticks = steps(most || highest, unit), top = most || ticks.at(-1), span = values.length * stepMs;
  const x = (index) => LEFT + ((index + 1) * (width - LEFT - RIGHT)) / values.length;
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const ageX = (minutes) => LEFT + (1 - (minutes * 60000) / span) * (width - LEFT - RIGHT);
  const lines = ticks.filter((each) => each <= top).map((value) => svg("g", {},
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value).toFixed(1), y2: y(value).toFixed(1) }),
    svg("text", { x: LEFT - 8, y: (y(value) + 4).toFixed(1), "text-anchor": "end" }, format(value))));
  const times = MINUTES.filter((minutes) => minutes * 60000 <= span).map((minutes) =>
    svg("text", { x: ageX(minutes).toFixed(1), y: HEIGHT - 6, "text-anchor": minutes ? "middle" : "end" }, minutes ? `−${minutes} min` : time(endMs).slice(11, 16)));
  return h("figure", {}, h("figcaption", {}, h("strong", {}, title), h("span", { class: "soft" }, " " + unit), h("span", { class: "now" }, now(values, format))),
    svg("svg", { class: "history", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": told(title, unit, known, format) }, ...lines, ...times,
      ...runs(values).map((run) => svg("polyline", { points: run.map((index) => `${x(index).toFixed(1)},${y(Math.min(values[index], top)).toFixed(1)}`).join(" ") }))),
    about && h("p", { class: "soft small" }, about));
}

// Four or five round numbers from 0 to at least the highest value; bytes are round in powers of two.
export function steps(highest, unit) {
  if (!(highest > 0)) return [0, 1];
  const base = unit.startsWith("bytes") ? 1024 ** Math.floor(Math.log2(highest) / 10) : 1;
  const raw = highest / base / 4, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999999) * base;
  return Array.from({ length: Math.ceil((highest / step) * 0.999999) + 1 }, (_, index) => index * step);
}

// Stretches of values between the gaps; one value alone is drawn as a short line.
export function runs(values) {
  const found = [];
  let run = [];
  values.forEach((value, index) => {
    if (value !== null) { run.push(index); return; }
    if (run.length) found.push(run);
    run = [];
  });
  if (run.length) found.push(run);
  return found.map((each) => (each.length > 1 ? each : [each[0], each[0]]));
}

const now = (values, format) => (values.at(-1) === null ? "no value" : format(values.at(-1)));

function told(title, unit, known, format) {
  if (!known.length) return `${title}: no value in the last hour`;
  return `${title} in ${unit}: ${format(known.at(-1))} last, between ${format(Math.min(...known))} and ${format(Math.max(...known))} in the last hour`;
}
