// Data blocks: base64 text in the page -> gzip -> head JSON and typed arrays (layout: views/blocks.py).
const TYPES = { f4: Float32Array, i4: Int32Array, u2: Uint16Array, i1: Int8Array, u1: Uint8Array };
const KEPT = 12;
const opened = new Map();

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unpack(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const [name, [kind, offset, count]] of Object.entries(head.arrays)) {
    arrays[name] = new TYPES[kind](buffer, 4 + length + offset, count);
  }
  return { head, arrays };
}

// The group blocks stand after the script, so that the first paint need not wait for them.
function parsed() {
  if (document.readyState !== "loading") return Promise.resolve();
  return new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
}

export function supported() {
  return typeof DecompressionStream === "function";
}

export async function open(name) {
  if (opened.has(name)) {
    const kept = opened.get(name);
    opened.delete(name);
    opened.set(name, kept);
    return kept;
  }
  let element = document.getElementById(`block-${name}`);
  if (!element) {
    await parsed();
    element = document.getElementById(`block-${name}`);
  }
  if (!element) return null;
  const promise = unpack(element.textContent.trim());
  opened.set(name, promise);
  if (opened.size > KEPT) opened.delete(opened.keys().next().value);
  return promise;
}
