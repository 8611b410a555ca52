"""A trained captioner: images in, captions and explanations out, whatever computes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from sat_tf.config import CaptionerConfig, SearchConfig
from sat_tf.images.pillow import ImageInput, read_pixels
from sat_tf.inference.captions import Caption
from sat_tf.inference.confidence import Limits
from sat_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from sat_tf.util.fields import check_argument

if TYPE_CHECKING:
    from sat_tf.inference.explain import Explanation, WordByWord


class TrainedCaptioner:
    """What `sat_tf.load` returns: a `KerasCaptioner` or a `LiteRTCaptioner`.

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
                list of them. A photograph is turned upright by its EXIF first.
            search: All settings of the search; by default the run's, of which
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
            from sat_tf.inference.batch import image_files

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
        from sat_tf.inference.explain import explain, sentence_tokens

        check_argument("sentence", sentence, str | None)
        shown, search, pixels = None, self.config.search, self.pixels(image)
        if sentence is None:
            tokens = self.beams([pixels], search, most=1)[0][0].tokens
        else:
            shown, tokens = sentence_tokens(self.vocabulary, sentence, search.max_length)
        found = explain(
            self.vocabulary,
            tokens,
            self.read_tokens(pixels, tokens),
            self.grid,
            shown=shown,
            length_power=search.length_power,
            image=pixels.round().astype(np.uint8),
        )
        if (known := self.limits.familiarity) is None:
            return found
        # Confidence is of what a search found, so a sentence has none.
        share = known.of(np.asarray(self.annotate(pixels[np.newaxis])))[0]
        return dataclasses.replace(found, familiarity=float(share))

    def pixels(self, image: ImageInput) -> np.ndarray:
        """Returns the encoder's input, float32 `[S, S, 3]`, 0..255; see `read_pixels`."""
        return read_pixels(image, self.config.encoder.image_size, self.config.encoder.resize)

    def _each(
        self, images: Iterable[ImageInput], search: SearchConfig | None
    ) -> Iterator[tuple[ImageInput, Caption | None]]:
        from sat_tf.inference.batch import caption_each  # one caption takes none of it

        search = check_argument("search", search, SearchConfig | None) or self.config.search

        def first(read: list[np.ndarray]) -> Iterator[Caption]:
            return (beam[0] for beam in self.beams(read, search, most=1))

        return caption_each(images, self.pixels, first, self._AT_ONCE)

    def beams(
        self, pixels: Sequence[np.ndarray], search: SearchConfig, most: int | None = None
    ) -> list[list[Caption]]:
        """Captions images by the encoder's input; see `pixels`.

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
