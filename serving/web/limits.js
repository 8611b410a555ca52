// A captioner's limits, as `sat_tf/inference/confidence.py`: the level of a caption, and the sentence that tells it.

const UNFAMILIAR = 0.02; // the share of dev images, below which a photograph is unlike those it learned from
const USUAL = 1 / 3; // the chance from which people often use a caption's words

// `known` is the captioner's familiarity file or null, `confidence` its slopes and bias or null;
// `annotations` are those of the photograph, `found` the captions of the beam.
export function remark(known, confidence, annotations, found) {
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
