// A labelled axis by d3; `scale` runs in percent of the width.
import { axisTop } from "d3-axis";
import { scaleLinear } from "d3-scale";
import { select } from "d3-selection";
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { number } from "./format.js";
import { useSize } from "./virtual.js";

export function percentScale(low, high) {
  return scaleLinear().domain([low, high]).nice(6).range([1, 99]);
}

export function Axis({ scale, label }) {
  const box = useRef(null);
  const group = useRef(null);
  const { width } = useSize(box);
  useLayoutEffect(() => {
    if (!width) return;
    const pixels = scale.copy().range(scale.range().map((p) => (p / 100) * width));
    const axis = axisTop(pixels).ticks(Math.max(2, Math.floor(width / 80))).tickSize(4).tickFormat((x) => number(x));
    select(group.current).call(axis).attr("font-family", null).attr("font-size", null);
  }, [width, scale]);
  return html`<div class="axis" ref=${box} aria-hidden="true">
    <span class="axis-label">${label}</span>
    <svg width="100%" height="22"><g ref=${group} transform="translate(0,20)"></g></svg>
  </div>`;
}
