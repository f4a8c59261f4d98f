"""The examples of the package's page run against the server and print what the page says."""

import doctest
import importlib
import importlib.util
import re

import pytest
from conftest import PACKAGE

ADDRESS = "127.0.0.1:50051"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall((PACKAGE / "README.md").read_text())


def test_there_are_examples():
    assert len(BLOCKS) >= 3 and all(ADDRESS in block for block in BLOCKS)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(server, number):
    text = BLOCKS[number].replace(ADDRESS, server.tcp)
    if "torch" in text and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if "torch.nn.RMSNorm" in text and not hasattr(importlib.import_module("torch.nn"), "RMSNorm"):
        pytest.skip("this torch has no torch.nn.RMSNorm")
    example = doctest.DocTestParser().get_doctest(text, {}, f"example {number}", "README.md", 0)
    assert example.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)
