"""``python -m sot cache``: what is kept on disk between processes."""
from __future__ import annotations

import time

import typer
from rich.console import Console
from rich.table import Table

from sot.backends.triton import cache

app = typer.Typer(help="The modules that graphs were compiled to, kept between processes.", no_args_is_help=True)


def modules(number: int) -> str:
    return f"{number} module{'' if number == 1 else 's'}"


@app.command("ls")
def list_entries() -> None:
    """List the modules, the most recently used first, and where they are."""
    console = Console()
    table = Table("module", "what", "bytes", "last used", box=None)
    found = list(cache.entries())
    for entry in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        table.add_row(entry.key, entry.title, str(entry.size), used)
    console.print(table)
    console.print(f"{modules(len(found))}, {sum(e.size for e in found):,} bytes, in {cache.folder()}", soft_wrap=True)


@app.command()
def clear() -> None:
    """Remove all of them."""
    Console().print(f"{modules(cache.clear())} removed")
