"""Locks and leases on files, honoured by other programs as well."""
