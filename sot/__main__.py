"""``python -m sot``."""
from sot.frontend.cli import app

app(prog_name="python -m sot")
