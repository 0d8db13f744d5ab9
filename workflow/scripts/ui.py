"""ui.py PORT: serve MLflow over results/mlflow.db; print and open the page that compares methods."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from pathlib import Path

from disk.tracking.view import first_page

port, results = sys.argv[1], Path("results").absolute()
address, store = f"http://127.0.0.1:{port}/", f"sqlite:///{results}/mlflow.db"
if not (results / "mlflow.db").exists():
    sys.exit("results/mlflow.db is not there yet: run make quickstart first")
if not port.isdecimal() or not 0 < int(port) < 65536:
    sys.exit(f"PORT: {port}: expected a number from 1 to 65535, as in make ui PORT=5001")
with socket.socket() as free:
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: a port that was just left is free
    try:
        free.bind(("127.0.0.1", int(port)))
    except OSError as error:
        sys.exit(f"port {port} cannot be used ({error.strerror}); try another: make ui PORT={int(port) % 65535 + 1}")
page = address + first_page(store)
words = ["--host", "127.0.0.1", "--port", port, "--workers", "1", "--backend-store-uri", store]
words += ["--artifacts-destination", f"{results}/mlartifacts"]
# The server's messages would scroll the address away. They are in a file, which is shown if the server ends by itself.
words += ["--uvicorn-opts", "--log-level warning"]
quiet = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
log = Path("logs/mlflow.log")
log.parent.mkdir(exist_ok=True)
print(f"MLflow is starting. Its messages: {log}", flush=True)
with log.open("w") as messages:
    server = subprocess.Popen(  # noqa: S603  our own interpreter
        [sys.executable, "-m", "mlflow", "server", *words], env=quiet, stdout=messages, stderr=subprocess.STDOUT
    )
try:
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"{address}health", timeout=10).close()  # noqa: S310  our own server
            print(f"\nMLflow, DISk beside other methods: {page}")
            print("On a first visit MLflow opens its Assistant beside the charts: close it with ×.")
            print("Ctrl-C stops MLflow.", flush=True)
            if sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
                webbrowser.open(page)
            break
        except OSError:
            time.sleep(0.5)
    code = server.wait()
    sys.exit(f"MLflow ended with code {code}. Its last messages:\n{log.read_text()[-2000:]}" if code else 0)
except KeyboardInterrupt:
    server.wait()
finally:
    server.terminate()
