"""Model providers behind one port; the only package that names providers."""
