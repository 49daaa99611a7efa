// Records that the broker has removed: when, why, how many, and how old they were.

import { get } from "./api.js";
import { age, bytes, count, h, link, many, refill, table, time } from "./dom.js";

const moment = (milliseconds) => (milliseconds < 0 ? "unknown" : time(milliseconds).slice(0, 19));

function span(removal) {
  if (removal.untilMs - removal.fromMs < 1000) return moment(removal.untilMs);
  return `${moment(removal.fromMs)} to ${moment(removal.untilMs).slice(11)}, ${many(removal.runs, "time")}`;
}

// The reason with what its numbers mean: retention.ms=604800000 (7 days).
export const explained = (cause) => cause.replace(/(retention\.(ms|bytes)=)(\d+)/g, (_, name, unit, number) =>
  `${name}${number} (${unit === "ms" ? age(Number(number)) : bytes(Number(number))})`);

const ages = (removal) => (removal.newestMs < 0 ? "unknown" : `${moment(removal.oldestMs)} to ${moment(removal.newestMs)}`);

// A table of removals, newest first. `withTopic`: each row begins with its topic.
function removalTable(removals, withTopic = false) {
  const columns = [...(withTopic ? [["Topic"]] : []), ["When"], ["Reason"], ["Records", "number"], ["Partitions", "number"], ["Times of the records"]];
  return table("Removed records", columns, removals.map((each) => [...(withTopic ? [link(each.topic, "topic", each.topic)] : []), span(each), h("span", { class: "mono" }, explained(each.cause)),
    (each.hasGaps ? "at most " : "") + count(each.records), count(each.logs), ages(each)]));
}

// The section of a topic's view; null if nothing was removed.
export function removalsOf(removals) {
  if (!removals.length) return null;
  return [h("h2", {}, "Removed records"),
    h("p", { class: "soft" }, "Removed by this broker since its start, newest first. Time and reason are in its log, too."),
    removalTable(removals)];
}

// The latest removals from all topics, also from those that are deleted. `isNew` tells whether an answer differs from what is shown.
export async function latestRemovals(container, isNew, signal) {
  const { removals } = await get("removals", {}, signal);
  if (!isNew(removals)) return;
  refill(container, removals.length ? removalTable(removals, true)
    : h("p", { class: "soft" }, "None since the start of this broker."));
}
