// The second view: draw a digit, ask a model, step through where it looked.
"use strict";

(() => {
  const { element, svg, percent, placeByKey, markCurrent } = SatViewer;
  const find = (query) => document.querySelector(query);
  const PACE = 800; // ms per glimpse
  const PAUSE = 150; // ms after the last stroke
  const PATIENCE = 1000; // ms without an answer until the page says what it waits for
  const SENT = 280; // pixels, side of what is sent
  // Title, hint, width of the pen and size of a written digit, as shares of the paper, by system.
  const SYSTEMS = {
    ram: { title: "Glimpses of one digit", name: "RAM", draw: "Draw a digit here", pen: 0.085, box: 0.72 },
    dram: { title: "Glimpses of two digits", name: "DRAM", draw: "Draw two digits here, apart", pen: 0.06, box: 0.42 },
    stn: { title: "A digit transformed", name: "Spatial Transformer", draw: "Draw a digit here, askew", pen: 0.07, box: 0.52 },
  };
  // Digits to have written, on 100 x 100.
  const SHAPES = [
    "M50 8C22 8 22 92 50 92S78 8 50 8",
    "M50 8L50 92",
    "M26 30C26 0 76 0 74 32C72 56 30 72 24 92L78 92",
    "M28 16C44 2 74 8 72 28C70 46 46 46 44 46C48 46 78 46 76 70C74 96 38 96 24 82",
    "M62 92L64 8L20 64L82 62",
    "M74 8L36 8L30 44C48 34 78 40 76 66C74 94 38 96 24 82",
    "M66 8C40 20 26 48 28 70C30 98 74 96 74 70C74 46 40 44 30 64",
    "M24 10L76 10C62 34 50 60 44 92",
    "M50 48C20 40 26 8 50 8S80 40 50 48C16 56 22 92 50 92S84 56 50 48",
    "M72 34C72 4 28 2 28 32C28 58 66 56 72 34C72 60 66 80 58 92",
  ];
  let models = [];
  let model = null;
  let strokes = []; // of points [x, y] in shares of the paper, before turn and size
  let written = 0; // digits on the paper that were written, not drawn
  let pen = null; // the stroke being drawn
  let asked = { stop: new AbortController(), timer: null };
  let reading = null;
  let current = -1;
  const player = new SatViewer.Player(find("#play"), PACE, look);

  const say = (text) => (find("#message").textContent = text);
  const system = () => SYSTEMS[model.system];

  async function start() {
    try {
      find("#views").hidden = !(await SatEngine.page()).models.length;
      models = await SatEngine.models("digits");
    } catch (error) {
      return say(error.message);
    }
    models.sort((a, b) => Object.keys(SYSTEMS).indexOf(a.system) - Object.keys(SYSTEMS).indexOf(b.system));
    find("#models").append(...models.map((one, i) => modelChoice(one, i)));
    find(".keys").append(...SHAPES.map((_, digit) =>
      element("button", { type: "button", class: "plain", "aria-label": `Write a ${digit}`, onclick: () => write(digit) }, `${digit}`)));
    listen();
    choose(models[0]);
  }

  function modelChoice(one, i) {
    const { title, name } = SYSTEMS[one.system];
    const input = element("input", { type: "radio", name: "model", value: one.name, checked: i === 0, onchange: () => choose(one) });
    return element("label", {}, input, element("span", {}, title, element("small", {}, name)));
  }

  function listen() {
    const paper = find("#paper");
    paper.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      event.preventDefault();
      paper.setPointerCapture(event.pointerId);
      if (written >= model.digits) strokes = []; // a drawing takes the place of what was written
      [pen, written] = [[place(event)], 0];
      strokes.push(pen);
      draw();
    });
    paper.addEventListener("pointermove", (event) => {
      if (!pen || !event.isPrimary) return;
      const events = event.getCoalescedEvents?.() ?? [];
      pen.push(...(events.length ? events : [event]).map(place));
      draw();
    });
    for (const end of ["pointerup", "pointercancel"]) paper.addEventListener(end, () => {
      if (!pen) return;
      pen = null;
      changed();
    });
    find("#undo").addEventListener("click", () => { strokes.pop(); written = Math.min(written, strokes.length); changed(); });
    find("#clear").addEventListener("click", () => { strokes = []; written = 0; changed(); });
    for (const name of ["#turn", "#size"]) find(name).addEventListener("input", changed);
    find("#play").addEventListener("click", () => (player.timer ? player.stop() : play()));
    find("#back").addEventListener("click", () => { player.stop(); look(current - 1); });
    find("#next").addEventListener("click", () => { player.stop(); look(current + 1); });
    find(".glimpses").addEventListener("keydown", key);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  // One digit stays on the paper for another model of one.
  function choose(one) {
    if (model && model.digits !== one.digits) [strokes, written] = [[], 0];
    model = one;
    find("#draw").textContent = system().draw;
    find(".turns").hidden = one.system !== "stn";
    if (strokes.length) changed();
    else [4, 7].slice(-one.digits).forEach(write); // so that there is something to see
  }

  // Turn and size of the paper, for the Spatial Transformer alone.
  function view() {
    const turned = model.system === "stn";
    const angle = turned ? (find("#turn").value * Math.PI) / 180 : 0;
    const size = turned ? find("#size").value / 100 : 1;
    return [Math.cos(angle) * size, Math.sin(angle) * size];
  }

  function place(event) {
    const box = find("#paper").getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width - 0.5;
    const y = (event.clientY - box.top) / box.height - 0.5;
    const [a, b] = view();
    const square = a * a + b * b;
    return [0.5 + (a * x + b * y) / square, 0.5 + (a * y - b * x) / square];
  }

  function ink(canvas, colour, paper) {
    const context = canvas.getContext("2d");
    const side = canvas.width;
    context.clearRect(0, 0, side, side);
    if (paper) {
      context.fillStyle = paper;
      context.fillRect(0, 0, side, side);
    }
    const [a, b] = view();
    Object.assign(context, { lineWidth: system().pen * side, lineCap: "round", lineJoin: "round", strokeStyle: colour });
    for (const stroke of strokes) {
      context.beginPath();
      stroke.forEach(([px, py], i) => {
        const [x, y] = [px - 0.5, py - 0.5];
        const point = [(0.5 + a * x - b * y) * side, (0.5 + b * x + a * y) * side];
        if (i) context.lineTo(...point);
        else {
          context.moveTo(...point);
          context.lineTo(point[0] + 0.1, point[1]); // so that a dot is drawn, too
        }
      });
      context.stroke();
    }
  }

  const draw = () => ink(find("#paper"), getComputedStyle(document.body).color);

  // Writes a digit; two of them for a model that reads two.
  function write(digit) {
    if (written >= model.digits || (strokes.length && !written)) [strokes, written] = [[], 0];
    const path = svg("path", { d: SHAPES[digit] });
    const length = path.getTotalLength();
    const [left, top] = model.digits === 2 ? [[0.28, 0.4], [0.72, 0.6]][written] : [0.5, 0.5];
    const point = (at) => {
      const { x, y } = path.getPointAtLength(at);
      return [left + (x / 100 - 0.5) * system().box, top + (y / 100 - 0.5) * system().box];
    };
    strokes.push(Array.from({ length: 61 }, (_, n) => point((length * n) / 60)));
    written += 1;
    changed();
  }

  function changed() {
    draw();
    find("#paper").setAttribute("aria-label", strokes.length ? "Paper with your drawing" : "Paper, empty");
    clearTimeout(asked.timer);
    asked.stop.abort();
    say("");
    if (!strokes.length) return empty("Draw something, or choose a digit.");
    if (written && written < model.digits) return empty("Now the second digit.");
    asked = { stop: new AbortController() };
    asked.timer = setTimeout(ask, PAUSE, asked.stop.signal);
  }

  function empty(next) {
    player.stop();
    reading = null;
    find("#result").hidden = find("#brief").hidden = true;
    find("#answer").textContent = "Its answer";
    find("#said").textContent = next;
  }

  async function ask(signal) {
    const canvas = element("canvas", { width: SENT, height: SENT });
    ink(canvas, "#fff", "#000");
    const loading = setTimeout(() => empty("The model is being loaded; that takes a few seconds …"), PATIENCE);
    try {
      const tell = (why) => (find("#said").textContent = why);
      const found = await SatEngine.read("digits", canvas, { model, signal, tell });
      if (!signal.aborted) show(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      empty("");
      say(error.message);
    } finally {
      clearTimeout(loading);
    }
  }

  function show(data) {
    player.stop();
    [reading, current] = [data, -1];
    find("#result").hidden = false;
    const several = data.steps.length > 1;
    paint(find("#given"), data.size, data.image);
    find("#given").setAttribute("aria-label", several ? "What the model was given, with its glimpses" : "What the model was given, with the part it looks at");
    find("#steps").hidden = !several;
    find(".glimpses").replaceChildren(...(several ? data.steps.map((step, i) => element("li", {}, thumbnail(step, i))) : []));
    find("#note").textContent = several ? "It learned to answer after its last glimpse; before that, this is what it would say." : "";
    const last = data.steps.at(-1).probabilities;
    const best = last.indexOf(Math.max(...last));
    find("#answer").textContent = `It reads ${data.answers[best]}`;
    find("#brief").textContent = `It reads ${data.answers[best]}: see how`;
    find("#brief").hidden = false;
    const still = !several || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still) look(data.steps.length - 1);
    else play();
  }

  function thumbnail(step, i) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    retina(canvas, step);
    const button = element("button", { type: "button", "aria-label": `Glimpse ${i + 1}` }, canvas);
    button.addEventListener("click", () => { player.stop(); look(i); });
    return button;
  }

  function paint(canvas, side, text) {
    const bytes = atob(text);
    Object.assign(canvas, { width: side, height: side });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(side, side);
    for (let i = 0; i < bytes.length; i++) pixels.data.set([0, 0, 0].fill(bytes.charCodeAt(i)).concat(255), 4 * i);
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  // Nests the patches of a glimpse, each at its own size: fine in the middle, coarse around it.
  function retina(canvas, { patches, side }) {
    const whole = side * 2 ** (patches.length - 1);
    Object.assign(canvas, { width: whole, height: whole });
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    [...patches.keys()].reverse().forEach((k) => {
      const wide = side * 2 ** k;
      const corner = (whole - wide) / 2;
      context.drawImage(paint(element("canvas"), side, patches[k]), corner, corner, wide, wide);
    });
  }

  function look(index) {
    const { steps } = reading;
    current = Math.max(0, Math.min(index, steps.length - 1));
    const step = steps[current];
    const several = steps.length > 1;
    boxes();
    retina(find("#seen"), step);
    const sees = several ? `Glimpse ${current + 1} of ${steps.length}: what it sees` : "Rectified: what the classifier gets";
    find("#sees").textContent = sees;
    find("#seen").setAttribute("aria-label", sees);
    bars(step.probabilities);
    const best = step.probabilities.indexOf(Math.max(...step.probabilities));
    const answer = `${reading.answers[best]}, ${percent(step.probabilities[best])}`;
    find("#said").textContent = several ? `Glimpse ${current + 1} of ${steps.length}, ${where(step)}: ${answer}` : `${map(step)}: ${answer}`;
    find("#back").disabled = current === 0;
    find("#next").disabled = current === steps.length - 1;
    markCurrent(find(".glimpses").querySelectorAll("button"), current, "step");
  }

  const middle = ({ corners }) => [0, 1].map((axis) => corners.reduce((sum, corner) => sum + corner[axis] / 4, 0));

  function where(step) {
    const [x, y] = middle(step).map((share) => Math.round(100 * share));
    return `${x} % from the left, ${y} % from the top`;
  }

  // An affine map in words: the turn of its upper edge, and its size.
  function map({ corners: [first, second] }) {
    const [x, y] = [second[0] - first[0], second[1] - first[1]];
    const angle = Math.round((Math.atan2(y, x) * 180) / Math.PI);
    return `Turned by ${-angle}°, ${percent(Math.hypot(x, y))} of the side`;
  }

  function boxes() {
    const shape = (name, points, kind) => svg(name, { points: points.map((point) => point.join(",")).join(" "), class: kind });
    const passed = reading.steps.slice(0, current + 1);
    const now = passed.at(-1);
    const [x, y] = middle(now);
    const wider = now.patches.slice(1).map((_, k) => now.corners.map(([cx, cy]) => [x + (cx - x) * 2 ** (k + 1), y + (cy - y) * 2 ** (k + 1)]));
    find("#boxes").replaceChildren(
      ...passed.slice(0, -1).map(({ corners }) => shape("polygon", corners, "past")),
      shape("polyline", passed.map(middle), "path"),
      ...wider.map((corners) => shape("polygon", corners, "coarse")),
      shape("polygon", now.corners, "now"));
  }

  function bars(probabilities) {
    const order = [...probabilities.keys()];
    const few = order.length <= 10;
    const shown = few ? order : order.sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 5);
    const best = Math.max(...probabilities);
    find(".bars").classList.toggle("short", few);
    find(".bars").replaceChildren(...shown.map((i) => {
      const filled = element("span");
      filled.style.setProperty("--share", probabilities[i]);
      return element("li", { class: probabilities[i] === best ? "best" : null }, element("span", {}, reading.answers[i]),
        element("span", { class: "bar", "aria-hidden": "true" }, filled), element("span", {}, percent(probabilities[i])));
    }));
  }

  function key(event) {
    const target = placeByKey(event.key, current, reading.steps.length - 1);
    if (target === undefined) return;
    event.preventDefault();
    player.stop();
    look(target);
    find(".glimpses").querySelectorAll("button")[target].focus();
  }

  const play = () => player.play(current, reading.steps.length);

  start();
})();
