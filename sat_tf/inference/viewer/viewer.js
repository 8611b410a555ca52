// The viewer of captions: a photograph, its words, and where the captioner looked for each word.
// Used by reports (data embedded in the page) and by the live page; needs nothing else.
"use strict";

const SatViewer = (() => {
  const FLOOR = "rgb(48 48 48 / .5)"; // over the grey photograph, where the captioner did not look
  const GLOW = [255, 166, 43]; // a tint where it looked, which shows on dark and grey places too
  const TINT = 0.16; // its opacity
  const SHARPEST = 1024; // pixels, the longer side of what is painted
  const TILE = 320; // pixels, of the picture that is saved
  const EVEN = 1.1; // a map whose brightest place has less than this over its mean counts as even
  const HEAT = [[13, 8, 135], [156, 23, 158], [237, 121, 83], [240, 249, 33]]; // from dark blue to yellow
  const QUIET = new Set("the and with for from near next that this there are was has his her its their one some into onto over under behind while".split(" ")); // no content
  const KINDS = { soft: "Soft attention", hard: "Hard attention", none: "No attention" };

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function svg(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    return made;
  }

  // A map is base64 of bytes; the value 255 stands for `peak`, the hypothesis' largest weight.
  function decodeMap(text, peak) {
    const bytes = atob(text);
    return Float32Array.from({ length: bytes.length }, (_, i) => (bytes.charCodeAt(i) / 255) * peak);
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // Levels from 0 to 1 over a map's own range; all 1 if it is even.
  function ownLevels(weights) {
    const [low, high] = [Math.min(...weights), Math.max(...weights)];
    if (high < EVEN * mean(weights)) return weights.map(() => 1);
    return weights.map((weight) => (weight - low) / (high - low));
  }

  // Levels from 0 to 1 on one scale for all words: `brightest`, the mean of the words' largest
  // weights, and all above are 1.
  const commonLevels = (weights, brightest) => weights.map((weight) => Math.sqrt(Math.min(1, weight / brightest)));

  function heatColour(level) {
    const place = level * (HEAT.length - 1);
    const i = Math.min(HEAT.length - 2, Math.floor(place));
    return HEAT[i].map((from, n) => from + (place - i) * (HEAT[i + 1][n] - from));
  }

  // Levels as a canvas of the grid's size: opaque GLOW where they are 1; or colours of heat.
  function mapCanvas(levels, width, height, heat) {
    const canvas = element("canvas", { width, height });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(width, height);
    levels.forEach((level, i) =>
      pixels.data.set(heat ? [...heatColour(level), 255 * (0.35 + 0.35 * level)] : [...GLOW, 255 * level], 4 * i));
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  function drawLocation(weights, random = Math.random) {
    let left = random() * weights.reduce((sum, weight) => sum + weight, 0);
    for (let i = 0; i < weights.length; i++) if ((left -= weights[i]) <= 0) return i;
    return weights.length - 1;
  }

  const LETTERS = new Intl.Segmenter(); // with their marks

  // Words of such languages run from the right even if the first one is Latin.
  const RIGHT_TO_LEFT = /^(aii|apc|ar|arb|arc|ary|arz|azb|ckb|dv|fa|he|iw|ji|ks|lrc|mzn|nqo|pbt|pbu|pes|pnb|prs|ps|rhg|sd|skr|syc|syr|ug|ur|ydd|yi)(-|$)|-(adlm|arab|hebr|mand|nkoo|rohg|syrc|thaa)(-|$)/i;
  const direction = (text, lang) => (RIGHT_TO_LEFT.test(lang || "") && /[\u0590-\u08ff\ufb1d-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(text) ? "rtl" : "auto");

  function smallLetters(text, lang) {
    try {
      return text.normalize().toLocaleLowerCase(lang || []);
    } catch { // a code that the browser does not know
      return text.normalize().toLowerCase();
    }
  }

  // The words of a caption in lines of a width, pixels.
  function wrap(context, { words }, width, gap) {
    return words.reduce((lines, { text }) => {
      const longer = lines.at(-1) + (lines.at(-1) && gap) + text;
      return context.measureText(longer).width > width ? [...lines, text] : [...lines.slice(0, -1), longer];
    }, [""]);
  }

  const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

  // Which of the places up to `last` a key leads to from the current one; undefined for other keys.
  function placeByKey(key, current, last, rightToLeft = false) {
    const [forward, backward] = rightToLeft ? ["ArrowLeft", "ArrowRight"] : ["ArrowRight", "ArrowLeft"];
    return { [forward]: Math.min(current + 1, last), [backward]: Math.max(current - 1, 0), Home: 0, End: last }[key];
  }

  // Marks one of several buttons, by `kind` of aria-current; the Tab key reaches that one alone.
  function markCurrent(buttons, current, kind) {
    [...buttons].forEach((button, i) => {
      if (i === current) button.setAttribute("aria-current", kind);
      else button.removeAttribute("aria-current");
      if (current >= 0) button.tabIndex = i === current ? 0 : -1;
    });
  }

  // A button that shows one step after another, `pace` ms each, from the one after the current.
  class Player {
    constructor(button, pace, show) {
      Object.assign(this, { button, pace, show, timer: null });
      button.textContent = "Play";
    }

    play(current, count) {
      this.button.textContent = "Pause";
      let next = current < 0 || current >= count - 1 ? 0 : current + 1;
      const step = () => {
        if (next >= count) return this.stop();
        this.show(next++);
        this.timer = setTimeout(step, this.pace);
      };
      step();
    }

    stop() {
      clearTimeout(this.timer);
      this.timer = null;
      this.button.textContent = "Play";
    }
  }

  // About four round numbers from `low` to `high`.
  function ticks(low, high) {
    const rough = (high - low) / 4 || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((one) => one * power >= rough);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
  }

  // A chart with axes; what points and bars stand for is said when they are pointed at.
  function chart({ name, x, y, bars = [], lines = [], diagonal, text }) {
    const [width, height, left, base] = [320, 210, 44, 168];
    const points = lines.flatMap((line) => line.points);
    const places = [...bars.flatMap(([from, to]) => [from, to]), ...points.map(([at]) => at)];
    const heights = [...bars.map((bar) => bar[2]), ...points.map(([, value]) => value)];
    const [lowX, highX] = diagonal ? [0, 100] : [Math.min(...places), Math.max(...places)];
    const [lowY, highY] = diagonal ? [0, 100] : [bars.length ? 0 : Math.min(...heights), Math.max(...heights)];
    const atX = (value) => left + ((width - left - 12) * (value - lowX)) / (highX - lowX || 1);
    const atY = (value) => base - ((base - 12) * (value - lowY)) / (highY - lowY || 1);
    const drawn = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text });
    const add = (tag, attributes, said = "") => {
      const part = svg(tag, attributes);
      if (said) part.append(Object.assign(svg("title", {}), { textContent: said }));
      drawn.append(part);
    };
    const write = (said, attributes) => {
      add("text", attributes);
      drawn.lastChild.textContent = said;
    };
    ticks(lowX, highX).forEach((value) => write(value, { x: atX(value), y: base + 16, "text-anchor": "middle" }));
    ticks(lowY, highY).forEach((value) => {
      add("path", { class: "grid", d: `M${left} ${atY(value)}H${width - 12}` });
      write(value, { x: left - 6, y: atY(value) + 4, "text-anchor": "end" });
    });
    write(x, { x: (left + width) / 2, y: base + 34, "text-anchor": "middle" });
    write(y, { transform: `translate(11 ${base / 2}) rotate(-90)`, "text-anchor": "middle" });
    bars.forEach(([from, to, value, said]) =>
      add("rect", { x: atX(from) + 0.5, width: Math.max(1, atX(to) - atX(from) - 1), y: atY(value), height: base - atY(value) }, said));
    if (diagonal) add("path", { class: "equal", d: `M${atX(0)} ${atY(0)}L${atX(100)} ${atY(100)}` });
    lines.forEach(({ name, points: line }, n) => {
      add("polyline", { class: `line${n}`, points: line.map(([at, value]) => `${atX(at)},${atY(value)}`).join(" ") });
      line.forEach(([at, value]) => add("circle", { class: `line${n}`, cx: atX(at), cy: atY(value), r: 3.5 }, `${name}, ${x} ${at}: ${value.toPrecision(4)}`));
    });
    add("path", { class: "axis", d: `M${left} 12V${base}H${width - 12}` });
    return element("figure", { title: text }, drawn, element("figcaption", { class: "quiet" }, name));
  }

  // How maps are shown, and which word: common to the viewers of one panel, kept between photographs.
  class Panel {
    constructor() {
      this.viewers = [];
      this.current = -1;
      this.heat = this.boxed = false;
      this.play = element("button", { type: "button", onclick: () => this.toggle() });
      this.player = new Player(this.play, 900, (i) => this.look(i));
      this.heatButton = this.switchButton("Heat map", "heat");
      this.boxButton = this.switchButton("Boxes", "boxed");
      this.boxButton.hidden = true; // until a caption has boxes
      this.scale = element("select", { "aria-label": "Brightness", onchange: () => this.refresh() },
        element("option", { value: "own" }, "Scale: each word by itself"),
        element("option", { value: "common" }, "Scale: one for all words"),
        element("option", { value: "gated" }, "Scale: one, times the gate β"));
      this.controls = element("div", { class: "controls" }, this.play, this.heatButton, this.boxButton, this.scale);
      this.legend = element("p", { class: "quiet legend" });
      this.root = element("div", { class: "panel" }, this.controls, this.legend);
    }

    switchButton(text, setting) {
      const button = element("button", { type: "button", "aria-pressed": "false" }, text);
      button.addEventListener("click", () => {
        this[setting] = !this[setting];
        button.setAttribute("aria-pressed", this[setting]);
        this.refresh();
      });
      return button;
    }

    clear() {
      this.stop();
      this.viewers = [];
      this.current = -1;
    }

    // Lights word `i` in every viewer; `by`, the one that was pointed at, says it aloud.
    look(i, by = this.viewers[0]) {
      this.current = i;
      this.viewers.forEach((viewer) => viewer.look(i < viewer.hypothesis.words.length ? i : -1, viewer === by));
    }

    refresh() {
      const some = (has) => this.viewers.some(has);
      const words = (has) => some((viewer) => viewer.hypothesis.words.some(has));
      const looks = some((viewer) => viewer.looks);
      [this.play, this.heatButton, this.scale].forEach((part) => (part.hidden = !looks));
      this.boxButton.hidden = !words((word) => word.boxes);
      const gates = some((viewer) => viewer.gates);
      this.scale.lastChild.hidden = this.scale.lastChild.disabled = !gates;
      if (!gates && this.scale.value === "gated") this.scale.value = "own";
      const lines = [];
      if (looks) lines.push(element("span", {}, element("span", { class: `ramp${this.heat ? " heat" : ""}` }), this.heat ? " bright: looked here more" : " in colour: looked here more"));
      if (words((word) => word.log_prob != null)) lines.push(element("span", {}, `the fuller a ${this.viewers[0].noun}'s box, the surer of the ${this.viewers[0].noun}`));
      if (some((viewer) => !viewer.crop.classList.contains("whole"))) lines.push(element("span", {}, "pale border: not seen by the captioner"));
      this.legend.replaceChildren(...lines);
      this.look(this.current);
    }

    toggle() {
      if (this.player.timer) return this.stop();
      this.player.play(this.current, Math.max(...this.viewers.map((viewer) => viewer.hypothesis.words.length)));
    }

    stop() {
      this.player.stop();
    }
  }

  class Viewer {
    constructor(host, data, panel) {
      this.data = data;
      this.panel = panel;
      this.panel.viewers.push(this);
      this.current = -1;
      this.root = element("section", { class: "viewer", "aria-label": data.model || "Caption" });
      host.replaceChildren(this.root);
      this.build();
      this.choose(0);
    }

    build() {
      const { data } = this;
      this.canvas = element("canvas", { "aria-hidden": "true" });
      this.dots = svg("svg", { class: "dots", "aria-hidden": "true" });
      this.crop = element("div", { class: "crop" }, this.canvas, this.dots);
      this.image = element("img", { src: data.image, alt: "", lang: data.lang });
      this.stage = element("div", { class: "stage" }, this.image, this.crop);
      this.image.addEventListener("load", () => {
        this.stage.style.setProperty("--ratio", this.image.naturalWidth / this.image.naturalHeight);
        this.paint(this.current);
      });
      this.placeCrop();
      this.level = element("p", { hidden: true });
      this.words = element("ol", { class: "words", "aria-label": "Caption, word by word" });
      this.sentence = element("p", { class: "sentence", lang: data.lang });
      this.words.addEventListener("keydown", (event) => this.key(event));
      this.stage.addEventListener("click", () => { this.panel.stop(); this.panel.look(-1); });
      this.said = element("p", { class: "quiet said", role: "status" });
      this.draws = element("div", { class: "controls" },
        element("button", { type: "button", onclick: () => this.draw(1) }, "Draw a location"),
        element("button", { type: "button", onclick: () => this.draw(20) }, "Draw 20"));
      this.note = element("p", { class: "quiet note" });
      this.others = element("div", { class: "others" });
      const title = element("h2", {}, data.model || "", " ", element("span", { class: "quiet" }, data.name || ""));
      const text = element("div", { class: "text" }, title, this.level, this.words, this.sentence, this.said, this.draws, this.note, this.others, ...this.more());
      this.root.append(element("div", { class: "sides" }, this.stage, text));
    }

    placeCrop() {
      const [left, top, right, bottom] = this.data.crop || [0, 0, 1, 1];
      const part = (value) => `${100 * value}%`;
      Object.assign(this.crop.style, {
        left: part(left), top: part(top), width: part(right - left), height: part(bottom - top),
      });
      this.crop.classList.toggle("whole", left <= 0.01 && top <= 0.01 && right >= 0.99 && bottom >= 0.99);
    }

    // The other sentences of the beam: the first ones, and the rest on demand.
    listHypotheses(first = 3) {
      const { hypotheses } = this.data;
      if (hypotheses.length < 2) return;
      const choices = hypotheses.map((hypothesis, i) => element("li", { hidden: i >= first && hypothesis !== this.hypothesis },
        element("button", { type: "button", lang: this.data.lang, "aria-pressed": String(hypothesis === this.hypothesis), title: `score ${hypothesis.score?.toFixed(2) ?? "unknown"}`, onclick: () => {
          this.choose(i);
          this.others.querySelectorAll("button")[i].focus();
        } }, hypothesis.text)));
      const hidden = choices.filter((choice) => choice.hidden);
      const rest = element("button", { type: "button", class: "rest", onclick: () => this.listHypotheses(Infinity) }, `${hidden.length} more`);
      this.others.replaceChildren(element("p", { class: "quiet" }, "Sentences that it weighed"),
        element("ol", { "aria-label": "Hypotheses of the beam", dir: direction(this.hypothesis.text, this.data.lang) }, ...choices), ...(hidden.length ? [rest] : []));
      this.allListed = !hidden.length;
    }

    more() {
      const { references = [], scores, lang } = this.data;
      const parts = [];
      if (scores) parts.push(element("p", { class: "quiet" }, Object.entries(scores).map(([name, value]) => `${name} ${value}`).join(" · ")));
      if (references.length) {
        const items = references.map((text) => element("li", { dir: direction(text, lang), lang }, text));
        parts.push(element("details", {}, element("summary", {}, `${references.length} reference caption${references.length > 1 ? "s" : ""}`), element("ul", { class: "references" }, ...items)));
      }
      return parts;
    }

    choose(index) {
      this.panel.stop();
      this.hypothesis = this.data.hypotheses[index];
      const [height, width] = this.data.grid || [0, 0];
      const { words, peak } = this.hypothesis;
      this.maps = words.map((word) => (word.map ? decodeMap(word.map, peak) : null));
      this.looks = this.maps.some(Boolean);
      this.brightest = (this.looks && mean(this.maps.filter(Boolean).map((weights) => Math.max(...weights)))) || 1;
      this.gates = this.looks && words.some((word) => word.beta != null && word.beta < 0.999);
      if (this.looks) this.dots.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.words.dir = this.sentence.dir = direction(this.hypothesis.text, this.data.lang);
      this.words.replaceChildren(...words.map((word, i) => element("li", {}, this.wordButton(word, i))));
      this.image.alt = this.hypothesis.text;
      const single = words.length > 1 && words.every((word) => [...LETTERS.segment(word.text)].length === 1);
      this.noun = single ? "character" : "word";
      // Words without spaces between them stand as they are read, and once as text to be copied.
      const joined = words.length > 1 && words.map((word) => word.text).join("") === this.hypothesis.text;
      this.words.classList.toggle("joined", joined);
      this.sentence.hidden = !joined;
      this.sentence.textContent = this.hypothesis.text;
      this.draws.hidden = !(this.looks && this.data.kind === "hard");
      const notes = [];
      const { level, remarks = [] } = this.data;
      this.level.hidden = !remarks.length || this.hypothesis !== this.data.hypotheses[0];
      this.level.className = `level ${(level || "").replace(" ", "-")}`;
      this.level.textContent = remarks.join(" ");
      if (this.data.kind === "none") notes.push(`It has no attention: it reads the mean of the photograph, the same for every ${this.noun}.`);
      else if (!this.looks) notes.push("No maps were kept of this hypothesis.");
      const { unknown = [] } = this.data;
      if (unknown.length) notes.push(`It does not know ${unknown.map((word) => `“${word}”`).join(", ")}, and has no probability for that.`);
      else if (words.every((word) => word.log_prob == null)) notes.push(`This caption came without the probabilities of its ${this.noun}s.`);
      this.note.textContent = notes.join(" ");
      this.listHypotheses(this.allListed ? Infinity : 3);
      this.panel.refresh();
    }

    // The content word whose map stands out most, or without maps the longest: the one to begin with.
    striking() {
      const heights = this.hypothesis.words.map(({ text }, i) => {
        if (this.sentence.hidden && (text.length < 3 || QUIET.has(text))) return 0;
        return this.looks ? Math.max(...(this.maps[i] || [0])) : text.length;
      });
      return Math.max(0, heights.indexOf(Math.max(...heights)));
    }

    wordButton(word, i) {
      const button = element("button", { type: "button", class: "word", lang: this.data.lang, tabindex: i ? -1 : 0 }, word.text);
      if (word.log_prob != null) button.style.setProperty("--probability", Math.exp(word.log_prob));
      const look = () => this.panel.look(i, this);
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && !this.panel.player.timer && look());
      button.addEventListener("focus", () => this.panel.player.timer || look());
      button.addEventListener("click", () => { this.panel.stop(); look(); });
      return button;
    }

    levels(i) {
      const scale = this.panel.scale.value;
      if (scale === "own") return ownLevels(this.maps[i]);
      const beta = scale === "gated" ? this.hypothesis.words[i].beta ?? 1 : 1;
      return commonLevels(this.maps[i].map((weight) => weight * beta), this.brightest);
    }

    // The part of the photograph that the captioner sees: left, top, width and height in its pixels.
    seen() {
      const { naturalWidth: width, naturalHeight: height } = this.image;
      const [left, top, right, bottom] = this.data.crop || [0, 0, 1, 1];
      return [left * width, top * height, (right - left) * width, (bottom - top) * height];
    }

    // Paints what lies over that part for a word: the part in grey, open where the captioner looked.
    paint(i) {
      const levels = this.maps[i] && this.image.naturalWidth ? this.levels(i) : null;
      if (!levels) return;
      const [left, top, wide, high] = this.seen();
      const scale = Math.min(1, SHARPEST / Math.max(wide, high));
      const size = [Math.round(wide * scale), Math.round(high * scale)];
      [this.canvas.width, this.canvas.height] = size;
      const context = this.canvas.getContext("2d");
      context.imageSmoothingQuality = "high";
      const { heat } = this.panel;
      const map = mapCanvas(levels, this.data.grid[1], this.data.grid[0], heat);
      const lay = (how, what) => {
        context.globalCompositeOperation = how;
        if (typeof what !== "string") return context.drawImage(what, 0, 0, ...size);
        context.fillStyle = what;
        context.fillRect(0, 0, ...size);
      };
      if (heat) return lay("copy", map);
      context.drawImage(this.image, left, top, wide, high, 0, 0, ...size);
      lay("saturation", "#808080");
      lay("source-over", FLOOR);
      lay("destination-out", map);
      context.globalAlpha = TINT;
      lay("source-over", map);
    }

    look(i, aloud = true) {
      this.current = i;
      markCurrent(this.words.querySelectorAll("button"), i, "true");
      this.dots.replaceChildren();
      const word = this.hypothesis.words[i];
      this.stage.classList.toggle("looking", i >= 0 && this.looks);
      this.said.setAttribute("aria-live", aloud ? "polite" : "off");
      if (!word) return void (this.said.textContent = this.looks ? `Point at a ${this.noun}, or use the arrow keys.` : " ");
      this.paint(i);
      if (this.panel.boxed) (word.boxes || []).forEach((box) => this.addBox(box));
      this.describe(i);
    }

    // Says the word that is shown, and what is known of it.
    describe(i, more = "") {
      const word = this.hypothesis.words[i];
      const facts = [];
      if (word.log_prob != null) facts.push(`probability ${percent(Math.exp(word.log_prob))}`);
      if (this.maps[i]) facts.push(`brightest place ${(Math.max(...this.maps[i]) / mean(this.maps[i]) || 0).toFixed(1)} times the mean`);
      if (this.gates && word.beta != null) facts.push(`gate β ${word.beta.toFixed(2)}`);
      if (word.looking != null) facts.push(`looking was worth ${word.looking.toFixed(2)} nats`);
      const text = element("span", { lang: this.data.lang }, `“${word.text}”`);
      this.said.replaceChildren(text, ["", ...facts].join(", ") + more);
    }

    draw(count) {
      if (this.current < 0) this.panel.look(0, this);
      this.dots.querySelectorAll(".last").forEach((dot) => dot.classList.remove("last"));
      for (let n = 0; n < count; n++) this.addDot(drawLocation(this.maps[this.current]));
      const number = this.dots.querySelectorAll("circle").length;
      this.describe(this.current, `; ${number} location${number > 1 ? "s" : ""} drawn from this map`);
    }

    // A box `[top, left, bottom, right]` in shares of what the model sees.
    addBox([top, left, bottom, right]) {
      const [height, width] = this.data.grid;
      this.dots.append(svg("rect", { x: left * width, y: top * height, width: (right - left) * width, height: (bottom - top) * height }));
    }

    addDot(place) {
      const [, width] = this.data.grid;
      const jitter = () => (Math.random() - 0.5) * 0.5; // so that dots of one place stay countable
      this.dots.append(svg("circle", {
        cx: (place % width) + 0.5 + jitter(), cy: Math.floor(place / width) + 0.5 + jitter(), r: width / 45, class: "last",
      }));
    }

    key(event) {
      const last = this.hypothesis.words.length - 1;
      const rightToLeft = getComputedStyle(this.words).direction === "rtl";
      if (event.key === "Escape") { this.panel.stop(); return this.panel.look(-1); }
      const target = placeByKey(event.key, this.current, last, rightToLeft);
      if (target === undefined) return;
      event.preventDefault();
      this.panel.stop();
      this.words.querySelectorAll("button")[target].focus();
      this.panel.look(target, this);
    }

    // A sheet: the caption, the photograph, and a tile for each word, as `training.caption` draws it.
    async picture() {
      await this.image.decode();
      const tiles = this.looks ? [-1, ...this.maps.keys()] : [-1];
      const columns = Math.ceil(tiles.length / Math.ceil(tiles.length / 6));
      const [, , wide, high] = this.seen();
      const [gap, text, side] = [TILE / 16, TILE / 10, this.looks ? TILE : 2 * TILE];
      const [across, down] = [wide, high].map((length) => Math.round((side * length) / Math.max(wide, high)));
      const canvas = element("canvas", { width: gap + columns * (across + gap) });
      const context = canvas.getContext("2d");
      const rightToLeft = getComputedStyle(this.words).direction === "rtl";
      const style = () => Object.assign(context, { font: `${text}px system-ui, sans-serif`, fillStyle: "#1d1d1f", textBaseline: "middle", direction: rightToLeft ? "rtl" : "ltr" });
      style();
      const lines = wrap(context, this.hypothesis, canvas.width - 2 * gap, this.sentence.hidden ? " " : "");
      const head = gap + 1.5 * text * lines.length;
      canvas.height = head + Math.ceil(tiles.length / columns) * (down + 2 * text) + gap;
      context.fillStyle = "#fff";
      context.fillRect(0, 0, canvas.width, canvas.height);
      style();
      lines.forEach((line, n) => context.fillText(line, rightToLeft ? canvas.width - gap : gap, gap + (1.5 * n + 0.5) * text));
      context.textAlign = "center";
      tiles.forEach((word, n) => {
        const column = rightToLeft ? columns - 1 - (n % columns) : n % columns;
        const place = [gap + column * (across + gap), head + Math.floor(n / columns) * (down + 2 * text), across, down];
        context.drawImage(this.image, ...this.seen(), ...place);
        if (word < 0) return;
        this.paint(word);
        if (this.maps[word]) context.drawImage(this.canvas, ...place);
        context.fillText(this.hypothesis.words[word].text, place[0] + across / 2, place[1] + down + text, across);
      });
      this.paint(this.current);
      return new Promise((done) => canvas.toBlob(done, "image/png"));
    }
  }

  // Captioners of one photograph: one at a time, large, or side by side; a word is lit in all.
  // `kinds` of attention are known before the answers, or come with them.
  class Comparison {
    constructor(host, names, kinds = [], own = []) {
      [this.names, this.kinds, this.own] = [names, [...kinds], own];
      this.panel = new Panel();
      this.answers = [];
      this.switch = element("div", { class: "switch", role: "group", "aria-label": "Captioner shown" });
      this.columns = element("div", { class: "columns" });
      this.beside = element("button", { type: "button", "aria-pressed": "false", onclick: () => this.choose(this.chosen, !this.together) }, "Side by side");
      this.buttons = names.map((_, i) => element("button", { type: "button", onclick: () => this.choose(i) }, this.title(i)));
      if (names.length > 1) this.switch.append(...this.buttons, this.beside);
      host.replaceChildren(element("div", { class: "bar" }, this.switch, this.panel.controls), this.columns, this.panel.legend);
      this.choose(0);
    }

    // The kind of attention in words; with the name if several are of one kind, or of an own captioner.
    title(i) {
      const kind = this.kinds[i];
      if (!KINDS[kind]) return this.names[i];
      if (this.own[i]) return `${this.names[i]} (${KINDS[kind].toLowerCase()})`;
      return KINDS[kind] + (this.kinds.filter((other) => other === kind).length > 1 ? ` (${this.names[i]})` : "");
    }

    // Takes away the photograph before; the choice and the settings stay. The next one, if browsers
    // show its format, stands there until it is captioned.
    clear(image = "") {
      this.panel.clear();
      this.answers = [];
      this.columns.replaceChildren(...this.names.map(() => {
        const stage = image ? [element("div", { class: "stage" }, element("img", { src: image, alt: "" }))] : [];
        const text = element("div", { class: "text" }, element("p", { class: "waiting", role: "status" }));
        return element("div", { class: "column" }, element("section", { class: "viewer" }, element("div", { class: "sides" }, ...stage, text)));
      }));
      this.choose(this.chosen, this.together);
    }

    // Says why captioner `i` has not answered yet.
    wait(i, text) {
      const said = this.columns.children[i].querySelector(".waiting");
      if (said) said.textContent = text;
    }

    // Shows the answer of captioner `i`, or a sentence on why there is none.
    put(i, answer) {
      const column = this.columns.children[i];
      if (answer.error) return void column.replaceChildren(element("p", { class: "refused" }, element("strong", {}, this.title(i)), ` ${answer.error}`));
      this.answers[i] = answer;
      this.kinds[i] = answer.kind;
      this.buttons.forEach((button, n) => (button.textContent = this.title(n)));
      column.viewer = new Viewer(column, { ...answer, model: this.title(i) }, this.panel);
      if (i === this.chosen) this.panel.look(column.viewer.striking(), column.viewer);
    }

    choose(index, together = false) {
      [this.chosen, this.together] = [index, together];
      this.columns.classList.toggle("one", !together);
      [...this.columns.children].forEach((column, i) => column.classList.toggle("chosen", i === index));
      this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", !together && i === index));
      this.beside.setAttribute("aria-pressed", together);
      this.place();
    }

    // Puts what the page adds (`extra`) with the words of the one captioner shown, or below several.
    place() {
      const text = !this.together && this.viewer()?.root.querySelector(".text");
      if (this.extra) text ? text.append(this.extra) : this.columns.after(this.extra);
    }

    viewer() {
      return this.columns.children[this.chosen]?.viewer;
    }
  }

  // A report: scores, a histogram, and the images of a split, sorted and searched; maps are decoded
  // when an image is opened.
  class Report {
    constructor(host, report) {
      this.report = report;
      this.panel = new Panel();
      this.viewer = element("div");
      this.list = element("ol", { class: "images" });
      this.count = element("p", { class: "quiet", role: "status" });
      this.charts = [...(report.charts || []), ...this.histogram()];
      const first = [...this.strip(), ...this.charts.map(chart)];
      host.replaceChildren(element("div", { class: "first" }, ...first), this.viewer, ...this.facts(), this.tools(), this.count, this.list);
      this.refresh();
      if (report.images.length) this.open(this.shown[0]);
    }

    // The main scores.
    strip() {
      const main = this.report.scores.filter((row) => row.label);
      if (!main.length) return [];
      return [element("dl", { class: "strip" }, ...main.map((row) => element("div", {}, element("dt", {}, row.label), element("dd", {}, row.value, ...(row.interval ? [element("small", { class: "quiet" }, ` ${row.interval}`)] : [])))))];
    }

    // All scores and notes, folded.
    facts() {
      const [scores, notes] = [this.scores(), this.notes()];
      if (!(scores.length + notes.length)) return [];
      const named = [scores.length && "scores", notes.length && "notes"].filter(Boolean);
      return [element("details", { class: "folded" }, element("summary", {}, `All ${named.join(" and ")}`), ...notes, ...scores)];
    }

    scores() {
      const rows = this.report.scores.map((row) => element("tr", {}, element("th", { scope: "row" }, row.name, ...(row.text ? [element("small", { class: "quiet" }, row.text)] : [])), element("td", {}, row.value), element("td", {}, row.interval || "")));
      if (!rows.length) return [];
      return [element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Scores" }, element("table", {}, element("tbody", {}, ...rows)))];
    }

    notes() {
      const told = this.charts.filter((one) => one.text !== one.name).map(({ name, text }) => `${name}: ${text}`);
      return [...(this.report.notes || []), ...told].map((note) => element("p", { class: "quiet" }, note));
    }

    histogram() {
      const values = this.report.images.map((image) => image.rank).filter((value) => value != null);
      if (new Set(values).size < 10) return []; // too few to show a distribution
      const low = Math.min(...values);
      const wide = (Math.max(...values) - low || 1) / 24;
      const counts = new Array(24).fill(0);
      values.forEach((value) => counts[Math.min(23, Math.floor((value - low) / wide))]++);
      const bars = counts.map((count, i) => [low + i * wide, low + (i + 1) * wide, count, `${count} images from ${(low + i * wide).toFixed(1)} to ${(low + (i + 1) * wide).toFixed(1)}`]);
      const name = `${this.report.rank_name} of ${values.length} images`;
      return [{ x: this.report.rank_name, y: "images", bars, name, text: name }];
    }

    tools() {
      this.order = element("select", { onchange: () => this.refresh() },
        element("option", { value: "split" }, "as in the split"),
        element("option", { value: "worst" }, "worst first"),
        element("option", { value: "best" }, "best first"));
      this.query = element("input", { type: "search", oninput: () => this.refresh(), autocomplete: "off" });
      return element("div", { class: "tools" },
        element("label", {}, "Order", this.order),
        element("label", {}, "Caption contains", this.query));
    }

    refresh() {
      const { images, common: { lang } } = this.report;
      const query = smallLetters(this.query.value.trim(), lang);
      this.shown = images.filter((image) => smallLetters(image.hypotheses[0].text, lang).includes(query));
      const sign = { worst: 1, best: -1 }[this.order.value];
      if (sign) this.shown.sort((a, b) => sign * (a.rank - b.rank));
      this.count.textContent = `${this.shown.length} of ${images.length} images`;
      this.list.replaceChildren(...this.shown.map((image) => element("li", {}, this.card(image))));
    }

    card(image) {
      const button = element("button", { type: "button", onclick: () => this.open(image, true) },
        element("img", { src: image.image, alt: "", loading: "lazy", decoding: "async" }),
        element("span", { dir: direction(image.hypotheses[0].text, this.report.common.lang), lang: this.report.common.lang }, image.hypotheses[0].text));
      if (image === this.opened) button.setAttribute("aria-current", "true");
      return button;
    }

    open(image, scroll = false) {
      this.opened = image;
      this.panel.clear();
      const viewer = new Viewer(this.viewer, { ...this.report.common, ...image }, this.panel);
      viewer.said.after(this.panel.root);
      this.panel.look(viewer.striking(), viewer);
      [...this.list.querySelectorAll("button")].forEach((button, i) => {
        if (this.shown[i] === image) button.setAttribute("aria-current", "true");
        else button.removeAttribute("aria-current");
      });
      if (scroll) this.viewer.scrollIntoView({ block: "start" });
    }
  }

  return { Comparison, Report, Player, element, svg, percent, megabytes, placeByKey, markCurrent };
})();
