"""The API: the Live edge, the pod, and the root of each session."""
