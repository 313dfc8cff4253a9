// The user's side: the microphone, in the bytes of the session's format.

import {Resampler} from "./resampler.js";

const BLOCK_S = 0.02;
const KEPT_S = 5;  // of sound that waits for a page that hangs

export class Microphone {
  // Asks the user for the microphone; rejects with getUserMedia's DOMException.
  static ask() {
    return navigator.mediaDevices.getUserMedia({
      audio: {channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true},
    });
  }

  // `onBlock({bytes, rms, time})` is called for every 20 ms; `onLost()` when the device is gone.
  constructor(context, stream, format, {onBlock, onLost}) {
    this.stream = stream;
    this.muted = false;
    this.source = context.createMediaStreamSource(stream);
    this.node = new AudioWorkletNode(context, "microphone", {
      numberOfOutputs: 0,
      processorOptions: {frames: Math.round(BLOCK_S * context.sampleRate), blocks: Math.ceil(KEPT_S / BLOCK_S)},
    });
    const resampler = new Resampler(context.sampleRate, format.rate);
    this.node.port.onmessage = ({data: {samples, rms, time}}) => {
      // What is muted does not leave the browser; the session's clock is the input, and must go on.
      const bytes = format.encode(resampler.push(this.muted ? samples.fill(0) : samples));
      this.node.port.postMessage(samples, [samples.buffer]);
      onBlock({bytes, time, rms: this.muted ? 0 : rms});
    };
    stream.getAudioTracks()[0].onended = onLost;
    this.source.connect(this.node);
  }

  close() {
    this.node.port.onmessage = null;
    this.source.disconnect();
    for (const track of this.stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }
}
