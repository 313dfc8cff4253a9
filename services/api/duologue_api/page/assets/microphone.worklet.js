// Cuts what the microphone gives into blocks and posts {samples, rms, time}, time being the end of the block in seconds of
// the context's clock.  Runs on the audio thread.
//
// There are `blocks` buffers in all; the page sends each back when it is done with it.  While none is here, sound is
// lost and counted, instead of piling up before a page that hangs.

registerProcessor("microphone", class extends AudioWorkletProcessor {
  constructor({processorOptions: {frames, blocks}}) {
    super();
    this.pool = Array.from({length: blocks}, () => new Float32Array(frames));
    this.block = this.pool.pop();
    this.filled = this.lost = 0;
    this.port.onmessage = ({data}) => this.pool.push(data);
  }

  process([channels]) {
    const frames = channels[0]?.length ?? 128;  // without a source the clock goes on, in silence
    for (let i = 0; i < frames; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      this.block[this.filled++] = channels.length ? sum / channels.length : 0;
      if (this.filled === this.block.length) this.post(currentTime + (i + 1) / sampleRate);
    }
    return true;
  }

  post(time) {
    this.filled = 0;
    if (!this.pool.length) {
      this.lost += this.block.length;
      return;
    }
    const samples = this.block, lost = this.lost;
    let energy = 0;
    for (const sample of samples) energy += sample * sample;
    this.port.postMessage({samples, time, lost, rms: Math.sqrt(energy / samples.length)}, [samples.buffer]);
    this.block = this.pool.pop();
    this.lost = 0;
  }
});
