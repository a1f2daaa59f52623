// The live page: polls all streams, follows the selected one, and sends operations.

import { Refused, listen, readJson, request, streamPath, token } from "./api.js";
import { element } from "./chart.js";
import { StreamList, troubled } from "./list.js";
import { History } from "./series.js";
import { StreamView } from "./stream.js";

const MODES = ["adapt", "frozen", "shadow"];
const WINDOWS = [["2 min", 120], ["15 min", 900], ["24 h", 86400]];
const find = (id) => document.getElementById(id);
const now = () => Date.now() / 1000;

const histories = new Map();
let chosen = null;
let listening = null;
let lostSince = null;
let refusal = null;

const list = new StreamList(find("list"), find("more"), find("summary"), choose);
const view = new StreamView(find("detail"), {
  rollback: (name) =>
    operate(`Roll back ${chosen} to snapshot ${name}? This discards later learning.`, "Roll back", "POST", "/rollback", {
      snapshot: name,
    }),
  pin: (name, pin) =>
    operate(null, pin ? "Pin" : "Unpin", "PUT", `/snapshots/${encodeURIComponent(name)}`, { pin }),
});

// Write only changes: a screen reader announces everything that is written here.
function show(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function draw() {
  list.draw(histories, find("filter").value, chosen, now());
  const history = histories.get(chosen);
  find("detail").hidden = !history;
  find("nothing").hidden = Boolean(history) || refusal !== null;
  find("streams").hidden = refusal !== null && !histories.size;
  if (history) view.draw(history, now());
  const alarms = troubled([...histories.values()].map((one) => one.status));
  document.title = `${alarms ? `(${alarms}) ` : ""}${chosen ?? "ctta serve"}`;
  const state = find("connection");
  show(state, lostSince ? "connection lost" : refusal ? "no access" : "live");
  state.className = lostSince || refusal ? "bad" : "good";
  const banner = find("banner");
  const lost = lostSince && `No connection since ${new Date(1000 * lostSince).toLocaleTimeString("en-GB")}. Trying again.`;
  show(banner, lost || refusal || "");
  banner.hidden = !banner.textContent;
  document.body.classList.toggle("stale", Boolean(lostSince));
}

async function poll() {
  try {
    const { model, streams } = await readJson("ctta/streams");
    find("model").textContent = model ?? "";
    lostSince = refusal = null;
    take(streams);
  } catch (error) {
    if (error instanceof Refused) {
      refusal = error.message;
      lostSince = null;
    } else lostSince ??= now();
  }
  draw();
}

function take(streams) {
  const names = new Set(streams.map((status) => status.name));
  for (const name of histories.keys()) if (!names.has(name)) histories.delete(name);
  for (const status of streams) {
    if (!histories.has(status.name)) histories.set(status.name, new History(now()));
    histories.get(status.name).poll(now(), status);
  }
  if (!histories.has(chosen)) {
    const wanted = addressed();
    const name = histories.has(wanted) ? wanted : (streams[0]?.name ?? null);
    if (name !== chosen) choose(name, false);
  }
}

// The stream named in the URL.
function addressed() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function choose(name, move = true) {
  chosen = name;
  listening?.abort();
  if (name === null) return;
  if (move) history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  listening = new AbortController();
  follow(name, listening.signal);
  draw();
  // At phone width the stream is below the list.
  if (move && matchMedia("(max-width: 50rem)").matches) find("detail").scrollIntoView();
}

// Follows one stream until another is selected; after an error it waits and retries.
async function follow(name, signal) {
  const own = histories.get(name);
  let pause = 1;
  while (!signal.aborted && histories.get(name) === own) {
    try {
      await listen(streamPath(name, "/log"), (event) => {
        pause = 1;
        own.live = true;
        own.event(now(), event);
      }, signal);
    } catch {
      // The poll reports the error.
    }
    own.live = false;
    await new Promise((resolve) => setTimeout(resolve, 1000 * pause));
    pause = Math.min(15, 2 * pause);
  }
}

function say(text, bad = false) {
  const message = find("message");
  message.textContent = text;
  message.className = bad ? "failed" : "done";
  message.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (message.hidden = true), bad ? 15000 : 5000);
}

function confirmed(question, yes) {
  const dialog = find("confirm");
  find("question").textContent = question;
  find("yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}

// Asks for confirmation if there is a question, sends the operation, and reports the outcome.
async function operate(question, title, method, rest, body) {
  const name = chosen;
  if (question && !(await confirmed(question, title))) return;
  view.operations += 1;
  try {
    await request(streamPath(name, rest), { method, body });
    say(`${title}: done.`);
  } catch (error) {
    say(error instanceof Refused ? error.message : `${title}: no connection to the service.`, true);
  } finally {
    view.operations -= 1;
  }
  await poll();
}

async function download() {
  const name = chosen;
  try {
    const content = await (await request(streamPath(name, "/state"))).blob();
    const link = element("a", { href: URL.createObjectURL(content), download: `${name.replace(/[^\w.-]+/g, "_")}.safetensors` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    say("The state was downloaded.");
  } catch (error) {
    say(error instanceof Refused ? error.message : "No connection to the service.", true);
  }
}

const OPERATIONS = {
  restart: () => operate(null, "Restart", "POST", "/restart", {}),
  snapshot: () => operate(null, "Snapshot", "POST", "/snapshot", { pin: false }),
  pin: () => operate(null, "Snapshot and pin", "POST", "/snapshot", { pin: true }),
  rollback: () =>
    operate(
      `Roll back ${chosen} to its newest good snapshot with fewer steps than now? This discards later learning.`,
      "Roll back", "POST", "/rollback", {},
    ),
  promote: () => operate(`Predict with the challenger of ${chosen} from now on?`, "Promote", "POST", "/promote", {}),
  reset: () => operate(`Reset ${chosen} to the source? This discards all it has learnt.`, "Reset", "POST", "/reset", {}),
  remove: () =>
    operate(
      `Remove ${chosen}? This deletes its snapshots, its audit and its recorded images for good.`,
      "Remove stream", "DELETE", "",
    ),
  download,
  upload: () => find("upload").click(),
};

find("upload").addEventListener("change", async () => {
  const [file] = find("upload").files;
  if (!file) return;
  const what = view.history?.status.mode === "shadow" ? `the challenger of ${chosen}` : `what ${chosen} has learnt`;
  await operate(`Replace ${what} with ${file.name}?`, "Upload state", "PUT", "/state", file);
  find("upload").value = ""; // so that the same file can be chosen again
});

function radios(fieldset, group, options, checked, onChange) {
  for (const [label, value] of options) {
    const input = element("input", { type: "radio", name: group, value });
    input.checked = value === checked;
    input.addEventListener("change", () => onChange(value));
    fieldset.append(element("label", {}, input, element("span", { text: label })));
  }
}

radios(find("window"), "window", WINDOWS, view.seconds, (seconds) => {
  view.seconds = seconds;
  draw();
});
radios(find("mode"), "mode", MODES.map((mode) => [mode, mode]), null, (mode) =>
  operate(null, `Mode ${mode}`, "PUT", "/mode", { mode }),
);
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", OPERATIONS[button.dataset.do]);
find("filter").addEventListener("input", draw);
find("operations").addEventListener("submit", (event) => event.preventDefault());
find("token").value = token.get();
find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(find("token").value.trim());
  say(token.get() ? "Token kept in this tab." : "Token removed.");
  poll();
  if (chosen !== null) choose(chosen, false);
});
addEventListener("hashchange", () => {
  const name = addressed();
  if (histories.has(name) && name !== chosen) choose(name, false);
});
addEventListener("resize", draw);

async function run() {
  for (;;) {
    await poll();
    await new Promise((resolve) => setTimeout(resolve, document.hidden || refusal ? 10000 : 2000));
  }
}
setInterval(() => !document.hidden && histories.has(chosen) && view.draw(histories.get(chosen), now()), 500);
run();
