"""What runs inside the database; PL/Python bodies import from here."""

import os

# Arrow's allocator would map 1 GB at its first array, of what a call may take (mmdb.memory): KiB.
os.environ.setdefault("MIMALLOC_ARENA_RESERVE", "65536")
