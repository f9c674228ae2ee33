"""Pages of reports on real models, in a real browser: their size, the time to open them, and whether they can be used.

    python benchmarks/reports/pages.py                   a model of each of 60 families, in eval and train mode
    python benchmarks/reports/pages.py --models 5 --package timm

A page is at most 500 KB and opens in less than a second. At 400 pixels it does not scroll sideways, in light and dark
its texts have enough contrast, its links lead somewhere, it works with the keyboard, and its scripts raise nothing.
"""
from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests" / "reports")]

from common import Row, markdown

import sot
from sot.frontend.global_mode import enable_all
from sot.reports.build import report_of
from sot.reports.model import load
from sot.reports.recording import Recording, recorded

MODES, STEPS, OPENINGS = ("eval", "train"), 3, 3
KILOBYTES, SECONDS, WIDTH = 500, 1.0, 400
KEYS = {"tab": "\ue004", "escape": "\ue00c", "enter": "\ue007"}


# ---- pages, each in a process of its own ------------------------------------------------------------------
def make(zoo: Path, case: str, mode: str, path: Path) -> None:
    """Run a few steps of a model under a recording, and write the report."""
    sys.path.insert(0, str(zoo))
    zoo_ = __import__("zoo")
    __import__("tvshim")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    package, name = case.split("/", 1)
    model, args, kwargs = zoo_.package(package).build(name)
    if isinstance(model, torch.nn.Module):
        model.train(mode == "train")
    recording = Recording(f"{case} ({mode})")
    with enable_all(backend="eager", exclude=["zoo"]), recorded(recording):
        for _ in range(STEPS):
            step(zoo_, model, args, kwargs, mode)
    report_of(recording).save(path)


def step(zoo: Any, model: Any, args: Any, kwargs: Any, mode: str) -> None:
    with torch.set_grad_enabled(mode == "train"):
        out = model(*args, **kwargs)
    losses = [t.float().mean() for t in zoo.flatten(out)
              if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()]
    if mode == "train" and losses:
        sum(losses).backward()      # type: ignore[union-attr]


def made(zoo: Path, cases: list[str], folder: Path) -> Iterator[tuple[str, str, Path]]:
    """The pages. Reports are kept as JSON, so that a further run only renders their pages."""
    for case in cases:
        for mode in MODES:
            kept = folder / f"{case.replace('/', '-')}-{mode}.json"
            if not kept.exists():
                command = [sys.executable, __file__, "--zoo", str(zoo), "--make", case, mode, str(kept)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                if done.returncode:
                    print(f"{case} ({mode}): {done.stderr.strip().splitlines()[-1:]}", flush=True)
                    continue
            load(kept).save(page := kept.with_suffix(".html"))
            yield case, mode, page


def sample(zoo: Path, models: int, package: str) -> list[str]:
    """Models of different families, as their names tell, spread over the packages of the zoo."""
    families: dict[str, str] = {}
    for case in (zoo / "cases.txt").read_text().split():
        families.setdefault(case.replace("-", "_").split("_")[0].rstrip("0123456789"), case)
    found = [case for case in families.values() if package in case]
    return [found[i * len(found) // models] for i in range(models)] if models < len(found) else found


# ---- the browser -----------------------------------------------------------------------------------------
def measured(driver: Any, chromium: Any, path: Path) -> Row:
    """The figures of a page. Of the times to open it the least counts, because other load only adds."""
    chromium.as_usual(driver)
    seconds = min(chromium.opened(driver, path.as_uri()) for _ in range(OPENINGS))
    keyboard = keys_work(driver)
    chromium.unfold(driver)
    wide = chromium.as_wide_as(driver, WIDTH)
    faint = []
    for scheme in ("light", "dark"):
        chromium.in_scheme(driver, scheme)
        faint += chromium.faint_texts(driver)
    return {"KB": path.stat().st_size / 1000, "seconds": seconds, "width": wide, "faint": len(faint),
            "dead links": len(chromium.missing_targets(driver)), "keyboard": keyboard,
            "errors": len(chromium.errors(driver))}


def keys_work(driver: Any) -> bool:
    """Whether Tab moves through the page, "/" leads to the filter, Escape leaves it and Enter sorts a table."""
    def has_focus() -> Any:
        return driver.switch_to.active_element

    body = driver.find_element("css selector", "body")
    visited = set()
    for _ in range(5):
        has_focus().send_keys(KEYS["tab"])
        visited.add(has_focus().id)
    body.send_keys("/")
    in_filter = has_focus().get_attribute("id") == "filter"
    has_focus().send_keys("x" + KEYS["escape"])
    left = has_focus().get_attribute("id") != "filter"
    button = driver.find_element("css selector", "#by-function th button")
    button.send_keys(KEYS["enter"])
    is_sorted = driver.find_element("css selector", "#by-function th").get_attribute("aria-sort") == "ascending"
    return len(visited) == 5 and in_filter and left and is_sorted


def problems(row: Row) -> list[str]:
    limits = (("KB", KILOBYTES), ("seconds", SECONDS), ("width", WIDTH), ("faint", 0), ("dead links", 0), ("errors", 0))
    found = [f"{name} {row[name]:.4g}" for name, limit in limits if row[name] > limit]
    return found if row["keyboard"] else [*found, "keyboard"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, default=ROOT.parent / "shared" / "zoo", help="folder of zoo.py")
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--package", default="", help="only models whose name contains this")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "pages", help="of finished reports")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results")
    parser.add_argument("--make", nargs=3, metavar=("CASE", "MODE", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return make(options.zoo.resolve(), options.make[0], options.make[1], Path(options.make[2]))
    chromium = __import__("chromium")
    options.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as profile:
        driver = chromium.launch(Path(profile))
        try:
            for case, mode, path in made(options.zoo.resolve(), sample(options.zoo, options.models, options.package),
                                         options.folder.resolve()):
                rows.append({"model": case, "mode": mode, **measured(driver, chromium, path)})
                print(json.dumps(rows[-1]), problems(rows[-1]), flush=True)
        finally:
            driver.quit()
    write(rows, options.out)


def write(rows: list[Row], folder: Path) -> None:
    bad = [f"- {row['model']} ({row['mode']}): {', '.join(found)}" for row in rows if (found := problems(row))]
    date = datetime.date.today().isoformat()
    largest, slowest = max(row["KB"] for row in rows), max(row["seconds"] for row in rows)
    summary = (f"{len(rows)} pages of {len({row['model'] for row in rows})} models, {STEPS} steps each; sot "
               f"{sot.__version__}, torch {torch.__version__}. The largest has {largest:.0f} KB, the slowest opens in "
               f"{slowest:.2f} s. {len(bad)} miss a limit.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{date}-report-pages.md").write_text("\n\n".join(
        part for part in (f"# Pages of reports, {date}", summary, "\n".join(bad), markdown(rows)) if part) + "\n")
    print(summary)


if __name__ == "__main__":
    main()
