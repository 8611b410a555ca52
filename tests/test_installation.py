"""An installation: captions without TensorFlow, and a path that wins over a folder."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.image_files import noise

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
def test_a_wheel_captions_without_the_checkout_and_tensorflow(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "sat_tf", source / "sat_tf")
    for path in (ROOT / "setup.py", *ROOT.glob("requirements*.txt"), *ROOT.glob("*.toml")):
        shutil.copy(path, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    noise(64, 48).save(tmp_path / "photo.png")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "sys.modules |= dict.fromkeys(('tensorflow', 'keras', 'training', 'serving'))\n"
        "from sat_tf.__main__ import main; sys.exit(main(['caption', 'photo.png']))"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("photo.png: ")
    assert (tmp_path / "captions" / "photo.png").is_file()


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
