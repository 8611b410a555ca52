// A photograph as the encoder gets it: the pixels of `sat_tf/images/pillow.py`, to the last bit.
// A canvas scales otherwise in each browser, and captions change with it: here it only copies.

const BAND = 256; // rows that are copied at a time

// Float32 [size, size, 3], 0 to 255, and the photograph's height and width.
export async function readPixels(file, size, resize, mostPixels) {
  const { width, height, rows, close } = await decode(file, mostPixels);
  const side = Math.min(width, height);
  const [left, top, wide, high] = resize === "crop" ? [(width - side) >> 1, (height - side) >> 1, side, side] : [0, 0, width, height];
  const across = triangle(0, wide / size, wide, size);
  const narrow = new Float32Array(high * size * 3);
  for (let y = 0; y < high; y += BAND) {
    const count = Math.min(BAND, high - y);
    squeeze(rows(left, top + y, wide, count), wide, count, across, narrow.subarray(y * size * 3), size);
  }
  close();
  return { pixels: stack(narrow, triangle(0, high / size, high, size), size), width, height };
}

// The photograph upright, over white where it is transparent, and what reads some of its rows as RGBA.
// Decoders that multiply colours by alpha round otherwise for WebP than the canvas does.
async function decode(file, mostPixels) {
  if (!file.size) throw new Error("The file is empty.");
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" }).catch(() => {
    throw new Error(/hei[cf]$/i.test(file.type || file.name) ? "This browser does not read HEIC: save the photograph as JPEG first." : "This file cannot be read as an image by this browser.");
  });
  const { width, height } = bitmap;
  if (width * height > mostPixels) {
    bitmap.close();
    throw new Error(`This image has ${width} x ${height} pixels, more than are read: at most ${Math.floor(mostPixels / 1e6)} megapixels. Make it smaller first.`);
  }
  let context = null;
  const rows = (left, top, wide, high) => {
    context ??= new OffscreenCanvas(wide, Math.min(BAND, height)).getContext("2d", { willReadFrequently: true });
    context.fillStyle = "#fff";
    context.fillRect(0, 0, wide, high);
    context.drawImage(bitmap, left, top, wide, high, 0, 0, wide, high);
    return context.getImageData(0, 0, wide, high).data;
  };
  return { width, height, rows, close: () => bitmap.close() };
}

// Weights by which Pillow scales, a triangle as wide as the scale: of each of `size` places of the result,
// `scale` inputs apart from `start` on, the first of `length` inputs that counts, and the weights from there.
export function triangle(start, scale, length, size) {
  const reach = Math.max(scale, 1);
  return Array.from({ length: size }, (_, i) => {
    const centre = start + (i + 0.5) * scale;
    const first = Math.max(Math.trunc(centre - reach + 0.5), 0);
    const last = Math.min(Math.trunc(centre + reach + 0.5), length);
    const weights = Float64Array.from({ length: last - first }, (_, j) => Math.max(0, 1 - Math.abs((first + j - centre + 0.5) * (1 / reach))));
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return [first, weights.map((weight) => weight / sum)];
  });
}

function squeeze(rgba, wide, high, across, narrow, size) {
  for (let y = 0, to = 0; y < high; y++) {
    for (let x = 0; x < size; x++, to += 3) {
      const [first, weights] = across[x];
      let [red, green, blue] = [0, 0, 0];
      for (let j = 0, from = (y * wide + first) * 4; j < weights.length; j++, from += 4) {
        red += weights[j] * rgba[from];
        green += weights[j] * rgba[from + 1];
        blue += weights[j] * rgba[from + 2];
      }
      narrow[to] = red;
      narrow[to + 1] = green;
      narrow[to + 2] = blue;
    }
  }
}

function stack(narrow, down, size) {
  const wide = size * 3;
  const pixels = new Float32Array(size * wide);
  down.forEach(([first, weights], y) => {
    for (let x = 0; x < wide; x++) {
      let sum = 0;
      for (let j = 0; j < weights.length; j++) sum += weights[j] * narrow[(first + j) * wide + x];
      pixels[y * wide + x] = Math.min(255, Math.max(0, sum));
    }
  });
  return pixels;
}
