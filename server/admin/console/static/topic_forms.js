// Forms that create, extend, trim and delete topics.

import { change } from "./change.js";
import { count, field, h, many } from "./dom.js";

const input = (more = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...more });
const amount = (more = {}) => input({ type: "number", min: "1", ...more });
const whole = (control) => (control.value === "" ? null : Number(control.value));
const go = (hash) => { location.hash = hash; };

// Settings as lines of NAME=VALUE. A line without = is a setting without a value, which the broker refuses.
const settingsOf = (text) => Object.fromEntries(text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
  const at = line.indexOf("=");
  return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}));

export function createTopicForm(view) {
  const name = input({ required: true }), partitions = amount({ placeholder: "by default" }), replicas = amount({ placeholder: "by default" });
  const configs = h("textarea", { spellcheck: "false", rows: "3", placeholder: "retention.ms=86400000, one a line" });
  const submit = (event) => {
    event.preventDefault();
    const body = { name: name.value, partitions: whole(partitions), replicas: whole(replicas), configs: settingsOf(configs.value) };
    return change(view, "create-topic", body, `Create the topic ${body.name}?`, () => go(`#/topic/${encodeURIComponent(body.name)}`));
  };
  return h("details", { class: "setting", id: "create-topic" }, h("summary", {}, h("span", {}, "Create a topic")),
    h("form", { class: "fields", onsubmit: submit }, field("topic-name", "Name", name),
      h("div", { class: "bar" }, field("topic-partitions", "Partitions", partitions), field("topic-replicas", "Replicas", replicas)), field("topic-configs", "Settings", configs),
      h("div", { class: "bar" }, h("button", { class: "main" }, "Create"))));
}

export function topicForms(view, name) {
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
  return h("details", { class: "setting", id: "change-topic" }, h("summary", {}, h("span", {}, "Change this topic")),
    h("form", { class: "bar", onsubmit: extend }, field("more-partitions", "Partitions then", partitions), h("button", {}, "Add partitions")),
    h("form", { class: "bar", onsubmit: trim }, field("trim-partition", "Partition", partition), field("trim-offset", "Before offset", offset), h("button", { class: "danger" }, "Delete records")),
    h("div", { class: "bar" }, h("button", { type: "button", class: "danger", onclick: remove }, "Delete this topic")));
}
