"""What an installation holds: captions without TensorFlow, and a path that wins over a folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def facts(tmp_path_factory) -> Path:
    """The metadata of an editable installation, made without installing anything."""
    folder = tmp_path_factory.mktemp("metadata")
    code = (
        "import sys; from setuptools import build_meta\n"
        "print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_captions_take_five_packages_and_no_tensorflow(facts):
    lines = re.findall(r"^Requires-Dist: (.+)$", (facts / "METADATA").read_text("utf-8"), re.M)
    always = {re.match(r"[\w-]+", line)[0] for line in lines if "extra ==" not in line}
    assert always == {"ai-edge-litert", "numpy", "pillow", "tqdm", "tyro"}
    train = [line for line in lines if 'extra == "train"' in line]
    assert any(line.startswith("tensorflow") for line in train)
    assert (facts / "top_level.txt").read_text().split() == ["sat_tf"]


@pytest.mark.slow
def test_an_editable_installation_wins_over_a_folder_of_the_clone_s_name(tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), "--editable", str(ROOT)], check=True)
    (path,) = target.glob("__editable__*.pth")
    assert path.read_text().strip() == str(ROOT)  # a path, not a finder
    above = tmp_path / "above"
    (above / "sat_tf" / "sat_tf").mkdir(parents=True)
    code = f"import site; site.addsitedir({str(target)!r}); import sat_tf; print(sat_tf.__file__)"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=above, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(ROOT / "sat_tf" / "__init__.py"), done.stderr
