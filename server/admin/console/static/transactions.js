// Transactional ids, and the producers of one partition with what they have open in it.

import { get } from "./api.js";
import { change } from "./change.js";
import { age, changes, count, dotted, empty, facts, h, heading, link, many, named, refill, table, time } from "./dom.js";
import { searchedList } from "./search.js";

const PERIOD_MS = 2000;

export async function showTransactions(view) {
  const { search, list, said, follow } = searchedList(view, { name: "transactions", noun: "id", label: "Id", show: (found, wanted) => (found.length ? transactionTable(found) : nothing(wanted)) });
  refill(view.main, h("h1", {}, "Transactions"),
    h("p", { class: "lead" }, "Producers with a transactional id write to many partitions at once, or not at all. Listed are the ids that this broker coordinates."),
    h("div", { class: "bar" }, search), said, list);
  await follow();
}

function nothing(wanted) {
  return wanted ? empty("No such transactional id", h("p", {}, `No id here contains “${wanted}”.`))
    : empty("No transactional ids", h("p", {}, "One appears when a producer with a transactional.id calls initTransactions."));
}

function transactionTable(transactions) {
  const columns = [["Transactional id"], ["State"], ["Open for"], ["Since"], ["Producer", "number"], ["Epoch", "number"], ["Partitions"]];
  return table("Transactions", columns, transactions.map((each) => [h("span", { class: "mono" }, dotted(each.id)), state(each),
    each.isOpen ? age(each.ageMs) : "", each.since === null ? "" : time(each.since), each.producerId, String(each.producerEpoch), partitions(each)]));
}

function state(each) {
  const late = each.isLate && h("span", { class: "tag wrong" }, `longer than its ${age(each.timeoutMs)}`);
  return [h("span", { class: each.isOpen ? "tag on" : "tag" }, each.state), late && " ", late];
}

function partitions(each) {
  const links = each.partitions.flatMap(([topic, indexes]) => indexes.map((index) => named(link(`${topic} ${index}`, "producers", topic, String(index)), `${topic} ${index}, producers of the partition`)));
  const told = each.partitions.reduce((sum, [, indexes]) => sum + indexes.length, 0);
  return [links.flatMap((each, index) => (index ? [", ", each] : [each])), each.partitionCount > told && ` and ${count(each.partitionCount - told)} more`];
}

export async function showProducers(view) {
  const { main, parameters: [topic, partition], signal, poll } = view;
  const abort = view.state.overview.canWrite && ((producerId) => change(view, "abort-transaction", { topic, partition: Number(partition), producerId },
    `Abort the transaction of producer ${producerId} in ${topic} ${partition}? Readers with read_committed skip its records then.`));
  const body = h("div"), isNew = changes(body);
  refill(main, heading(`Producers of ${topic} ${partition}`), h("p", {}, link("Topic", "topic", topic), " · ", link("Records", "records", topic, partition)),
    h("p", { class: "lead" }, "Idempotent and transactional producers that the partition remembers. Readers with read_committed wait for transactions that are open."), body);
  await poll(PERIOD_MS, async () => {
    const found = await get("producers", { topic, partition }, signal);
    if (!isNew(found)) return;
    refill(body, facts(["Producers", count(found.count)], ["Open transactions", count(found.producers.filter((each) => each.openSinceOffset !== null).length)]),
      warning(found), found.producers.length ? producerTable(found.producers, abort) : empty("The partition remembers no producer"),
      found.count > found.producers.length && h("p", { class: "soft" }, `and ${many(found.count - found.producers.length, "producer")} more`));
  });
}

function warning(found) {
  const hanging = found.producers.filter((each) => each.isHanging).length;
  const late = found.producers.filter((each) => each.isOpenTooLong).length;
  if (hanging) return h("p", { class: "reason" }, `${many(hanging, "transaction")} hanging: no coordinator will end it. ottla transactions abort --hanging does.`);
  if (late && !found.isSure) return h("p", { class: "reason" }, `${many(late, "transaction")} open for longer than any may take. Other brokers may coordinate it: ottla transactions hanging asks them all.`);
  return null;
}

function producerTable(producers, abort) {
  const columns = [["Producer"], ["State"], ["Open since offset", "number"], ["Last write"], ["Age"], ["Epoch", "number"], ["Last sequence", "number"]];
  return table("Producers", columns, producers.map((each) => [each.producerId, [condition(each), abort && each.isOpenTooLong && [" ", h("button", { type: "button", class: "plain", "data-key": `abort ${each.producerId}`, "aria-label": `Abort the transaction of producer ${each.producerId}`, onclick: () => abort(each.producerId) }, "Abort")]], each.openSinceOffset === null ? "" : count(each.openSinceOffset),
    time(each.lastTimestamp), each.openSinceOffset === null ? "" : age(each.ageMs), String(each.producerEpoch), String(each.lastSequence)]));
}

function condition(each) {
  if (each.isHanging) return h("span", { class: "tag wrong" }, "hanging");
  if (each.isOpenTooLong) return h("span", { class: "tag wrong" }, "open too long");
  return each.openSinceOffset === null ? h("span", { class: "soft" }, "nothing open") : h("span", { class: "tag on" }, "open");
}
