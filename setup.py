"""Packaging; dependencies are in `requirements.txt`."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
GPU_TENSORFLOW = "tensorflow[and-cuda]"
LIGHT = ("ai-edge-litert", "numpy", "pillow", "tyro", "tqdm")
"""Packages that captions need; training and serving run from a checkout."""


def read_requirements(name: str) -> list[str]:
    """Returns the requirements of a file, without comments and `-r` lines."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    bare = (line.split("#", 1)[0].strip() for line in lines)
    return [line for line in bare if line and not line.startswith("-")]


ALL = read_requirements("requirements.txt")


def only(*names: str) -> list[str]:
    """Returns the requirements of these packages, as `requirements.txt` has them."""
    return [line for line in ALL if re.match(r"[\w-]+", line)[0] in names]


def read_text(name: str) -> str:
    """Returns the text of a file of the repository, empty if it is missing."""
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


setup(
    name="sat-tf",
    version=re.search(r'^__version__ = "(.+)"', read_text("sat_tf/__init__.py"), re.M)[1],
    description="Show, Attend and Tell in TensorFlow 2 and Keras 3: captions that show where they "
    "looked, with soft and hard attention",
    long_description=read_text("README.md"),
    long_description_content_type="text/markdown",
    author="The sat_tf authors",
    license="MIT",
    keywords="image-captioning visual-attention tensorflow keras reinforce",
    python_requires=">=3.11,<3.14",
    # `pip install -e .` then adds the checkout to the path, which wins over a namespace package:
    # `import sat_tf` works in the folder above the clone, and training and serving are found.
    package_dir={"": "."},
    packages=find_packages(include=["sat_tf", "sat_tf.*"]),
    package_data={
        "sat_tf.inference.viewer": ["*.css", "*.js"],
        "sat_tf": ["captioners/*.*", "captioners/*/*"],
    },
    entry_points={"console_scripts": ["sat-tf = sat_tf.__main__:run"]},
    install_requires=only(*LIGHT),
    extras_require={
        "bulk": ["pyspark>=4.0,<5", "pyarrow>=18"],
        "client": [*only("grpcio"), "protobuf"],
        "docs": read_requirements("requirements-docs.txt"),
        "encoders": ["keras-hub>=0.32,<1"],
        "gpu": [GPU_TENSORFLOW],
        "heic": ["pillow-heif>=0.20,<2"],
        "hub": ["huggingface_hub>=1,<3"],
        "lite": [],  # as without an extra
        "meteor": only("pycocoevalcap", "snowballstemmer"),
        "scores": [*only("snowballstemmer"), "sacrebleu>=2.4,<3"],
        "train": ALL,
        "web": read_requirements("requirements-web.txt"),
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
