"""A host as the controller knows it: its capacity and what of it is free, its lease, its health;
which hosts are spares, and how near to each other a gang's are."""
