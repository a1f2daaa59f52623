// The list of streams, next to the selected one.

import { element, format, sparkline } from "./chart.js";

const SHOWN = 200;
const SPARK_SECONDS = 120;

const matches = (status, words) =>
  words.every((word) => [status.name, status.mode, status.stopped ? "stopped" : status.guard].some((text) => text.toLowerCase().includes(word)));

export class StreamList {
  constructor(list, more, summary, onChoose) {
    this.list = list;
    this.more = more;
    this.summary = summary;
    this.onChoose = onChoose;
    this.rows = new Map();
  }

  draw(histories, filter, chosen, time) {
    const all = [...histories.values()].map((history) => history.status);
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((status) => matches(status, words));
    const shown = found.slice(0, SHOWN);
    const rows = shown.map((status) => this.row(status, histories.get(status.name), status.name === chosen, time));
    for (const name of this.rows.keys()) if (!histories.has(name)) this.rows.delete(name);
    // Move rows only if the order changed: a moved row loses the keyboard focus.
    if (rows.length !== this.list.children.length || rows.some((row, i) => row !== this.list.children[i]))
      this.list.replaceChildren(...rows);
    this.more.hidden = found.length > 0 && found.length === shown.length;
    this.more.textContent = found.length
      ? `and ${found.length - shown.length} more; filter to see them`
      : "No stream matches the filter.";
    if (!all.length) this.more.hidden = true;
    this.summary.textContent = summarise(all, histories);
  }

  row(status, history, chosen, time) {
    let row = this.rows.get(status.name);
    if (!row) {
      const button = element("button", { type: "button" });
      button.addEventListener("click", () => this.onChoose(status.name));
      row = element("li", {}, button);
      this.rows.set(status.name, row);
    }
    const button = row.firstChild;
    button.setAttribute("aria-current", chosen);
    const points = history.fine.points("agreement", time - SPARK_SECONDS);
    const labelled = status.error !== null;
    button.replaceChildren(
      element(
        "span", { class: "row" },
        element("span", { class: "name", text: status.name, title: status.name }),
        sparkline(points, time - SPARK_SECONDS, time, [0, 1]),
      ),
      element(
        "span", { class: "row" },
        element("span", { class: "badges" }, ...badges(status)),
        element("span", {
          class: "quiet",
          text: labelled ? `${format(status.error)} % error` : `${format(status.agreement ?? NaN)} agree`,
        }),
      ),
    );
    return row;
  }
}

export function badges(status) {
  if (status.stopped) return [element("span", { class: "badge stopped", text: "stopped", title: status.stopped })];
  const mode = element("span", { class: `badge mode-${status.mode}`, text: status.mode });
  if (["ok", "off"].includes(status.guard)) return [mode];
  return [mode, element("span", { class: `badge guard-${status.guard}`, text: status.guard })];
}

export const troubled = (all) =>
  all.filter((status) => status.stopped || !["ok", "off"].includes(status.guard)).length;

function summarise(all, histories) {
  if (!all.length) return "No streams yet";
  const rate = [...histories.values()].reduce((sum, { fine }) => sum + (fine.points("answered_rate").at(-1)?.[1] ?? 0), 0);
  const alarms = troubled(all);
  const parts = [`${all.length} stream${all.length > 1 ? "s" : ""}`, `${format(Math.round(rate))} images/s`];
  if (alarms) parts.push(`${alarms} not ok`);
  return parts.join(" · ");
}
