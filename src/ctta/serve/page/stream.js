// The selected stream: facts, charts, snapshots and events.

import { Chart, element, format } from "./chart.js";

const CHARTS = [
  {
    title: "", unit: "%", lines: [["error", "Error"], ["recent_error", "last minute"]], empty: "no labels yet",
    explain: "Over all labelled images since the service started, and over those labelled in the last minute",
  },
  {
    title: "Agreement", lines: ["agreement"], range: [0, 1], empty: "not compared yet",
    explain: "Share of predictions equal to those of the unadapted network",
  },
  {
    title: "", lines: [["entropy", "Entropy"], ["diversity", "Diversity"]], range: [0, 1],
    explain: "Mean entropy of the predictions, and entropy of their mean, each divided by log K",
  },
  {
    title: "Alpha", lines: ["alpha"], zoom: true, most: 1, digits: 4, marks: ["alarm", "reset"],
    empty: "not logged by this method", explain: "The method's momentum; dashed lines are resets",
  },
  { title: "Loss", lines: ["loss"], zoom: true, empty: "no loss yet" },
  { title: "Time to answer", unit: "ms", lines: ["latency_ms"], explain: "Median of the last requests" },
  { title: "Images per second", lines: ["answered_rate"], explain: "Images answered" },
  {
    title: "", lines: [["learnt_rate", "Batches/s learnt"], ["shed_rate", "shed"]],
    explain: "Batches learnt from, and batches not learnt from because requests waited",
  },
  { title: "Queue", unit: "images", lines: ["queue"], explain: "Images waiting" },
];

const FACTS = [
  ["Steps", "steps"], ["Answered", "answered"], ["Learnt", "learnt"], ["Shed", "shed"], ["Skipped", "skipped"],
  ["Failed", "failures"], ["Resets", "resets"], ["Labelled", "labelled"], ["Last snapshot", "last_snapshot"], ["Not saved", "unsaved"],
  ["Not audited", "unaudited"], ["Not recorded", "unrecorded"],
];

const TROUBLE = ["skipped", "failures", "unsaved", "unaudited", "unrecorded"];

const DEEDS = {
  start: "started from the source",
  resume: "resumed from snapshot",
  snapshot: "snapshot",
  rollback: "rolled back to snapshot",
  reset: "reset to the source",
  promote: "challenger promoted",
  put: "state replaced by an uploaded one",
  evict: "moved to disk until the next request",
  remove: "removed",
};

const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");
const day = (seconds) => {
  const date = new Date(1000 * seconds);
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock(seconds) : `${date.toLocaleDateString("en-CA")} ${clock(seconds)}`;
};

export class StreamView {
  constructor(root, operations) {
    this.root = root;
    this.snapshotOperations = operations;
    this.hover = null;
    this.seconds = 120;
    this.operations = 0;
    this.facts = FACTS.map(([label, name]) => [name, element("dd")]);
    this.find("facts").append(
      ...FACTS.map(([label], i) => element("div", {}, element("dt", { text: label }), this.facts[i][1])),
    );
    this.charts = CHARTS.map((spec) => new Chart(spec, (time) => this.point(time)));
    this.find("charts").append(...this.charts.map((chart) => chart.figure));
  }

  find(id) {
    return this.root.querySelector(`#${id}`);
  }

  point(time) {
    this.hover = time;
    if (this.history) this.drawCharts(this.to);
  }

  draw(history, time) {
    const status = history.status;
    if (this.history !== history) {
      this.history = history;
      this.snapshots = this.newest = undefined;
      this.hover = null;
    }
    this.find("name").textContent = status.name;
    const guard = this.find("guard");
    guard.textContent = status.stopped ? "stopped" : `guard ${status.guard}`;
    guard.className = `badge ${status.stopped ? "stopped" : `guard-${status.guard}`}`;
    guard.title = status.stopped ?? "";
    for (const [name, cell] of this.facts) {
      const value = status[name];
      cell.className = TROUBLE.includes(name) && value > 0 ? "bad" : "";
      cell.textContent = typeof value === "number" ? value.toLocaleString("en") : (value ?? "–");
    }
    // What the user has just chosen stays until the service has answered.
    if (!this.operations) {
      for (const radio of this.find("mode").querySelectorAll("input")) radio.checked = radio.value === status.mode;
    }
    this.find("operations").querySelector("[data-do=promote]").disabled = status.mode !== "shadow";
    this.find("operations").querySelector("[data-do=restart]").hidden = !status.stopped;
    if (this.hover === null) this.drawCharts(time);
    this.drawSnapshots(status.snapshots);
    this.drawEvents(history.events);
  }

  drawCharts(to) {
    this.to = to;
    const { history } = this;
    const series = this.seconds > 900 ? history.coarse : history.fine;
    // A newly opened page stretches the data it has over the whole width.
    const from = Math.max(to - this.seconds, Math.min(history.began, to - 30));
    for (const chart of this.charts) chart.draw(series, history.marks, from, to, history.status, this.hover);
  }

  // Rebuilt only when something changed, so that a button in the table keeps the keyboard focus.
  drawSnapshots(snapshots) {
    const key = JSON.stringify(snapshots);
    if (key === this.snapshots) return;
    this.snapshots = key;
    const rows = snapshots.toReversed().map((one) => {
      const { rollback, pin } = this.snapshotOperations;
      const back = element("button", { type: "button", text: "Roll back", "aria-label": `Roll back to ${one.name}` });
      back.addEventListener("click", () => rollback(one.name));
      const verb = one.pinned ? "Unpin" : "Pin";
      const keep = element("button", { type: "button", text: verb, "aria-label": `${verb} ${one.name}` });
      keep.addEventListener("click", () => pin(one.name, !one.pinned));
      const state = [one.good ? "good" : "not good", ...(one.pinned ? ["pinned"] : [])].join(", ");
      return element(
        "tr", {},
        element("th", { scope: "row", text: one.name }),
        element("td", { text: one.steps.toLocaleString("en") }),
        element("td", { text: day(one.time) }),
        element("td", { text: format(one.health.agreement ?? NaN) }),
        element("td", { text: state, class: one.good ? "" : "bad" }),
        element("td", {}, back, " ", keep),
      );
    });
    if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: 6, class: "quiet", text: "None yet." })));
    this.find("snapshots").replaceChildren(...rows);
  }

  drawEvents(events) {
    if (this.newest !== undefined && events[0] === this.newest) return;
    this.newest = events[0] ?? null;
    const rows = events.map(({ time, event }) =>
      element("li", { class: event.alarm ? "bad" : "" }, element("time", { text: clock(time) }), describe(event)),
    );
    if (!rows.length) rows.push(element("li", { class: "quiet", text: "None yet." }));
    this.find("events").replaceChildren(...rows);
  }
}

function describe(event) {
  if (event.alarm) return `alarm: ${event.alarm}`;
  if (event.do === "mode") return `mode set to ${event.mode}`;
  const named = ["snapshot", "rollback", "resume"].includes(event.do) ? ` ${event.snapshot}` : "";
  return (DEEDS[event.do] ?? event.do) + named;
}
