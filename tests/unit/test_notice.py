"""`NOTICE` names what the pocket model loads, with the licence that each installed package itself states."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
NOTICE = (ROOT / "NOTICE").read_text()


def brought() -> list[str]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = (re.match(r"[\w-]+", requirement) for requirement in extras["pocket"])
    return [found[0] for found in names if found is not None and found[0] != "duologue"]


@pytest.mark.parametrize("name", brought())
def test_each_package_is_named_with_its_licence(name: str) -> None:
    told = re.search(rf"^{re.escape(name)}\b[^\n]*\n((?:  [^\n]*\n)+)", NOTICE, re.MULTILINE)
    assert told is not None
    metadata = distribution(name).metadata
    stated = str(metadata["License-Expression"] or metadata["License"])
    assert stated.removesuffix(" License") in told[1]
