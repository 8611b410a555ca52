// Captioners in the browser, as `sat_tf/inference/litert_captioner.py`: three LiteRT graphs each, of which
// captioners share the encoder's, and the loop between them.
import { download, open, start, values } from "./litert.js";
import { unpackGraph } from "./packed.js";
import { remark } from "./limits.js";
import { readPixels } from "./pixels.js";
import { beamSearch } from "./search.js";
import { tokenize } from "./words.js";

const STATE = ["hidden", "memory"];
const [START, END, UNKNOWN] = [1, 2, 3]; // of every vocabulary

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

// Yields that all is loaded, and then of a file, if there is one, the captions of each captioner; of a
// sentence, what one of them makes of it.
export async function* answers(page, { file, model, sentence }) {
  const asked = page.captioners.filter(({ name }) => name === (model ?? name));
  await load(asked);
  if (sentence !== undefined) return yield* caption(asked, file, page.most_pixels, (...given) => explain(sentence, ...given));
  yield { ready: true };
  const names = page.captioners.map(({ name }) => name);
  for await (const found of file ? caption(page.captioners, file, page.most_pixels) : []) yield { model: names.shift(), ...found };
}

// Captions of a file, of one captioner after the other: each `{ captions, level, remarks, width, height }`.
async function* caption(captioners, file, mostPixels, find = search) {
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
      yield { ...(await find(captioner, tensors)), ...sides };
    }
  } finally {
    for (const { tensors } of encoded.values()) Object.values(tensors).forEach((tensor) => tensor.delete());
  }
}

// The decoder at the start of a caption: `step` goes on to the next state, `close` gives memory back.
async function decoder(captioner, encoded) {
  const [startGraph, stepGraph] = await Promise.all([graph(captioner.graphs.start), graph(captioner.graphs.step)]);
  const started = await startGraph.run(encoded);
  const state = await values(Object.fromEntries(STATE.map((name) => [name, started[name]])));
  STATE.forEach((name) => delete started[name]);
  const [beam, given] = [captioner.beam, { ...encoded, ...started }];
  // `other` takes the place of what the steps are given; the state stays then.
  const step = async (tokens, parents, other) => {
    const inputs = { ...given, ...other, words: Int32Array.from({ length: beam }, (_, row) => tokens[row] ?? 0) };
    for (const name of STATE) {
      const width = stepGraph.shapes[name][1];
      inputs[name] = new Float32Array(beam * width);
      for (let row = 0; row < beam; row++) {
        const from = (parents[row] ?? 0) * width;
        inputs[name].set(state[name].subarray(from, from + width), row * width);
      }
    }
    const made = await values(await stepGraph.run(inputs));
    if (!other) STATE.forEach((name) => (state[name] = made[name]));
    const places = made.alpha && made.alpha.length / beam;
    const beside = (row) => made.alpha && { alpha: made.alpha.slice(row * places, (row + 1) * places), beta: made.beta[row] };
    return { log_probs: made.log_probs, size: made.log_probs.length / beam, beside };
  };
  return { given, step, close: () => Object.values(started).forEach((tensor) => tensor.delete()) };
}

async function search(captioner, encoded) {
  const vocabulary = await words(captioner.vocabulary);
  const { step, close } = await decoder(captioner, encoded);
  try {
    const found = await beamSearch(step, captioner);
    const known = captioner.familiarity && (await words(captioner.familiarity));
    const said = remark(known, captioner.confidence, known && (await encoded.annotations.data()), found);
    return { captions: found.map((one) => read(one, vocabulary)), ...said };
  } finally {
    close();
  }
}

// What a captioner makes of a sentence, each word from those before it, as `sat_tf/inference/captions.py`.
async function explain(sentence, captioner, encoded) {
  const { ids, tokens, unknown } = readSentence(sentence, await words(captioner.vocabulary), captioner);
  const { given, step, close } = await decoder(captioner, encoded);
  try {
    // Where all annotations are their mean, any map gives the context of a uniform one.
    const annotations = captioner.grid && given.annotations;
    const mean = annotations && { annotations: spread(await annotations.data(), captioner.grid[0] * captioner.grid[1]) };
    const found = [];
    for (const [n, id] of ids.entries()) {
      const last = [n ? ids[n - 1] : START];
      const uniform = mean && (await step(last, [0], mean)).log_probs[id];
      const { log_probs: logProbs, beside } = await step(last, [0]);
      const known = id !== UNKNOWN;
      found.push({ text: tokens[n], ...beside(0), log_prob: known ? logProbs[id] : null, looking: known && mean ? logProbs[id] - uniform : null });
    }
    const total = unknown.length ? null : found.reduce((sum, { log_prob: one }) => sum + one, 0);
    const shown = found.slice(0, tokens.length);
    const score = total === null ? null : total / shown.length ** captioner.length_power;
    return { captions: [{ text: tokens.join(" "), score, words: shown }], unknown };
  } finally {
    close();
  }
}

// The words of a user's sentence as they are shown, their ids with the end's, and those that are unknown.
function readSentence(sentence, { forms, join }, { lang, max_length: longest }) {
  if (join.between !== " ") throw new Error("This page reads sentences for captioners of whole words: `sat-tf explain` takes the others.");
  const found = tokenize(sentence, lang);
  if (!found.length) throw new Error("Write a sentence with words.");
  if (found.length > longest) throw new Error(`The sentence has ${found.length} words, and a caption at most ${longest}.`);
  const places = new Map(forms.map((form, id) => [form, id]));
  const ids = found.map((word) => places.get(word) ?? UNKNOWN);
  const unknown = [...new Set(found.filter((_, n) => ids[n] === UNKNOWN))];
  if (ids.every((id) => id === UNKNOWN)) throw new Error(`The captioner knows none of these words: ${unknown.join(", ")}.`);
  return { ids: [...ids, END], tokens: found, unknown };
}

// The mean over locations in the place of each.
function spread(data, locations) {
  const depth = data.length / locations;
  const mean = new Float64Array(depth);
  data.forEach((value, n) => (mean[n % depth] += value / locations));
  return Float32Array.from(data, (_, n) => mean[n % depth]);
}

// A caption: its text, and of each word text, log-probability, alpha and beta.
function read({ words: ids, totals, score, beside }, { forms, join }) {
  const found = ids.map((id, n) => ({ text: forms[id], log_prob: Math.fround(totals[n] - (totals[n - 1] ?? 0)), ...beside[n]() }));
  const joined = found.map(({ text }) => text).join(join.between);
  const text = (join.pattern ? joined.replace(new RegExp(join.pattern, "gu"), join.by) : joined).replace(/^ +| +$/g, "");
  return { text, score, log_prob: totals.at(-1), words: found };
}
