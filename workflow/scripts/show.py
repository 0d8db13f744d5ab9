"""show.py DIRECTORY: print what the runs of an environment came to, and where to look next."""

import os
import sys
import webbrowser
from pathlib import Path

from disk.show.standings import GALLERY, PICTURE, standings

directory = Path(sys.argv[1])
table, best = standings(directory)
gallery = (directory / GALLERY).resolve()
print(f"\n{directory}: means over seeds, the best method first; ↑: more is better, ↓: less is better\n")
print(f"{table.to_string()}\n\n{best}")
print(
    "DISk's first skill hardly moves: it is paid for repeating itself only. Later skills are paid for being elsewhere."
)
print(f"\nPicture   {directory / PICTURE}\nGallery   {gallery.as_uri()}")
print("Next      make ui                              compare the methods in MLflow")
print("          python -m disk live pretrained/ant   an ant that runs in your browser; break its legs")
print("          make compare                         every method; half an hour")
screen = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
if screen and sys.stdout.isatty() and gallery.exists():
    webbrowser.open(gallery.as_uri())
