"""`python -m mmdb.cli`."""

import sys

from mmdb.cli import main

sys.exit(main())
