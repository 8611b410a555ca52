"""Shared by all tests: two logical CPU devices, fixed seeds, a temporary cache, real data."""

import gc
import os
from pathlib import Path

import pytest

from sat_tf.util.commands import loading
from tests.built_once import PARALLEL

# TensorFlow reads these when it is first imported.
os.environ["KERAS_BACKEND"] = "tensorflow"
if PARALLEL:
    # The processes share the cores: with a thread per core each, they wait for one another.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
if os.environ.get("SAT_TF_TEST_GPU") != "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

DATA_VARIABLE = "SAT_TF_TEST_DATA"


def pytest_configure(config: pytest.Config) -> None:
    """Loads TensorFlow wherever tests run, which the process that shares them out does not."""
    if PARALLEL or not config.getoption("numprocesses", None):
        _split_cpu(2)
        _keep_kernels()


def _split_cpu(count: int) -> None:
    """Splits the CPU into logical devices, for `MirroredStrategy`.

    TensorFlow allows this only before its first operation.
    """
    with loading():
        import keras  # noqa: F401
        import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )


def _keep_kernels() -> None:
    """Keeps TensorFlow's kernels and compiled graphs, which it drops at each new seed.

    Making them again for each test took a quarter of the time. Nothing is drawn by that seed: our
    operations and Keras' are stateless, from seeds that Python draws.
    """
    import tensorflow as tf

    tf.random.set_seed(0)
    tf.random.set_seed = lambda _: None


def pytest_collection_finish() -> None:
    """Spares the garbage collector the modules, and most of its rounds while graphs are traced."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slow tests last; in parallel their files first, so that none is left to one core."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    if PARALLEL:
        items.sort(key=lambda item: item.path not in slow)
    else:
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(autouse=True)
def _fixed_seeds():
    """Starts every test from the same random state and the default dtype policy."""
    import keras

    keras.utils.set_random_seed(0)
    yield
    if keras.config.dtype_policy().name != "float32":
        keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps features and exports out of the user's cache."""
    monkeypatch.setenv("SAT_TF_CACHE", str(tmp_path_factory.getbasetemp() / "sat_tf_cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real photographs and weights; without one the test is skipped."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        pytest.skip(f"needs real photographs: {DATA_VARIABLE} names no folder")
    path = Path(folder)
    if not (path / "data").is_dir():
        pytest.fail(f"{DATA_VARIABLE} is {folder!r}, which has no folder named data", pytrace=False)
    return path


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of other projects' models and examples; without one the test is skipped."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder or not Path(folder, "conformance").is_dir():
        pytest.skip(f"needs other projects' files: {DATA_VARIABLE} has no folder conformance")
    return Path(folder, "conformance")


@pytest.fixture
def meteor_cache(tmp_path_factory, monkeypatch):
    """METEOR with its tables, indexed once in a session's processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if PARALLEL else base) / "meteor"
    monkeypatch.setenv("SAT_TF_CACHE", str(folder))
