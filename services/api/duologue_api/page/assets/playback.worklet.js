// Plays what it is sent, in order, from a ring; posts {time, rms, queued, underruns} every 20 ms, `queued` in samples.  Runs
// on the audio thread.
//
// After an empty ring the first sample waits for `delay`, so that the next ones may come late by as much.  Where more is
// queued than that, all through a window (longer than any model's unit), something had stalled: then silence is skipped
// until it fits, never speech.  Beyond the ring's size the oldest is dropped.

const REPORT_S = 0.02, WINDOW_S = 2.5, SLACK_S = 0.1, LATER_S = 0.02, LATEST_S = 0.4;
const UNSEEN = 100;  // reports that the page may owe an answer to
const SILENT = 1e-4;

registerProcessor("playback", class extends AudioWorkletProcessor {
  constructor({processorOptions: {delay, capacity}}) {
    super();
    this.ring = new Float32Array(capacity);
    this.read = this.queued = 0;
    this.delay = delay;
    this.wait = 0;
    this.empty = true;
    this.lowest = Infinity;
    this.windowLeft = WINDOW_S * sampleRate;
    this.surplus = 0;
    this.underruns = this.skipped = this.dropped = 0;
    this.energy = this.measured = this.unseen = 0;
    this.port.onmessage = ({data}) => (data === "seen" ? this.unseen-- : this.add(data));
  }

  add(samples) {
    const {ring} = this, size = ring.length;
    if (samples.length > size) samples = samples.subarray(samples.length - size);
    const over = this.queued + samples.length - size;
    if (over > 0) {
      this.forget(over);
      this.dropped += over;
    }
    const at = (this.read + this.queued) % size, first = Math.min(samples.length, size - at);
    ring.set(samples.subarray(0, first), at);
    ring.set(samples.subarray(first), 0);
    if (this.empty && samples.length) {
      this.empty = false;
      this.wait = this.delay;
    }
    this.queued += samples.length;
  }

  forget(count) {
    this.read = (this.read + count) % this.ring.length;
    this.queued -= count;
  }

  process(_inputs, [[out]]) {
    this.catchUp(out.length);
    let played = 0;
    if (this.wait > 0) {
      this.wait -= out.length;
    } else if (!this.empty) {
      played = Math.min(out.length, this.queued);
      for (let i = 0; i < played; i++) {
        const sample = this.ring[(this.read + i) % this.ring.length];
        out[i] = sample;
        this.energy += sample * sample;
      }
      this.forget(played);
      if (played < out.length) {
        this.empty = true;
        this.underruns++;
        this.delay = Math.min(this.delay + LATER_S * sampleRate, LATEST_S * sampleRate);
      }
    }
    this.report(out.length);
    return true;
  }

  catchUp(frames) {
    this.lowest = Math.min(this.lowest, this.queued);
    this.windowLeft -= frames;
    if (this.windowLeft <= 0) {
      const surplus = this.lowest - this.delay;
      this.surplus = surplus > SLACK_S * sampleRate ? surplus : 0;
      this.windowLeft = WINDOW_S * sampleRate;
      this.lowest = Infinity;
    }
    while (this.surplus > 0 && this.queued > 2 * frames && this.silent(frames)) {
      this.forget(frames);
      this.skipped += frames;
      this.surplus -= frames;
    }
  }

  silent(frames) {
    for (let i = 0; i < frames; i++) {
      if (Math.abs(this.ring[(this.read + i) % this.ring.length]) > SILENT) return false;
    }
    return true;
  }

  report(frames) {
    this.measured += frames;
    if (this.measured < REPORT_S * sampleRate) return;
    if (this.unseen < UNSEEN) {
      this.unseen++;
      const {queued, underruns} = this, rms = Math.sqrt(this.energy / this.measured);
      this.port.postMessage({time: currentTime + frames / sampleRate, rms, queued, underruns});
    }
    this.energy = this.measured = 0;
  }
});
