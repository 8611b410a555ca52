// Unpacks a graph that `sat_tf/inference/packing.py` packed: an .npz of integers with scales, to the bytes of a .tflite.
import { inflate } from "./litert.js";

const GROUP = 128; // weights of a column that share a scale
const TYPES = { "|i1": Int8Array, "|u1": Uint8Array, "<f4": Float32Array };
const text = (bytes) => new TextDecoder().decode(bytes);

export async function unpackGraph(bytes) {
  const entries = await read(bytes);
  const graph = new Uint8Array(Number(new DataView(entries.size.data.buffer).getBigUint64(0, true)));
  const rest = entries.rest.data;
  let taken = 0;
  let end = 0;
  for (const name of Object.keys(entries).filter((one) => /^\d+[rc]$/.test(one)).sort((a, b) => parseInt(a) - parseInt(b))) {
    const start = parseInt(name);
    graph.set(rest.subarray(taken, (taken += start - end)), end);
    const weights = restored(entries[name], entries[`${name}:scale`].data, entries[`${name}:low2`]?.data, name.endsWith("r"));
    graph.set(new Uint8Array(weights.buffer), start);
    end = start + weights.byteLength;
    delete entries[name]; // half of the graph need not be there twice
  }
  graph.set(rest.subarray(taken), end);
  return graph;
}

function restored({ shape: [rows, columns], data }, scales, low, turned) {
  const weights = new Float32Array(rows * columns);
  for (let i = 0, k = 0; i < rows; i++) {
    const group = Math.floor(i / GROUP) * columns;
    for (let j = 0; j < columns; j++, k++) {
      const level = low ? data[k] * 4 + ((low[k >> 2] >> (6 - 2 * (k & 3))) & 3) : data[k];
      weights[turned ? j * rows + i : k] = level * scales[group + j];
    }
  }
  return weights;
}

// The arrays of an .npz by name, from the list at its end.
async function read(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (view.getUint32(end, true) !== 0x06054b50) end--;
  let at = view.getUint32(end + 16, true);
  const arrays = {};
  for (let left = view.getUint16(end + 10, true); left; left--) {
    const [size, name, extra, comment] = [view.getUint32(at + 20, true), ...[28, 30, 32].map((place) => view.getUint16(at + place, true))];
    const header = view.getUint32(at + 42, true);
    const from = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
    const content = bytes.subarray(from, from + size);
    arrays[text(bytes.subarray(at + 46, at + 46 + name)).replace(/\.npy$/, "")] =
      array(view.getUint16(at + 10, true) ? await inflate(content, "deflate-raw") : content);
    at += 46 + name + extra + comment;
  }
  return arrays;
}

function array(bytes) {
  const start = 10 + bytes[8] + 256 * bytes[9];
  const header = text(bytes.subarray(10, start));
  const shape = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((side) => side.trim()).map(Number);
  return { shape, data: new TYPES[/'descr': '([^']+)'/.exec(header)[1]](bytes.slice(start).buffer) };
}
