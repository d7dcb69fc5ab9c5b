// The hash holds everything visible: #/g/<group>/r/<rollout>/s/<step>?m=gigpo&vs=grpo&view=matrix
const VIEWS = ["overview", "matrix", "waterfall", "parts", "tokens", "compare", "truth", "health"];
// A comparison needs two methods, and a truth to compare with is not in every report.
export const viewsOf = (model) => VIEWS.filter((v) => (v !== "compare" || model.methods.length > 1) && (v !== "truth" || model.truth));
const ROLLOUT_VIEWS = new Set(["waterfall", "parts", "tokens"]);

const encode = (text) => encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text).replace(/%20/g, "+");

function decode(text) {
  try {
    return decodeURIComponent(text.replace(/\+/g, "%20"));
  } catch {
    return text;
  }
}

export function hashOf(model, place) {
  const path = [""];
  if (place.g !== null) path.push("g", encode(model.groups[place.g].name));
  if (place.r !== null) path.push("r", encode(model.ids[place.r]));
  if (place.r !== null && place.s !== null) path.push("s", String(place.s));
  const query = [`m=${encode(model.methods[place.m].label)}`];
  if (place.vs !== null) query.push(`vs=${encode(model.methods[place.vs].label)}`);
  query.push(`view=${place.view}`);
  return `#${path.join("/") || "/"}?${query.join("&")}`;
}

// Returns the place, complete and inside the report, and what could not be found.
export function placeOf(model, hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean);
  const asked = {};
  for (let i = 0; i + 1 < parts.length; i += 2) asked[parts[i]] = decode(parts[i + 1]);
  for (const pair of query.split("&").filter(Boolean)) {
    const [key, value = ""] = pair.split("=");
    asked[key] = decode(value);
  }
  return resolve(model, asked);
}

function resolve(model, asked) {
  const missing = [];
  const find = (kind, index, name) => {
    if (name === undefined) return null;
    if (index.has(name)) return index.get(name);
    missing.push(`${kind} “${name}”`);
    return null;
  };
  const labels = new Map(model.methods.map((x, i) => [x.label, i]));
  let g = find("group", model.groupIndex, asked.g);
  const r = find("rollout", model.rolloutIndex, asked.r);
  if (r !== null) g = model.groupOf[r];
  const m = find("method", labels, asked.m) ?? 0;
  let vs = find("method", labels, asked.vs);
  if (vs === null && model.methods.length > 1) vs = m === 0 ? 1 : 0;
  if (vs === m) vs = model.methods.length > 1 ? (m + 1) % model.methods.length : null;
  const s = r === null || asked.s === undefined ? null : stepIn(model, r, Number(asked.s));
  const view = VIEWS.includes(asked.view) && (asked.view !== "truth" || model.truth) ? asked.view : r !== null ? "waterfall" : g !== null ? "matrix" : "overview";
  return { place: completed(model, { g, r, s, m, vs, view }), missing };
}

const stepIn = (model, r, s) => (Number.isInteger(s) ? Math.max(0, Math.min(s, model.length(r) - 1)) : 0);

// A picture of a group or a rollout needs one: the most decisive step's, where none was asked for.
export function completed(model, place) {
  const needsRollout = ROLLOUT_VIEWS.has(place.view);
  if (!needsRollout && place.view !== "matrix") return place;
  if (model.nRollouts === 0) return { ...place, view: "overview" };
  if (place.g === null) {
    const top = model.methods[place.m].top[0];
    return { ...place, ...(top === undefined ? { g: model.groupOf[0], r: 0, s: 0 } : model.place(top)) };
  }
  if (place.r === null) {
    const r = model.rows(place.g)[0] ?? null;
    return { ...place, r, s: r === null || model.length(r) === 0 ? null : 0 };
  }
  return place;
}
