// From one sample rate to another, for a stream: a polyphase filter (windowed sinc, Kaiser window).
//
// Done here and not by an AudioContext of the session's rate, since Firefox joins no microphone to a context of another
// rate than its own.

const ZERO_CROSSINGS = 16;
const PASSED = 0.92;  // of the lower Nyquist frequency; the rest is for the slope
const BETA = 8;  // of the window: stop band below -80 dB

function gcd(a, b) {
  return b ? gcd(b, a % b) : a;
}

function bessel0(x) {
  let sum = 1, term = 1;
  for (let k = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

export class Resampler {
  // Rates in whole Hz.
  constructor(from, to) {
    const common = gcd(from, to);
    this.step = from / common;
    this.phases = to / common;
    const cutoff = PASSED * Math.min(1, to / from);
    this.half = Math.ceil(ZERO_CROSSINGS / cutoff);
    this.same = from === to;
    this.filters = this.same ? [] : Array.from({length: this.phases}, (_, phase) => this.#filter(phase, cutoff));
    this.kept = new Float32Array(2 * this.half);  // input from before the next output's first tap on
    this.phase = 0;
  }

  #filter(phase, cutoff) {
    const taps = new Float64Array(2 * this.half);
    let sum = 0;
    for (let k = 0; k < taps.length; k++) {
      const t = k - this.half + 1 - phase / this.phases;
      const edge = t / this.half;
      const window = Math.abs(edge) < 1 ? bessel0(BETA * Math.sqrt(1 - edge * edge)) / bessel0(BETA) : 0;
      const angle = Math.PI * cutoff * t;
      sum += taps[k] = window * (angle ? Math.sin(angle) / angle : 1);
    }
    return taps.map(tap => tap / sum);
  }

  // Float32Array in, Float32Array out; a block of silence stays exact zeros.
  push(samples) {
    if (this.same) return samples;
    const input = new Float32Array(this.kept.length + samples.length);
    input.set(this.kept);
    input.set(samples, this.kept.length);
    const out = [];
    let at = 0;
    while (at + 2 * this.half <= input.length) {
      const filter = this.filters[this.phase];
      let sum = 0;
      for (let k = 0; k < filter.length; k++) sum += filter[k] * input[at + k];
      out.push(sum);
      this.phase += this.step;
      at += Math.floor(this.phase / this.phases);
      this.phase %= this.phases;
    }
    this.kept = input.slice(at);
    return Float32Array.from(out);
  }
}
