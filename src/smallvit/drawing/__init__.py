"""Numbers and pixels to what a page holds: SVG text and data URIs. Knows nothing of runs."""
