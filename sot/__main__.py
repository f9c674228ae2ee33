"""``python -m sot``, and the command ``sot``."""
from sot.frontend.command_line.commands import app


def main() -> None:
    app(prog_name="sot")


if __name__ == "__main__":
    main()
