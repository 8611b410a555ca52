// Digit models in a worker: a drawing in, what `reading_data` of the server's page returns out.
import { asInk, fitDrawing } from "./drawing.js";
import { download, open, values } from "./litert.js";
import { unpackGraph } from "./packed.js";

const graphs = new Map(); // by their files

// Yields the reading of a drawing (`width`, and `ink`: its grey values, row by row).
export async function* answers(page, { model, drawing }) {
  const fitted = fitDrawing(asInk(drawing.ink, drawing.width), drawing.width, model);
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
