"""`python -m sparkport`."""

import sys

from sparkport.cli import main

sys.exit(main())
