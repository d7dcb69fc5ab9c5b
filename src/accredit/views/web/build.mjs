// Bundles src/ into ../assets once; run by maintainers: npm ci && npm run build.
// The hash of the source is written into the bundle and into assets/report.json (tests/views checks it).
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync, mkdirSync } from "node:fs";
import { build, transform } from "esbuild";

const here = new URL("./", import.meta.url);
const assets = new URL("../assets/", here);
const read = (name) => readFileSync(new URL(name, here), "utf8").replace(/\r\n/g, "\n");

const names = [...readdirSync(new URL("src/", here)).map((n) => `src/${n}`), "build.mjs", "package.json", "package-lock.json"].sort();
const source = createHash("sha256");
for (const name of names) source.update(`${name}\0${read(name)}\0`);
const hash = source.digest("hex");

const packages = ["preact", "htm", "d3-array", "d3-axis", "d3-color", "d3-format", "d3-interpolate", "d3-scale", "d3-selection", "d3-time", "d3-time-format", "internmap"];
const licences = packages.map((name) => {
  const { version, license } = JSON.parse(read(`node_modules/${name}/package.json`));
  const file = readdirSync(new URL(`node_modules/${name}/`, here)).find((n) => /^licen[cs]e/i.test(n));
  const text = file ? read(`node_modules/${name}/${file}`).trim() : "";
  return { name, version, license, text };
});
// The whole Apache text is in the project's own LICENSE.
const shown = (l) => (l.license === "Apache-2.0" ? "Apache License 2.0, http://www.apache.org/licenses/LICENSE-2.0" : l.text);
const grouped = new Map();
for (const l of licences) {
  const key = shown(l);
  grouped.set(key, [...(grouped.get(key) ?? []), `${l.name} ${l.version} (${l.license})`]);
}
const notice = [...grouped].map(([text, list]) => `${list.join(", ")}\n\n${text}`).join("\n\n----\n\n");
const banner = `/*! accredit report, Apache-2.0. Source sha256:${hash}\nBundled parts and their licences:\n\n${notice.replaceAll("*/", "* /")}\n*/`;

const result = await build({
  entryPoints: [new URL("src/main.js", here).pathname], bundle: true, minify: true, format: "iife", target: ["chrome111", "firefox113", "safari16.4"],
  charset: "utf8", legalComments: "none", write: false, banner: { js: banner },
});
const script = result.outputFiles[0].text;
if (/<\/script|<!--/i.test(script)) throw new Error("the bundle holds a text that would end its script element");
const style = (await transform(read("src/report.css"), { loader: "css", minify: true, charset: "utf8", legalComments: "none" })).code;

mkdirSync(assets, { recursive: true });
const digest = (text) => createHash("sha256").update(text).digest("hex");
writeFileSync(new URL("report.js", assets), script);
writeFileSync(new URL("report.css", assets), style);
writeFileSync(new URL("LICENSES.txt", assets), `Parts bundled into report.js\n\n${notice}\n`);
writeFileSync(new URL("report.json", assets), `${JSON.stringify({ source: hash, script: digest(script), style: digest(style), packages: licences.map(({ name, version, license }) => ({ name, version, license })) }, null, 2)}\n`);
console.log(`report.js ${script.length} bytes, report.css ${style.length} bytes, source ${hash.slice(0, 12)}`);
