// LiteRT in a worker: files downloaded whole, its runtime, and graphs, unpacked and called by the names of their tensors.
const HOME = new URL("../litert/", import.meta.url);
const SITE = new URL("../", import.meta.url);

let files = {}; // of the site: `size` and `sha256` by path
let hear = () => {}; // told how many bytes came of how many
let runtime = null;
let cacheName = null;

// What is downloaded from now on; `onBytes` gets the bytes of a file so far, and its size.
export function begin(known, cache, onBytes) {
  [files, cacheName, hear] = [known, cache, onBytes];
}

// A file of the site, complete; it is kept for the time without network. One that is damaged is asked for anew.
export async function download(path, known = files[path], onBytes = hear) {
  const url = new URL(path, SITE).href;
  const cache = cacheName && globalThis.caches && (await caches.open(cacheName));
  let bytes = await fetched(path, url, known, onBytes);
  if (!bytes) {
    await cache?.delete(url);
    bytes = await fetched(path, url, known, onBytes, { cache: "reload" });
  }
  if (!bytes) throw new Error(`${path} is not the file that this page was made with: load the page again, or copy the whole site.`);
  await cache?.put(url, new Response(bytes)).catch(() => {}); // no room
  return bytes;
}

// The bytes of a file; null if they are others than this page was made with.
async function fetched(path, url, { size, sha256 }, onBytes, options) {
  const fails = (why) => new Error(`${path} ${why}`);
  const bytes = new Uint8Array(size);
  let at = 0;
  const response = await fetch(url, options).catch(() => { throw fails("cannot be loaded: is there a network? Then try again."); });
  if (!response.ok) throw fails(`is not there (status ${response.status}): load the page again, or copy the whole site.`);
  try {
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length <= size) bytes.set(value, at);
      at += value.length;
      onBytes(Math.min(at, size), size, path);
    }
  } catch {
    throw fails(`broke off after ${(at / 1e6).toFixed(1)} of ${(size / 1e6).toFixed(1)} MB: try again.`);
  }
  return at === size && (await digest(bytes, sha256)) === sha256 ? bytes : null;
}

async function digest(bytes, otherwise) {
  if (!globalThis.crypto?.subtle) return otherwise; // over plain HTTP: the size has to do
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(sum, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Takes the place of `@litertjs/wasm-utils`, which the runtime asks for.
export async function createWasmLib(Library, script) {
  const packed = await download(script.slice(SITE.href.length).replace(/\.js$/, ".wasm.packed"));
  const wasmBinary = await inflate(packed, "gzip");
  importScripts(script);
  const quiet = () => {}; // it tells the console how it is
  return new Library(await self.ModuleFactory({ wasmBinary, locateFile: (name) => name, print: quiet, printErr: quiet }));
}

async function inflate(bytes, kind) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(kind));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function start() {
  runtime ??= import(new URL("index.js", HOME)).then(async (library) => {
    const { warn } = console;
    console.warn = () => {}; // it looks for a GPU, by which captions would be others
    await library.loadLiteRt(HOME.href).finally(() => (console.warn = warn));
    return library;
  });
  runtime.catch(() => (runtime = null)); // so that the next photograph tries again
  return runtime;
}

// A graph: `shapes` of its inputs, and `run`, from arrays or tensors to tensors, which the caller deletes.
export async function open(bytes) {
  const { loadAndCompile, Tensor } = await start();
  const graph = await loadAndCompile(bytes, { accelerator: "wasm" });
  const shapes = Object.fromEntries(graph.getInputDetails().map(({ name, shape }) => [name, [...shape]]));
  const run = async (inputs) => {
    const own = [];
    const tensors = Object.entries(inputs).map(([name, value]) => {
      if (!ArrayBuffer.isView(value)) return [name, value];
      own.push(new Tensor(value, shapes[name]));
      return [name, own.at(-1)];
    });
    try {
      return await graph.run(Object.fromEntries(tensors));
    } finally {
      own.forEach((tensor) => tensor.delete());
    }
  };
  return { shapes, run };
}

// The numbers of tensors, which end with it.
export async function values(tensors) {
  const read = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    read[name] = await tensor.data();
    tensor.delete();
  }
  return read;
}

const GROUP = 128; // weights of a column that share a scale
const TYPES = { "|i1": Int8Array, "|u1": Uint8Array, "<f4": Float32Array };
const text = (bytes) => new TextDecoder().decode(bytes);

// Unpacks a graph as `sat_tf/inference/unpacking.py` does: an .npz of integers with scales, to the bytes of a .tflite.
export async function unpackGraph(bytes) {
  const entries = await arraysOf(bytes);
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
async function arraysOf(bytes) {
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
