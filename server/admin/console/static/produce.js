// The form that produces one record.

import { post } from "./api.js";
import { count, field, h, refill } from "./dom.js";

const choice = (...pairs) => h("select", {}, pairs.map(([value, text]) => h("option", { value }, text)));

export function produceForm(view, topic, numbers, then) {
  const key = h("input", { autocomplete: "off", spellcheck: "false" }), value = h("textarea", { spellcheck: "false" });
  const partition = choice(["", "by the key"], ...numbers), form = choice(["text", "text"], ["hex", "hex"]);
  const headers = h("textarea", { spellcheck: "false", placeholder: "name: value, one a line" }), said = h("p", { role: "status" });
  const pairs = () => headers.value.split("\n").filter((line) => line.trim()).map((line) => [line.split(":", 1)[0].trim(), line.includes(":") ? line.slice(line.indexOf(":") + 1).trim() : null]);
  const submit = (event) => {
    event.preventDefault();
    return view.tried(async () => {
      const done = await post("produce", { topic, partition: partition.value === "" ? null : Number(partition.value), key: key.value || null, value: value.value, isHex: form.value === "hex", headers: pairs() });
      refill(said, `Written to partition ${done.partition} at offset ${count(done.offset)}.`);
      await then();
    });
  };
  return h("details", { class: "setting", id: "produce" }, h("summary", {}, h("span", {}, "Produce a record")),
    h("form", { class: "fields", onsubmit: submit }, field("key", "Key, none if empty", key), field("value", "Value", value), field("headers", "Headers", headers),
      h("div", { class: "bar" }, field("to", "Partition", partition), field("as", "Given as", form), h("button", { class: "main" }, "Produce")), said));
}
