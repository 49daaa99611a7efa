// The brokers of the cluster.

import { get } from "./api.js";
import { bytes, changes, count, h, link, refill, table } from "./dom.js";

export async function showBrokers({ main, signal, poll }) {
  const body = h("div"), isNew = changes(body);
  refill(main, h("h1", {}, "Brokers"), body);
  await poll(3000, async () => {
    const found = await get("brokers", {}, signal);
    if (!isNew(found)) return;
    refill(body,
      table("Brokers", [["Broker"], ["Leads", "number"], ["Holds", "number"], ["Rack"], ["Reached at"]], found.brokers.map((each) => [
        [String(each.id), " ", each.id === found.controllerId && h("span", { class: "tag on" }, "controller"), " ",
          each.isHere && h("span", { class: "tag" }, "this one")],
        count(each.leads), count(each.holds), each.rack || "", h("span", { class: "mono" }, each.endpoints.join(" "))])),
      h("h2", {}, "Log directories of this broker"),
      table("Log directories", [["Directory"], ["State"], ["Logs", "number"], ["Size", "number"], ["Free", "number"], ["Disk", "number"]], found.logDirectories.map((each) => [
        h("span", { class: "mono" }, each.path), each.isOnline ? "online" : h("span", { class: "tag wrong" }, "offline"),
        count(each.logs), bytes(each.size), room(each.freeBytes), room(each.totalBytes)])),
      h("p", { class: "soft" }, link("The last hour", "history"), " of this broker: rates, lag, delays, free disk space."));
  });
}

const room = (number) => (number === null ? "unknown" : bytes(number));
