// The audio formats of a session (docs/protocol.md): samples of -1 to 1 into bytes and back, bytes into base64.

// ITU-T G.711 from its decision values x(0) to x(128), tables 1a and 2a, as duologue.audio.formats has it: a magnitude
// between x(n) and x(n+1) becomes the code n, which stands for their mean; `inversion` are the bits sent inverted.
function law({bias, last, step, first, inversion}) {
  const edges = [];
  for (let n = 0; n < 128; n++) {
    const segment = n >> 4, wide = 2 * (n & 15);
    if (bias) edges.push(n ? ((wide + 32) << segment) - bias : 0);
    else edges.push(segment ? (wide + 32) << (segment - 1) : wide);
  }
  edges.push(last);
  const values = new Float32Array(256);
  for (let n = 0; n < 128; n++) {
    const value = step * (n ? Math.floor((edges[n] + edges[n + 1]) / 2) : first) / 32768;
    values[(n | 0x80) ^ inversion] = value;
    values[n ^ inversion] = -value;
  }
  const codes = new Uint8Array(65536);
  for (let sample = -32768; sample < 32768; sample++) {
    const size = Math.abs(sample);
    let n = 0;
    // Intervals of positive values are closed below, those of negative ones open.
    while (n < 127 && (sample < 0 ? edges[n + 1] * step < size : edges[n + 1] * step <= size)) n++;
    codes[sample & 0xffff] = (sample < 0 ? n : n | 0x80) ^ inversion;
  }
  return {values, codes};
}

function pcm16(sample) {
  return Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
}

function linear(name, rate, label) {
  return {
    name, label, rate, type: "audio/pcm", bytesPerSample: 2,
    encode(samples) {
      const bytes = new Uint8Array(2 * samples.length), view = new DataView(bytes.buffer);
      samples.forEach((sample, i) => view.setInt16(2 * i, pcm16(sample), true));
      return bytes;
    },
    decode(bytes) {
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      return Float32Array.from({length: bytes.length >> 1}, (_, i) => view.getInt16(2 * i, true) / 32768);
    },
  };
}

function companded(name, type, label, definition) {
  let tables;  // made when they are first needed
  const found = () => (tables ??= law(definition));
  return {
    name, label, rate: 8000, type, bytesPerSample: 1,
    encode: samples => Uint8Array.from(samples, sample => found().codes[pcm16(sample) & 0xffff]),
    decode: bytes => Float32Array.from(bytes, code => found().values[code]),
  };
}

export const FORMATS = Object.freeze([
  linear("pcm24k", 24000, "PCM, 24 kHz"),
  linear("pcm16k", 16000, "PCM, 16 kHz"),
  companded("pcmu", "audio/pcmu", "µ-law, 8 kHz", {bias: 33, last: 8159, step: 4, first: 0, inversion: 0x7f}),
  companded("pcma", "audio/pcma", "A-law, 8 kHz", {bias: 0, last: 4096, step: 8, first: 1, inversion: 0x55}),
]);

export function formatNamed(name) {
  return FORMATS.find(format => format.name === name) ?? FORMATS[0];
}

export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}
