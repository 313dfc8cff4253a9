// The model's side: bytes of the session's format, played as they come.

import {Resampler} from "./resampler.js";

const DELAY_S = 0.06;
const QUEUED_S = 8;

export class Playback {
  // `onReport({time, rms, queuedS, underruns})` is called every 20 ms.
  constructor(context, format, {onReport}) {
    this.context = context;
    this.format = format;
    this.resampler = new Resampler(format.rate, context.sampleRate);
    const samples = seconds => Math.round(seconds * context.sampleRate);
    this.node = new AudioWorkletNode(context, "playback", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: {delay: samples(DELAY_S), capacity: samples(QUEUED_S)},
    });
    this.node.port.onmessage = ({data}) => {
      this.node.port.postMessage("seen");
      const {time, rms, underruns} = data;
      onReport({time, rms, underruns, queuedS: data.queued / context.sampleRate});
    };
    this.node.connect(context.destination);
  }

  play(bytes) {
    // A suspended context takes nothing out of the ring; what comes meanwhile would be played late.
    if (this.context.state !== "running") return;
    const samples = this.resampler.push(this.format.decode(bytes));
    this.node.port.postMessage(samples, [samples.buffer]);
  }

  close() {
    this.node.port.onmessage = null;
    this.node.disconnect();
  }
}
