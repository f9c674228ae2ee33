"""``python -m sot``."""
from sot.cli import app

app(prog_name="python -m sot")
