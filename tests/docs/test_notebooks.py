"""The notebooks: stored without output, and executed from end to end on little data."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
# Values in place of those of the cell tagged `parameters`, so that every cell runs in little time.
PARAMETERS = {
    "attention_in_ten_minutes": "",
    "stochastic_gradients": "",
    "your_own_photographs": "IMAGES, EPOCHS = 48, 1",
}
SECONDS = 600  # most for one cell, on a busy machine


def read_notebook(name: str) -> nbformat.NotebookNode:
    """Reads a notebook of docs/notebooks."""
    return nbformat.read(ROOT / "docs" / "notebooks" / f"{name}.ipynb", as_version=4)


def test_every_notebook_is_executed():
    found = {path.stem for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert found == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_notebooks_are_valid_and_have_no_output(name):
    notebook = read_notebook(name)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_notebooks_run(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read_notebook(name)
    if PARAMETERS[name]:
        (place,) = [
            number
            for number, cell in enumerate(notebook.cells)
            if "parameters" in cell.metadata.get("tags", ())
        ]
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(PARAMETERS[name]))
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources)
    client.execute()  # raises the error of a cell
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    # TensorFlow writes these two while it is imported, before anything can silence it.
    said = re.sub(r"WARNING: All log messages before absl.*|.*cudart_stub.*", "", said)
    assert not re.search("WARNING|retracing|oneDNN", said)
