"use strict";
// Asks the server every two seconds and changes only what has changed. Whatever comes from there is put into the page as
// text, never as HTML.

const REFRESH = 2000;
const SURE = 4000;
const HOUR = 3600;
const SVG = "http://www.w3.org/2000/svg";
const element = (id) => document.getElementById(id);
const shown = { status: null, unit: "bytes", timer: 0, failures: 0 };

function token() { return sessionStorage.getItem("token"); }

function ask(path, options) {
  const headers = Object.assign({}, options && options.headers);
  if (token()) headers.Authorization = "Bearer " + token();
  return fetch(path, Object.assign({ cache: "no-store", credentials: "omit" }, options, { headers }));
}

async function refresh() {
  clearTimeout(shown.timer);
  const asker = token();
  try {
    const answer = await ask("status.json");
    if (token() !== asker) return; // somebody has signed in or out meanwhile, and has asked again
    if (answer.status === 401) {
      const refused = asker !== null;
      sessionStorage.removeItem("token");
      askForToken(refused ? (await answer.text()).trim() : "");
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const status = await answer.json();
    if (token() !== asker) return;
    shown.status = status;
    shown.failures = 0;
    show(shown.status);
  } catch (error) {
    shown.failures += 1;
    if (shown.failures > 1) state("no connection", "lost");
  }
  shown.timer = setTimeout(refresh, document.hidden ? REFRESH * 5 : REFRESH);
}

function askForToken(problem) {
  element("content").hidden = true;
  element("viewer").hidden = true;
  element("sign-in").hidden = false;
  text(element("sign-in-problem"), problem);
  state("sign in", "");
  element("token").focus();
}

function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

function state(words, kind) {
  const pill = element("state");
  text(pill, words);
  pill.className = "pill " + kind;
}

// ---------------------------------------------------------------------------------------------------- figures

function figure(number, units, base) {
  let index = 0;
  while (number >= base && index < units.length - 1) { number /= base; index += 1; }
  const digits = index === 0 || number >= 100 ? 0 : 1;
  return number.toFixed(digits) + units[index];
}
const count = (number) => figure(number, ["", " k", " M", " bn", " tn"], 1000);
const bytes = (number) => figure(number, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);

function duration(seconds) {
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 60) return Math.floor(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.floor(seconds % 86400 / 3600) + " h";
}
const moment = (time) => new Date(time * 1000).toLocaleString();
const clock = (time) => new Date(time * 1000).toLocaleTimeString();

// ------------------------------------------------------------------------------------------------------- page

function show(status) {
  element("sign-in").hidden = true;
  element("content").hidden = false;
  element("viewer").hidden = !status.viewer.signed_in;
  text(element("viewer-name"), status.viewer.name || "");
  for (const each of document.querySelectorAll("[data-for-all]")) each.hidden = !status.viewer.sees_everything;
  if (status.draining) state("stopping", "stopping");
  else if (status.rules_outdated) state("serving by old rules: the log says why", "lost");
  else state("serving", "serving");
  text(element("about"), "version " + status.version + " · up " + duration(status.uptime));
  text(element("location"), status.location);
  text(element("tile-running"), status.running_count);
  text(element("tile-errors"), status.errors.filter((each) => status.time - each.time < 600).length);
  showList(element("catalogs"), status.catalogs, (name) => name, (item, name) => text(item, name));
  showRunning(status);
  showErrors(status);
  showCare(status.care);
  showRows(element("ended").tBodies[0], status.ended, ENDED);
  if (status.throughput) showThroughput(status);
}

/** Makes the children of a node match a list, keyed, so that what stays is not touched (and keeps the focus). */
function showList(parent, items, keyOf, update, make) {
  const known = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  let position = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = make ? make(item) : document.createElement("li");
      child.dataset.key = key;
    }
    update(child, item);
    if (child === position) position = position.nextElementSibling;
    else parent.insertBefore(child, position);
  }
  for (const gone of known.values()) gone.remove();
}

const what = (work) => work.operation || work.rpc;
const rows = (work) => count(work.rows_out + work.rows_in);
const size = (work) => bytes(work.bytes_out + work.bytes_in);
const FIRST = [
  ["What", (cell, work) => withNote(cell, what(work), work.operation ? work.rpc : "")],
  ["Object", (cell, work) => withNote(cell, work.object || "–", work.route)],
  ["Who", (cell, work) => withNote(cell, work.principal || "anybody", work.trace_id.slice(0, 8))],
];
const LAST = [
  ["Rows", (cell, work) => text(cell, rows(work))],
  ["Bytes", (cell, work) => text(cell, size(work))],
  ["Time", (cell, work) => withNote(cell, duration(work.seconds), work.idle > 5 ? "waits for the client" : "")],
];
const ENDED = [...FIRST, ["Outcome", (cell, work) => withNote(cell, work.code, work.cut_off)], ...LAST];
const RUNNING = [...FIRST, ["Progress", showProgress], ...LAST, ["", showCancel]];

function withNote(cell, main, note) {
  if (!cell.firstChild) {
    const box = document.createElement("span");
    const small = document.createElement("span");
    small.className = "quiet";
    box.append(document.createElement("span"), small);
    cell.append(box);
  }
  text(cell.firstChild.firstChild, main);
  text(cell.firstChild.lastChild, note || "");
}

function showProgress(cell, work) {
  if (!cell.firstChild) cell.append(document.createElement("progress"), document.createElement("span"));
  const [bar, label] = cell.children;
  const known = work.progress !== null;
  bar.hidden = !known;
  if (known) bar.value = work.progress;
  bar.setAttribute("aria-label", "Progress of " + what(work) + " " + work.object);
  text(label, known ? " " + Math.floor(work.progress * 100) + " %" : "–");
}

function showCancel(cell, work) {
  if (cell.firstChild) return;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Cancel";
  button.setAttribute("aria-label", "Cancel " + what(work) + " " + work.object);
  button.addEventListener("click", () => cancel(button, work.id));
  cell.append(button);
}

async function cancel(button, id) {
  if (!button.classList.contains("sure")) {
    button.classList.add("sure");
    button.textContent = "Really?";
    setTimeout(() => { button.classList.remove("sure"); button.textContent = "Cancel"; }, SURE);
    return;
  }
  button.disabled = true;
  try {
    await ask("cancel/" + id, { method: "POST", headers: { "X-Sparkport-Request": "cancel" } });
  } finally {
    button.disabled = false;
    refresh();
  }
}

function showRows(body, works, columns, keyOf = (work) => work.id) {
  const make = () => {
    const row = document.createElement("tr");
    for (const [label] of columns) row.insertCell().dataset.label = label;
    return row;
  };
  const update = (row, work) => columns.forEach(([, fill], index) => fill(row.cells[index], work));
  showList(body, works, keyOf, update, make);
}

function showRunning(status) {
  showRows(element("running").tBodies[0], status.running, RUNNING);
  element("running").hidden = status.running.length === 0;
  element("running-none").hidden = status.running.length > 0;
  const more = status.running_count - status.running.length;
  element("running-more").hidden = more <= 0;
  text(element("running-more"), "and " + more + " more");
}

function showErrors(status) {
  const make = () => {
    const item = document.createElement("li");
    for (const kind of ["code", "message", "quiet"]) {
      const part = document.createElement("span");
      part.className = kind;
      item.append(part);
    }
    return item;
  };
  const update = (item, error) => {
    const [code, message, note] = item.children;
    text(code, error.code);
    text(message, error.message);
    const about = [clock(error.time), what(error), error.object, error.principal, "trace " + error.trace_id];
    text(note, about.filter(Boolean).join(" · "));
  };
  showList(element("errors"), status.errors, (error) => error.id, update, make);
  element("errors-none").hidden = status.errors.length > 0;
}

// ------------------------------------------------------------------------------------------------------- care

const CARE = [
  ["Step", (cell, run) => withNote(cell, run.step, moment(run.began))],
  ["Table", (cell, run) => text(cell, run.object)],
  ["Why", (cell, run) => text(cell, run.why)],
  ["Done", showDone],
  ["Time", (cell, run) => text(cell, run.seconds === null ? "–" : duration(run.seconds))],
];

function showDone(cell, run) {
  if (!cell.firstChild) {
    const box = document.createElement("span");
    const problem = document.createElement("span");
    problem.className = "problem";
    box.append(document.createElement("progress"), document.createElement("span"), problem);
    cell.append(box);
  }
  const [bar, words, problem] = cell.firstChild.children;
  const running = run.seconds === null;
  bar.hidden = !running;
  bar.value = run.progress;
  bar.setAttribute("aria-label", "Progress of " + run.step + " of " + run.object);
  text(words, running ? " " + Math.floor(run.progress * 100) + " %" : run.done);
  text(problem, run.problem);
}

function showCare(runs) {
  element("care-section").hidden = !runs;
  if (!runs) return;
  showRows(element("care").tBodies[0], runs, CARE, (run) => run.began + " " + run.object + " " + run.step);
  element("care").hidden = runs.length === 0;
  element("care-none").hidden = runs.length > 0;
}

// ------------------------------------------------------------------------------------------------------ chart

function showThroughput(status) {
  const { points, seconds, columns } = status.throughput;
  const out = columns.indexOf(shown.unit + "_out");
  const into = columns.indexOf(shown.unit + "_in");
  const write = shown.unit === "bytes" ? bytes : count;
  // The newest span is still growing; the one before tells what goes on.
  const now = points.filter((point) => point[0] + seconds <= status.time).pop();
  const rate = (column) => (now && status.time - now[0] < 3 * seconds ? now[columns.indexOf(column)] / seconds : 0);
  text(element("tile-out"), bytes(rate("bytes_out")) + "/s");
  text(element("tile-in"), bytes(rate("bytes_in")) + "/s");
  drawChart(points, seconds, status.time, out, into, write);
}

function drawChart(points, seconds, now, out, into, write) {
  const chart = element("chart");
  const width = chart.clientWidth;
  const height = chart.clientHeight;
  if (!width) return;
  const left = 4, right = width - 4, top = 18, bottom = height - 18;
  const highest = Math.max(1, ...points.map((point) => Math.max(point[out], point[into]) / seconds));
  const x = (time) => right - (now - time) / HOUR * (right - left);
  const y = (rate) => bottom - rate / highest * (bottom - top);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    parts.push(svg("line", { class: "grid", x1: left, x2: right, y1: y(share * highest), y2: y(share * highest) }));
    if (share) parts.push(label(write(share * highest) + "/s", left, y(share * highest) - 4, "start"));
  }
  for (const minutes of [60, 45, 30, 15, 0]) {
    const anchor = minutes === 60 ? "start" : minutes === 0 ? "end" : "middle";
    parts.push(label(minutes ? "−" + minutes + " min" : "now", x(now - minutes * 60), height - 4, anchor));
  }
  const dense = filled(points, seconds, now);
  const line = (column) => dense.map((point, index) =>
    (index ? "L" : "M") + x(Math.min(now, point[0] + seconds)).toFixed(1) + " " + y(point[column] / seconds).toFixed(1)).join("");
  if (dense.length > 1) {
    const end = x(Math.min(now, dense[dense.length - 1][0] + seconds)).toFixed(1);
    const start = x(dense[0][0] + seconds).toFixed(1);
    parts.push(svg("path", { class: "area", d: line(out) + "L" + end + " " + bottom + "L" + start + " " + bottom + "Z" }));
    parts.push(svg("path", { class: "line out", d: line(out) }));
    parts.push(svg("path", { class: "line in", d: line(into) }));
  }
  chart.setAttribute("viewBox", "0 0 " + width + " " + height);
  chart.setAttribute("aria-label", "Throughput of the last hour; at most " + write(highest) + " a second");
  chart.replaceChildren(...parts);
}

/** Where nothing was noted nothing went through; the newest span is left out while it grows. */
function filled(points, seconds, now) {
  const known = new Map(points.map((point) => [point[0], point]));
  const dense = [];
  if (!points.length) return dense;
  const first = Math.max(points[0][0], Math.ceil((now - HOUR) / seconds) * seconds);
  for (let time = first; time + seconds <= now; time += seconds) dense.push(known.get(time) || [time, 0, 0, 0, 0]);
  return dense;
}

function svg(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function label(words, x, y, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = words;
  return node;
}

// ----------------------------------------------------------------------------------------------------- events

element("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = element("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(given)) {
    text(element("sign-in-problem"), "A token has only plain letters, digits and signs.");
    return;
  }
  sessionStorage.setItem("token", given);
  element("token").value = "";
  refresh();
});
element("sign-out").addEventListener("click", () => {
  sessionStorage.removeItem("token");
  for (const body of document.querySelectorAll("tbody, #errors, #catalogs")) body.replaceChildren();
  refresh();
});
for (const button of document.querySelectorAll("[data-unit]")) {
  button.addEventListener("click", () => {
    shown.unit = button.dataset.unit;
    for (const each of document.querySelectorAll("[data-unit]")) each.setAttribute("aria-pressed", String(each === button));
    if (shown.status && shown.status.throughput) showThroughput(shown.status);
  });
}
addEventListener("resize", () => { if (shown.status && shown.status.throughput) showThroughput(shown.status); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
