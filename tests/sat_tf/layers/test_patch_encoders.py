"""KerasHub's patch transformers as encoders."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from sat_tf.captioner import Captioner
from sat_tf.config import AttentionConfig, CaptionerConfig, DecoderConfig, EncoderConfig
from sat_tf.inference import weights
from sat_tf.inference.graphs import write_graphs
from sat_tf.inference.keras_captioner import KerasCaptioner
from sat_tf.inference.litert_graph import Encoder as LiteEncoder
from sat_tf.inference.packing import pack
from sat_tf.inference.published import GRAPHS
from sat_tf.layers import encoder_names
from sat_tf.layers.encoder import Encoder
from sat_tf.objectives.likelihood import SoftObjective
from sat_tf.text.vocabulary import Vocabulary
from serving.signatures import Signature, save_signatures
from training import standardize
from training.run.checkpoints import Checkpoints, Progress

keras_hub = pytest.importorskip("keras_hub")

NAME = "keras_hub:tiny"


def tiny(registers=0):
    arguments = {
        "patch_size": 4,
        "num_layers": 2,
        "hidden_dim": 8,
        "num_heads": 2,
        "intermediate_dim": 16,
        "num_register_tokens": registers,
        # Random blocks add nothing: what is seen is one's own patch.
        "layer_scale_init_value": 0.0,
        "apply_layernorm": True,
    }
    return encoder_names.PatchTransformer("dinov2", arguments, 4, 1 + registers)


@pytest.fixture(autouse=True)
def small_presets(monkeypatch):
    monkeypatch.setattr(encoder_names, "DINOV2_PIXELS", 20)
    monkeypatch.setitem(encoder_names.PRESETS, "tiny", tiny())
    monkeypatch.setitem(encoder_names.PRESETS, "tiny_registers", tiny(2))


def saved(tmp_path, name=NAME) -> str:
    """A file of random weights, at the original size."""
    path = str(tmp_path / "w.weights.h5")
    encoder_names.patch_transformer(name, encoder_names.original_size(name)).save_weights(path)
    return path


def test_a_tap_reads_a_block_of_keras_hub_with_the_last_normalisation(tmp_path):
    source = saved(tmp_path)
    whole = encoder_names.patch_transformer(NAME, 20)
    whole.load_weights(source)
    pixels = np.random.default_rng(1).uniform(0, 255, [1, 20, 20, 3]).astype(np.float32)
    normalised = encoder_names.normalise_pixels(NAME, pixels)
    for tap, expected in ((None, whole.output), ("stage1", whole.pyramid_outputs["stage1"])):
        encoder = Encoder(NAME, 20, tap=tap, weights=source)
        assert encoder.grid == (5, 5)
        expected = keras.Model(whole.input, expected)(normalised)[:, 1:]
        np.testing.assert_allclose(encoder(pixels), expected, rtol=1e-4, atol=1e-4)


TINY = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "patch_size": 4}
FAMILIES = {
    "vit": (TINY | {"mlp_dim": 16}, 1),
    "clip": (TINY | {"intermediate_dim": 16}, 1),
}


def named(family, monkeypatch) -> str:
    """Name of a tiny transformer of another family, for images of 12 pixels."""
    arguments, extra = FAMILIES[family]
    made = encoder_names.PatchTransformer(family, arguments, 4, extra, 12)
    monkeypatch.setitem(encoder_names.PRESETS, f"tiny_{family}", made)
    return f"keras_hub:tiny_{family}"


@pytest.fixture(params=FAMILIES)
def other_family(request, monkeypatch) -> str:
    return named(request.param, monkeypatch)


def test_other_families_give_normalised_patches_in_order(other_family):
    encoder = Encoder(other_family, 12)
    pixels = np.random.default_rng(0).uniform(0, 255, [1, 12, 12, 3]).astype(np.float32)
    found = np.asarray(encoder(pixels))
    assert encoder.grid == (3, 3) and found.shape == (1, 9, 8)
    np.testing.assert_allclose(found.mean(axis=-1), 0.0, atol=1e-4)  # layer normalisation
    marked = pixels.copy()
    marked[0, 8:, :4] = 0.0  # the last row's first patch, which changes most
    assert np.abs(np.asarray(encoder(marked)) - found).sum(axis=-1)[0].argmax() == 6


def test_other_families_have_one_size_and_one_tap(other_family):
    with pytest.raises(ValueError, match="`image_size`.*12 for .*, got 16"):
        Encoder(other_family, 16)
    with pytest.raises(ValueError, match="one of layernorm"):
        Encoder(other_family, 12, tap="stage1")


@pytest.mark.parametrize("family", ["dinov2", *FAMILIES])
def test_standardized_weights_give_standardized_annotations(family, tmp_path, monkeypatch):
    name = NAME if family == "dinov2" else named(family, monkeypatch)
    source, target = saved(tmp_path, name), str(tmp_path / "std.weights.h5")
    pixels = np.random.default_rng(1).uniform(0, 255, [4, 12, 12, 3]).astype(np.float32)
    raw = np.asarray(Encoder(name, 12, weights=source)(pixels))
    mean, deviation = raw.mean(axis=(0, 1)), raw.std(axis=(0, 1))
    standardize.standardize(EncoderConfig(name, None, source), target, mean, deviation)
    found = np.asarray(Encoder(name, 12, weights=target)(pixels))
    np.testing.assert_allclose(found, (raw - mean) / deviation, atol=1e-3)


def test_pixels_are_normalised_as_the_family_was_trained():
    white = np.full([1, 1, 1, 3], 255.0, np.float32)
    dino = np.asarray(encoder_names.normalise_pixels(NAME, white)).ravel()
    np.testing.assert_allclose(dino, (1 - np.array([0.485, 0.456, 0.406])) / [0.229, 0.224, 0.225])
    vit = encoder_names.normalise_pixels("keras_hub:vit_base_patch16_224_imagenet", white)
    np.testing.assert_allclose(np.ravel(vit), 1.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"image_size": 13}, "multiple of 4"),
        ({"tap": "stage9"}, r"encoder\.layer.*layernorm, stage1, stage2"),
        ({"backbone": "keras_hub:no_such"}, "keras_hub:dinov2_small"),
    ],
)
def test_an_encoder_that_there_is_not_is_an_error_with_the_choices(options, told):
    with pytest.raises(ValueError, match=told):
        Encoder(**{"backbone": NAME, "image_size": 12} | options)


@pytest.mark.parametrize("image_size", [20, 12])
def test_trained_position_embeddings_come_back_to_the_bit(tmp_path, image_size):
    trained, again = (Encoder(NAME, image_size, trainable=True) for _ in range(2))
    rng = np.random.default_rng(0)
    for weight in trained.weights:
        weight.assign(weight + 0.1 * rng.uniform(0.5, 1.5, weight.shape))
    before = trained.get_weights()
    kept = [SimpleNamespace(saved_layers=lambda e=e: {"encoder": e}) for e in (trained, again)]
    weights.save_weights(kept[0], tmp_path / "best.weights.h5")
    weights.load_weights(kept[1], tmp_path / "best.weights.h5")
    for expected, saved, loaded in zip(
        before, trained.get_weights(), again.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(saved, expected)
        np.testing.assert_array_equal(loaded, expected)
    (tmp_path / "published.npz").write_bytes(pack(weights.weight_arrays(kept[0])))
    weights.load_compact(kept[1], [tmp_path / "published.npz"])
    (used,) = [n for n, w in enumerate(again.weights) if "interpolated_position" in w.path]
    np.testing.assert_array_equal(again.get_weights()[used], before[used])


def trained_captioner() -> Captioner:
    """A captioner with a fine-tuned encoder on another grid than that of its positions."""
    encoder = EncoderConfig(name=NAME, image_size=12, trainable=True)
    decoder = DecoderConfig(embedding_dim=4, attention_dim=4, hidden_dim=8)
    model = Captioner(CaptionerConfig(encoder, decoder), 9, load_encoder_weights=False)
    rng = np.random.default_rng(0)
    for weight in model.encoder.weights:
        weight.assign(weight + 0.1 * rng.uniform(0.5, 1.5, weight.shape))
    return model


def test_a_fine_tuned_encoder_is_the_same_from_checkpoint_saved_model_and_litert(tmp_path):
    model, again = trained_captioner(), trained_captioner()
    for weight in again.weights:
        weight.assign(tf.zeros_like(weight))
    for captioner in (model, again):
        captioner.compile(keras.optimizers.Adam(), objective=SoftObjective(AttentionConfig()))
    Checkpoints(tmp_path / "checkpoints", model).save(Progress())
    assert Checkpoints(tmp_path / "checkpoints", again).restore() == Progress()
    for expected, found in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)

    pixels = np.random.default_rng(1).uniform(0, 255, [1, 12, 12, 3]).astype(np.float32)
    spec = tf.TensorSpec([1, 12, 12, 3], name="pixels")
    encode = lambda pixels: {"annotations": model.encoder(pixels, training=False)}  # noqa: E731
    annotate = tf.function(encode, input_signature=[spec])
    signature = Signature("serving_default", annotate, spec)
    save_signatures([signature], tmp_path / "1")
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    expected = annotate(pixels)["annotations"]
    np.testing.assert_array_equal(served(pixels=pixels)["annotations"], expected)

    vocabulary = Vocabulary.from_captions(["one two three four five"], min_count=1)
    write_graphs(tmp_path / "litert", KerasCaptioner(model, vocabulary))
    light = LiteEncoder(tmp_path / "litert" / GRAPHS[0], 1)
    np.testing.assert_allclose(light(pixels[0])["annotations"], expected, rtol=1e-4, atol=1e-5)
