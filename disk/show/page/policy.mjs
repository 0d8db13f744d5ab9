// Skills as plain arithmetic: unpack the weights, and compute a skill's deterministic action for an observation.

/** Bytes of a base64 string that holds gzip. */
export async function unpack(text) {
  const characters = atob(text);
  const packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = characters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** 16-bit floats, little endian, as 32-bit floats. Exact: every half is a single. */
export function widen(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wide = new Float32Array(bytes.byteLength / 2);
  for (let i = 0; i < wide.length; i++) {
    const half = view.getUint16(2 * i, true);
    const exponent = (half >> 10) & 31, fraction = half & 1023;
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    wide[i] = half & 0x8000 ? -size : size;
  }
  return wide;
}

/** Layers (weights (copies, in, out), then biases (copies, out)) that lie one behind the other in `values`. */
function layersOf(values, sizes, copies) {
  const layers = [];
  let at = 0;
  const take = (count) => values.subarray(at, (at += count));
  for (let i = 0; i + 1 < sizes.length; i++) {
    const [inputs, outputs] = [sizes[i], sizes[i + 1]];
    layers.push({ inputs, outputs, weights: take(copies * inputs * outputs), biases: take(copies * outputs) });
  }
  if (at !== values.length) throw new Error(`weights: ${values.length} numbers, expected ${at}`);
  return layers.map((layer) => ({ ...layer, result: new Float64Array(layer.outputs) }));
}

/** One network of several side by side. Sums are in 64 bits, so they are closer to the exact ones than torch's. */
function forward(layers, copy, input, activate) {
  let x = input;
  layers.forEach(({ inputs, outputs, weights, biases, result }, index) => {
    for (let j = 0; j < outputs; j++) result[j] = biases[copy * outputs + j];
    let row = copy * inputs * outputs;
    for (let i = 0; i < inputs; i++, row += outputs) {
      const value = x[i];
      if (value === 0) continue; // after a ReLU half of them are
      for (let j = 0; j < outputs; j++) result[j] += value * weights[row + j];
    }
    if (index < layers.length - 1) for (let j = 0; j < outputs; j++) result[j] = activate(result[j]);
    x = result;
  });
  return x;
}

const relu = (x) => (x > 0 ? x : 0);

/** The skills of one run: `act` is what `disk.load(run)[skill].act` is in Python. */
export class Policy {
  constructor(about, values) {
    Object.assign(this, about); // sizes, copies, which, latent, low, high, seesPosition
    this.layers = layersOf(values, about.sizes, about.copies);
    this.input = new Float64Array(about.sizes[0]);
    this.action = new Float64Array(about.low.length);
  }

  /** What the skill sees → its action within the environment's bounds; overwritten by the next call. */
  act(skill, seen) {
    // Torch sees 32-bit observations; rounding alike keeps actions alike.
    for (let i = 0; i < seen.length; i++) this.input[i] = Math.fround(seen[i]);
    this.input.set(this.latent[skill], seen.length);
    const mean = forward(this.layers, this.which[skill], this.input, relu);
    for (let j = 0; j < this.action.length; j++) {
      this.action[j] = this.low[j] + (Math.tanh(mean[j]) + 1) * 0.5 * (this.high[j] - this.low[j]);
    }
    return this.action;
  }
}

/** A trained controller (Stable-Baselines3's PPO): which skill it would choose for an observation and a goal. */
export class Controller {
  constructor(about, values) {
    Object.assign(this, about); // sizes, steps, size
    this.layers = layersOf(values, about.sizes, 1);
    this.input = new Float64Array(about.sizes[0]);
  }

  choose(observation, toGoal) {
    this.input.set(observation);
    toGoal.forEach((value, i) => (this.input[observation.length + i] = value / this.size));
    const logits = forward(this.layers, 0, this.input, Math.tanh);
    return logits.indexOf(Math.max(...logits));
  }
}
