// Topics, and one topic with its picture: a column for each partition, a cell for each replica.

import { get } from "./api.js";
import { change } from "./change.js";
import { bytes, changes, count, empty, facts, field, fold, h, heading, input, link, many, named, refill, table } from "./dom.js";
import { removalsOf } from "./removals.js";
import { searchedList } from "./search.js";

const START = "kcat -P -b localhost:9092 -t first <<< 'hello'";

export async function showTopics(view) {
  const internal = h("input", { type: "checkbox", id: "internal" });
  const { search, list, said, look, follow } = searchedList(view, { name: "topics", noun: "topic", label: "Name", show: (topics, wanted) => listed(topics, wanted, internal.checked), choices: () => internal.checked });
  refill(view.main, h("h1", {}, "Topics"),
    h("div", { class: "bar" }, search, h("label", { for: "internal", class: "choice" }, internal, "Internal topics")), said, view.state.overview.canWrite && createTopicForm(view), list);
  internal.addEventListener("change", () => look().catch(() => {}));
  await follow();
}

function listed(all, wanted, withInternal) {
  const topics = all.filter((each) => withInternal || !each.isInternal);
  if (!topics.length) return nothing(wanted);
  return table("Topics", [["Topic"], ["State"], ["Partitions", "number"], ["Replicas", "number"], ["Records", "number"], ["Size", "number"]],
    topics.map((each) => [link(each.name, "topic", each.name), condition(each), count(each.partitions), each.replicationFactor, count(each.records), bytes(each.size)]));
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
    const turn = (title, where) => h("button", { "data-key": title, onclick: () => { from = where; } }, title);
    refill(body, factsOf(topic), h("h2", {}, "Replicas"), picture(topic.partitions), legend(), h("h2", {}, "Partitions"), partitionTable(topic),
      h("div", { class: "bar" }, from > 0 && turn("First partitions", 0), topic.next && turn("More partitions", topic.next)),
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

// Forms that create, extend, trim and delete topics.

const amount = (more = {}) => input({ type: "number", min: "1", ...more });
const whole = (control) => (control.value === "" ? null : Number(control.value));
const go = (hash) => { location.hash = hash; };

// Settings as lines of NAME=VALUE. A line without = is a setting without a value, which the broker refuses.
const settingsOf = (text) => Object.fromEntries(text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
  const at = line.indexOf("=");
  return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}));

function createTopicForm(view) {
  const name = input({ required: true }), partitions = amount({ placeholder: "by default" }), replicas = amount({ placeholder: "by default" });
  const configs = h("textarea", { spellcheck: "false", rows: "3", placeholder: "retention.ms=86400000, one a line" });
  const submit = (event) => {
    event.preventDefault();
    const body = { name: name.value, partitions: whole(partitions), replicas: whole(replicas), configs: settingsOf(configs.value) };
    return change(view, "create-topic", body, `Create the topic ${body.name}?`, () => go(`#/topic/${encodeURIComponent(body.name)}`));
  };
  return fold("Create a topic", { id: "create-topic" },
    h("form", { class: "fields", onsubmit: submit }, field("topic-name", "Name", name),
      h("div", { class: "bar" }, field("topic-partitions", "Partitions", partitions), field("topic-replicas", "Replicas", replicas)), field("topic-configs", "Settings", configs),
      h("div", { class: "bar" }, h("button", { class: "main" }, "Create"))));
}

function topicForms(view, name) {
  const partitions = amount({ required: true }), partition = input({ type: "number", min: "0", placeholder: "all" }), offset = input({ type: "number", min: "0", placeholder: "the end" });
  const extend = (event) => {
    event.preventDefault();
    return change(view, "add-partitions", { name, partitions: whole(partitions) },
      `Give ${name} ${many(Number(partitions.value), "partition")}? They cannot be taken away again, and keys change their places.`);
  };
  const trim = (event) => {
    event.preventDefault();
    const where = partition.value === "" ? name : `partition ${partition.value} of ${name}`;
    return change(view, "trim-topic", { name, partition: whole(partition), offset: whole(offset) },
      `Delete ${offset.value === "" ? "all records" : `the records before offset ${count(Number(offset.value))}`} of ${where}? They cannot be brought back.`);
  };
  const remove = () => change(view, "delete-topic", { name }, `Delete the topic ${name} with all its records? They cannot be brought back.`, () => go("#/topics"));
  return fold("Change this topic", { id: "change-topic" },
    h("form", { class: "bar", onsubmit: extend }, field("more-partitions", "Partitions then", partitions), h("button", {}, "Add partitions")),
    h("form", { class: "bar", onsubmit: trim }, field("trim-partition", "Partition", partition), field("trim-offset", "Before offset", offset), h("button", { class: "danger" }, "Delete records")),
    h("div", { class: "bar" }, h("button", { type: "button", class: "danger", onclick: remove }, "Delete this topic")));
}
