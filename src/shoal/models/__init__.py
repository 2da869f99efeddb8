"""Model providers behind one port; the only room that names one."""
