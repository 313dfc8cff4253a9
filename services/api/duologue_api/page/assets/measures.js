// The measurements of the page: the last one large, the median of all below.

const KEPT = 500;

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

export function milliseconds(seconds) {
  return `${Math.round(1000 * seconds)} ms`;
}

export class Measure {
  constructor(value, more) {
    this.value = value;
    this.more = more;
    this.all = [];
  }

  add(seconds) {
    this.all.push(seconds);
    if (this.all.length > KEPT) this.all.shift();
    this.value.textContent = milliseconds(seconds);
    this.more.textContent = `median ${Math.round(1000 * median(this.all))} of ${this.all.length}`;
  }
}
