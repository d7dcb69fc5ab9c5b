import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { count, signed } from "./format.js";
import { listen } from "./keys.js";
import { completed, hashOf, placeOf, viewsOf } from "./route.js";
import { open } from "./store.js";
import { Sidebar } from "./sidebar.js";
import { Overview } from "./overview.js";
import { Matrix } from "./matrix.js";
import { Waterfall } from "./waterfall.js";
import { Parts } from "./parts.js";
import { Tokens } from "./tokens.js";
import { Compare } from "./compare.js";
import { Truth } from "./truth.js";
import { Health } from "./health.js";
import { Detail } from "./detail.js";
import { Help } from "./help.js";

const TITLES = {
  overview: "Overview", matrix: "Group matrix", waterfall: "Turn waterfall", parts: "Parts", tokens: "Tokens",
  compare: "Methods", truth: "Truth", health: "Data health",
};
const PICTURES = { overview: Overview, matrix: Matrix, waterfall: Waterfall, parts: Parts, tokens: Tokens, compare: Compare, truth: Truth, health: Health };
const WITH_STEP = new Set(["matrix", "waterfall", "parts", "tokens", "compare"]);

// The reader's own settings; a file:// page may have no storage.
function setting(name, fallback) {
  try {
    return localStorage.getItem(`accredit.${name}`) ?? fallback;
  } catch {
    return fallback;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`accredit.${name}`, value);
  } catch { /* the setting lasts as long as the page */ }
}

function usePlace(model) {
  const read = () => placeOf(model, location.hash);
  const [state, setState] = useState(read);
  useEffect(() => {
    const onHash = () => setState(read());
    addEventListener("hashchange", onHash);
    addEventListener("popstate", onHash);
    return () => {
      removeEventListener("hashchange", onHash);
      removeEventListener("popstate", onHash);
    };
  }, [model]);
  // Another picture, group or rollout is a new page of the history; another step is not.
  const go = useCallback((patch) => {
    setState((old) => {
      const place = completed(model, { ...old.place, ...patch });
      const hash = hashOf(model, place);
      const far = ["view", "g", "r"].some((key) => place[key] !== old.place[key]);
      if (hash !== location.hash) history[far ? "pushState" : "replaceState"](null, "", hash);
      return { place, missing: [] };
    });
  }, [model]);
  return [state, go];
}

function useGroup(model, g) {
  const [block, setBlock] = useState({ g: null, data: null });
  useEffect(() => {
    if (g === null || model.groups[g].href) return undefined;
    let live = true;
    const began = performance.now();
    open(`g${g}`).then((data) => {
      if (!live) return;
      setBlock({ g, data });
      requestAnimationFrame(() => performance.measure("accredit:group-open", { start: began, end: performance.now() }));
    });
    return () => { live = false; };
  }, [model, g]);
  return block.g === g ? block.data : null;
}

function stepMover(model, place, go) {
  const flat = place.r === null ? null : model.start[place.r] + (place.s ?? 0);
  return {
    turn: (by) => {
      if (place.r === null) return go({ ...model.place(model.methods[place.m].top[0] ?? 0), view: "waterfall" });
      const s = Math.max(0, Math.min((place.s ?? -by) + by, model.length(place.r) - 1));
      return go({ s });
    },
    rollout: (by) => {
      if (place.g === null) return undefined;
      const rows = model.rows(place.g);
      const at = place.r === null ? -by : rows.indexOf(place.r);
      const r = rows[Math.max(0, Math.min(at + by, rows.length - 1))];
      if (r === undefined || r === place.r) return undefined;
      return go({ r, s: Math.min(place.s ?? 0, Math.max(model.length(r) - 1, 0)) });
    },
    large: (by) => {
      const credit = model.credit(place.m);
      const bar = model.end(place.m) / 2;
      for (let s = flat === null ? (by > 0 ? 0 : model.nSteps - 1) : flat + by; s >= 0 && s < model.nSteps; s += by) {
        if (Math.abs(credit[s]) >= bar) {
          const view = WITH_STEP.has(place.view) ? place.view : "waterfall";
          return go({ ...model.place(s), view });
        }
      }
      return undefined;
    },
  };
}

const UP = { parts: "waterfall", tokens: "waterfall", waterfall: "matrix", matrix: "overview", compare: "overview", truth: "overview", health: "overview" };

function useKeys(ui, latest) {
  useEffect(() => {
    const now = () => latest.current;
    return listen({
      j: () => now().move.turn(1), k: () => now().move.turn(-1),
      J: () => now().move.rollout(1), K: () => now().move.rollout(-1),
      n: () => now().move.large(1), p: () => now().move.large(-1),
      g: () => document.querySelector("#sidebar [aria-current=true], #sidebar a")?.focus(),
      "/": () => document.getElementById("search")?.focus(),
      m: () => now().go({ m: (now().place.m + 1) % now().model.methods.length, vs: now().place.m }),
      c: () => now().go({ view: "compare" }),
      t: () => now().go({ view: "tokens" }),
      y: () => ui.copy(),
      "?": () => ui.setHelp(true),
      Escape: (event) => {
        if (document.querySelector("dialog[open]")) return;
        if (event.target.id === "search") event.target.blur();
        else if (UP[now().place.view]) now().go({ view: UP[now().place.view] });
      },
    }, () => ui.letters());
  }, []);
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    return "Link copied";
  } catch {
    return location.href;
  }
}

function useTheme() {
  const [theme, setTheme] = useState(() => setting("theme", "auto"));
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    keep("theme", theme);
  }, [theme]);
  return [theme, setTheme];
}

function told(model, step) {
  const value = model.trueOf(step);
  return value === null ? "" : `, true advantage ${signed(value)}`;
}

function spoken(model, place) {
  if (place.r === null || place.s === null || model.length(place.r) === 0) return "";
  const step = model.start[place.r] + place.s;
  return `Rollout ${model.ids[place.r]}, step ${place.s} of ${model.length(place.r)}, ${model.action(step)}, credit ${signed(model.credit(place.m)[step])}${told(model, step)}`;
}

export function App({ model }) {
  const [{ place, missing }, go] = usePlace(model);
  const [help, setHelp] = useState(false);
  const [letters, setLetters] = useState(() => setting("letters", "on") === "on");
  const [said, setSaid] = useState("");
  const [wordsReady, setWordsReady] = useState(false);
  const [theme, setTheme] = useTheme();
  const group = useGroup(model, place.g);
  const latest = useRef();
  latest.current = { place, go, model, move: stepMover(model, place, go), letters };
  const copy = () => copyLink().then(setSaid);
  useKeys({ copy, setHelp, letters: () => latest.current.letters }, latest);
  useEffect(() => {
    requestAnimationFrame(() => performance.mark("accredit:ready"));
    model.openWords().then(() => setWordsReady(true));
  }, [model]);
  useEffect(() => keep("letters", letters ? "on" : "off"), [letters]);
  useEffect(() => setSaid(""), [place]);
  const shared = useMemo(() => (place.g === null ? new Map() : model.shared(place.g)), [place.g]);
  const Picture = PICTURES[place.view];
  const props = { model, place, go, group, shared, wordsReady };
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the picture</a>
    <header class="top">
      <a class="brand" href=${hashOf(model, { ...place, g: null, r: null, s: null, view: "overview" })}><span class="brand-mark" aria-hidden="true"><i></i><i></i></span>accredit</a>
      <nav class="tabs" aria-label="Views">
        ${viewsOf(model).map((view) => html`
          <a href=${hashOf(model, completed(model, { ...place, view }))} aria-current=${place.view === view ? "page" : null}>${TITLES[view]}</a>`)}
      </nav>
      <div class="choices">
        <label>Method <select value=${place.m} onChange=${(e) => { const m = Number(e.target.value); go({ m, vs: m === place.vs ? place.m : place.vs }); }}>
          ${model.methods.map((x, i) => html`<option value=${i} selected=${i === place.m}>${x.label}</option>`)}
        </select></label>
        <button type="button" onClick=${copy} title="Copy the link (y)">Link</button>
        <label class="theme"><span class="hidden">Colours</span><select value=${theme} onChange=${(e) => setTheme(e.target.value)}>
          ${[["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]].map(([v, label]) => html`<option value=${v} selected=${v === theme}>${label}</option>`)}
        </select></label>
        <button type="button" onClick=${() => setHelp(true)} aria-haspopup="dialog" title="Keys and help (?)">?</button>
      </div>
    </header>
    <div class=${`panes ${WITH_STEP.has(place.view) ? "three" : "two"}`}>
      <${Sidebar} ...${props} />
      <main id="main" tabindex="-1">
        ${missing.length > 0 && html`<p class="notice">Not in this report: ${missing.join(", ")}.</p>`}
        ${model.head.notice && html`<p class="notice">${model.head.notice}</p>`}
        <${Picture} ...${props} />
      </main>
      ${WITH_STEP.has(place.view) && html`<${Detail} ...${props} />`}
    </div>
    <footer class="foot">${model.head.made} · ${count(model.head.counts.rollouts, "rollout")}, ${count(model.head.counts.steps, "step")}, ${count(model.head.counts.tokens, "policy token")} · ${model.head.textNote}</footer>
    <div role="status" class=${said ? "toast" : "hidden"}>${said || spoken(model, place)}</div>
    <${Help} open=${help} close=${() => setHelp(false)} letters=${letters} setLetters=${setLetters} />`;
}

