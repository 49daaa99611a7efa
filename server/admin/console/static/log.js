// How late the event loop is, and the last lines of the log.

import { get, Refusal } from "./api.js";
import { lineChart } from "./chart.js";
import { h, refill, time, visible } from "./dom.js";

const PERIOD_MS = 2000, POINTS_MAX = 900, LINES_SHOWN = 500;
const points = [];
let before = null;

export async function showLog({ main, signal, poll }) {
  const chart = h("div"), list = h("ol", { class: "records", role: "log", "aria-live": "off", "aria-label": "Log" });
  let after = 0;
  refill(main, h("h1", {}, "Event loop and log"), h("h2", {}, "How late the event loop is"), chart, h("h2", {}, "Log"), list);
  await poll(PERIOD_MS, async () => {
    look(await get("loop", {}, signal), chart);
    if (after < 0) return;
    try {
      const { lines } = await get("log", { after }, signal);
      for (const each of lines) list.prepend(line(each));
      while (list.childElementCount > LINES_SHOWN) list.lastChild.remove();
      if (lines.length) after = lines.at(-1).number;
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 401) throw error;
      after = -1;
      refill(list, h("li", { class: "soft" }, "The log tells more than a Kafka client may know. It is shown where the console needs a token, or may write."));
    }
  });
}

function look(loop, chart) {
  if (before && loop.looks > before.looks) {
    points.push([Date.now(), Math.round(((loop.seconds - before.seconds) / (loop.looks - before.looks)) * 1e6)]);
    if (points.length > POINTS_MAX) points.shift();
  }
  before = loop;
  if (points.length) lineChart(chart, points, "Microseconds late on average");
  else refill(chart, h("p", { class: "soft" }, "It is looked at ten times a second; the line begins in a moment."));
}

function line(each) {
  const isWrong = ["WARNING", "ERROR", "CRITICAL"].includes(each.level);
  return h("li", { class: "record" }, h("span", { class: isWrong ? "tag wrong" : "tag" }, each.level.toLowerCase()), h("time", { class: "where" }, time(each.timestamp)),
    h("div", { class: "what" }, h("span", { class: "soft" }, each.logger + " "), visible(each.message)));
}
