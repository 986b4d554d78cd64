"""`python -m tacit`, where the `tacit` script is not on the path."""

from tacit.cli import run

if __name__ == "__main__":
    run()
