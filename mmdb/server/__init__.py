"""What runs inside the database; PL/Python bodies import from here."""

import os
import sys

# Arrow's allocator would map 1 GB at its first array, of what a call may take (mmdb.memory): KiB.
os.environ.setdefault("MIMALLOC_ARENA_RESERVE", "65536")
if "plpy" in sys.modules:  # PostgreSQL's signal handlers could run in a thread of numpy or torch
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when they are loaded
