"""``sot cache``: the files that are kept between processes."""
from __future__ import annotations

import time
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from sot.support.collector import import_large

app = typer.Typer(help="Compiled graphs, kept between processes.", no_args_is_help=True)


def cache() -> Any:
    return import_large("sot.backends.triton.cache")


def files(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"


@app.command("ls")
def list_entries() -> None:
    """List modules, binaries and tuning results, the most recently used first, and their folder."""
    console = Console()
    table = Table("key", "kind", "what", "bytes", "last used", box=None)
    found = list(cache().entries())
    for entry in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        table.add_row(entry.key, entry.kind, entry.title, str(entry.size), used)
    console.print(table)
    console.print(f"{files(len(found))}, {sum(e.size for e in found):,} bytes, in {cache().folder()}", soft_wrap=True)


@app.command()
def clear() -> None:
    """Remove all cached files."""
    Console().print(f"{files(cache().clear())} removed")
