// The index block as one object; steps and rollouts are numbered as in the block ("sheet order").
import { open } from "./store.js";

export class Model {
  constructor({ head, arrays }) {
    this.head = head;
    this.arrays = arrays;
    this.methods = head.methods;
    this.groups = head.groups;
    this.ids = head.ids;
    this.start = arrays.start;
    this.first = arrays.first;
    this.truth = head.truth ?? null;
    this.nRollouts = this.ids.length;
    this.nSteps = this.start[this.nRollouts];
    this.rolloutOf = new Int32Array(this.nSteps);
    this.groupOf = new Int32Array(this.nRollouts);
    for (let r = 0; r < this.nRollouts; r++) this.rolloutOf.fill(r, this.start[r], this.start[r + 1]);
    for (let g = 0; g < this.groups.length; g++) this.groupOf.fill(g, this.first[g], this.first[g + 1]);
    this.groupIndex = new Map(this.groups.map((g, i) => [g.name, i]));
    this.rolloutIndex = new Map(this.ids.map((id, i) => [id, i]));
    this.words = null;
    this.sorted = new Map();
  }

  async openWords() {
    const block = await open("words");
    if (block) this.words = { pool: block.head.pool, codes: block.arrays.action };
  }

  credit(m) { return this.arrays[`credit.${m}`]; }

  end(m) { return this.methods[m].end; }

  // True advantage of a step; null where it is not known.
  trueOf(step) { return this.truth && this.arrays.truth_sure[step] ? this.arrays.truth[step] : null; }

  // How a method misses a true advantage whose sign is clear: "wrong sign", "no credit", or "".
  miss(m, step) {
    if (!this.truth || this.arrays.truth_sure[step] < 2) return "";
    const value = this.credit(m)[step];
    if (value === 0) return "no credit";
    return value > 0 === this.arrays.truth[step] > 0 ? "" : "wrong sign";
  }

  reward(r) { return this.arrays.reward_ok[r] ? this.arrays.reward[r] : null; }

  length(r) { return this.start[r + 1] - this.start[r]; }

  // An id that begins with its group's name is told apart by its end.
  shortId(r) {
    const [id, group] = [this.ids[r], this.groups[this.groupOf[r]].name];
    return id.length > 14 && id.startsWith(group) && id.length > group.length ? `…${id.slice(group.length)}` : id;
  }

  action(step) {
    if (!this.words) return "";
    const code = this.words.codes[step];
    return code < 0 ? "" : this.words.pool[code];
  }

  agent(step) {
    const codes = this.arrays.agent;
    return codes && codes[step] >= 0 ? this.head.agents[codes[step]] : "";
  }

  // Rollouts of a group, best reward first, unscored last.
  rows(g) {
    if (!this.sorted.has(g)) {
      const rows = [];
      for (let r = this.first[g]; r < this.first[g + 1]; r++) rows.push(r);
      const key = (r) => this.reward(r) ?? -Infinity;
      rows.sort((a, b) => (key(b) === key(a) ? a - b : key(b) - key(a)));
      this.sorted.set(g, rows);
    }
    return this.sorted.get(g);
  }

  // state code -> steps of the group that stand in it, only where two rollouts share it.
  shared(g) {
    const state = this.arrays.state;
    const at = new Map();
    for (let s = this.start[this.first[g]]; s < this.start[this.first[g + 1]]; s++) {
      if (state[s] < 0) continue;
      if (!at.has(state[s])) at.set(state[s], []);
      at.get(state[s]).push(s);
    }
    for (const [code, steps] of at) {
      if (steps.every((s) => this.rolloutOf[s] === this.rolloutOf[steps[0]])) at.delete(code);
    }
    return at;
  }

  isPrefix(r, t) {
    const { parent, fork } = this.arrays;
    return Boolean(parent) && parent[r] >= 0 && this.groupOf[parent[r]] === this.groupOf[r] && t < fork[r];
  }

  place(step) {
    const r = this.rolloutOf[step];
    return { g: this.groupOf[r], r, s: step - this.start[r] };
  }
}
