"""Commands about hosts: listing, admission, drain and maintenance."""
