// Records of several partitions in one order, by their times. Each page asks a bounded number of questions, each of which the broker
// answers after a bounded piece of work. Records of one partition stay in the order of their offsets.

const FIRST = 50, SEARCHED = 2000, SEARCHED_MAX = 20000, LIMIT = 200;

export class Merge {
  // `places`: partitions, each with its first offset and the one behind its last. `ask` gets a page of one partition.
  constructor(places, ask, { isNewestFirst, isSearch }) {
    Object.assign(this, { ask, isNewestFirst, isSearch, scanned: 0, bytes: 0 });
    this.parts = places.map((each) => ({ ...each, step: isSearch ? SEARCHED : FIRST, looks: 0, found: [] }));
  }

  get isDone() { return this.parts.every((each) => !each.found.length && each.from >= each.until); }

  // Returns the next records, fewer than `count` after `questions` questions. After each question it calls `told` with the number found.
  async next(count, questions, told = () => {}) {
    const page = [];
    const end = this.questions + questions;
    while (page.length < count) {
      const unread = this.parts.filter((each) => !each.found.length && each.from < each.until);
      if (unread.length && this.questions < end) {
        await this.look(unread.reduce((one, other) => (other.looks < one.looks ? other : one)));
        told(page.length + this.parts.reduce((sum, each) => sum + each.found.length, 0));
        continue;
      }
      const found = this.parts.filter((each) => each.found.length);
      if (!found.length) break;
      const isBefore = (one, other) => (this.isNewestFirst ? one.found[0].timestamp > other.found[0].timestamp : one.found[0].timestamp < other.found[0].timestamp);
      page.push(found.reduce((one, other) => (isBefore(other, one) ? other : one)).found.shift());
    }
    return page;
  }

  questions = 0;

  // Reads from one partition: forward from its first unread offset or, if the newest come first, its last unread offsets.
  async look(part) {
    part.looks += 1;
    let at = this.isNewestFirst ? Math.max(part.from, part.until - part.step) : part.from;
    const begin = at;
    do {
      const page = await this.ask({ partition: part.index, from: String(at), until: String(part.until), limit: Math.min(LIMIT, part.step) });
      this.questions += 1;
      this.scanned += page.scanned.records;
      this.bytes += page.scanned.bytes;
      part.found.push(...page.records.map((each) => ({ ...each, partition: part.index })));
      at = page.isAtEnd ? part.until : page.next;
    } while (this.isNewestFirst && at < part.until);
    if (this.isNewestFirst) {
      part.found.reverse();
      part.until = begin;
    } else part.from = at;
    if (!this.isSearch) part.step = LIMIT;
    else if (!part.found.length) part.step = Math.min(2 * part.step, SEARCHED_MAX);
  }
}
