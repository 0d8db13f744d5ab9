"""measure.py ROLLOUTS... METRICS"""

import sys
from pathlib import Path

from disk.storage.layout import measure

*rollouts, metrics = map(Path, sys.argv[1:])
measure(rollouts, metrics)
