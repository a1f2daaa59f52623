// What the page remembers of a stream: values over time, and when alarms and resets happened.

const SIGNALS = ["entropy", "diversity", "agreement", "alpha", "loss"];
const GAUGES = ["error", "queue", "latency_ms"];
const COUNTS = ["answered", "learnt", "shed"];
const RECENT = 60;
const MARKS = 200;
const EVENTS = 200;

// Means over intervals of equal width; the oldest are dropped.
export class Series {
  constructor(seconds, length) {
    this.seconds = seconds;
    this.length = length;
    this.slots = [];
  }

  add(time, values) {
    const start = Math.floor(time / this.seconds) * this.seconds;
    let slot = this.slots.at(-1);
    if (!slot || slot.start < start) {
      slot = { start, sums: {}, counts: {} };
      this.slots.push(slot);
      if (this.slots.length > this.length) this.slots.shift();
    }
    for (const [name, value] of Object.entries(values)) {
      if (!Number.isFinite(value)) continue;
      slot.sums[name] = (slot.sums[name] ?? 0) + value;
      slot.counts[name] = (slot.counts[name] ?? 0) + 1;
    }
  }

  points(name, from = -Infinity) {
    const middle = this.seconds / 2;
    return this.slots
      .filter((slot) => slot.counts[name] && slot.start + this.seconds >= from)
      .map((slot) => [slot.start + middle, slot.sums[name] / slot.counts[name]]);
  }
}

const pick = (source, names) => Object.fromEntries(names.map((name) => [name, source[name]]));

export class History {
  constructor(began) {
    this.began = began;
    this.fine = new Series(1, 900);
    this.coarse = new Series(60, 1440);
    this.marks = [];
    this.events = [];
    this.labels = [];
    this.status = null;
    this.polled = 0;
    this.resets = null;
    this.phase = null;
    this.live = false;
  }

  // A status from the poll of all streams.
  poll(time, status) {
    const before = this.status;
    const fresh = !before || status.answered !== before.answered;
    // While events arrive, they carry the signals of every step.
    const values = { ...pick(status, GAUGES), ...(fresh && !this.live ? pick(status, SIGNALS) : {}) };
    values.recent_error = this.recentError(time, status);
    if (before && status.answered >= before.answered) {
      const seconds = Math.max(0.1, time - this.polled);
      for (const name of COUNTS) values[`${name}_rate`] = Math.max(0, status[name] - before[name]) / seconds;
    }
    this.status = status;
    this.polled = time;
    this.add(time, values, status);
  }

  // The error over the images labelled in the last minute; the status has that over all of them.
  recentError(time, { error, labelled }) {
    if (error === null) return null;
    if (labelled < this.labels.at(-1)?.labelled) this.labels = []; // The service was restarted.
    this.labels.push({ time, labelled, wrong: (error * labelled) / 100 });
    while (this.labels[0].time < time - RECENT) this.labels.shift();
    const [first, last] = [this.labels[0], this.labels.at(-1)];
    return (100 * (last.wrong - first.wrong)) / (last.labelled - first.labelled);
  }

  // An event from the log of this stream.
  event(time, event) {
    const learnt = event.do === "learn";
    this.add(time, { ...pick(event, GAUGES), ...(learnt ? pick(event, SIGNALS) : {}) }, event);
    if (event.alarm || !["learn", "answer", "see"].includes(event.do)) {
      this.events.unshift({ time, event });
      this.events.length = Math.min(this.events.length, EVENTS);
    }
  }

  add(time, values, now) {
    this.fine.add(time, values);
    this.coarse.add(time, values);
    if (this.phase !== null && now.guard === "cooldown" && this.phase !== "cooldown") this.mark(time, "alarm");
    else if (this.resets !== null && now.resets > this.resets) this.mark(time, "reset");
    this.phase = now.guard;
    this.resets = now.resets;
  }

  mark(time, kind) {
    this.marks.push({ time, kind });
    if (this.marks.length > MARKS) this.marks.shift();
  }
}
