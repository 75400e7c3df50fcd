"""Runs of five architectures on two backends or devices, compared layer by layer."""
