// A line over time. Who cannot see it reads the sentence instead.

import { count, h, refill, svg } from "./dom.js";

const WIDTH = 600, HEIGHT = 100;

export function lineChart(container, points, noun) {
  const values = points.map(([, value]) => value);
  const highest = Math.max(1, ...values), [begin] = points[0], [end] = points.at(-1);
  const place = ([when, value]) => `${(((when - begin) / Math.max(1, end - begin)) * WIDTH).toFixed(1)},${(HEIGHT - 4 - (value / highest) * (HEIGHT - 12)).toFixed(1)}`;
  const line = points.length > 1 ? points.map(place).join(" ") : `0,${place(points[0]).split(",")[1]} ${WIDTH},${place(points[0]).split(",")[1]}`;
  const seconds = Math.round((end - begin) / 1000);
  const told = `${noun}: ${count(values.at(-1))} now, between ${count(Math.min(...values))} and ${count(Math.max(...values))} in the last ${seconds} s`;
  refill(container,
    svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": told },
      svg("polygon", { points: `0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}` }), svg("polyline", { points: line })),
    h("p", { class: "soft" }, told + "."));
}
