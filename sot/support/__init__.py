"""What every stage uses: errors, limits, registries, the capture lock. It knows nothing of torch's private parts."""
