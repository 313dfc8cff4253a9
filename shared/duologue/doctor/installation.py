"""What can be seen without a network: Python, packages, nats-server, models, memory."""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from duologue.bus.server import INSTALL, ServerError, find_binary, version_of
from duologue.doctor.check import Check, State
from duologue.models import STAGES, BadOption, UnknownModel, manifest, split_options

DISTRIBUTION = "duologue"
OLDEST_PYTHON = (3, 11)
GIB = 1 << 30

Version = tuple[int, ...]


def python(version: tuple[int, int] = sys.version_info[:2]) -> Check:
    says = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if version < OLDEST_PYTHON:
        return Check("python", State.FAIL, says, "install Python 3.11 or newer")
    return Check("python", State.OK, says)


def packages(
    requirements: Callable[[str], Iterable[str] | None] = importlib.metadata.requires,
    installed: Callable[[str], str] = importlib.metadata.version,
) -> Check:
    """Whether what the distribution needs is there, and new enough."""
    reinstall = f"pip install --upgrade {DISTRIBUTION}"
    try:
        needed = [text for text in requirements(DISTRIBUTION) or () if "extra ==" not in text]
        ours = installed(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return Check("packages", State.WARN, f"{DISTRIBUTION} runs, but is not installed", "pip install -e .")
    wrong = []
    for text in needed:
        requirement = text.partition(";")[0]
        name = re.match(r"[\w.-]+", requirement)
        assert name is not None
        try:
            found = installed(name[0])
        except importlib.metadata.PackageNotFoundError:
            if ";" not in text:  # those with a condition are not needed everywhere
                wrong.append(f"{name[0]} is missing")
            continue
        if not _fits(found, requirement):
            wrong.append(f"{name[0]} {found} does not fit {requirement.strip()}")
    if wrong:
        return Check("packages", State.FAIL, "; ".join(wrong), reinstall)
    return Check("packages", State.OK, f"duologue {ours}, and the {len(needed)} packages that it needs")


def missing_for(
    model: str,
    requirements: Callable[[str], Iterable[str] | None] = importlib.metadata.requires,
    installed: Callable[[str], str] = importlib.metadata.version,
) -> list[str]:
    """The packages that are not here, of those that a model needs: of the extra with its name, where there is one."""
    try:
        texts = requirements(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    missing = []
    for text in texts:
        requirement, _, condition = text.partition(";")
        name = re.match(r"[\w.-]+", requirement)
        if name is None or not re.fullmatch(rf"""\s*extra\s*==\s*['"]{re.escape(model)}['"]\s*""", condition):
            continue
        try:
            installed(name[0])
        except importlib.metadata.PackageNotFoundError:
            missing.append(name[0])
    return missing


def _fits(found: str, requirement: str) -> bool:
    """Of the operators, >= and < are those that our requirements have."""
    here = _numbers(found)
    bounds: list[tuple[str, str]] = re.findall(r"(>=|<)\s*([\d.]+)", requirement)
    return all((here >= _numbers(bound)) == (sign == ">=") for sign, bound in bounds)


def _numbers(version: str) -> Version:
    leading = re.match(r"[\d.]*", version)
    return tuple(int(part) for part in leading[0].split(".") if part) if leading else ()


def nats_binary() -> Check:
    try:
        binary = find_binary()
    except ServerError as error:
        says = str(error).removesuffix(f": {INSTALL}")
        return Check("nats-server", State.WARN, says, f"only `duologue up` needs one: {INSTALL}")
    return Check("nats-server", State.OK, f"{version_of(binary)}, {binary}")


def halves(models: Sequence[str]) -> Check:
    """Whether each stage's half of each model can be imported; nothing is loaded."""
    wrong = []
    for model in models:
        try:
            found = manifest(model)
        except UnknownModel as error:
            return Check("models", State.FAIL, str(error), "choose one of those with --model")
        for stage in STAGES:
            try:
                import_module(found.half(stage)).load  # noqa: B018  (is it there?)
            except Exception as error:  # whatever a broken installation raises
                wrong.append(f"{stage} of {model}: {error}")
    if wrong:
        return Check("models", State.FAIL, "; ".join(wrong), "pip install 'duologue[worker]'")
    lacking = {model: missing for model in models if (missing := missing_for(model))}
    if lacking:
        says = "; ".join(f"{model} needs {', '.join(missing)}" for model, missing in lacking.items())
        return Check("models", State.WARN, says, f"pip install 'duologue[{','.join(lacking)}]'")
    return Check("models", State.OK, f"{', '.join(models)}: all stages can be imported")


def memory(
    models: Sequence[str], options: Mapping[str, Any], places: int, free_bytes: int | None
) -> list[Check]:
    """What a worker with that many places would take, where the model says what a session takes."""
    if free_bytes is None:
        return [Check("memory", State.OK, "how much is free can't be told on this system")]
    free = f"{free_bytes / GIB:.1f} GiB free"
    checks = []
    for model in models:
        try:
            found = manifest(model)
            for_workers, _ = split_options(found, options)
            needs = found.worker_options(for_workers)
        except (UnknownModel, BadOption) as error:
            checks.append(Check("memory", State.FAIL, str(error), "see --model and --option"))
            continue
        if not needs.get("session_bytes"):
            checks.append(Check("memory", State.OK, f"{free}; {model} does not say what a session takes"))
            continue
        wanted = int(needs.get("fixed_bytes", 0)) + places * int(needs["session_bytes"])
        says = f"{free}; a worker of {model} with {places} places takes {wanted / GIB:.1f} GiB"
        if wanted > free_bytes:
            fewer = "fewer --places (or --memory-bytes), or a machine with more memory"
            checks.append(Check("memory", State.WARN, says, fewer))
        else:
            checks.append(Check("memory", State.OK, says))
    return checks
