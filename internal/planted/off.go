//go:build !planted

package planted

// Every reports false: no fault is planted, and the compiler removes the branches that depend on it.
func Every(string, int64) bool { return false }
