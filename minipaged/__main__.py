"""``python -m minipaged`` is ``minipaged``."""

from minipaged.cli import main

if __name__ == "__main__":
    main()
