"""`duologue bench NAME|all`: the benchmarks of a checkout."""

import importlib.util
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import typer
from rich.console import Console
from rich.table import Table

import duologue
from duologue.bench import Figures, report
from duologue.cli.failure import Failure
from duologue.settings import Settings

ROUNDS = 5


def bench(settings: Settings) -> int:
    """Run benchmarks (from a checkout)."""
    name, rounds = settings.bench, settings.rounds or ROUNDS
    assert name is not None
    there = find(Path(duologue.__file__).parents[2])
    if name != "all" and name not in there:
        raise Failure(f"no benchmark {name!r}; there is {', '.join(there)}, or all")
    for each in there if name == "all" else [name]:
        if sys.stderr.isatty():
            many = "1 round" if rounds == 1 else f"{rounds} rounds"
            typer.echo(f"{each}: {many} (--rounds), for minutes ...", err=True)
        figures = _load(there[each], rounds)
        said = report(each, figures, rounds, datetime.now(UTC))
        if settings.as_json:
            typer.echo(orjson.dumps(said))
        else:
            Console().print(_table(each, figures, said["machine"], rounds))
    return 0


def find(root: Path) -> dict[str, Path]:
    """The benchmarks of the checkout at `root` by name.  Raises `Failure` where there is no checkout."""
    folder = root / "benchmarks"
    if not (root / "pyproject.toml").is_file() or not folder.is_dir():
        raise Failure("benchmarks run from a checkout, where `duologue` is installed with `pip install -e`")
    return {path.stem: path for path in sorted(folder.glob("[!_]*.py"))}


def _load(path: Path, rounds: int) -> Figures:
    spec = importlib.util.spec_from_file_location(f"benchmarks.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    figures: Figures = module.run(rounds)
    return figures


def _table(name: str, figures: Figures, machine: str, rounds: int) -> Table:
    table = Table(title=name, caption=f"{machine}, {rounds} rounds")
    for column in ("figure", "median", "min", "max", "target", "unit"):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    for key, figure in figures.items():
        target = "" if figure.target is None else f"{figure.target:.4g}"
        table.add_row(
            key, f"{figure.median:.4g}", f"{figure.min:.4g}", f"{figure.max:.4g}", target, figure.unit
        )
    return table
