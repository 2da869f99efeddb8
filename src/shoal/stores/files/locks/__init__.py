"""Locks and leases on files, honored by other programs as well."""
