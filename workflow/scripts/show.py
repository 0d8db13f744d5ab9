"""show.py DIRECTORY: print what the runs of an environment came to, and where to look next."""

import os
import sys
import textwrap
import webbrowser
from pathlib import Path

from disk.show.standings import GALLERY, PICTURE, standings

directory = Path(sys.argv[1])
table, best = standings(directory)
gallery = (directory / GALLERY).resolve()
print(f"\n{directory}: means over seeds, the best method first; ↑: more is better, ↓: less is better\n")
print(f"{table.to_string()}\n")
first = (
    "DISk's first skill hardly moves: it is paid for repeating itself only. Later skills are paid for being elsewhere."
)
print(*(textwrap.fill(text, 100) for text in (best, first)), sep="\n")
print(f"\nPicture   {directory / PICTURE}\nGallery   {gallery.as_uri()}")
python = "python" if os.environ.get("VIRTUAL_ENV") else ".venv/bin/python"  # make needs no activated environment
steps = {
    "make ui": "compare the methods in MLflow",
    f"{python} -m disk live pretrained/ant": "an ant that runs in your browser; break its legs",
    "make compare": "every method; half an hour",
}
width = max(map(len, steps)) + 3
print("Next      " + "\n          ".join(f"{command:<{width}}{text}" for command, text in steps.items()))
screen = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
if screen and sys.stdout.isatty() and gallery.exists():
    webbrowser.open(gallery.as_uri())
