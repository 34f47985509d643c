"""Two threads for the small products of these tests take three times the work of one."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
