"""The Python API that ``holdfast.Client`` and ``holdfast.AsyncClient`` offer: jobs in, results out, no messages.

Above the command line in the layers, because it makes a job of keyword arguments as ``holdfast run`` makes one of
options, and finds jobs by the same names.
"""

import os

# gRPC's own words about a link that broke would stand beside ours, in a notebook under each cell.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
