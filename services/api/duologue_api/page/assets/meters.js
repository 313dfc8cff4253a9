// How loud both sides are: a bar for each, and the ribbon, which shows the last seconds of both, the user above and the
// model below, so that one sees them take turns, or talk at once.

const COLUMN_S = 0.06;
const SILENT_DB = -60;
const BLOCK_S = 0.02;
const SPOKEN_MS = 500;  // between two changes of what a screen reader would say

// 0 to 1, in decibels.
export function loudness(rms) {
  return rms > 0 ? Math.max(0, Math.min(1, 1 - 20 * Math.log10(rms) / SILENT_DB)) : 0;
}

export class Meter {
  // `bar` has the role "meter".
  constructor(bar) {
    this.bar = bar;
    this.level = 0;
    this.saidAt = 0;
  }

  show(rms) {
    this.level = Math.max(loudness(rms), this.level - 0.06);
    this.bar.style.setProperty("--level", this.level.toFixed(3));
    const now = performance.now();
    if (now - this.saidAt < SPOKEN_MS && rms) return;
    this.saidAt = now;
    this.bar.setAttribute("aria-valuenow", Math.round(100 * this.level));
  }
}

export class Ribbon {
  constructor(canvas) {
    this.canvas = canvas;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.sides = {user: [], model: []};
    this.peaks = {user: 0, model: 0};
    this.blocks = 0;
    this.drawnAt = -Infinity;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#soon(true));
    new ResizeObserver(() => this.#soon(true)).observe(canvas);
  }

  // Once every 20 ms for the user, whose clock the ribbon goes by, and as often as it comes for the model.
  hear(side, rms) {
    this.peaks[side] = Math.max(this.peaks[side], loudness(rms));
    if (side !== "user" || ++this.blocks * BLOCK_S < COLUMN_S) return;
    this.blocks = 0;
    for (const name of ["user", "model"]) {
      this.sides[name].push(this.peaks[name]);
      if (this.sides[name].length > 600) this.sides[name].shift();
      this.peaks[name] = 0;
    }
    this.#soon(false);
  }

  #soon(now) {
    if (this.frame || (!now && this.still.matches && performance.now() - this.drawnAt < 1000)) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.drawnAt = performance.now();
      this.#draw();
    });
  }

  #draw() {
    const {canvas} = this, scale = devicePixelRatio || 1;
    const wide = canvas.clientWidth, high = canvas.clientHeight;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
    const paint = canvas.getContext("2d"), style = getComputedStyle(canvas);
    paint.scale(scale, scale);
    const pitch = 6, bar = 3.5, middle = high / 2, most = middle - 4;
    for (const [name, way] of [["user", -1], ["model", 1]]) {
      paint.fillStyle = style.getPropertyValue(`--${name}`);
      const levels = this.sides[name];
      for (let i = 0; i * pitch < wide; i++) {
        const level = levels[levels.length - 1 - i] ?? 0;
        const x = wide - (i + 1) * pitch, size = Math.max(1.5, level ** 1.6 * most);
        paint.globalAlpha = (0.25 + 0.75 * level) * Math.min(1, x / (0.25 * wide) + 0.15);
        paint.beginPath();
        paint.roundRect(x, way < 0 ? middle - 1.5 - size : middle + 1.5, bar, size, Math.min(bar, size) / 2);
        paint.fill();
      }
    }
  }
}
