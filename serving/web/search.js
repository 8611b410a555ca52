// Search over one image, by the rules of `sat_tf/inference/litert_search.py`: beam, then consensus.

const [START, END] = [1, 2]; // of every vocabulary
const FLOOR = -1e9; // what is less likely does not exist
const [ORDERS, SIGMA] = [4, 6]; // of the n-grams and lengths of consensus

// The captions found, best first: `tokens`, `words` of them, `totals` (log-probability up to each), `score`,
// and `beside`, what the step returned beside each token. `step(words, parents)` gives `log_probs` of the
// live rows, each continuing row `parents[r]` of the step before, and `beside(row)`.
export async function beamSearch(step, search) {
  let live = [{ tokens: [], totals: [], beside: [] }];
  let parents = [0];
  const ended = [];
  for (let time = 0; time < search.max_length && live.length; time++) {
    const { log_probs: logProbs, size, beside } = await step(live.map(({ tokens }) => tokens.at(-1) ?? START), parents);
    const barred = new Set([...search.forbidden, ...(time < search.min_length ? [END] : [])]);
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
