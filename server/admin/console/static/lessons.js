// What the Learn tab says, step by step, and what it shows beside the words. `show` gets what the broker holds at this moment.

import { members, reason } from "./groups.js";
import { legend, picture } from "./topics.js";
import { bytes, count, facts, h, time, visible } from "./dom.js";

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
    title: "Retention",
    text: () => [p("Records are not deleted because they were read, but because they are old, or the log is large: retention.ms and retention.bytes. The log is cut into segments, files of some size, and whole segments go, from the oldest on."),
      p("A compacted topic instead keeps the newest record of each key, for ever: a table in the shape of a stream.")],
    show: (data) => [facts(["retention.ms", data.setting("retention.ms")], ["retention.bytes", data.setting("retention.bytes")], ["cleanup.policy", data.setting("cleanup.policy")]),
      h("p", {}, data.topic.partitions.filter((each) => each.isHere).slice(0, 6).map((each) => `Partition ${each.index} begins at offset ${count(each.start)} and has ${each.segments} ${each.segments === 1 ? "segment" : "segments"}. `))],
  },
];

const needsLoad = (data) => h("p", { class: "soft" }, data.load.mayStart ? "Start the load above, and its group appears here." : "No group of the load is here.");
