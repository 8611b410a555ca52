"""Packaging; dependencies are in `requirements.txt`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

ROOT = Path(__file__).resolve().parent
PACKAGES = ("sat_tf", "training", "serving", "digits")
GPU_TENSORFLOW = "tensorflow[and-cuda]"
LIGHT = ("ai-edge-litert", "numpy", "pillow", "tyro", "filelock", "tqdm")
"""Packages that captions without TensorFlow need."""


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


class OneName(build_py):
    """Puts all other packages below `sat_tf`, in `_commands`.

    Names like `training` and `serving` are not ours in somebody's environment. The command `sat-tf`
    finds them; an editable installation has them in the checkout.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        home = Path(self.build_lib, "sat_tf", "_commands")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        for package in {name.partition(".")[0] for name in self.packages} - {"sat_tf"}:
            Path(self.build_lib, package).rename(home / package)


class OneNameInMetadata(egg_info):
    """Lists that name alone."""

    def run(self) -> None:
        super().run()
        Path(self.egg_info, "top_level.txt").write_text("sat_tf\n", encoding="utf-8")


setup(
    cmdclass={"build_py": OneName, "egg_info": OneNameInMetadata},
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
    packages=find_packages(
        include=[
            "sat_tf",
            "sat_tf.*",
            "training",
            "training.*",
            "serving",
            "serving.*",
            "digits",
            "digits.*",
        ]
    ),
    package_data={
        "sat_tf.trained.viewer": ["*.css", "*.js"],
        "serving": ["compose.yaml", "config/*"],
        "serving.web": ["*.html", "*.css", "*.js", "samples/*"],
        "digits": ["shipped/*/*"],
        "digits.page": ["*.html", "*.css", "*.js"],
        "sat_tf": [
            "log4j2.properties",
            "captioners/*.npz",
            "captioners/*.tflite",
            "captioners/*.json",
            "captioners/*/*",
        ],
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
