"""ui.py PORT: serve MLflow over results/mlflow.db; print and open the page that compares methods."""

import os
import subprocess
import sys
import time
import urllib.request
import webbrowser
from pathlib import Path

from disk.tracking.view import first_page

results, address = Path("results").absolute(), f"http://127.0.0.1:{sys.argv[1]}/"
store = f"sqlite:///{results}/mlflow.db"
if not (results / "mlflow.db").exists():
    sys.exit("results/mlflow.db is not there yet: run make quickstart first")
page = address + first_page(store)
words = ["--host", "127.0.0.1", "--port", sys.argv[1], "--workers", "1", "--backend-store-uri", store]
words += ["--artifacts-destination", f"{results}/mlartifacts"]
quiet = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
server = subprocess.Popen([sys.executable, "-m", "mlflow", "server", *words], env=quiet)  # noqa: S603  our own interpreter
try:
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{address}health", timeout=10).close()  # noqa: S310  our own server
            print(f"\nMLflow, DISk beside other methods: {page}\n", flush=True)
            if sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
                webbrowser.open(page)
            break
        except OSError:
            time.sleep(0.5)
    sys.exit(server.wait())
except KeyboardInterrupt:
    server.wait()
finally:
    server.terminate()
