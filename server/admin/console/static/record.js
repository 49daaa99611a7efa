// One record: as a line of a list, and on a page of its own, which can be linked.

import { get } from "./api.js";
import { asJson, copy, save, valueFile } from "./export.js";
import { bytes, choice, count, dotted, empty, facts, field, h, heading, link, many, named, refill, time, visible } from "./dom.js";

const WHOLE_BYTES = 262144;
const HEADERS_READ = 1000;
export const FORMS = [["auto", "text or JSON"], "hex"];

const ends = (record) => `The transaction ends here: ${record.marker}.`;
const broken = (record) => `Offsets ${count(record.offset)} to ${count(record.batch.last)}, ${bytes(record.batch.size)}, cannot be shown: ${record.batch.reason}.`;

// A line of a list. `withPartition`: it begins with the number of the partition.
export function recordLine(topic, record, withPartition) {
  const { partition, offset } = record;
  const place = named(link(count(offset), "record", topic, String(partition), String(offset)), `Partition ${partition}, offset ${offset}`);
  const where = h("span", { class: "where number" }, withPartition && [h("span", { class: "tag" }, `p${partition}`), " "], place);
  const isCut = record.key?.isCut || record.value?.isCut;
  return h("li", { class: "record" }, where, h("time", { class: "where" }, time(record.timestamp)), content(record, isCut && link("Show all of it", "record", topic, String(partition), String(offset))));
}

function content(record, more = null) {
  if (record.batch) return h("div", { class: "what wrong" }, broken(record));
  if (record.marker) return h("div", { class: "what soft" }, ends(record));
  return h("div", { class: "what" }, shown(record.key, "key", "no key"), shown(record.value, "value", "null"), headers(record), more);
}

// Text nodes only: whatever a record holds is shown and never run.
function shown(cell, kind, nothing) {
  if (cell === null) return h("pre", { class: kind + " soft" }, nothing);
  const text = cell.form === "json" && cell.text.length > 120 ? indented(cell.text) : cell.text;
  const size = cell.isCut ? h("span", { class: "tag" }, `cut, ${bytes(cell.size)} in all`) : cell.form === "hex" && h("span", { class: "tag" }, `${bytes(cell.size)}, hex`);
  const schema = cell.schema && h("span", { class: "tag" }, `schema ${cell.schema.id}, ${cell.schema.name}`);
  return [h("pre", { class: kind }, cell.size ? visible(text) : h("span", { class: "soft" }, "empty"), size && " ", size, schema && " ", schema),
    cell.hint && h("p", { class: "soft" }, cell.hint)];
}

// JSON in lines. Each token stays as it was sent: to parse and print it again would change long numbers.
function indented(text) {
  let out = "", depth = 0, before = "";
  const line = () => "\n" + "  ".repeat(Math.min(depth, 40));
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const closes = token === "}" || token === "]", opened = before === "{" || before === "[";
    if (closes) depth -= 1;
    if (closes !== opened || before === ",") out += line();
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return out.trimStart();
}

function headers(record) {
  if (!record.headers) return null;
  const hidden = record.headerCount - record.headers.length;
  return h("dl", { class: "headers" }, record.headers.map(([name, value]) => [h("dt", {}, visible(name ? name.text : "")), h("dd", { class: "mono" }, value === null ? "null" : visible(value.text))]),
    hidden > 0 && h("dt", {}, `and ${record.headerCount < HEADERS_READ ? "" : "at least "}${many(hidden, "header")} more`));
}

export async function wholeRecord(topic, partition, offset, form, signal) {
  const found = await get("records", { topic, partition, from: String(offset), limit: 1, cut: WHOLE_BYTES, form }, signal);
  const record = found.records[0];
  return { found, record: record && record.offset <= offset && offset <= (record.batch?.last ?? record.offset) ? { ...record, partition: Number(partition) } : null };
}

// The page of one record: #/record/TOPIC/PARTITION/OFFSET.
export async function showRecord(view) {
  const [topic, partition, text] = view.parameters;
  const offset = Number(text), form = choice(FORMS);
  const body = h("div"), done = h("span", { class: "soft", role: "status" });
  const draw = () => view.tried(async () => {
    const { found, record } = await wholeRecord(topic, partition, text, form.value, view.signal);
    refill(body, record ? whole(topic, record, found, form, done) : gone(topic, partition, offset, found));
  });
  form.addEventListener("change", draw);
  refill(view.main, heading(`Record ${text} of ${topic} ${partition}`), h("p", {}, link("Records", "records", topic, partition), " · ", link("Topic", "topic", topic)), body);
  await draw();
}

function gone(topic, partition, offset, found) {
  const next = found.records[0]?.offset;
  return empty("No record has this offset", h("p", {}, found.end > found.start ? `The partition has offsets ${count(found.start)} to ${count(found.end - 1)}.` : "The partition is empty."),
    h("p", {}, "Retention, compaction or a deletion may have removed it."), next > offset && h("p", {}, link("The next record", "record", topic, partition, String(next))));
}

function whole(topic, record, found, form, done) {
  const place = (text, offset) => link(text, "record", topic, String(record.partition), String(offset));
  const told = (what) => refill(done, what);
  const button = (title, act) => h("button", { type: "button", onclick: () => act().then(told, (error) => told(error.message)) }, title);
  const last = record.batch?.last ?? record.offset;
  return [facts(["Partition", String(record.partition)], ["Offset", count(record.offset)], [record.isAppendTime ? "Appended" : "Created", time(record.timestamp)],
    ...(record.key ? [["Key", bytes(record.key.size)]] : []), ...(record.value ? [["Value", bytes(record.value.size)]] : []), ...(record.isTransactional ? [["Transaction", record.marker ? "its end" : "part of one"]] : [])),
  h("ul", { class: "records" }, h("li", { class: "record open alone" }, content(record))),
  h("div", { class: "bar" }, field("form", "Show as", form),
    record.value && button("Copy the value", () => copy(record.value.text, "The value")), record.key && button("Copy the key", () => copy(record.key.text, "The key")),
    !record.batch && button("Copy as JSON", () => copy(asJson([record]), "The record")),
    record.value && !record.value.isCut && button("Download the value", async () => save(...valueFile(topic, record)))), done,
  h("p", { class: "bar" }, record.offset > found.start && place("← Before", record.offset - 1), last + 1 < found.end && place("Next →", last + 1)),
  h("p", { class: "soft" }, "The same by a command: ", h("code", {}, dotted(`ottla consume ${topic} -p ${record.partition} -o ${record.offset} -n 1`)))];
}
