"""A host as the controller knows it: capacity, lease, health; which are spares, and how near a gang's are."""
