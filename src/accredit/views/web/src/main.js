import { h, render } from "preact";
import { App } from "./app.js";
import { Model } from "./model.js";
import { open, supported } from "./store.js";

function fail(root, text) {
  root.textContent = text;
}

async function start() {
  const root = document.getElementById("app");
  if (!supported()) {
    fail(root, "This report needs a browser of 2023 or later (DecompressionStream: Chrome 80, Firefox 113, Safari 16.4).");
    return;
  }
  const index = await open("index");
  if (!index) {
    fail(root, "The data of this report are missing: the file was cut. Write it again with accredit report.");
    return;
  }
  const model = new Model(index);
  root.textContent = "";
  render(h(App, { model }), root);
}

start();
