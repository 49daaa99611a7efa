// Records of one topic: of all partitions or of one, the newest or the oldest first, filtered, or live.

import { events, get, post, replacing } from "./api.js";
import { asCsv, asJson, copy, save } from "./export.js";
import { bytes, choice, count, empty, field, fold, h, heading, input, link, many, refill } from "./dom.js";
import { Merge } from "./merge.js";
import { FORMS, recordLine, wholeRecord } from "./record.js";

const PAGE = 50, LIVE_SHOWN = 200, QUESTIONS_MAX = 200, MERGED_MAX = 64, LISTED_MAX = 10000;

const text = () => input({ type: "search" });
const moment = () => h("input", { type: "datetime-local", step: "1" });
const milliseconds = (control) => (control.value ? new Date(control.value).getTime() : null);

export async function showRecords(view) {
  const [topic, partition, query] = view.parameters;
  const { partitionCount } = await get("topic", { name: topic }, view.signal);
  const numbers = Array.from({ length: Math.min(partitionCount, LISTED_MAX) }, (_, index) => String(index));
  const controls = {
    partition: choice([["", "all"], ...numbers]), from: choice([["latest", "the newest"], ["earliest", "the oldest"], ["offset", "an offset"], ["time", "a time"]]),
    offset: h("input", { inputmode: "numeric", pattern: "[0-9]*", size: "10", value: "0" }), time: moment(),
    contains: text(), key: text(), value: text(), header: text(), since: moment(), before: moment(),
    form: choice(FORMS),
  };
  controls.header.placeholder = "name, or name=text";
  controls.partition.value = partition === "all" ? "" : partition ?? "";
  for (const [name, value] of new URLSearchParams(query)) if (Object.hasOwn(controls, name)) controls[name].value = value;
  const list = h("ol", { class: "records", "aria-label": "Records" }), said = h("p", { class: "soft", role: "status" }), turns = h("div", { class: "bar" });
  const offset = field("offset", "Offset", controls.offset), when = field("time", "Time", controls.time);
  const arrange = () => { offset.hidden = controls.from.value !== "offset"; when.hidden = controls.from.value !== "time"; };
  const live = h("button", { type: "button", "aria-pressed": "false" }, "Follow live");
  const pages = new Pages(view, topic, controls, { list, said, turns, live });
  controls.from.addEventListener("change", arrange);
  controls.partition.addEventListener("change", () => pages.show());
  controls.form.addEventListener("change", () => pages.show());
  live.addEventListener("click", () => pages.toggleLive());
  arrange();
  refill(view.main, heading(topic), h("p", {}, link("Partitions and replicas", "topic", topic)),
    h("form", { role: "search", onsubmit: (event) => { event.preventDefault(); pages.show(); } },
      h("div", { class: "bar" }, field("partition", "Partition", controls.partition), field("from", "Begin with", controls.from), offset, when,
        field("contains", "Contains", controls.contains), field("form", "Show as", controls.form), h("button", { class: "main" }, "Show"), live),
      h("details", { class: "more", open: ["key", "value", "header", "since", "before"].some((name) => controls[name].value) }, h("summary", {}, "More filters"), h("div", { class: "bar" }, field("in-key", "In the key", controls.key), field("in-value", "In the value", controls.value),
        field("in-header", "In a header", controls.header), field("since", "Since", controls.since), field("before", "Before", controls.before)))),
    said, list, turns, view.state.overview.canWrite && produceForm(view, topic, numbers, () => { controls.from.value = "latest"; arrange(); return pages.show(); }));
  await pages.show();
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
    refill(this.turns);
    return signal;
  }

  get filters() {
    const { contains, key, value, header, since, before } = this.controls;
    return { contains: contains.value, key: key.value, value: value.value, header: header.value, since: milliseconds(since), before: milliseconds(before) };
  }

  // Puts the search into the address, so that it can be sent to somebody.
  keepAddress() {
    const { partition, ...others } = this.controls, usual = { from: "latest", form: "auto" };
    const chosen = Object.entries(others).filter(([name, { value, parentElement }]) => value !== (usual[name] ?? "") && !parentElement.hidden).map(([name, { value }]) => [name, value]);
    const parts = ["records", this.topic, ...(partition.value || chosen.length ? [partition.value || "all"] : []), ...(chosen.length ? [String(new URLSearchParams(chosen))] : [])];
    history.replaceState(null, "", "#/" + parts.map(encodeURIComponent).join("/"));
  }

  show() {
    const signal = this.begin();
    this.keepAddress();
    return this.view.tried(async () => {
      const filters = this.filters, isSearch = Object.values(filters).some(Boolean), isNewestFirst = this.controls.from.value === "latest";
      const ask = (more) => get("records", { topic: this.topic, form: this.controls.form.value, ...more }, signal);
      const { places, others } = await this.places(ask, filters, signal);
      this.records = [];
      this.merge = new Merge(places, (more) => ask({ ...filters, ...more }), { isNewestFirst, isSearch });
      this.others = others;
      refill(this.list);
      await this.more();
    });
  }

  // The partitions that this broker holds, and where to begin and end in each.
  async places(ask, { since, before }, signal) {
    const wanted = this.controls.partition.value, found = [];
    let from = wanted === "" ? 0 : Number(wanted), total = 0;
    while (from !== null && found.length < MERGED_MAX) {
      const topic = await get("topic", { name: this.topic, from }, signal);
      const here = wanted === "" ? topic.partitions : topic.partitions.slice(0, 1);
      total = topic.partitionCount;
      found.push(...here.filter((each) => each.isHere));
      from = wanted === "" ? topic.next : null;
    }
    const places = [];
    const at = async (partition, ms) => (await ask({ partition, from: `time:${ms}`, limit: 1, cut: 1 })).from;
    for (const { index, start, highWatermark } of found.slice(0, MERGED_MAX)) {
      const time = this.controls.from.value === "time" ? milliseconds(this.controls.time) ?? 0 : since;
      const first = this.controls.from.value === "offset" ? Number(this.controls.offset.value) || 0 : time === null ? start : await at(index, time);
      places.push({ index, from: Math.min(Math.max(first, start), highWatermark), until: before === null ? highWatermark : await at(index, before) });
    }
    if (wanted !== "") return { places, others: places.length ? "" : "Another broker holds this partition: its console shows the records." };
    return { places, others: places.length < total ? ` Of ${many(total, "partition")} these are ${count(places.length)} that this broker holds.` : "" };
  }

  async more() {
    const { merge } = this, isAll = this.controls.partition.value === "";
    const told = (found) => {
      const order = merge.isNewestFirst ? "the newest first" : "the oldest first";
      refill(this.said, merge.isSearch ? `${many(found, "match", "matches")} in ${many(merge.scanned, "record")}, ${bytes(merge.bytes)} looked at.` : `${many(found, "record")}, ${order}.`, this.others);
    };
    refill(this.turns);
    const page = await merge.next(PAGE, QUESTIONS_MAX, merge.isSearch ? (found) => told(this.records.length + found) : undefined);
    this.records.push(...page);
    told(this.records.length);
    for (const each of page) this.list.append(recordLine(this.topic, each, isAll));
    if (!this.records.length) refill(this.list, h("li", {}, this.nothing()));
    const button = (title, act) => h("button", { type: "button", "data-key": title, onclick: act }, title);
    const again = () => this.view.tried(() => this.more());
    refill(this.turns, !merge.isDone && button(page.length < PAGE ? "Search on" : "More", again),
      this.records.length > 0 && [button("Copy as JSON", () => this.taken((records) => copy(asJson(records), `JSON of ${many(records.length, "record")}`))),
        button("Download JSON", () => this.taken((records) => save(`${this.topic}.json`, asJson(records), "application/json"))),
        button("Download CSV", () => this.taken((records) => save(`${this.topic}.csv`, asCsv(records), "text/csv;charset=utf-8")))]);
  }

  nothing() {
    if (this.merge.isSearch) return empty("No match", h("p", {}, this.merge.isDone ? "No record that is asked for meets the conditions." : "None yet: only a part was looked at."));
    if (this.controls.from.value === "latest") return empty("Nothing here yet", h("p", {}, "Follow live, and records appear as they are written."));
    return empty("No record from here on", h("p", {}, "The partitions end before it."));
  }

  // Calls `act` with the shown records. Cut keys and values are fetched before, whole or as long as one answer may be.
  taken(act) {
    return this.view.tried(async () => {
      const records = [];
      for (const each of this.records) {
        const isCut = each.key?.isCut || each.value?.isCut;
        records.push(isCut ? (await wholeRecord(this.topic, each.partition, each.offset, this.controls.form.value, this.view.signal)).record ?? each : each);
      }
      refill(this.said, await act(records));
    });
  }

  async toggleLive() {
    if (this.live.getAttribute("aria-pressed") === "true") { this.begin(); return; }
    const signal = this.begin();
    this.live.setAttribute("aria-pressed", "true");
    refill(this.live, "Stop following");
    refill(this.list);
    const partition = this.controls.partition.value, what = partition === "" ? "all partitions" : `partition ${partition}`;
    refill(this.said, h("span", { class: "live" }, `Following ${what}. Records appear here as they are written, the newest first.`));
    let seen = 0, skipped = 0;
    await this.view.tried(async () => {
      for await (const news of events("live", { topic: this.topic, partition, ...this.filters }, signal)) {
        if (news.ended) { refill(this.said, `It has ended: ${news.ended}`); return; }
        seen += news.records.length;
        skipped += news.skipped;
        for (const each of news.records) this.list.prepend(recordLine(this.topic, { ...each, partition: news.partition }, true));
        while (this.list.childElementCount > LIVE_SHOWN) this.list.lastChild.remove();
        refill(this.said, h("span", { class: "live" }, `Following ${what}: ${many(seen, "record")}` + (skipped ? `, ${count(skipped)} more came too fast to be shown` : "") + "."));
      }
    });
  }
}

// The form that produces one record.
function produceForm(view, topic, numbers, then) {
  const key = input(), value = h("textarea", { spellcheck: "false" });
  const partition = choice([["", "by the key"], ...numbers]), form = choice(["text", "hex"]);
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
  return fold("Produce a record", { id: "produce" },
    h("form", { class: "fields", onsubmit: submit }, field("key", "Key, none if empty", key), field("value", "Value", value), field("headers", "Headers", headers),
      h("div", { class: "bar" }, field("to", "Partition", partition), field("as", "Given as", form), h("button", { class: "main" }, "Produce")), said));
}
