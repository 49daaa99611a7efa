// Topics, and one topic with its picture: a column for each partition, a cell for each replica.

import { get, replacing } from "./api.js";
import { createTopicForm, topicForms } from "./topic_forms.js";
import { bytes, changes, count, empty, facts, h, heading, link, many, named, refill, table, turns, unseenStatus } from "./dom.js";
import { removalsOf } from "./removals.js";

const START = "kcat -P -b localhost:9092 -t first <<< 'hello'";

export async function showTopics(view) {
  const { main, signal, poll } = view;
  const field = h("input", { type: "search", id: "contains", autocomplete: "off", spellcheck: "false" });
  const internal = h("input", { type: "checkbox", id: "internal" });
  const list = h("div", { "aria-live": "off" }), said = unseenStatus();
  const pages = [""], next = replacing(signal);
  const isNew = changes(list);
  let asked = next();
  refill(main, h("h1", {}, "Topics"),
    h("div", { class: "bar" }, h("label", { for: "contains" }, "Name contains", field),
      h("label", { for: "internal", class: "choice" }, internal, "Internal topics")), said, view.state.overview.canWrite && createTopicForm(view), list);

  const turned = (step) => { step(); asked = next(); return look(); };

  async function look() {
    const found = await get("topics", { after: pages.at(-1), contains: field.value }, asked);
    if (isNew([found, internal.checked, pages])) draw(found);
    return found.topics.length;
  }

  function draw(found) {
    const topics = found.topics.filter((each) => internal.checked || !each.isInternal);
    refill(list,
      topics.length ? table("Topics", [["Topic"], ["State"], ["Partitions", "number"], ["Replicas", "number"], ["Records", "number"], ["Size", "number"]],
        topics.map((each) => [link(each.name, "topic", each.name), condition(each), count(each.partitions), each.replicationFactor,
          count(each.records), bytes(each.size)])) : nothing(field.value),
      turns(pages, found.next, "More topics", (step) => turned(step).catch(() => {})));
  }

  field.addEventListener("input", () => turned(() => pages.splice(1)).then((number) => refill(said, `${many(number, "topic")} listed`)).catch(() => {}));
  internal.addEventListener("change", () => look().catch(() => {}));
  await poll(2000, look);
}

function nothing(wanted) {
  if (wanted) return empty("No such topic", h("p", {}, `No name here contains “${wanted}”.`));
  return empty("No topics yet", h("p", {}, "They appear as soon as a client writes to one, for example:"), h("pre", {}, START));
}

function condition(topic) {
  if (topic.offline) return h("span", { class: "tag wrong" }, `${topic.offline} offline`);
  if (topic.underReplicated) return h("span", { class: "tag wrong" }, `${topic.underReplicated} under-replicated`);
  return h("span", { class: "soft" }, topic.isInternal ? "internal" : "in sync");
}

export async function showTopic(view) {
  const { main, parameters: [name], signal, poll } = view;
  const body = h("div");
  const isNew = changes(body);
  let from = 0;
  refill(main, heading(name), h("p", {}, link("Records", "records", name), " · ", link("Settings", "settings", "topic", name)), body, view.state.overview.canWrite && topicForms(view, name));
  await poll(2000, async () => {
    const topic = await get("topic", { name, from }, signal);
    if (!isNew([topic, from])) return;
    const go = (title, where) => h("button", { "data-key": title, onclick: () => { from = where; } }, title);
    refill(body, factsOf(topic), h("h2", {}, "Replicas"), picture(topic.partitions), legend(), h("h2", {}, "Partitions"), partitionTable(topic),
      h("div", { class: "bar" }, from > 0 && go("First partitions", 0), topic.next && go("More partitions", topic.next)),
      removalsOf(topic.removals));
  });
}

function factsOf(topic) {
  const here = topic.partitions.filter((each) => each.isHere);
  const sum = (name) => here.reduce((total, each) => total + each[name], 0);
  return facts(["Partitions", count(topic.partitionCount)], ["Records here", count(sum("highWatermark") - sum("start"))], ["Size here", bytes(sum("size"))]);
}

export function picture(partitions) {
  return h("ul", { class: "picture" }, partitions.map((each) => h("li", {},
    h("span", { class: "unseen" }, sentence(each)),
    order(each).map((replica) => h("span", { class: "cell " + kind(each, replica), "aria-hidden": "true", title: `broker ${replica}` }, replica)),
    h("span", { "aria-hidden": "true" }, each.index))));
}

// The leader first, so that all leaders stand in one row.
const order = (partition) => [...partition.replicas].sort((a, b) => (b === partition.leader) - (a === partition.leader));

function kind(partition, replica) {
  if (replica === partition.leader) return "leader";
  return partition.isr.includes(replica) ? "synced" : "behind";
}

function sentence(partition) {
  const behind = partition.replicas.filter((each) => !partition.isr.includes(each));
  const leader = partition.leader < 0 ? "no leader" : `leader is broker ${partition.leader}`;
  return `Partition ${partition.index}: ${leader}, in sync ${partition.isr.join(", ") || "nobody"}` + (behind.length ? `, not in sync ${behind.join(", ")}` : "");
}

export function legend() {
  const each = (name, text) => h("span", {}, h("i", { class: "cell " + name, "aria-hidden": "true" }), text);
  return h("p", { class: "legend" }, each("leader", "leader"), each("synced", "in sync"), each("behind", "not in sync"),
    "A column is a partition, a cell the broker that holds a replica.");
}

const producers = (topic, partition) => (!partition.producers ? "0"
  : named(link(count(partition.producers), "producers", topic.name, String(partition.index)), `${many(partition.producers, "producer")} of partition ${partition.index}`));
const records = (topic, partition) => named(link(String(partition.index), "records", topic.name, String(partition.index)), `${partition.index}, records of the partition`);

// Readers with read_committed do not get past the first record of a transaction that is open.
const end = (topic, partition) => [count(partition.highWatermark), partition.lastStable < partition.highWatermark && [" ",
  named(h("a", { class: "tag on", href: `#/producers/${encodeURIComponent(topic.name)}/${partition.index}`, "data-key": `open ${partition.index}` }, "open transaction"), `Open transaction in partition ${partition.index}`)]];

function partitionTable(topic) {
  const columns = [["Partition"], ["Leader", "number"], ["Epoch", "number"], ["In sync"], ["First offset", "number"], ["End", "number"], ["Size", "number"], ["Producers", "number"]];
  return table("Partitions", columns, topic.partitions.map((each) => [
    each.isHere ? records(topic, each) : String(each.index),
    each.leader < 0 ? h("span", { class: "tag wrong" }, "none") : each.leader, each.leaderEpoch, each.isr.join(", "),
    ...(each.isHere ? [count(each.start), end(topic, each), bytes(each.size), producers(topic, each)]
      : [h("span", { class: "soft" }, "not here"), "", "", ""])]));
}
