// Groups; the open group shows its rollouts; a search looks through ids, group names and actions.
import { useMemo, useState } from "preact/hooks";
import { html } from "./html.js";
import { clip, count, glyph, number, signed } from "./format.js";
import { hashOf } from "./route.js";
import { useWindow } from "./virtual.js";

const ROW = 34;
const MOST_HITS = 200;

function entries(model, place) {
  const list = [];
  model.groups.forEach((_, g) => {
    list.push({ kind: "group", g });
    if (g === place.g) for (const r of model.rows(g)) list.push({ kind: "rollout", g, r });
  });
  return list;
}

function hits(model, words) {
  const asked = words.toLowerCase();
  const list = [];
  const add = (entry) => { if (list.length < MOST_HITS) list.push(entry); };
  model.groups.forEach((group, g) => { if (group.name.toLowerCase().includes(asked)) add({ kind: "group", g }); });
  model.ids.forEach((id, r) => { if (id.toLowerCase().includes(asked)) add({ kind: "rollout", g: model.groupOf[r], r }); });
  if (!model.words) return list;
  const found = model.words.pool.map((text) => text.toLowerCase().includes(asked));
  for (let s = 0; s < model.nSteps && list.length < MOST_HITS; s++) {
    if (found[model.words.codes[s]]) add({ kind: "step", ...model.place(s) });
  }
  return list;
}

function groupFacts(model, g) {
  const { n, scored, mean } = model.groups[g];
  return `${count(n, "rollout")}, ${scored ? `mean reward ${number(mean)}` : "unscored"}`;
}

function Entry({ model, place, entry, at, total }) {
  const { kind, g, r, s } = entry;
  const target = { ...place, g, r: r ?? null, s: kind === "group" ? null : (s ?? (model.length(r) ? 0 : null)),
    view: kind === "group" ? "matrix" : ["matrix", "parts", "tokens"].includes(place.view) ? place.view : "waterfall" };
  const current = kind === "group" ? g === place.g && place.r === null : kind === "rollout" && r === place.r;
  const href = (model.groups[g].href ?? "") + hashOf(model, target);
  const props = { href, "aria-current": current ? "true" : null, class: `entry ${kind} ${g === place.g ? "open" : ""}` };
  const wrap = (inner) => html`<li style=${{ top: `${at * ROW}px` }} aria-setsize=${total} aria-posinset=${at + 1}><a ...${props}>${inner}</a></li>`;
  if (kind === "group") return wrap(html`<b>${clip(model.groups[g].name, 60)}</b><small>${groupFacts(model, g)}</small>`);
  if (kind === "rollout") {
    const reward = model.reward(r);
    return wrap(html`<b>${clip(model.shortId(r), 40)}</b><small>${count(model.length(r), "step")}, reward ${reward === null ? "none" : number(reward)}</small>`);
  }
  const credit = model.credit(place.m)[model.start[r] + s];
  return wrap(html`<b>${clip(model.action(model.start[r] + s), 60)}</b><small>${clip(model.ids[r], 20)} step ${s}, ${glyph(credit)} ${signed(credit)}</small>`);
}

function onArrows(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const next = links[links.indexOf(document.activeElement) + by];
  if (next) {
    event.preventDefault();
    next.focus();
  }
}

export function Sidebar({ model, place, wordsReady }) {
  const [words, setWords] = useState("");
  const list = useMemo(() => (words ? hits(model, words) : entries(model, place)), [words, place.g, wordsReady]);
  const focus = useMemo(() => {
    const at = list.findIndex((e) => e.kind === "rollout" && e.r === place.r);
    return at >= 0 ? at : list.findIndex((e) => e.kind === "group" && e.g === place.g);
  }, [list, place.r, place.g]);
  const view = useWindow(list.length, ROW, words ? 0 : focus);
  return html`<nav id="sidebar" class="sidebar" aria-label="Groups and rollouts">
    <input id="search" type="search" placeholder="Search ids and actions  /" aria-label="Search ids and actions"
      value=${words} onInput=${(e) => setWords(e.target.value)} />
    <p class="note" role="status">${words ? `${count(list.length, "match", "matches")}${list.length >= MOST_HITS ? " shown" : ""}` : count(model.groups.length, "group")}</p>
    <div class="scroll list" ref=${view.ref} onScroll=${view.onScroll} onKeyDown=${onArrows} tabindex="-1">
      <ul style=${{ height: `${list.length * ROW}px` }}>
        ${list.slice(view.first, view.last).map((entry, i) => html`<${Entry} key=${`${entry.kind}${entry.g}.${entry.r}.${entry.s}`} model=${model} place=${place} entry=${entry} at=${view.first + i} total=${list.length} />`)}
      </ul>
    </div>
  </nav>`;
}
