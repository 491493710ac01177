//go:build !full

package suite

// Full reports whether the full suite runs.
const Full = false
