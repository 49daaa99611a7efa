// Records of one topic: a page of a partition, a search, or live.

import { events, get, post, replacing } from "./api.js";
import { bytes, count, empty, field, h, heading, link, many, refill, time, visible } from "./dom.js";

const PAGE = 50, WHOLE_BYTES = 262144, LIVE_SHOWN = 200, SEARCHES_MAX = 200, HEADERS_READ = 1000;

const choice = (...pairs) => h("select", {}, pairs.map(([value, text]) => h("option", { value }, text)));

export async function showRecords(view) {
  const [topic, partition] = view.parameters;
  const { partitionCount } = await get("topic", { name: topic }, view.signal);
  const numbers = Array.from({ length: Math.min(partitionCount, 10000) }, (_, index) => [String(index), String(index)]);
  const controls = {
    partition: choice(...numbers), from: choice(["latest", "the newest"], ["earliest", "the oldest"], ["offset", "an offset"], ["time", "a time"]),
    offset: h("input", { inputmode: "numeric", pattern: "[0-9]*", size: "10", value: "0" }),
    time: h("input", { type: "datetime-local", step: "1" }), contains: h("input", { type: "search", autocomplete: "off", spellcheck: "false" }),
    form: choice(["auto", "text or JSON"], ["hex", "hex"]),
  };
  controls.partition.value = partition || "0";
  const list = h("ol", { class: "records", "aria-label": "Records" }), said = h("p", { class: "soft", role: "status" }), turns = h("div", { class: "bar" });
  const offset = field("offset", "Offset", controls.offset), when = field("time", "Time", controls.time);
  const arrange = () => { offset.hidden = controls.from.value !== "offset"; when.hidden = controls.from.value !== "time"; };
  const live = h("button", { type: "button", "aria-pressed": "false" }, "Follow live");
  const page = new Pages(view, topic, controls, { list, said, turns, live });
  controls.from.addEventListener("change", arrange);
  controls.partition.addEventListener("change", () => page.show());
  controls.form.addEventListener("change", () => page.show());
  live.addEventListener("click", () => page.toggleLive());
  arrange();
  refill(view.main, heading(topic), h("p", {}, link("Partitions and replicas", "topic", topic)),
    h("form", { class: "bar", role: "search", onsubmit: (event) => { event.preventDefault(); page.show(); } },
      field("partition", "Partition", controls.partition), field("from", "Begin with", controls.from), offset, when,
      field("contains", "Contains", controls.contains), field("form", "Show as", controls.form), h("button", { class: "main" }, "Show"), live),
    said, list, turns, view.state.overview.canWrite && produceForm(view, topic, numbers, () => page.show("latest")));
  await page.show();
}

function produceForm(view, topic, numbers, then) {
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

class Pages {
  constructor(view, topic, controls, places) {
    Object.assign(this, { view, topic, controls, ...places });
    this.next = replacing(view.signal);
  }

  begin() {
    const signal = this.next();
    this.live.setAttribute("aria-pressed", "false");
    refill(this.live, "Follow live");
    return signal;
  }

  from() {
    const { from, offset, time: when } = this.controls;
    if (from.value === "offset") return offset.value.trim() || "0";
    if (from.value === "time") return "time:" + (new Date(when.value || 0).getTime() || 0);
    return from.value;
  }

  show(from = this.from(), until = undefined) {
    const signal = this.begin();
    return this.view.tried(() => (this.controls.contains.value ? this.search(from, signal) : this.page(from, until, signal)));
  }

  ask(more, signal) {
    return get("records", { topic: this.topic, partition: this.controls.partition.value, form: this.controls.form.value, limit: PAGE, ...more }, signal);
  }

  async page(from, until, signal) {
    const found = await this.ask({ from, until }, signal);
    const first = found.records.length ? found.records[0].offset : found.from;
    refill(this.said, found.records.length ? `Offsets ${count(first)} to ${count(found.next - 1)}; the partition has ${count(found.start)} to ${count(found.end - 1)}.` : "");
    this.draw(found.records, () => (found.end === found.start ? empty("Nothing here yet", h("p", {}, "Follow live, and records appear as they are written."))
      : empty("No record from here on", h("p", {}, `The partition has offsets ${count(found.start)} to ${count(found.end - 1)}.`))));
    const turn = (title, isThere, go) => isThere && h("button", { type: "button", "data-key": title, onclick: go }, title);
    refill(this.turns, turn("Older", first > found.start, () => this.show(String(Math.max(found.start, first - PAGE)), String(first))),
      turn("Newer", found.next < found.end, () => this.show(String(found.next))));
  }

  // One question after the other, each of which the broker answers after a bounded piece of work.
  async search(from, signal) {
    if (from === "latest") from = "earliest";
    let records = [], scanned = 0, size = 0, found;
    refill(this.list);
    for (let index = 0; index < SEARCHES_MAX; index += 1) {
      found = await this.ask({ from, contains: this.controls.contains.value, limit: PAGE - records.length }, signal);
      records = records.concat(found.records);
      scanned += found.scanned.records;
      size += found.scanned.bytes;
      from = String(found.next);
      refill(this.said, `${many(records.length, "match", "matches")} in ${many(scanned, "record")}, ${bytes(size)} looked at.`);
      if (records.length >= PAGE || found.isAtEnd) break;
    }
    this.draw(records, () => empty("No match", h("p", {}, `No record from here on contains “${this.controls.contains.value}”.`)));
    refill(this.turns, !found.isAtEnd && h("button", { type: "button", "data-key": "on", onclick: () => this.show(from) }, "Search on"));
  }

  draw(records, nothing) {
    refill(this.list, records.length ? records.map((each) => this.record(each)) : h("li", {}, nothing()));
  }

  record(record, partition = this.controls.partition.value) {
    const item = h("li", { class: "record" });
    const where = [h("span", { class: "where number" }, count(record.offset)), h("time", { class: "where" }, time(record.timestamp))];
    if (record.batch) {
      refill(item, where, h("div", { class: "what wrong" }, `Offsets ${count(record.offset)} to ${count(record.batch.last)}, ${bytes(record.batch.size)}, cannot be shown: ${record.batch.reason}.`));
    } else if (record.marker) {
      refill(item, where, h("div", { class: "what soft" }, `The transaction ends here: ${record.marker}.`));
    } else {
      refill(item, where, h("div", { class: "what" }, shown(record.key, "key", "no key"), shown(record.value, "value", "null"), headers(record), this.more(record, partition, item)));
    }
    return item;
  }

  more(record, partition, item) {
    if (!record.value?.isCut && !record.key?.isCut) return null;
    const open = () => this.view.tried(async () => {
      const found = await get("records", { topic: this.topic, partition, from: String(record.offset), limit: 1, cut: WHOLE_BYTES, form: this.controls.form.value }, this.view.signal);
      const whole = found.records[0];
      refill(item, h("span", { class: "where number" }, count(whole.offset)), h("time", { class: "where" }, time(whole.timestamp)),
        h("div", { class: "what" }, shown(whole.key, "key", "no key"), shown(whole.value, "value", "null"), headers(whole)));
      item.classList.add("open");
      item.tabIndex = -1;
      item.focus();
    });
    return h("button", { type: "button", class: "plain", onclick: open }, "Show more");
  }

  async toggleLive() {
    if (this.live.getAttribute("aria-pressed") === "true") { this.begin(); return; }
    const signal = this.begin();
    this.live.setAttribute("aria-pressed", "true");
    refill(this.live, "Stop following");
    refill(this.turns);
    refill(this.list);
    refill(this.said, h("span", { class: "live" }, "Following all partitions. Records appear here as they are written, the newest first."));
    let seen = 0, skipped = 0;
    await this.view.tried(async () => {
      for await (const news of events("live", { topic: this.topic }, signal)) {
        if (news.ended) { refill(this.said, `It has ended: ${news.ended}`); return; }
        seen += news.records.length;
        skipped += news.skipped;
        for (const each of news.records) {
          const item = this.record(each, String(news.partition));
          item.querySelector(".where").prepend(h("span", { class: "tag" }, `p${news.partition}`), " ");
          this.list.prepend(item);
        }
        while (this.list.childElementCount > LIVE_SHOWN) this.list.lastChild.remove();
        refill(this.said, h("span", { class: "live" }, `Following all partitions: ${many(seen, "record")}` + (skipped ? `, ${count(skipped)} more came too fast to be shown` : "") + "."));
      }
    });
  }
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
