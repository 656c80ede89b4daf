// What all charts have in common: colours of the page, and quiet axes.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const axis = (options) => ({
  stroke: colour("--soft"),
  font: "12px system-ui, sans-serif",
  grid: { stroke: colour("--line"), width: 1 },
  ticks: { show: false },
  ...options,
});
