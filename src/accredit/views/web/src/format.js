// Numbers and words as people read them.
const MINUS = "\u2212";

export function number(x, digits = 3) {
  if (x === null || x === undefined) return "none";
  if (typeof x === "string") return x;
  if (x === 0) return "0";
  const size = Math.abs(x);
  let text;
  if (size >= 1e6 || size < 1e-4) text = Number(size.toPrecision(digits)).toExponential().replace("e+", "e").replace("e-", `e${MINUS}`);
  else if (size >= 1000) text = Math.round(size).toLocaleString("en-US");
  else text = String(Number(size.toPrecision(digits)));
  return (x < 0 ? MINUS : "") + text;
}

export function signed(x, digits = 3) {
  const text = number(x, digits);
  return x > 0 ? `+${text}` : text;
}

export function percent(x) {
  const p = 100 * x;
  return `${p !== 0 && Math.abs(p) < 10 ? Number(p.toPrecision(2)) : Math.round(p)} %`;
}

export function count(n, word, plural = `${word}s`) {
  return `${n.toLocaleString("en-US")} ${n === 1 ? word : plural}`;
}

export function glyph(x) {
  return x > 0 ? "▲" : x < 0 ? "▼" : "·";
}

export function range(low, high, show = number) {
  return low === null || high === null ? "no interval: one group" : `95 % interval ${show(low)} to ${show(high)}`;
}

export function clip(text, width) {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}

export function oneLine(text) {
  return text.replace(/\s+/g, " ").trim();
}

// Signed colour step, -top..top; 0 for (nearly) nothing. Same rule as views/colour.py.
export function step(x, end, top = 5) {
  const share = Math.min(Math.abs(x) / end, 1);
  const size = share > 1e-9 ? Math.ceil(share * top - 1e-9) : 0;
  return x > 0 ? size : -size;
}

export function shade(x, end, top = 5) {
  const k = step(x, end, top);
  return k > 0 ? `p${k}` : k < 0 ? `n${-k}` : "z";
}
