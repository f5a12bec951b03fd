import sys

from tests.chaos.log.main import main

sys.exit(main())
