// The viewer of captions: a photograph, its words, and where the captioner looked for each word.
// Used by reports (data embedded in the page) and by the live page; needs nothing else.
"use strict";

const SatViewer = (() => {
  const DARKEST = 0.82; // opacity over a place without attention

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

  // A map is base64 of bytes; the value 255 stands for `peak`, the hypothesis' largest weight.
  function decodeMap(text, peak) {
    const bytes = atob(text);
    return Float32Array.from({ length: bytes.length }, (_, i) => (bytes.charCodeAt(i) / 255) * peak);
  }

  // Opacity of the shade over each cell. One scale for all words of a hypothesis: weights from
  // `brightest` on, the mean of the words' largest weights, are shown unshaded.
  function shade(weights, brightest) {
    return weights.map((weight) => DARKEST * (1 - Math.sqrt(Math.min(1, weight / brightest))));
  }

  function paint(canvas, opacities) {
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(canvas.width, canvas.height);
    opacities.forEach((opacity, i) => (pixels.data[4 * i + 3] = Math.round(255 * opacity)));
    context.putImageData(pixels, 0, 0);
  }

  function drawLocation(weights, random = Math.random) {
    let left = random() * weights.reduce((sum, weight) => sum + weight, 0);
    for (let i = 0; i < weights.length; i++) if ((left -= weights[i]) <= 0) return i;
    return weights.length - 1;
  }

  const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

  class Viewer {
    constructor(host, data) {
      this.data = data;
      this.current = -1;
      this.timer = null;
      this.gated = false;
      this.root = element("section", { class: "viewer", "aria-label": data.model || "Caption", lang: data.lang });
      host.replaceChildren(this.root);
      this.build();
      this.choose(0);
    }

    build() {
      const { data } = this;
      this.canvas = element("canvas", { "aria-hidden": "true" });
      this.dots = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      this.dots.setAttribute("class", "dots");
      this.dots.setAttribute("aria-hidden", "true");
      this.crop = element("div", { class: "crop" }, this.canvas, this.dots);
      this.image = element("img", { src: data.image, alt: "" });
      this.stage = element("div", { class: "stage" }, this.image, this.crop);
      this.placeCrop();
      this.words = element("ol", { class: "words", dir: "auto", "aria-label": "Caption, word by word" });
      this.words.addEventListener("keydown", (event) => this.key(event));
      this.stage.addEventListener("click", () => { this.stop(); this.look(-1); });
      this.said = element("p", { class: "quiet said", role: "status", "aria-live": "polite" });
      this.play = element("button", { type: "button", onclick: () => this.toggle() }, "Play");
      this.controls = element("div", { class: "controls" }, this.play);
      this.legend = element("p", { class: "quiet legend" });
      const title = element("div", {}, element("strong", {}, data.model || ""), " ", element("span", { class: "quiet" }, data.name || ""));
      const text = element("div", { class: "text" }, this.words, this.controls, this.said, this.legend, ...this.more());
      this.root.append(title, element("div", { class: "sides" }, this.stage, text));
      if (data.hypotheses.length > 1) this.controls.append(this.hypothesisChoice());
    }

    placeCrop() {
      const [left, top, right, bottom] = this.data.crop || [0, 0, 1, 1];
      const part = (value) => `${100 * value}%`;
      Object.assign(this.crop.style, {
        left: part(left), top: part(top), width: part(right - left), height: part(bottom - top),
      });
      this.crop.classList.toggle("whole", left <= 0 && top <= 0 && right >= 1 && bottom >= 1);
    }

    hypothesisChoice() {
      const options = this.data.hypotheses.map((hypothesis, i) =>
        element("option", { value: i }, `${i + 1}. ${hypothesis.text} (${hypothesis.score?.toFixed(2) ?? "?"})`));
      const select = element("select", { onchange: (event) => this.choose(+event.target.value) }, ...options);
      select.style.maxWidth = "100%";
      return element("label", {}, element("span", { class: "hidden" }, "Hypothesis of the beam"), select);
    }

    more() {
      const { references = [], scores } = this.data;
      const parts = [];
      if (scores) parts.push(element("p", { class: "quiet" }, Object.entries(scores).map(([name, value]) => `${name} ${value}`).join(" · ")));
      if (references.length) {
        const items = references.map((text) => element("li", { dir: "auto" }, text));
        parts.push(element("details", {}, element("summary", {}, `${references.length} reference captions`), element("ul", { class: "references" }, ...items)));
      }
      return parts;
    }

    choose(index) {
      this.stop();
      this.hypothesis = this.data.hypotheses[index];
      const [height, width] = this.data.grid || [0, 0];
      const { words, peak } = this.hypothesis;
      this.maps = words.map((word) => (word.map ? decodeMap(word.map, peak) : null));
      this.looks = this.maps.some(Boolean);
      const peaks = this.maps.filter(Boolean).map((weights) => Math.max(...weights));
      this.brightest = peaks.reduce((sum, value) => sum + value, 0) / (peaks.length || 1) || 1;
      this.gates = this.looks && words.some((word) => word.beta != null && word.beta < 0.999);
      if (this.looks) {
        [this.canvas.width, this.canvas.height] = [width, height];
        this.dots.setAttribute("viewBox", `0 0 ${width} ${height}`);
      }
      this.words.replaceChildren(...words.map((word, i) => element("li", {}, this.wordButton(word, i))));
      this.image.alt = this.hypothesis.text;
      this.buildControls();
      this.look(-1);
    }

    wordButton(word, i) {
      const button = element("button", { type: "button", class: "word", tabindex: i ? -1 : 0 }, word.text);
      if (word.log_prob != null) button.style.setProperty("--probability", Math.exp(word.log_prob));
      if (this.gates) button.style.setProperty("--beta", word.beta);
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && !this.timer && this.look(i));
      button.addEventListener("focus", () => this.timer || this.look(i));
      button.addEventListener("click", () => { this.stop(); this.look(i); });
      return button;
    }

    buildControls() {
      this.controls.querySelectorAll(".own").forEach((part) => part.remove());
      this.play.hidden = !this.looks;
      if (this.gates) {
        const toggle = element("button", { type: "button", class: "own", "aria-pressed": "false" }, "Times the gate");
        toggle.addEventListener("click", () => {
          this.gated = !this.gated;
          toggle.setAttribute("aria-pressed", this.gated);
          this.look(this.current);
        });
        this.gated = false;
        this.play.after(toggle);
      }
      this.boxed = false;
      if (this.hypothesis.words.some((word) => word.boxes)) {
        const toggle = element("button", { type: "button", class: "own", "aria-pressed": "false" }, "Boxes");
        toggle.addEventListener("click", () => {
          this.boxed = !this.boxed;
          toggle.setAttribute("aria-pressed", this.boxed);
          this.look(this.current);
        });
        this.play.after(toggle);
      }
      if (this.looks && this.data.kind === "hard")
        this.play.after(
          element("button", { type: "button", class: "own", onclick: () => this.draw(1) }, "Draw a location"),
          element("button", { type: "button", class: "own", onclick: () => this.draw(20) }, "Draw 20"));
      this.describeScale();
    }

    weights(i) {
      const beta = this.gated ? this.hypothesis.words[i].beta : 1;
      return this.maps[i].map((weight) => weight * beta);
    }

    describeScale() {
      const without = this.data.kind === "none" ? "This captioner has no attention: it reads the mean of the image." : "No maps were kept of this hypothesis.";
      const { words } = this.hypothesis;
      const scale = () => [element("span", { class: "ramp" }), ` share of the attention in one place, 0 to ${percent(this.brightest)} or more (even: ${percent(1 / this.maps[0].length)}); one scale for all words`];
      const lines = [element("span", {}, ...(this.looks ? scale() : [without]))];
      const likely = words.some((word) => word.log_prob != null);
      lines.push(element("span", {}, likely ? "Green line: probability of the word." : "This caption came without the probabilities of its words."));
      if (this.gates) lines.push(element("span", {}, `${likely ? "Second line" : "Line under a word"}: gate β, how much of what was seen is used.`));
      if (!this.crop.classList.contains("whole")) lines.push(element("span", {}, "Dark border: outside what the model sees."));
      this.legend.replaceChildren(...lines);
    }

    look(i) {
      this.current = i;
      const buttons = [...this.words.querySelectorAll("button")];
      buttons.forEach((button, n) => {
        if (n === i) button.setAttribute("aria-current", "true");
        else button.removeAttribute("aria-current");
        if (i >= 0) button.tabIndex = n === i ? 0 : -1;
      });
      this.dots.replaceChildren();
      this.stage.classList.toggle("looking", i >= 0 && this.looks);
      if (i < 0) return void (this.said.textContent = this.looks ? "Point at a word, or use the arrow keys." : " ");
      if (this.looks) paint(this.canvas, shade(this.weights(i), this.brightest));
      if (this.boxed) (this.hypothesis.words[i].boxes || []).forEach((box) => this.addBox(box));
      this.said.textContent = this.describe(this.hypothesis.words[i]);
    }

    describe(word) {
      const facts = [`“${word.text}”`];
      if (word.log_prob != null) facts.push(`probability ${percent(Math.exp(word.log_prob))}`);
      if (this.gates && word.beta != null) facts.push(`gate β ${word.beta.toFixed(2)}`);
      return facts.join(", ");
    }

    draw(count) {
      if (this.current < 0) this.look(0);
      this.dots.querySelectorAll(".last").forEach((dot) => dot.classList.remove("last"));
      for (let n = 0; n < count; n++) this.addDot(drawLocation(this.maps[this.current]));
      const number = this.dots.querySelectorAll("circle").length;
      this.said.textContent = `${this.describe(this.hypothesis.words[this.current])}; ${number} location${number > 1 ? "s" : ""} drawn from this map`;
    }

    // A box `[top, left, bottom, right]` in shares of what the model sees.
    addBox([top, left, bottom, right]) {
      const { width, height } = this.canvas;
      const drawn = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const place = { x: left * width, y: top * height, width: (right - left) * width, height: (bottom - top) * height };
      Object.entries(place).forEach(([name, value]) => drawn.setAttribute(name, value));
      this.dots.append(drawn);
    }

    addDot(place) {
      const width = this.canvas.width;
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      const jitter = () => (Math.random() - 0.5) * 0.5; // so that dots of one place stay countable
      dot.setAttribute("cx", (place % width) + 0.5 + jitter());
      dot.setAttribute("cy", Math.floor(place / width) + 0.5 + jitter());
      dot.setAttribute("r", width / 45);
      dot.setAttribute("class", "last");
      this.dots.append(dot);
    }

    key(event) {
      const last = this.hypothesis.words.length - 1;
      const rightToLeft = getComputedStyle(this.words).direction === "rtl";
      const forward = rightToLeft ? "ArrowLeft" : "ArrowRight";
      const backward = rightToLeft ? "ArrowRight" : "ArrowLeft";
      if (event.key === "Escape") { this.stop(); return this.look(-1); }
      const target = { [forward]: Math.min(this.current + 1, last), [backward]: Math.max(this.current - 1, 0), Home: 0, End: last }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      this.stop();
      this.words.querySelectorAll("button")[target].focus();
      this.look(target);
    }

    toggle() {
      if (this.timer) return this.stop();
      this.play.textContent = "Pause";
      let next = this.current < 0 || this.current >= this.hypothesis.words.length - 1 ? 0 : this.current + 1;
      const step = () => {
        if (next >= this.hypothesis.words.length) return this.stop();
        this.look(next++);
        this.timer = setTimeout(step, 900);
      };
      step();
    }

    stop() {
      clearTimeout(this.timer);
      this.timer = null;
      this.play.textContent = "Play";
    }
  }

  // A report: scores, a histogram, and the images of a split, sorted and searched; maps are decoded
  // when an image is opened.
  class Report {
    constructor(host, report) {
      this.report = report;
      this.viewer = element("div");
      this.list = element("ol", { class: "images" });
      this.count = element("p", { class: "quiet", role: "status" });
      // Side by side, so that the first image is on the first screen.
      const facts = element("div", { class: "facts" }, ...this.scores(), ...this.figures(), this.histogram());
      host.replaceChildren(facts, ...this.notes(), this.viewer, this.tools(), this.count, this.list);
      this.refresh();
      if (report.images.length) this.open(this.shown[0]);
    }

    scores() {
      const rows = this.report.scores.map((row) => element("tr", {}, element("th", { scope: "row" }, row.name), element("td", {}, row.value), element("td", {}, row.interval || "")));
      if (!rows.length) return [];
      return [element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Scores" }, element("table", {}, element("tbody", {}, ...rows)))];
    }

    notes() {
      return (this.report.notes || []).map((note) => element("p", { class: "quiet" }, note));
    }

    figures() {
      return (this.report.figures || []).map(({ image, text }) => element("figure", {},
        element("img", { src: image, alt: text }), element("figcaption", { class: "quiet" }, text)));
    }

    histogram() {
      const values = this.report.images.map((image) => image.rank).filter((value) => value != null);
      if (values.length < 10) return "";
      const low = Math.min(...values);
      const span = Math.max(...values) - low || 1;
      const counts = new Array(24).fill(0);
      values.forEach((value) => counts[Math.min(23, Math.floor((24 * (value - low)) / span))]++);
      const top = Math.max(...counts);
      const bars = counts.map((count, i) => `<rect x="${i * 10}" width="9" y="${100 - (100 * count) / top}" height="${(100 * count) / top}"/>`).join("");
      const figure = element("figure");
      figure.innerHTML = `<svg class="histogram" viewBox="0 0 240 100" preserveAspectRatio="none" role="img"></svg><figcaption class="quiet"></figcaption>`;
      figure.firstChild.innerHTML = bars;
      const text = `${this.report.rank_name} of ${values.length} images, ${low.toFixed(1)} to ${(low + span).toFixed(1)}`;
      figure.firstChild.setAttribute("aria-label", text);
      figure.lastChild.textContent = text;
      return figure;
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
      const query = this.query.value.trim().toLowerCase();
      const { images } = this.report;
      this.shown = images.filter((image) => image.hypotheses[0].text.toLowerCase().includes(query));
      const sign = { worst: 1, best: -1 }[this.order.value];
      if (sign) this.shown.sort((a, b) => sign * (a.rank - b.rank));
      this.count.textContent = `${this.shown.length} of ${images.length} images`;
      this.list.replaceChildren(...this.shown.map((image) => element("li", {}, this.card(image))));
    }

    card(image) {
      const button = element("button", { type: "button", onclick: () => this.open(image, true) },
        element("img", { src: image.image, alt: "", loading: "lazy", decoding: "async" }),
        element("span", { dir: "auto" }, image.hypotheses[0].text));
      if (image === this.opened) button.setAttribute("aria-current", "true");
      return button;
    }

    open(image, scroll = false) {
      this.opened = image;
      new Viewer(this.viewer, { ...this.report.common, ...image });
      [...this.list.querySelectorAll("button")].forEach((button, i) => {
        if (this.shown[i] === image) button.setAttribute("aria-current", "true");
        else button.removeAttribute("aria-current");
      });
      if (scroll) this.viewer.scrollIntoView({ block: "start" });
    }
  }

  return { Viewer, Report, decodeMap, shade, drawLocation, element };
})();
