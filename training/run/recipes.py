"""Named configurations of captioners."""

from __future__ import annotations

from sat_tf.config import DecoderConfig, EncoderConfig, SearchConfig
from sat_tf.util.fields import replaced
from training.run.config import AttentionConfig, DataConfig, FitConfig, OptimizerConfig, RunConfig

# The state starts from zeros: an encoder trained from scratch would learn to put the whole image
# into its mean annotation, and attention would have nothing left to find.
_SCENES = RunConfig(
    recipe="scenes_soft",
    data=DataConfig(name="scenes", min_count=1),
    encoder=EncoderConfig(name="scenes_cnn", trainable=True, image_size=64),
    decoder=DecoderConfig(embedding_dim=128, attention_dim=64, hidden_dim=256, initial_layers=0),
    attention=AttentionConfig(kind="soft", penalty_weight=0.0),
    search=SearchConfig(beam=5, max_length=25),
    optimizer=OptimizerConfig(
        name="adam", learning_rate=2e-3, schedule="cosine", warmup_epochs=0.2
    ),
    fit=FitConfig(epochs=2, batch_size=32, patience=3, validation_images=200),
)

# Sampled locations are noisier than the expectation, so learning takes longer.
_SCENES_HARD = replaced(_SCENES, fit={"epochs": 8})

# Thirty thousand captions are memorised within a few epochs: most settings here prevent that.
_FLICKR8K_VGG19 = RunConfig(
    data=DataConfig(name="flickr8k", min_count=5, mirror=True),
    encoder=EncoderConfig(name="vgg19", weights="imagenet", image_size=224, resize="crop"),
    decoder=DecoderConfig(
        embedding_dim=512,
        attention_dim=256,
        hidden_dim=512,
        annotation_dropout=0.3,
        embedding_dropout=0.5,
        output_dropout=0.5,
    ),
    attention=AttentionConfig(kind="soft", penalty_weight=0.1),
    search=SearchConfig(beam=5, length_power=0.7, max_length=30),
    optimizer=OptimizerConfig(
        name="adamw",
        learning_rate=8e-4,
        schedule="cosine",
        warmup_epochs=0.5,
        weight_decay=0.02,
    ),
    # Greedy BLEU-4 fluctuates by a point from epoch to epoch; CIDEr does not.
    fit=FitConfig(epochs=9, batch_size=64, label_smoothing=0.1, monitor="cider", patience=4),
)

# ResNet50's settings in experiments/resnet50.sh. The layer's gain was measured over
# ResNet50 beside MobileNetV2 and over MobileNetV2.
_FLICKR8K = replaced(
    _FLICKR8K_VGG19,
    encoder={"name": "resnet50"},
    decoder={"bottleneck_dim": 512, "annotation_dropout": 0.5},
    attention={"penalty_weight": 0.0},
    fit={"epochs": 5},
)

# The settings of the paper's code for COCO (kelvinxu/arctic-captions); it has none for Flickr30k,
# for which the paper names the same optimizer and vocabulary.
_PAPER = RunConfig(
    data=DataConfig(name="coco_captions", min_count=1, vocabulary_size=10_000, max_length=50),
    encoder=EncoderConfig(name="vgg19", weights="imagenet", image_size=224, resize="crop"),
    decoder=DecoderConfig(
        embedding_dim=512,
        attention_dim=512,
        hidden_dim=1800,
        initial_layers=2,
        initial_dropout=0.5,
        hidden_dropout=0.5,
        output_dropout=0.5,
    ),
    # That code's weight of 1 applies to a batch of 64 and the mean of 196 locations: 64 / 196 per
    # caption.
    attention=AttentionConfig(kind="soft", penalty_weight=0.327),
    search=SearchConfig(beam=5, max_length=30),
    optimizer=OptimizerConfig(name="adam", learning_rate=2e-4, clip_norm=0.0),
    fit=FitConfig(epochs=50, batch_size=64, patience=10),
)

_FLICKR30K = replaced(_PAPER, data={"name": "flickr30k"})

# A small encoder, for users without a GPU; no mirrored images, as captions may say left and right.
_FOLDER = replaced(
    _FLICKR8K,
    data=DataConfig(name="folder", min_count=3),
    encoder={"name": "mobilenet_v2"},
    search={"no_repeat_ngram": 3},  # "a plate of a plate of food": experiments/photos.csv
    # No score of a handful of dev images finds a better epoch: experiments/fine_tuning.sh.
    fit={"epochs": 20, "monitor": "last"},
)

NEW_WORDS = ("--optimizer.learning-rate", "8e-4", "--fit.epochs", "20")
"""Flags that fine-tune a captioner best if it knows few of the words: those of another language."""

# Fine-tunes the pretrained captioner over its encoder: experiments/fine_tuning.sh.
_FOLDER_FROM_FLICKR8K = replaced(
    _FOLDER,
    recipe="folder_from_flickr8k",
    init_from="flickr8k_soft",
    keep_words=True,
    encoder={
        "name": "resnet50+mobilenet_v2",
        "layer": "conv5_block3_out+out_relu",
        "image_size": 288,
    },
    optimizer={"learning_rate": 2e-4},
    fit={"epochs": 6},
)


# Less dropout for hard attention: its samples are noise already.
_FLICKR8K_VGG19_HARD = replaced(
    _FLICKR8K_VGG19, decoder={"annotation_dropout": 0.0, "embedding_dropout": 0.3}
)


# From new weights, over ResNet50 beside MobileNetV2, hard attention had closed its gate after two
# epochs (experiments/TRIALS.md, "Hard attention").
def _from_soft(base: RunConfig, data: str, epochs: int) -> RunConfig:
    """Returns the run of hard attention that starts from the finished run of soft attention."""
    return replaced(
        base,
        init_from=f"runs/{data}_soft",
        decoder={"embedding_dropout": 0.3},
        attention={"expectation_probability": 0.8},
        optimizer={"learning_rate": 2e-4, "warmup_epochs": 0.1},
        fit={"epochs": epochs},
    )


def _with_attention(base: RunConfig, data: str, kind: str) -> RunConfig:
    return replaced(base, recipe=f"{data}_{kind}", attention={"kind": kind})


RECIPES: dict[str, RunConfig] = {
    config.recipe: config
    for config in (
        _with_attention(_SCENES, "scenes", "soft"),
        _with_attention(_SCENES_HARD, "scenes", "hard"),
        _with_attention(_SCENES, "scenes", "none"),
        _with_attention(_FLICKR8K, "flickr8k", "soft"),
        _with_attention(_from_soft(_FLICKR8K, "flickr8k", epochs=1), "flickr8k", "hard"),
        _with_attention(_FLICKR8K, "flickr8k", "none"),
        _with_attention(_FLICKR8K_VGG19, "flickr8k_vgg19", "soft"),
        _with_attention(_FLICKR8K_VGG19_HARD, "flickr8k_vgg19", "hard"),
        _with_attention(_FLICKR8K_VGG19, "flickr8k_vgg19", "none"),
        *(_with_attention(_FLICKR30K, "flickr30k", kind) for kind in ("soft", "hard")),
        *(_with_attention(_PAPER, "coco", kind) for kind in ("soft", "hard")),
        _with_attention(_FOLDER, "folder", "soft"),
        _with_attention(_from_soft(_FOLDER, "folder", epochs=3), "folder", "hard"),
        _FOLDER_FROM_FLICKR8K,
    )
}
