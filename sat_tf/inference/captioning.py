"""A trained captioner: images in, captions and explanations out, whatever computes them."""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from PIL import Image

from sat_tf.config import CaptionerConfig, SearchConfig
from sat_tf.images import SUFFIXES
from sat_tf.images.pillow import ImageInput, decode, read_content, read_pixels
from sat_tf.inference.captions import Caption, Explanation, WordByWord, sentence_tokens
from sat_tf.inference.confidence import Limits
from sat_tf.text.vocabulary import END, SPECIAL_TOKENS, UNK, Vocabulary
from sat_tf.util.fields import check_argument

Item, Read = TypeVar("Item"), TypeVar("Read")

_AHEAD = 2  # images
_LOG = logging.getLogger(__name__)


class TrainedCaptioner:
    """The result of `sat_tf.load`: a `KerasCaptioner` or a `LiteRTCaptioner`.

    Attributes:
        config: The captioner's configuration; its search is the default one.
        vocabulary: Its words.
        grid: `(h, w)` of the attention maps.
        path: Folder it was loaded from, if any.
        weights_sha256: SHA-256 (hexadecimal) of a run's file of weights.
        limits: Familiarity of images and confidence in captions, as far as it knows them.
    """

    config: CaptionerConfig
    vocabulary: Vocabulary
    grid: tuple[int, int]
    path: Path | None = None
    weights_sha256: str | None = None
    limits: Limits = Limits()

    _AT_ONCE = 1  # images of a list that are captioned together

    def __repr__(self) -> str:
        attention, encoder = self.config.attention.kind, self.config.encoder
        words, unit = len(self.vocabulary) - len(SPECIAL_TOKENS), self.vocabulary.unit
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return (
            f"{type(self).__name__}({where}{attention.replace('none', 'no')} attention over "
            f"{encoder.name} at {encoder.image_size} pixels, {words} {unit})"
        )

    @overload
    def caption(self, image: ImageInput, search: SearchConfig | None = None) -> Caption: ...

    @overload
    def caption(
        self, image: Sequence[ImageInput], search: SearchConfig | None = None
    ) -> list[Caption | None]: ...

    def caption(
        self, image: ImageInput | Sequence[ImageInput], search: SearchConfig | None = None
    ) -> Caption | list[Caption | None]:
        """Captions an image, or each of a list.

        Args:
            image: Path of a file, its bytes, an image of Pillow, or uint8 pixels `[H, W, 3]`; or a
                list of them. A photograph is turned upright by EXIF first.
            search: All settings of the search; by default the run's;
                `dataclasses.replace(captioner.config.search, beam=1)` changes one.

        Returns:
            A `Caption`; of a list a list, with None in the place of each image that cannot be read,
            which warnings name and count.

        Raises:
            ValueError: The one image cannot be read.
        """
        if isinstance(image, list | tuple):
            return [caption for _, caption in self._each(image, search)]
        search = check_argument("search", search, SearchConfig | None) or self.config.search
        return self.beams([self.pixels(image)], search, most=1)[0][0]

    def captions(
        self, images: str | Path | Iterable[ImageInput], search: SearchConfig | None = None
    ) -> Iterator[tuple[ImageInput, Caption]]:
        """Captions many images one after another, without holding them all; see `caption`.

        Args:
            images: A folder, for all image files in it at any depth; or anything that yields
                images, `Path("photos").glob("*.jpg")` for example.
            search: See `caption`.

        Yields:
            Each image, of a folder its path, with its caption. Images that cannot be read are
            skipped, and named and counted by warnings.

        Raises:
            ValueError: The folder has no images.
        """
        if isinstance(images, str | Path):
            images = image_files([Path(images)])
        check_argument("images", images, Iterable)
        return (one for one in self._each(images, search) if one[1] is not None)

    def beam(self, image: ImageInput, search: SearchConfig | None = None) -> list[Caption]:
        """Captions an image; returns all hypotheses with their maps, best first; see `caption`."""
        search = check_argument("search", search, SearchConfig | None) or self.config.search
        return self.beams([self.pixels(image)], search)[0]

    def explain(self, image: ImageInput, sentence: str | None = None) -> Explanation:
        """Explains the captioner's own caption, or a given sentence, word by word.

        Args:
            image: See `caption`.
            sentence: Text about the image, at most as long as a caption may be; None takes the
                caption.

        Returns:
            An `Explanation`: of each word map, gate, log-probability, and what looking was worth.

        Raises:
            ValueError: The image cannot be read; or the sentence has no word, too many, or none
                that the captioner knows.
        """
        check_argument("sentence", sentence, str | None)
        search, pixels, vocabulary = self.config.search, self.pixels(image), self.vocabulary
        if sentence is None:
            tokens = self.beams([pixels], search, most=1)[0][0].tokens
            shown = [vocabulary.words[token] for token in tokens if token != END]
        else:
            shown, tokens = sentence_tokens(vocabulary, sentence, search.max_length)
        read, known, count = self.read_tokens(pixels, tokens), np.array(tokens) != UNK, len(shown)
        log_probs = np.where(known, read.log_probs, np.float32(np.nan))
        alpha = beta = looking = familiarity = None
        if read.alpha is not None:
            alpha, beta = read.alpha[:count].reshape(-1, *self.grid), read.beta[:count]
            looking = log_probs[:count] - read.uniform[:count]
        if self.limits.familiarity is not None:  # confidence is of what a search found
            annotations = np.asarray(self.annotate(pixels[np.newaxis]))
            familiarity = float(self.limits.familiarity.of(annotations)[0])
        return Explanation(
            text=vocabulary.join(shown),
            words=tuple(shown),
            score=float(log_probs.sum()) / max(count, 1) ** search.length_power,
            log_prob=float(log_probs.sum()),
            log_probs=log_probs[:count],
            alpha=alpha,
            beta=beta,
            image=pixels.round().astype(np.uint8),
            language=vocabulary.language,
            tokens=tuple(tokens),
            familiarity=familiarity,
            looking=looking,
            unknown=tuple(dict.fromkeys(np.array(shown, object)[~known[:count]])),
        )

    def pixels(self, image: ImageInput) -> np.ndarray:
        """Returns the encoder's input, float32 `[S, S, 3]`, 0..255; see `read_pixels`."""
        return read_pixels(image, self.config.encoder.image_size, self.config.encoder.resize)

    def _each(
        self, images: Iterable[ImageInput], search: SearchConfig | None
    ) -> Iterator[tuple[ImageInput, Caption | None]]:
        """Yields each image with its caption; None if it has none, which is logged and counted."""
        search = check_argument("search", search, SearchConfig | None) or self.config.search

        def attempt(image: ImageInput) -> tuple[ImageInput, np.ndarray | ValueError]:
            try:
                return image, self.pixels(image)
            except ValueError as error:
                if isinstance(image, str | Path | bytes | Image.Image):
                    return image, error
                raise  # no image at all, unlike a file that cannot be read

        ahead, count, skipped = read_ahead(images, attempt), 0, 0
        while batch := list(itertools.islice(ahead, self._AT_ONCE)):
            pixels = [found for _, found in batch if isinstance(found, np.ndarray)]
            # Lazily: an image that has no caption raises in its turn.
            captions = (b[0] for group in [pixels] for b in self.beams(group, search, most=1))
            for count, (image, found) in enumerate(batch, count + 1):  # noqa: B020
                try:
                    if isinstance(found, ValueError):
                        raise found
                    made = next(captions)
                except ValueError as error:
                    made, skipped = None, skipped + 1
                    name = image if isinstance(image, str | Path) else f"image {count}"
                    _LOG.warning("Skipped %s: %s", name, error)
                yield image, made
        if skipped:
            _LOG.warning("%d of %d images have no caption.", skipped, count)

    def beams(
        self, pixels: Sequence[np.ndarray], search: SearchConfig, most: int | None = None
    ) -> list[list[Caption]]:
        """Captions images from the encoder's input; see `pixels`.

        Args:
            pixels: The images.
            search: The settings of the search.
            most: Hypotheses wanted of each; None for all.

        Returns:
            Of each image its hypotheses, best first; the first one's `alternatives` are the rest.
        """
        raise NotImplementedError

    def annotate(self, pixels: np.ndarray) -> np.ndarray:
        """Encodes images `[B, S, S, 3]`, the encoder's input, as annotations `[B, L, D]`."""
        raise NotImplementedError

    def read_tokens(self, pixels: np.ndarray, tokens: Sequence[int]) -> WordByWord:
        """Reads the tokens of a sentence about an image, each from the true ones before it."""
        raise NotImplementedError


def read_ahead(items: Iterable[Item], read: Callable[[Item], Read]) -> Iterator[Read]:
    """Yields `read(item)` of each item in turn; another thread reads up to two items more.

    Items are taken one by one, in the caller's thread. What `read` raises is raised in turn.
    """
    reader = ThreadPoolExecutor(1)
    waiting: deque[Future[Read]] = deque()
    try:
        for item in items:
            waiting.append(reader.submit(read, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=False, cancel_futures=True)


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Replaces each folder with the image files in it and in folders below, sorted by name.

    Hidden ones and figures of earlier captions are left out.

    Raises:
        ValueError: A folder has none.
    """
    from sat_tf.inference.figures import is_figure

    files = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = []
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name[0] != ".")
            shown = (n for n in sorted(names) if n.lower().endswith(SUFFIXES) and n[0] != ".")
            found += [file for name in shown if not is_figure(file := Path(folder, name))]
        if not found:
            raise ValueError(f"The folder {path} has no images ({', '.join(SUFFIXES)}).")
        files += found
    return files


def try_decode(path: Path) -> Image.Image | ValueError:
    """Decodes an image file, upright; or returns the fault."""
    try:
        return decode(read_content(path))
    except ValueError as error:
        return error
