"""python -m headrace.compat script.py"""

import sys

from headrace.compat.script import main

if __name__ == "__main__":
    sys.exit(main())
