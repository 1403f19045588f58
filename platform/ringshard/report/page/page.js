"use strict";
// Draws `data` (see payload.py) with Plotly; one legend and one choice of axis rule all plots.
const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const chosen = { axis: data.axis in data.axes ? data.axis : "step", log: false, seeds: false };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 760px)");
const PARTS = {
  training: "#0f9f6e", lost: "#dc3d43", data: "#d9730d", evaluation: "#3577e5", checkpoint: "#8a63d2",
  startup: "#c9a227", queue: "#9aa3ad", idle: "#c3c9d0", other: "#76808d",
};

// Plotly reads some HTML in every text.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgba = (hex, alpha) => `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},${alpha})`;

function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.slice(3)), (letter) => letter.charCodeAt(0));
  return text.startsWith("f4") ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}

function points(line) {
  line.read ??= { x: {}, y: unpacked(line.y) };
  const axis = chosen.axis;
  if (!(axis in line.x)) return null;
  line.read.x[axis] ??= unpacked(line.x[axis]);
  return { x: line.read.x[axis], y: line.read.y };
}

function layout(more = {}) {
  const axis = { gridcolor: color("--grid"), linecolor: color("--line"), zerolinecolor: color("--line"), automargin: true };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", size: 12, color: color("--soft") },
    margin: { l: 52, r: 12, t: 8, b: 40 }, hovermode: "closest", dragmode: narrow.matches ? false : "zoom",
    hoverlabel: { bgcolor: color("--card"), bordercolor: color("--line"), font: { color: color("--ink") }, namelength: -1 },
    ...more,
  };
  base.xaxis = { ...axis, ...more.xaxis };
  base.yaxis = { ...axis, ...more.yaxis };
  return base;
}

const show = (id, traces, look) => Plotly.react(id, traces, look, { responsive: true, displayModeBar: false });

function lineTraces(chart) {
  const inSeeds = new Set(chosen.seeds ? chart.seeds.flatMap((group) => group.runs) : []);
  const traces = [];
  data.runs.forEach((run, place) => {
    if (hidden.has(place)) return;
    const name = plain(run.name);
    const trained = inSeeds.has(place) ? null : chart.lines[place];
    for (const [kind, line] of [["lines", trained], ["lines+markers", chart.dots[place]]]) {
      const at = line && points(line);
      if (!at) continue;
      const isTwin = kind !== "lines";
      const alone = !isTwin && at.y.length < 2;
      traces.push({
        ...at, type: "scatter", mode: alone ? "markers" : kind, connectgaps: false,
        line: { color: run.color, width: isTwin ? 1 : 1.6, dash: isTwin ? "dot" : "solid" },
        marker: { color: run.color, size: isTwin ? 7 : 6, line: { color: color("--card"), width: 1 } },
        name: isTwin ? `${name} · validation` : name, meta: { run: place },
        hovertemplate: `%{y:.4g} at %{x:.4~s}<extra>${isTwin ? `${name} · validation` : name}</extra>`,
      });
    }
  });
  return chosen.seeds ? [...chart.seeds.flatMap(seedTraces), ...traces] : traces;
}

function seedTraces(group) {
  const shown = group.runs.filter((place) => !hidden.has(place));
  const at = points(group);
  if (!shown.length || !at) return [];
  const run = data.runs[group.runs[0]];
  group.read.low ??= unpacked(group.low);
  group.read.high ??= unpacked(group.high);
  const edge = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { width: 0 }, meta: { run: group.runs[0] } };
  const name = `${plain(run.name)} and ${group.runs.length - 1} other seeds`;
  return [
    { ...edge, x: at.x, y: group.read.low },
    { ...edge, x: at.x, y: group.read.high, fill: "tonexty", fillcolor: rgba(run.color, 0.2) },
    { ...at, type: "scatter", mode: "lines", line: { color: run.color, width: 2 }, name, meta: { run: group.runs[0] },
      hovertemplate: `mean %{y:.4g} at %{x:.4~s}<extra>${name}</extra>` },
  ];
}

function drawCurves() {
  data.curves.forEach((chart, place) => {
    const shapes = chart.level === null ? [] : [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: chart.level, y1: chart.level,
      line: { color: color("--soft"), width: 1, dash: "dash" },
      label: { text: "bigram entropy of the validation text", textposition: "start", yanchor: "bottom",
        font: { size: 10, color: color("--soft") } },
    }];
    const log = chosen.log || chart.log;
    show(`curve-${place}`, lineTraces(chart), layout({
      shapes, height: narrow.matches ? 280 : place ? 320 : 420,
      xaxis: { title: { text: plain(data.axes[chosen.axis]), standoff: 6 }, exponentformat: "SI", rangemode: "tozero" },
      yaxis: { type: log ? "log" : "linear", exponentformat: chart.id.includes("lr") ? "e" : "SI" },
    }));
  });
}

const shownRuns = () => data.runs.map((_, place) => place).filter((place) => !hidden.has(place));
const barHeight = (count) => Math.max(140, 60 + 22 * count);
function barAxis(places) {
  const most = narrow.matches ? 18 : 34;
  const texts = places.map((place) => plain(short(data.runs[place].name, most)));
  return { autorange: "reversed", tickvals: places.map((_, row) => row), ticktext: texts, gridcolor: "rgba(0,0,0,0)",
    tickfont: { size: places.length > 30 ? 9 : 11 } };
}

function drawBars() {
  data.bars.forEach((chart, place) => {
    const places = shownRuns();
    const percent = chart.title.startsWith("Model");
    show(`bar-${place}`, [{
      type: "bar", orientation: "h", x: places.map((run) => chart.values[run]), y: places.map((_, row) => row),
      marker: { color: places.map((run) => data.runs[run].color) }, width: 0.72,
      customdata: places.map((run) => plain(data.runs[run].name)), meta: { runs: places },
      texttemplate: percent ? "%{x:.2~%}" : "%{x:,.0f}", textposition: "auto", constraintext: "inside", cliponaxis: false,
      hovertemplate: (percent ? "%{x:.2%}" : "%{x:,.0f}") + "<extra>%{customdata}</extra>",
    }], layout({ height: barHeight(places.length), yaxis: barAxis(places),
      xaxis: { rangemode: "tozero", tickformat: percent ? ".2~%" : "~s", nticks: 6 } }));
  });
}

function drawGoodput() {
  if (!data.goodput) return;
  const places = shownRuns();
  const sums = data.runs.map((_, run) => Object.values(data.goodput.parts).reduce((sum, part) => sum + part[run], 0));
  const traces = Object.entries(data.goodput.parts).map(([part, seconds]) => ({
    type: "bar", orientation: "h", name: part, marker: { color: PARTS[part] }, width: 0.72,
    x: places.map((run) => (sums[run] ? seconds[run] / sums[run] : 0)), y: places.map((_, row) => row),
    customdata: places.map((run) => [plain(data.runs[run].name), seconds[run]]), meta: { runs: places },
    hovertemplate: `${part}: %{x:.1%}, %{customdata[1]:,.1f} s<extra>%{customdata[0]}</extra>`,
  }));
  show("goodput", traces, layout({ barmode: "stack", height: barHeight(places.length), yaxis: barAxis(places),
    xaxis: { tickformat: ".0%", range: [0, 1] } }));
}

function drawParallel() {
  if (!data.parallel) return;
  const all = data.parallel.dimensions;
  const traces = shownRuns().map((run) => ({
    type: "scatter", mode: "lines+markers", x: all.map((_, at) => at), y: all.map((dimension) => dimension.places[run]),
    line: { color: data.runs[run].color, width: 1.6 },
    marker: { color: data.runs[run].color, size: 7 }, opacity: 0.85, connectgaps: true, meta: { run },
    text: all.map((dimension) => `${plain(dimension.title)} = ${plain(short(dimension.texts[run], 60))}`),
    hovertemplate: `%{text}<extra>${plain(data.runs[run].name)}</extra>`,
  }));
  const notes = all.flatMap((dimension, at) => ends(dimension).map(([place, text]) => ({
    x: at, y: place, text: plain(short(text, 14)), showarrow: false, yshift: place > 0.5 ? 14 : -14,
    font: { size: 11, color: color("--soft") },
  })));
  show("parallel", traces, layout({
    height: 340, annotations: notes, margin: { l: 40, r: 40, t: 12, b: 44 },
    shapes: all.map((_, at) => ({ type: "line", x0: at, x1: at, y0: 0, y1: 1, layer: "below", line: { color: color("--line"), width: 1 } })),
    xaxis: { tickvals: all.map((_, at) => at), ticktext: all.map((d) => plain(short(d.title.split(".").pop(), 16))), showgrid: false,
      zeroline: false, range: [-0.3, all.length - 0.7], fixedrange: true },
    yaxis: { visible: false, range: [-0.16, 1.16], fixedrange: true },
  }));
}

function ends(dimension) {
  const known = dimension.places.map((place, run) => [place, dimension.texts[run]]).filter(([place]) => place !== null);
  const least = known.reduce((a, b) => (b[0] < a[0] ? b : a), known[0] ?? []);
  const most = known.reduce((a, b) => (b[0] > a[0] ? b : a), known[0] ?? []);
  return known.length === 0 ? [] : least[0] === most[0] ? [most] : [least, most];
}

function drawScaling() {
  (data.scaling ?? []).forEach((series, place) => {
    const line = { type: "scatter", mode: "lines+markers", marker: { size: 8 }, x: series.devices };
    show(`scaling-${place}`, [
      { ...line, y: series.ideal, name: "ideal", line: { color: color("--soft"), dash: "dash", width: 1 }, marker: { size: 1 },
        hoverinfo: "skip" },
      { ...line, y: series.rates, name: "measured", line: { color: color("--accent"), width: 2 },
        text: series.texts.map(plain), hovertemplate: "%{text}<extra></extra>" },
    ], layout({ height: 320,
      xaxis: { type: "log", tickvals: series.devices, title: { text: "processes", standoff: 6 } },
      yaxis: { type: "log", title: { text: "tokens/s" }, exponentformat: "SI" } }));
  });
}

function draw() {
  drawCurves();
  drawBars();
  drawGoodput();
  drawParallel();
  drawScaling();
}

function choice(id, options, current, choose) {
  const box = document.getElementById(id);
  for (const [value, text] of options) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.dataset.value = value;
    button.setAttribute("aria-pressed", String(value === current));
    button.addEventListener("click", () => {
      box.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      choose(value);
      drawCurves();
    });
    box.append(button);
  }
}

function legend() {
  const box = document.getElementById("legend");
  data.runs.forEach((run, place) => {
    const button = document.createElement("button");
    const dot = document.createElement("span");
    dot.className = "dot";
    dot.style.background = run.color;
    button.type = "button";
    button.title = `${run.folder} (${run.state}); click hides or shows it, double-click shows it alone`;
    button.append(dot, document.createTextNode(run.name));
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => toggle(place));
    button.addEventListener("dblclick", () => alone(place));
    box.append(button);
  });
}

function toggle(place) {
  hidden.has(place) ? hidden.delete(place) : hidden.add(place);
  redraw();
}

function alone(place) {
  const isAlone = hidden.size === data.runs.length - 1 && !hidden.has(place);
  hidden.clear();
  if (!isAlone) data.runs.forEach((_, other) => other !== place && hidden.add(other));
  redraw();
}

function redraw() {
  document.querySelectorAll("#legend button").forEach((button, place) => button.setAttribute("aria-pressed", String(!hidden.has(place))));
  draw();
}

const AXES = { step: "steps", tokens: "tokens", time: "time", flops: "FLOPs" };
choice("axes", Object.keys(data.axes).map((axis) => [axis, AXES[axis]]), chosen.axis, (axis) => { chosen.axis = axis; });
choice("scale", [["linear", "linear"], ["log", "log"]], "linear", (scale) => { chosen.log = scale === "log"; });
if (data.curves.some((chart) => chart.seeds.length)) {
  choice("seeds", [["each", "each run"], ["mean", "mean ± deviation"]], "each", (what) => { chosen.seeds = what === "mean"; });
} else {
  document.getElementById("seeds-choice").remove();
}
if (data.runs.length > 1) legend();
draw();
dark.addEventListener("change", draw);
narrow.addEventListener("change", draw);
