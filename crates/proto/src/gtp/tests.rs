//! What GTP's two ends do to each other.
