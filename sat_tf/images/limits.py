"""Largest images that are read, and the most scans of a JPEG. Imports no TensorFlow."""

MAX_SIDE = 2**15
"""Pixels; a longer strip would cost gigabytes while it is scaled."""
MAX_PIXELS = 2**26
"""Pixels of the whole image, 8192 x 8192.

Decoded they take 201 MB; a progressive JPEG of four channels takes 703 MB meanwhile.
"""

MAX_SCANS = 64
"""Scans of a JPEG; encoders write up to about twelve."""
FEW_SCANS = 16
"""Scans that are allowed for every size."""
MAX_SCANNED_PIXELS = FEW_SCANS * MAX_PIXELS
"""Pixels times scans."""
MAX_SEGMENTS = 2**10
"""Segments followed to count the scans of a JPEG that seems to have many."""
MANY_SCANS = f"the JPEG has more than {MAX_SCANS} scans, or too many for its size"
"""Error about a JPEG beyond these limits."""
