// The brokers of the cluster.

import { get } from "./api.js";
import { changes, count, h, refill, table } from "./dom.js";

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
      table("Log directories", [["Directory"], ["State"]], found.logDirectories.map((each) => [
        h("span", { class: "mono" }, each.path), each.isOnline ? "online" : h("span", { class: "tag wrong" }, "offline")])));
  });
}
