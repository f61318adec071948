"""Commands about hosts: listing, admission, drain, maintenance and reservations."""
