// What the Learn tab says, step by step, and what it shows beside the words. `show` gets what the broker holds at this moment.

import { members, reason } from "./groups.js";
import { legend, picture } from "./topics.js";
import { bytes, count, facts, h, many, time, visible } from "./dom.js";

const p = (...text) => h("p", {}, text);
const tape = (index, records, next, committed) => h("div", {},
  h("p", { class: "soft" }, `Partition ${index}`),
  h("div", { class: "tape", tabindex: "0", role: "img", "data-key": `tape ${index}`, "aria-label": `Partition ${index}: offsets ${records.map((each) => each.offset).join(", ") || "none"}; the next is ${next}` },
    records.map((each) => h("span", { class: each.offset < committed ? "cell read" : "cell" }, each.offset)), h("span", { class: "cell next" }, next)));
const tapes = (data, withCommits) => Object.keys(data.records).map((index) =>
  tape(index, data.records[index], data.next[index], withCommits ? data.committed[index] ?? 0 : 0));

const keysOf = (data) => {
  const found = new Map();
  for (const [index, records] of Object.entries(data.records)) {
    for (const each of records) if (each.key) found.set(each.key.text, (found.get(each.key.text) || new Set()).add(index));
  }
  return [...found].sort();
};

export const LESSONS = [
  {
    title: "Topic",
    text: () => [p("A topic is a named stream of records. Producers write to its end, consumers read it from wherever they like, and reading takes nothing away. A record is a few bytes of value, perhaps a key, a time, and headers."),
      p("Kafka never looks into the value. What it means is between those who write and those who read.")],
    show: (data) => [facts(["Topic", data.name], ["Partitions", count(data.topic.partitionCount)], ["Records", count(data.total)], ["On disk", bytes(data.size)]),
      data.newest && h("pre", { class: "whole" }, visible(data.newest.value ? data.newest.value.text : "null")), data.newest && h("p", { class: "soft" }, `the newest record, written ${time(data.newest.timestamp)}`)],
  },
  {
    title: "Partition",
    text: () => [p("A topic is cut into partitions. Each is a file that only grows: a log. Different brokers can hold different partitions, and different consumers can read them, so partitions are what lets a topic grow beyond one machine."),
      p("Order is kept within a partition. Between two partitions there is none.")],
    show: (data) => tapes(data, false),
  },
  {
    title: "Offset",
    text: () => [p("Each record in a partition has a number, its offset: the first is 0, and no number is given twice. A consumer needs to remember just one number for each partition, the offset that it reads next."),
      p("The dashed cell is the offset that the next record will get. Watch it move.")],
    show: (data) => tapes(data, false),
  },
  {
    title: "Discovery",
    text: () => [p("A client is given the address of one broker, the bootstrap address. It asks there for the metadata: all brokers, all topics, and who leads which partition. Then it speaks to each leader itself."),
      p("What it gets are the addresses that brokers advertise (advertised.listeners). If it cannot reach those, it connects once, and then fails.")],
    show: (data) => [facts(...data.brokers.map((each) => [`Broker ${each.id}`, each.endpoints.join(" ")])),
      h("p", {}, data.topic.partitions.slice(0, 6).map((each) => `To write to partition ${each.index} a client connects to broker ${each.leader}. `))],
  },
  {
    title: "Key",
    text: () => [p("Records with the same key always go to the same partition: the producer computes a hash of the key, and takes its remainder by the number of partitions. So all that happens to one customer, order or device stays in order."),
      p("Without keys the producer spreads records as it likes. To add partitions later changes the remainders, and with them the places of keys.")],
    show: (data) => (keysOf(data).length ? h("dl", { class: "headers" }, keysOf(data).slice(0, 12).map(([key, places]) => [h("dt", {}, visible(key)), h("dd", {}, `partition ${[...places].join(", ")}`)]))
      : h("p", { class: "soft" }, "The newest records of this topic have no keys.")),
  },
  {
    title: "Replication",
    text: (data) => [p("Each partition is kept by several brokers, its replicas. When one is lost with its disk, the others have all that was acknowledged."),
      p(data.overview.brokers === 1 ? ["This broker is alone, so each partition has one replica. With ", h("code", {}, "ottla cluster --brokers 3"), " you see three."] : `This cluster has ${data.overview.brokers} brokers. Each cell below is a replica, with the number of the broker that holds it.`)],
    show: (data) => [picture(data.topic.partitions), legend()],
  },
  {
    title: "Leader",
    text: () => [p("One replica of each partition leads. Producers write to it and consumers read from it; the others, its followers, fetch from it just as consumers do. When the leader is gone, the controller makes a follower the leader and raises the leader epoch, so that nobody mistakes the old one for it."),
      p("Leaders are spread over the brokers, so that all of them work.")],
    show: (data) => [picture(data.topic.partitions), h("p", {}, data.topic.partitions.slice(0, 6).map((each) => `Partition ${each.index} is led by broker ${each.leader} in epoch ${each.leaderEpoch}. `))],
  },
  {
    title: "ISR",
    text: () => [p("The in-sync replicas are those that keep up with the leader. Only one of them may become leader, so nothing is lost that all of them have. A follower that falls behind leaves the set, and comes back when it has caught up."),
      p("A record is committed when all in-sync replicas have it. The offset behind the last committed record is the high watermark, and consumers read up to there.")],
    show: (data) => [picture(data.topic.partitions), legend(), h("p", {}, data.topic.partitions.slice(0, 6).map((each) => `Partition ${each.index}: in sync ${each.isr.join(", ")}, high watermark ${count(each.highWatermark ?? 0)}. `))],
  },
  {
    title: "Acks",
    text: () => [p("A producer says what it waits for. acks=0: nothing; records may be lost without a word. acks=1: the leader has it; lost if the leader dies at once. acks=all: every in-sync replica has it, and it survives as long as one of them does."),
      p("min.insync.replicas says how many there have to be for acks=all; with fewer the broker refuses, rather than promise what it cannot keep.")],
    show: (data) => [facts(["min.insync.replicas", data.setting("min.insync.replicas")], ["Replicas", count(data.topic.partitions[0].replicas.length)], ["In sync", count(data.topic.partitions[0].isr.length)]),
      p(h("span", { class: "soft" }, "The load of this page writes with acks=all."))],
  },
  {
    title: "Idempotence",
    text: () => [p("When no answer comes, a producer cannot know whether its records were written. If it sends them again, they may be there twice. An idempotent producer has an id and numbers its records in each partition; what the broker has already, it does not write again."),
      p("That is the default of most clients. It protects what a producer sends again by itself, not what a program sends anew after a restart.")],
    show: (data) => facts(...data.topic.partitions.slice(0, 6).map((each) => [`Partition ${each.index}`, h("a", { href: `#/producers/${encodeURIComponent(data.name)}/${each.index}` }, many(each.producers ?? 0, "numbered producer"))])),
  },
  {
    title: "Consumer",
    text: () => [p("A consumer asks for records: so many, from this offset on. The broker sends nothing by itself, so a slow consumer is never flooded, and one that was away goes on where it was."),
      p("Its position is the offset that it asks for next. To seek is to ask for another one: the first, the last, or the first since some time.")],
    show: (data) => [h("p", {}, Object.keys(data.records).map((index) => `A consumer of partition ${index} may begin anywhere from ${count(data.starts[index] ?? 0)} to ${count(data.next[index])}. `)), tapes(data, false)],
  },
  {
    title: "Group",
    text: () => [p("Consumers with the same group.id share a topic: each partition is read by exactly one of them. Two groups read all of it, each at its own pace. The group keeps the offset that it has come to, by committing it, so a consumer that restarts goes on from there."),
      p("How far a group is behind the end is its lag. One reader here is slower than the producer, and its lag grows.")],
    show: (data) => (data.group ? [facts(["Group", data.group.id], ["Members", count(data.group.memberCount)], ["Lag", count(data.group.lag)]), members(data.group), tapes(data, true)] : needsLoad(data)),
    tries: ["add-reader", "remove-reader"],
  },
  {
    title: "Rebalance",
    text: () => [p("When a member comes or goes, the partitions are dealt out anew. In the classic protocol all members stop, join again, and one of them, the leader of the group, makes the new assignment. The coordinator, a broker, only passes it on."),
      p("Add a reader and see its share. Lose one, without a goodbye: the coordinator notices only when its session of ten seconds is over, and until then nobody reads its partitions.")],
    show: (data) => (data.group ? [facts(["State", data.group.state], ["Members", count(data.group.memberCount)]), reason(data.group), members(data.group)] : needsLoad(data)),
    tries: ["add-reader", "remove-reader", "lose-reader"],
  },
  {
    title: "Commit",
    text: () => [p("A group remembers how far it is by committing an offset for each partition: the next one to read. The coordinator keeps it in a topic of its own, __consumer_offsets. A member that starts, or takes over a partition, begins there."),
      p("Shaded cells are before the committed offset. What was read but not committed is read again by whoever comes next.")],
    show: (data) => (data.group ? [facts(...Object.entries(data.committed).map(([index, offset]) => [`Partition ${index}`, `committed ${count(offset)}`])), tapes(data, true)] : needsLoad(data)),
  },
  {
    title: "Delivery semantics",
    text: () => [p("A consumer that commits before it has done its work may die between the two: that work is never done. At most once. One that commits afterwards does it again: at least once."),
      p("Exactly once takes more: results and offsets that are written together, in a transaction or in one database; or results that are the same when they are written twice, because each has an id.")],
    show: (data) => (data.group ? [p("If all readers died now, their successors would begin at:"), facts(...Object.entries(data.committed).map(([index, offset]) => [`Partition ${index}`, `offset ${count(offset)}`])), tapes(data, true)] : needsLoad(data)),
  },
  {
    title: "Guarantees",
    text: () => [p("Within a partition, records stay in the order in which they were written. A record acknowledged with acks=all outlives the loss of brokers as long as one in-sync replica is left. Consumers see committed records only, and nothing takes one back."),
      p("There is no order between partitions, and no promise for what was never acknowledged.")],
    show: (data) => [facts(["Replicas", count(data.topic.partitions[0].replicas.length)], ["In sync", count(data.topic.partitions[0].isr.length)], ["min.insync.replicas", data.setting("min.insync.replicas")]),
      h("p", {}, survives(data))],
  },
  {
    title: "Retention",
    text: () => [p("Records are not deleted because they were read, but because they are old, or the log is large: retention.ms and retention.bytes. The log is cut into segments, files of some size, and whole segments go, from the oldest on."),
      p("A compacted topic instead keeps the newest record of each key, for ever: a table in the shape of a stream.")],
    show: (data) => [facts(["retention.ms", data.setting("retention.ms")], ["retention.bytes", data.setting("retention.bytes")], ["cleanup.policy", data.setting("cleanup.policy")]),
      h("p", {}, data.topic.partitions.filter((each) => each.isHere).slice(0, 6).map((each) => `Partition ${each.index} begins at offset ${count(each.start)} and has ${each.segments} ${each.segments === 1 ? "segment" : "segments"}. `))],
  },
];

// Acknowledged records, and writing, while brokers are lost.
const survives = (data) => {
  const replicas = data.topic.partitions[0].replicas.length, least = Number(data.setting("min.insync.replicas")) || 1;
  if (replicas === 1) return "Each partition is on one broker: what is lost with its disk is lost.";
  return `Writing with acks=all goes on while ${count(Math.max(0, replicas - least))} of ${count(replicas)} replicas are lost.`;
};

const needsLoad = (data) => h("p", { class: "soft" }, data.load.mayStart ? "Start the load above, and its group appears here." : "No group of the load is here.");
