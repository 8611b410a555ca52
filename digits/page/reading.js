// Digit models in a worker: a drawing in, what `reading_data` of the server's page returns out. The
// drawing becomes the model's image as `fit_drawing` of digits/reader.py makes it, to the bit.
import { download, open, unpackGraph, values } from "./litert.js";
import { triangle } from "./pixels.js";

const INK = 64; // of 255; what is fainter does not count as ink
const ROOM = 28 / 20; // MNIST digits are 20 pixels long, in the middle of 28
const MARGIN = 4; // pixels, (28 - 20) / 2
const BITS = 22; // of a weight of Pillow's resampling
const graphs = new Map(); // by their files

// Yields the reading of a drawing (`width`, and `ink`: bytes row by row, 255 is ink).
export async function* answers(page, { model, drawing }) {
  const fitted = fitDrawing(drawing.ink, drawing.width, model);
  if (!fitted) throw new Error("Cannot read the drawing: there is no ink in it.");
  if (!graphs.has(model.graph)) graphs.set(model.graph, await open(await unpackGraph(await download(model.graph))));
  const found = await values(await graphs.get(model.graph).run({ images: fitted.image }));
  yield { reading: { ...fitted, image: grey(fitted.image), size: model.size, answers: model.answers, steps: steps(found, model) } };
}

// Look by look: places of the four corners, patches `[side, side, scales]`, a probability per answer.
function steps({ corners, patches, probabilities }, { looks, side }) {
  return Array.from({ length: looks }, (_, look) => {
    const own = (values) => [...values.slice((look * values.length) / looks, ((look + 1) * values.length) / looks)];
    const [places, seen] = [own(corners), own(patches)];
    const scales = seen.length / side ** 2;
    return {
      corners: [0, 2, 4, 6].map((i) => places.slice(i, i + 2)),
      patches: Array.from({ length: scales }, (_, scale) => grey(seen.filter((_, i) => i % scales === scale))),
      side,
      probabilities: own(probabilities),
    };
  });
}

// Values of [0, 1] as bytes in base64.
const grey = (values) => btoa(String.fromCharCode(...Array.from(values, (value) => Math.round(255 * Math.min(Math.max(value, 0), 1)))));

// Scales and moves `ink` (bytes, 255 is ink, `width` a row) as little as makes it like the images
// of training; `size`, `ink_from`, `ink_to` and `digits` are the model's. Null if there is no ink.
function fitDrawing(ink, width, { size, ink_from, ink_to, digits }) {
  const sides = [width, ink.length / width];
  const used = (axis, from, to) => { // where ink is along an axis, between places of the other
    const found = new Uint8Array(sides[axis]);
    for (let i = 0; i < ink.length; i++) {
      const place = [i % width, Math.floor(i / width)];
      if (ink[i] > INK && place[1 - axis] >= from && place[1 - axis] < to) found[place[axis]] = 1;
    }
    return found;
  };
  const spans = [0, 1].map((axis) => extent(used(axis, 0, sides[1 - axis])));
  if (!spans[0]) return null;
  const lengths = spans.map(([from, to]) => to - from);
  const length = digits === 1 ? Math.max(...lengths) : longest(used, spans, lengths);
  let scale = Math.min(Math.max(size / Math.max(...sides), ink_from / length), ink_to / length);
  scale = Math.min(scale, (size - 2 * MARGIN) / Math.max(...lengths));
  const low = [], high = [];
  [0, 1].forEach((axis) => {
    // Digits of MNIST are centred by mass.
    const centre = digits === 1 ? mass(ink, width, axis) : spans[axis][0] + lengths[axis] / 2;
    const room = digits === 1 ? ROOM * length * scale : lengths[axis] * scale + 2 * MARGIN;
    const reach = Math.max(size - room, 0) / 2;
    const moved = Math.min(Math.max((centre - sides[axis] / 2) * scale, -reach), reach);
    const middle = centre - moved / scale;
    low.push(middle - size / scale / 2);
    high.push(middle + size / scale / 2);
  });
  return { image: resized(ink, sides, low, high, size), frame: [...low, ...high].map((edge, i) => edge / sides[i % 2]) };
}

// First used place and the one after the last; undefined if none is.
function extent(used) {
  const first = used.indexOf(1);
  return first < 0 ? undefined : [first, used.lastIndexOf(1) + 1];
}

// Longer side of the longest of two digits, which are told apart by the widest gap.
function longest(used, spans, lengths) {
  const gaps = [1, 0].map((axis) => [...widestGap(used(axis, 0, Infinity).subarray(...spans[axis])), axis]);
  const [width, at, axis] = gaps.reduce((a, b) => (a[0] > b[0] || (a[0] === b[0] && a[1] > b[1]) ? a : b));
  if (!width) return lengths[1]; // they touch side by side, or one is missing
  const [from, to] = spans[axis];
  return Math.max(...[[from, from + at], [from + at, to]].flatMap((part) => {
    const along = extent(used(axis, 0, Infinity).subarray(...part));
    return [along, extent(used(1 - axis, ...part))].map(([first, end]) => end - first);
  }));
}

// Width of the longest run of unused places between used ones, and where it begins.
function widestGap(used) {
  let best = [0, 0], last = 0;
  used.forEach((is, i) => {
    if (!is) return;
    if (i - last - 1 > best[0]) best = [i - last - 1, last + 1];
    last = i;
  });
  return best;
}

function mass(ink, width, axis) {
  let sum = 0, moment = 0;
  ink.forEach((value, i) => {
    sum += value;
    moment += value * ((axis ? Math.floor(i / width) : i % width) + 0.5);
  });
  return moment / sum;
}

// A part of a drawing, which may reach over its edges, as a square of [0, 1].
function resized(ink, sides, low, high, size) {
  const before = low.map((edge) => Math.max(Math.ceil(-edge), 0));
  const after = high.map((edge, axis) => Math.max(Math.ceil(edge - sides[axis]), 0));
  const [width, height] = sides.map((side, axis) => before[axis] + side + after[axis]);
  const padded = new Uint8Array(width * height);
  for (let y = 0; y < sides[1]; y++) padded.set(ink.subarray(y * sides[0], (y + 1) * sides[0]), (y + before[1]) * width + before[0]);
  const box = [0, 1].map((axis) => [low[axis] + before[axis], high[axis] + before[axis]]);
  const square = resample(resample(padded, width, box[0], size), height, box[1], size);
  const peak = Math.max(1, ...square);
  return Float32Array.from(square, (value) => value / peak);
}

// Pillow's bilinear resampling of bytes, `width` a row, of the part `from` to `to` of each row to
// `size` places; rows become columns.
function resample(bytes, width, [from, to], size) {
  const start = Math.fround(from);
  const scale = Math.fround(Math.fround(to) - start) / size;
  const height = bytes.length / width;
  const turned = new Uint8Array(size * height);
  triangle(start, scale, width, size).forEach(([first, weights], i) => {
    const whole = Array.from(weights, (weight) => Math.trunc(0.5 + weight * 2 ** BITS));
    for (let y = 0; y < height; y++) {
      let value = 2 ** (BITS - 1);
      whole.forEach((weight, j) => { value += weight * bytes[y * width + first + j]; });
      turned[i * height + y] = Math.min(255, value >> BITS);
    }
  });
  return turned;
}
