// Captioners in the browser, as `sat_tf/trained/lite/captioner.py`: three LiteRT graphs each, of which
// captioners share the encoder's, and the loop between them.
import { download, open, start, values } from "./litert.js";
import { unpackGraph } from "./packed.js";
import { remarks } from "./limits.js";
import { readPixels } from "./pixels.js";
import { beamSearch } from "./search.js";

const STATE = ["hidden", "memory"];
const MARK = "\u2581"; // of a subword that begins a word

const kept = new Map(); // what is open, by its file

function once(path, make) {
  if (!kept.has(path)) kept.set(path, make().catch((error) => { kept.delete(path); throw error; }));
  return kept.get(path);
}

const graph = (path) => kept.get(path);
const words = (path) => once(path, async () => JSON.parse(new TextDecoder().decode(await download(path))));

// Opens all that the captioners of a site need; what is open already stays.
async function load(captioners) {
  const paths = [...new Set(captioners.flatMap(({ graphs }) => Object.values(graphs)))].filter((path) => !kept.has(path));
  const texts = captioners.flatMap(({ vocabulary, familiarity }) => [vocabulary, familiarity]).filter(Boolean);
  const unpacked = paths.map(async (path) => unpackGraph(await download(path)));
  const graphs = (await Promise.all([Promise.all(unpacked), start(), ...texts.map(words)]))[0];
  // The largest first and one by one: LiteRT has a graph twice while it opens it, and its heap never shrinks.
  for (const [n, path] of paths.entries()) kept.set(path, await open(graphs[n]));
}

// Yields that all is loaded, and then of a file, if there is one, the captions of each captioner.
export async function* answers(page, { file }) {
  await load(page.captioners);
  yield { ready: true };
  const names = page.captioners.map(({ name }) => name);
  for await (const found of file ? caption(page.captioners, file, page.most_pixels) : []) yield { model: names.shift(), ...found };
}

// Captions of a file, of one captioner after the other: each `{ captions, remarks, width, height }`.
async function* caption(captioners, file, mostPixels) {
  const encoded = new Map(); // captioners share annotations, too
  try {
    for (const captioner of captioners) {
      const { image_size: size, resize } = captioner;
      const key = [captioner.graphs.encoder, size, resize].join();
      if (!encoded.has(key)) {
        const { pixels, ...sides } = await readPixels(file, size, resize, mostPixels);
        encoded.set(key, { sides, tensors: await (await graph(captioner.graphs.encoder)).run({ pixels }) });
      }
      const { sides, tensors } = encoded.get(key);
      yield { ...(await search(captioner, tensors)), ...sides };
    }
  } finally {
    for (const { tensors } of encoded.values()) Object.values(tensors).forEach((tensor) => tensor.delete());
  }
}

async function search(captioner, encoded) {
  const vocabulary = await words(captioner.vocabulary);
  const [startGraph, stepGraph] = await Promise.all([graph(captioner.graphs.start), graph(captioner.graphs.step)]);
  const started = await startGraph.run(encoded);
  const state = await values(Object.fromEntries(STATE.map((name) => [name, started[name]])));
  STATE.forEach((name) => delete started[name]);
  const [beam, given] = [captioner.beam, { ...encoded, ...started }];
  const step = async (tokens, parents) => {
    const inputs = { ...given, words: Int32Array.from({ length: beam }, (_, row) => tokens[row] ?? 0) };
    for (const name of STATE) {
      const width = stepGraph.shapes[name][1];
      inputs[name] = new Float32Array(beam * width);
      for (let row = 0; row < beam; row++) {
        const from = (parents[row] ?? 0) * width;
        inputs[name].set(state[name].subarray(from, from + width), row * width);
      }
    }
    const made = await values(await stepGraph.run(inputs));
    STATE.forEach((name) => (state[name] = made[name]));
    const places = made.alpha && made.alpha.length / beam;
    const beside = (row) => made.alpha && { alpha: made.alpha.slice(row * places, (row + 1) * places), beta: made.beta[row] };
    return { log_probs: made.log_probs, size: made.log_probs.length / beam, beside };
  };
  try {
    const found = await beamSearch(step, captioner);
    const known = captioner.familiarity && (await words(captioner.familiarity));
    const said = remarks(known, captioner.confidence, known && (await encoded.annotations.data()), found);
    return { captions: found.map((one) => read(one, vocabulary)), remarks: said };
  } finally {
    Object.values(started).forEach((tensor) => tensor.delete());
  }
}

// A caption: its text, and of each word text, log-probability, alpha and beta.
function read({ words: ids, totals, score, beside }, { forms, join, closed }) {
  const tokens = ids.map((id, n) => ({ text: forms[id], closed: closed.includes(id), log_prob: Math.fround(totals[n] - (totals[n - 1] ?? 0)), ...beside[n]() }));
  const joined = tokens.map(({ text }) => text).join(join.between);
  const bare = join.pattern === MARK ? readBytes(joined) : joined;
  const text = (join.pattern ? bare.replace(new RegExp(join.pattern, "gu"), join.by) : bare).replace(/^ +| +$/g, "");
  return { text, score, log_prob: totals.at(-1), words: wholeWords(tokens) };
}

// Names of bytes, as <0xE2>, become the characters that they make up.
function readBytes(text) {
  const bytes = (names) => Uint8Array.from(names.match(/[0-9A-F]{2}(?=>)/g), (byte) => parseInt(byte, 16));
  return text.replace(/(?:<0x[0-9A-F]{2}>)+/g, (names) => new TextDecoder().decode(bytes(names)).replaceAll("\ufffd", ""));
}

// Joins subwords to words, with the means of their maps; other words stay as they are.
function wholeWords(tokens) {
  if (!tokens.some(({ text }) => text.includes(MARK) || text !== readBytes(text))) return tokens;
  const groups = [];
  tokens.forEach((token, n) => {
    const before = tokens[n - 1]?.text;
    const alone = token.text.startsWith(MARK) || before?.endsWith("\u0f0b") || (before !== MARK && token.closed);
    if (n === 0 || alone) groups.push([token]);
    else groups.at(-1).push(token);
  });
  return groups.map((group) => {
    const sum = (name) => group.reduce((total, token) => total + token[name], 0);
    const maps = group[0].alpha && {
      alpha: group[0].alpha.map((_, place) => group.reduce((total, { alpha }) => total + alpha[place], 0) / group.length),
      beta: sum("beta") / group.length,
    };
    return { text: readBytes(group.map(({ text }) => text).join("")).replaceAll(MARK, ""), log_prob: sum("log_prob"), ...maps };
  });
}
