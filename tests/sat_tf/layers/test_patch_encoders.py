"""KerasHub's patch transformers as encoders."""

import math
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
from sat_tf.inference.packing import pack, unpack
from sat_tf.inference.published import GRAPHS
from sat_tf.layers import encoder_names
from sat_tf.layers.encoder import Encoder
from sat_tf.objectives.likelihood import SoftObjective
from sat_tf.text.vocabulary import Vocabulary
from serving.saved_model import Signature, save_signatures
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


def arrays(seed=0, positions=25, kernel="kernel"):
    """Weights of the tiny transformer by Hugging Face's names."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(0.0, 0.3, shape).astype(np.float16)

    made = {
        "embeddings.cls_token": draw(1, 1, 8),
        "embeddings.position_embeddings": draw(1, 1 + positions, 8),
        "embeddings.patch_embeddings.projection.weight": draw(8, 3, 4, 4),
        "embeddings.patch_embeddings.projection.bias": draw(8),
        "layernorm.weight": 1 + draw(8),
        "layernorm.bias": draw(8),
    }
    dense = [f"attention.attention.{part}" for part in ("query", "key", "value")]
    sizes = dict.fromkeys([*dense, "attention.output.dense"], (8, 8))
    sizes |= {"mlp.fc1": (8, 16), "mlp.fc2": (16, 8)}
    for number in range(2):
        prefix = f"encoder.layer.{number}"
        for name, (wide, out) in sizes.items():
            matrix = draw(wide, out)
            made[f"{prefix}.{name}.{kernel}"] = matrix if kernel == "kernel" else matrix.T
            made[f"{prefix}.{name}.bias"] = draw(out)
        for norm in ("norm1", "norm2"):
            made |= {f"{prefix}.{norm}.weight": 1 + draw(8), f"{prefix}.{norm}.bias": draw(8)}
        for scale in ("layer_scale1", "layer_scale2"):
            made[f"{prefix}.{scale}.lambda1"] = draw(8)
    return made


def converted(tmp_path, values):
    """A file of weights with values named as in Hugging Face's `Dinov2Model`."""
    backbone = encoder_names.patch_transformer(NAME, encoder_names.original_size(NAME))
    names = {
        "/": ".",
        "interpolated_position": "position",  # equal at the original size
        "encoder.layers_": "encoder.layer.",
        "attention.attention.attention_output": "attention.output.dense",
        "gamma": "weight",
        "beta": "bias",
    }
    for variable in backbone.weights:
        name = variable.path
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        if variable.name != "mask_token":  # of training alone
            if name not in values:  # the convolution's is [out, in, h, w]
                name = name.replace(".kernel", ".weight")
                values = {**values, name: np.transpose(values[name], (2, 3, 1, 0))}
            variable.assign(np.reshape(values[name], variable.shape))
    backbone.save_weights(tmp_path / "w.weights.h5")
    return str(tmp_path / "w.weights.h5")


# DINOv2 in plain NumPy, from arrays named as in Hugging Face's `Dinov2Model`.
_MEAN, _DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
_erf = np.vectorize(math.erf, otypes=[float])


def embed(arrays, pixels, positions, patch):
    """Tokens `[1 + h w, D]` of pixels `[S, S, 3]`, 0 to 255, with positions `[1 + h w, D]`."""
    pixels = (pixels / 255.0 - _MEAN) / _DEVIATION
    side = pixels.shape[0] // patch
    cut = pixels.reshape(side, patch, side, patch, 3).transpose(0, 2, 4, 1, 3)
    name = "embeddings.patch_embeddings.projection"
    kernel = arrays[f"{name}.weight"].astype(float)
    tokens = cut.reshape(side * side, -1) @ kernel.reshape(len(kernel), -1).T
    tokens += arrays[f"{name}.bias"]
    first = arrays["embeddings.cls_token"].astype(float).reshape(1, -1)
    return np.concatenate([first, tokens]) + positions


def block(arrays, number, tokens, heads):
    """One block, pre-norm with layer scale: `[N, D] -> [N, D]`."""
    prefix = f"encoder.layer.{number}"
    normed = norm(arrays, f"{prefix}.norm1", tokens)
    parts = (_dense(arrays, f"{prefix}.attention.attention.{p}", normed) for p in _QKV)
    query, key, value = (x.reshape(len(x), heads, -1).transpose(1, 0, 2) for x in parts)
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = (weights @ value).transpose(1, 0, 2).reshape(tokens.shape)
    mixed = _dense(arrays, f"{prefix}.attention.output.dense", mixed)
    tokens = tokens + arrays[f"{prefix}.layer_scale1.lambda1"] * mixed
    hidden = _dense(arrays, f"{prefix}.mlp.fc1", norm(arrays, f"{prefix}.norm2", tokens))
    hidden *= 0.5 * (1.0 + _erf(hidden / math.sqrt(2.0)))
    hidden = _dense(arrays, f"{prefix}.mlp.fc2", hidden)
    return tokens + arrays[f"{prefix}.layer_scale2.lambda1"] * hidden


_QKV = ("query", "key", "value")


def norm(arrays, name, tokens):
    """Layer normalisation."""
    centred = tokens - tokens.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-6)
    return scaled * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _dense(arrays, name, inputs):
    return inputs @ arrays[f"{name}.kernel"].astype(float) + arrays[f"{name}.bias"]


def by_numpy(values, pixels, blocks=2):
    positions = values["embeddings.position_embeddings"][0].astype(float)
    tokens = embed(values, pixels, positions, 4)
    for number in range(blocks):
        tokens = block(values, number, tokens, 2)
    return norm(values, "layernorm", tokens)[1:]


@pytest.mark.parametrize("tap, blocks", [(None, 2), ("stage1", 1)])
def test_annotations_equal_those_of_the_formulas_in_numpy(tmp_path, tap, blocks):
    values = arrays()
    encoder = Encoder(NAME, 20, tap=tap, weights=converted(tmp_path, values))
    pixels = np.random.default_rng(1).uniform(0, 255, [1, 20, 20, 3])
    found = keras.ops.convert_to_numpy(encoder(pixels.astype(np.float32)))[0]
    assert encoder.grid == (5, 5)
    np.testing.assert_allclose(found, by_numpy(values, pixels[0], blocks), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("tap", [None, "stage1"])
def test_rounded_weights_are_published_as_they_are(tmp_path, tap):
    source, target = converted(tmp_path, arrays()), str(tmp_path / "rounded.weights.h5")
    standardize.round_weights(EncoderConfig(NAME, tap, source), target)
    plain, rounded = (Encoder(NAME, 12, tap=tap, weights=file) for file in (source, target))
    changed = 0
    for before, weight in zip(plain.weights, rounded.weights, strict=True):
        array = np.asarray(weight)
        changed += not np.array_equal(array, before)
        if "interpolated" not in weight.path:  # made of the embeddings while loading
            published = unpack(pack({"weight": array}))["weight"]
            np.testing.assert_array_equal(published, array)
    assert changed


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
    source, target = str(tmp_path / "w.weights.h5"), str(tmp_path / "std.weights.h5")
    encoder_names.patch_transformer(name, encoder_names.original_size(name)).save_weights(source)
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
    """A captioner whose fine-tuned encoder has another grid than its positions were trained on."""
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
