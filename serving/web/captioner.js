// Captioners in the browser, as `sat_tf/inference/litert_captioner.py`: three LiteRT graphs each, of which
// captioners share the encoder's, and the loop between them.
import { download, open, start, unpackGraph, values } from "./litert.js";
import { readPixels } from "./pixels.js";

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
  if (join.between !== " ") throw new Error("This page reads sentences for captioners of whole words: `sat-tf caption PHOTO --sentence TEXT` takes the others.");
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

// Search over one image, by the rules of `sat_tf/inference/litert_search.py`: beam, then consensus.

const FLOOR = -1e9; // what is less likely does not exist
const [ORDERS, SIGMA] = [4, 6]; // of the n-grams and lengths of consensus

// The captions found, best first: `tokens`, `words` of them, `totals` (log-probability up to each), `score`,
// and `beside`, what the step returned beside each token. `step(words, parents)` gives `log_probs` of the
// live rows, each continuing row `parents[r]` of the step before, and `beside(row)`.
async function beamSearch(step, search) {
  let live = [{ tokens: [], totals: [], beside: [] }];
  let parents = [0];
  const ended = [];
  for (let time = 0; time < search.max_length && live.length; time++) {
    const { log_probs: logProbs, size, beside } = await step(live.map(({ tokens }) => tokens.at(-1) ?? START), parents);
    const barred = new Set([...search.forbidden, ...(time ? [] : [END])]);
    const best = []; // [total, row, token]
    const room = search.beam - ended.length;
    live.forEach(({ tokens, totals }, row) => {
      const mine = new Set([...barred, ...repeating(tokens, search.no_repeat_ngram)]);
      for (let token = 0; token < size; token++) {
        const total = Math.fround((totals.at(-1) ?? 0) + logProbs[row * size + token]);
        if (!(total > FLOOR) || total === Infinity || (best.length === room && total <= best[room - 1][0]) || mine.has(token)) continue;
        let place = best.length;
        while (place && best[place - 1][0] < total) place--;
        best.splice(place, 0, [total, row, token]);
        best.length = Math.min(best.length, room);
      }
    });
    const grown = best.map(([total, row, token]) => ({
      tokens: [...live[row].tokens, token], totals: [...live[row].totals, total], beside: [...live[row].beside, () => beside(row)], row }));
    ended.push(...grown.filter(({ tokens }) => tokens.at(-1) === END));
    live = grown.filter(({ tokens }) => tokens.at(-1) !== END);
    parents = live.map(({ row }) => row);
  }
  const found = [...ended, ...live].filter(({ tokens }) => tokens.length).map((one) => {
    const words = one.tokens.filter((token) => token !== END);
    return { ...one, words, score: Math.fround(one.totals.at(-1) / Math.fround(Math.max(words.length, 1) ** Math.fround(search.length_power))) };
  }).sort((a, b) => b.score - a.score);
  if (!found.length) throw new Error("The image has no caption: the search bars every word, or its probability is 0 or not known.");
  return search.consensus ? byConsensus(found, search.consensus) : found;
}

// Tokens that would complete an n-gram which is there already.
function repeating(tokens, n) {
  if (!n || tokens.length < n) return [];
  const last = tokens.slice(tokens.length - n + 1);
  return tokens.slice(n - 1).filter((_, i) => last.every((token, j) => tokens[i + j] === token));
}

// In the order of the expected similarity to a caption of the image.
function byConsensus(found, sharpness) {
  const top = Math.max(...found.map(({ score }) => score));
  const weights = found.map(({ score }) => Math.exp(sharpness * (score - top)));
  const whole = weights.reduce((sum, weight) => sum + weight, 0);
  const counts = found.map(({ words }) => Array.from({ length: ORDERS }, (_, n) => count(words, n + 1)));
  const agreed = found.map((one, i) => Math.fround(found.reduce((sum, other, j) => {
    const overlap = counts[i].reduce((total, grams, n) => total + shared(grams, counts[j][n]), 0) / ORDERS;
    return sum + overlap * Math.exp(-((one.words.length - other.words.length) ** 2) / (2 * SIGMA ** 2)) * (weights[j] / whole);
  }, 0)));
  return found.map((one, i) => [agreed[i], one]).sort((a, b) => b[0] - a[0]).map(([, one]) => one);
}

function count(words, n) {
  const grams = new Map();
  for (let i = 0; i + n <= words.length; i++) {
    const gram = words.slice(i, i + n).join();
    grams.set(gram, (grams.get(gram) || 0) + 1);
  }
  return grams;
}

function shared(grams, others) {
  const norm = (counted) => Math.sqrt([...counted.values()].reduce((sum, n) => sum + n * n, 0));
  const both = [...grams].reduce((sum, [gram, n]) => sum + Math.min(n, others.get(gram) || 0) * (others.get(gram) || 0), 0);
  return both / Math.max(norm(grams) * norm(others), 1);
}

// A captioner's limits, as `sat_tf/inference/confidence.py`: the level of a caption, and the sentence that tells it.

const UNFAMILIAR = 0.02; // the share of dev images, below which a photograph is unlike those it learned from
const USUAL = 1 / 3; // the chance from which people often use a caption's words

// `known` is the captioner's familiarity file or null, `confidence` its slopes and bias or null;
// `annotations` are those of the photograph, `found` the captions of the beam.
function remark(known, confidence, annotations, found) {
  if (!known) return {};
  const familiarity = familiarityOf(known, annotations);
  if (familiarity < UNFAMILIAR) return { level: "unlike", remarks: ["Not like the photographs it was trained on: expect this caption to be wrong."] };
  if (!confidence) return {};
  const scores = found.map(({ score }) => score);
  const top = Math.max(...scores);
  const share = scores[0] - top - Math.log(scores.reduce((sum, score) => sum + Math.exp(score - top), 0));
  const evidence = [found[0].totals.at(-1), found[0].words.length, share, familiarity];
  const logit = evidence.reduce((sum, value, n) => sum + value * confidence.slopes[n], confidence.bias);
  const words = 1 / (1 + Math.exp(-logit)) >= USUAL ? "these" : "other";
  return { level: `${words === "these" ? "usual" : "other"} words`, remarks: [`People often describe such a photograph in ${words} words.`] };
}

// The share of dev images, and one more, that lie farther from the mean of the training images.
function familiarityOf({ rest, levels, images, ...packed }, annotations) {
  const numbers = (name, Kind) => new Kind(Uint8Array.from(atob(packed[name]), (byte) => byte.charCodeAt(0)).buffer);
  const [mean, basis] = [numbers("mean", Float32Array), numbers("basis", Int8Array)];
  const [scales, deviations] = [numbers("scales", Float32Array), numbers("deviations", Float32Array)];
  const places = annotations.length / mean.length;
  const moved = Float64Array.from(mean, (middle, d) => {
    let sum = 0;
    for (let place = 0; place < places; place++) sum += annotations[place * mean.length + d];
    return sum / places - middle;
  });
  let beside = moved.reduce((sum, value) => sum + value * value, 0);
  let distance = 0;
  scales.forEach((scale, k) => {
    const along = scale * moved.reduce((sum, value, d) => sum + value * basis[k * mean.length + d], 0);
    distance += (along / deviations[k]) ** 2;
    beside -= along * along;
  });
  distance += Math.max(beside, 0) / rest;
  const shares = levels.slice(1).map((high, i) => Math.min(1, Math.max(0, (high - distance) / Math.max(high - levels[i], 1e-38))));
  const farther = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  return (1 + (images - 1) * farther) / (images + 1);
}

// The words of a sentence, as `tokenize` of `sat_tf/text/words.py` splits captions; its entities are read before.

const APOSTROPHES = /[\u2019\u02bc\uff07\u2018`\u00b4\u02bb\u201b\u2032]/gu;
const UNSEEN = /(?![\u200c\u200d])[\p{Me}\p{Cf}\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const SEPARATORS = /[^\p{L}\p{M}\p{N}'\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4.,:/%]/gu;
const DOTLESS = /^(tr|az|crh|gag)(-|$)|^(tt|kk)-latn/i; // languages whose I has no dot when it is small

const RUN = String.raw`[^\s'\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4.,:/%]`; // letters, marks and digits
const LETTER = String.raw`[\p{L}\p{Nl}\p{No}]`;
const WORD = new RegExp([
  String.raw`(?!\s)(?:(?<!\S)${LETTER}+(?!\S)|(?<!\S)'${LETTER}{1,2}(?!\S)`,
  String.raw`|(?:(?<![\p{L}\p{N}.,:/%'\-])-(?=\.?\p{Nd}))?(?:(?<![\p{L}\p{N}.%])[.%](?=\p{Nd}))?[\p{L}\p{N}]${RUN}*`,
  String.raw`(?:(?:['\-\u200c\u200d\u00b7\u30fb\u0f0b\u05f4]|(?<=\p{Nd})[.,:/](?=\p{Nd})|(?<=\p{Nd})%['\-])${RUN}+)*`,
  String.raw`(?:(?<=\p{Nd})%)?|(?<=\p{Nd} )%|(?<!\p{Nd})(?<!\p{Nd} )%(?= \p{Nd}))`,
].join(""), "gu");

function lowerCase(text, language) {
  if (DOTLESS.test(language || "")) text = text.replaceAll("I\u0307", "i").replaceAll("\u0130", "i").replaceAll("I", "\u0131");
  return text.toLowerCase().replaceAll("i\u0307", "i");
}

export function tokenize(sentence, language) {
  const text = lowerCase(sentence, language).normalize("NFC").replace(APOSTROPHES, "'").replace(/[\u2010\u2011]/g, "-");
  return text.replace(UNSEEN, "").replace(SEPARATORS, " ").match(WORD) ?? [];
}
