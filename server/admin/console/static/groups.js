// Groups, and one group with its lag over time. The page keeps the history: it begins when a group is first looked at.

import { get } from "./api.js";
import { lineChart } from "./chart.js";
import { change } from "./change.js";
import { changes, choice, count, empty, facts, field, fold, h, heading, input, link, many, refill, table, time } from "./dom.js";
import { searchedList } from "./search.js";

const PERIOD_MS = 2000, POINTS_MAX = 900, GROUPS_KEPT = 50;
const history = new Map();

export async function showGroups(view) {
  const { search, list, said, follow } = searchedList(view, { name: "groups", noun: "group", label: "Name", show: listed });
  refill(view.main, h("h1", {}, "Groups"), h("p", { class: "lead" }, "Consumers that share the work of reading. Listed are the groups that this broker coordinates."),
    h("div", { class: "bar" }, search), said, list);
  await follow();
}

function listed(groups, wanted) {
  if (!groups.length) return nothing(wanted);
  return table("Groups", [["Group"], ["State"], ["Lag", "number"], ["Kind"], ["Protocol"]], groups.map((each) => [
    link(each.id, "group", each.type, each.id), state(each.state), lag(each), each.type, each.protocol]));
}

function nothing(wanted) {
  return wanted ? empty("No such group", h("p", {}, `No name here contains “${wanted}”.`))
    : empty("No groups yet", h("p", {}, "A group appears when a consumer with a group.id subscribes. The Learn tab explains how."));
}

// Nothing where the group has committed nothing here. Of a group with very many partitions only the first are counted.
const lag = (each) => (each.lag === null ? "" : each.isWhole ? count(each.lag) : `at least ${count(each.lag)}`);

const state = (text) => h("span", { class: text === "Stable" ? "tag on" : "tag" }, text);

export async function showGroup(view) {
  const { main, parameters: [type, id], signal, poll } = view;
  const head = h("div"), chart = h("div"), body = h("div");
  const isNew = changes(body);
  refill(main, heading(id), head, h("h2", {}, "Lag over time"), chart, body, view.state.overview.canWrite && groupForms(view, type, id));
  await poll(PERIOD_MS, async () => {
    const group = await get("group", { id, type }, signal);
    lineChart(chart, remember(type, id, group.lag), "Records behind");
    if (!isNew(group)) return;
    refill(head, facts(["State", state(group.state)], ["Members", count(group.memberCount)], ["Lag", count(group.lag)],
      ...(group.epoch === null ? [] : [["Epoch", count(group.epoch)]]), ...(group.protocol ? [["Assignor", group.protocol]] : [])));
    refill(body, h("h2", {}, "Last rebalance"), reason(group), h("h2", {}, "Members"), members(group), h("h2", {}, "Offsets"), offsets(group));
  });
}

function remember(type, id, lag) {
  const key = type + "/" + id;
  const points = history.get(key) || [];
  history.delete(key);
  history.set(key, points);
  if (history.size > GROUPS_KEPT) history.delete(history.keys().next().value);
  points.push([Date.now(), lag]);
  if (points.length > POINTS_MAX) points.shift();
  return points;
}

export function reason(group) {
  const last = group.lastRebalance;
  const told = last ? h("p", { class: "reason" }, `${time(last.timestamp)}, after ${group.type === "classic" ? "generation" : "epoch"} ${count(last.after)}: ${last.reason}.`)
    : h("p", { class: "soft" }, "None since this broker has been coordinating the group.");
  return group.type === "classic" ? told
    : [told, h("p", { class: "soft" }, "Members of this kind of group take over partitions one by one, so there is no moment at which all stop. The epoch counts the changes.")];
}

export function members(group) {
  if (!group.members.length) return empty("Nobody is in the group", h("p", {}, "Its offsets are kept, and the next member goes on from there."));
  const told = (each) => each.assigned.map(([topic, partitions]) => `${topic} ${partitions.join(", ")}`).join("; ") || "nothing";
  return [table("Members", [["Member"], ["Client"], ["Host"], ["Reads"]], group.members.map((each) => [
    h("span", { class: "mono" }, each.id), each.client, each.host, told(each)])),
  group.memberCount > group.members.length && h("p", { class: "soft" }, `and ${many(group.memberCount - group.members.length, "member")} more`)];
}

function offsets(group) {
  if (!group.offsets.length) return empty("Nothing is committed yet");
  const most = Math.max(1, ...group.offsets.map((each) => each.lag || 0));
  return [table("Offsets", [["Topic"], ["Partition", "number"], ["Committed", "number"], ["End", "number"], ["Lag", "number"], [""]], group.offsets.map((each) => [
    link(each.topic, "topic", each.topic), String(each.partition), count(each.committed), each.end === null ? "elsewhere" : count(each.end), each.lag === null ? "" : count(each.lag), meter(each.lag, most)])),
  group.offsetCount > group.offsets.length && h("p", { class: "soft" }, `and ${many(group.offsetCount - group.offsets.length, "partition")} more`)];
}

function meter(lag, most) {
  const bar = h("i");
  bar.style.width = `${((lag || 0) / most) * 100}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, bar);
}

// Forms that reset and delete a group.
function groupForms(view, type, id) {
  const to = choice([["earliest", "the first record"], ["latest", "the end"], ["offset", "an offset"], ["time", "a time"]]);
  const topic = input(type === "share" ? { required: true } : { placeholder: "all that it has committed" }), partition = input({ type: "number", min: "0", placeholder: "all" });
  const offset = input({ type: "number", min: "0", value: "0" }), time = input({ type: "datetime-local", step: "1" });
  const ofOffset = field("reset-offset", "Offset", offset), ofTime = field("reset-time", "Time", time);
  const arrange = () => { ofOffset.hidden = to.value !== "offset"; ofTime.hidden = to.value !== "time"; };
  const value = () => (to.value === "offset" ? Number(offset.value) : to.value === "time" ? new Date(time.value || 0).getTime() : null);
  const reset = (event) => {
    event.preventDefault();
    const body = { id, type, topic: topic.value || null, partition: topic.value && partition.value !== "" ? Number(partition.value) : null, to: to.value, value: value() };
    return change(view, "reset-group", body, `Let the group ${id} go on from ${to.selectedOptions[0].textContent}${body.topic ? ` of ${body.topic}` : ""}? What it has committed is replaced.`);
  };
  const remove = () => change(view, "delete-group", { id }, `Delete the group ${id} with all that it has committed?`, () => { location.hash = "#/groups"; });
  to.addEventListener("change", arrange);
  arrange();
  return fold("Change this group", { id: "change-group" },
    h("p", { class: "soft" }, "Only a group without members can be changed."),
    h("form", { class: "bar", onsubmit: reset }, field("reset-topic", "Topic", topic), field("reset-partition", "Partition", partition), field("reset-to", "Go on from", to), ofOffset, ofTime, h("button", {}, "Reset")),
    h("div", { class: "bar" }, h("button", { type: "button", class: "danger", onclick: remove }, "Delete this group")));
}
